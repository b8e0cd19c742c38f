"""Raft over the commit log: who leads an elected group, and up to where its log is confirmed.

A plain object. Every event (`step` a message, `tick`, `appended`, `synced`, `transfer`) returns a `Ready`: what to persist,
then what to send. It has no socket, no clock and no file; from the log it only reads, to fill its messages.

A position is (epoch, physical offset). The epoch table (raft_epochs.py) says which term wrote which range; its newest entry is
the mark that raft wants at the start of a term, so the log itself holds nothing but the broker's records.

How a term goes. A member that hears from no leader for a random time asks for pre-votes, which cost nobody anything; with a
majority of those it takes the next term, votes for itself, and asks for votes. The winner begins its epoch at its end and sends
its table to everyone (Probe). A follower finds the newest epoch that both know with the same start, cuts its log where the two
part, takes over the table up to there and says so (Ack). From then on, in this term, its log is a beginning of the leader's,
and bytes follow as they come (Append). The table of a leader does not change in its term, so a probe that comes late or twice
does no harm.

Invariants
- A vote, a term and a mark are durable before a message that depends on them leaves.
- A member acknowledges only what is durable, and a leader counts only acknowledgements made with its own term's mark in place:
  commit is the majority's offset within the current epoch.
- The commit never goes back, and nothing below it is cut off; a member that is asked to goes out instead and says so.
- A leader that has not heard from a majority for `election_ms` steps down; a member that heard from a leader within that time
  helps nobody else to be elected, unless the leader asked for it.
- A member in doubt (raft_vote.py) does not vote and does not stand. The doubt ends when it holds what its leader had after the
  doubt began: it sends a number of its own, and waits for the end that comes with the number's echo. Its leader has a term not
  below any in which it ever acknowledged something, and was elected without its vote, so that leader has whatever the group
  ever confirmed with its help.
- A member whose disk fails or whose log turns out to be damaged goes out: it says nothing more until it is opened anew.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from firearrow.ha.raft_epochs import MAX_EPOCH, EpochTable
from firearrow.ha.raft_log import LogDamagedError, RaftLog, Ready
from firearrow.ha.raft_messages import Ack, Append, Message, Probe, TakeOver, Verdict, Vote, VoteReply
from firearrow.ha.raft_progress import Progress
from firearrow.ha.raft_vote import HardState


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
    OUT = "out"


@dataclass(frozen=True, slots=True)
class Options:
    heartbeat_ms: int = 200
    election_ms: int = 1000  # a member waits this long to twice as long
    resend_ms: int = 1000  # bytes that are not acknowledged within it are sent again
    batch_bytes: int = 256 << 10  # of one Append
    window_bytes: int = 8 << 20  # on their way to one follower
    preferred_leader: str | None = None
    preferred_check_ms: int = 5000
    preferred_lag_bytes: int = 1 << 20  # the preferred leader is asked to take over when it lacks no more than this


class NotLeaderError(Exception):
    """Only the leader can do this; the text says who leads."""


class Raft:
    """One member. `fresh`: it has no files yet."""

    def __init__(
        self,
        me: str,
        members: Sequence[str],
        log: RaftLog,
        hard_state: HardState,
        epochs: EpochTable,
        *,
        options: Options,
        rng: random.Random,
        now_ms: int,
        fresh: bool = False,
    ) -> None:
        self.me = me
        self.peers = [member for member in members if member != me]
        self.majority = len(members) // 2 + 1
        self.options = options
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        self.doubtful = hard_state.doubtful
        self.epochs = epochs  # as on disk once the last Ready is carried out
        self.end = log.end_offset
        self.durable = log.end_offset  # what a log is opened with is made durable by the opening
        self.commit = log.min_offset
        self.cuts = 0  # how often the log was cut: a sync that began before a cut says nothing
        self.reason = ""  # why this member is out
        self.transfer_to: str | None = None
        self.term_start = 0  # of a leader: where its epoch begins
        self.progress: dict[str, Progress] = {}
        self._log = log
        self._rng = rng
        self._fresh = fresh
        self._now = now_ms
        self._votes: set[str] = set()
        self._leader_epochs: EpochTable | None = None  # of this term's leader, once we agreed with it
        self._leader_commit = 0
        self._heard_ms = -(10**9)  # from the leader
        self._doubt = self._new_doubt() if self.doubtful else 0
        self._doubt_ends_at: int | None = None
        self._transfer_until = 0
        self._preferred_check_ms = 0
        self._election_ms = 0
        self._ready = Ready()
        self._wait_for_election()

    # Events

    def step(self, sender: str, message: Message, now_ms: int) -> Ready:
        """A message arrived."""
        if self.role is Role.OUT:
            return Ready()
        self._now = now_ms
        if message.term > self.term:
            if not self._takes_newer_term(sender, message):
                return self._done()
        elif message.term < self.term:
            self._answer_older_term(sender, message)
            return self._done()
        match message:
            case Vote():
                self._on_vote(sender, message)
            case VoteReply():
                self._on_vote_reply(sender, message)
            case Probe():
                self._on_probe(sender, message)
            case Append():
                self._on_append(sender, message)
            case Ack():
                self._on_ack(sender, message)
            case TakeOver():
                if sender == self.leader and self.role is Role.FOLLOWER and not self.doubtful:
                    self._campaign(transfer=True)
        return self._done()

    def tick(self, now_ms: int) -> Ready:
        """Time passed. To be called several times a heartbeat."""
        self._now = max(self._now, now_ms)
        if self.role is Role.LEADER:
            self._tick_leader()
        elif self.role is not Role.OUT and self._now >= self._election_ms:
            self._wait_for_votes()
            if not self.doubtful:
                self._campaign_before()
        return self._done()

    def disconnected(self, peer: str, now_ms: int) -> Ready:
        """The connection from a member ended. Of the leader, that is a reason not to wait for long."""
        self._now = max(self._now, now_ms)
        if self.role is Role.FOLLOWER and peer == self.leader:
            self._heard_ms = -(10**9)
            soon = self.options.heartbeat_ms
            self._election_ms = min(self._election_ms, self._now + soon // 4 + self._rng.randrange(2 * soon))
        return self._done()

    def connected(self, peer: str, now_ms: int) -> Ready:
        """Messages reach a member from now on: it has not heard yet that we want to be elected."""
        self._now = max(self._now, now_ms)
        if self.role is Role.PRE_CANDIDATE:
            self._send(peer, Vote(self.term + 1, self.epochs.last, self.end, pre=True))
        elif self.role is Role.CANDIDATE:
            self._send(peer, Vote(self.term, self.epochs.last, self.end))
        return self._done()

    def appended(self, end: int, now_ms: int) -> Ready:
        """The leader's broker wrote records up to `end`."""
        self._must_lead()
        self._now = now_ms
        assert end >= self.end, f"the log ends at {self.end}, not yet at {end}: a leader only appends"
        self.end = end
        self._ready.sync = True
        for peer in self.peers:
            self._send_bytes(peer)
        return self._done()

    def synced(self, offset: int, cuts: int, now_ms: int) -> Ready:
        """A sync that began when the log ended at `offset` and had been cut `cuts` times is complete."""
        if self.role is Role.OUT or cuts != self.cuts or offset <= self.durable:
            return self._done()
        self._now = now_ms
        self.durable = min(offset, self.end)
        if self.role is Role.LEADER:
            self._advance_commit()
        elif self._leader_epochs is not None and self.leader is not None:
            self._learn_commit(self._leader_commit)
            self._end_doubt()
            self._ack(self.leader)
        return self._done()

    def transfer(self, to: str, now_ms: int) -> Ready:
        """Asks another member to take over once it has everything. Until then, or for `election_ms`, nothing is accepted."""
        self._must_lead()
        if to not in self.progress:
            raise ValueError(f"leadership cannot go to {to!r}: expected one of {', '.join(self.peers)}")
        self._now = now_ms
        self._begin_transfer(to)
        return self._done()

    def fail(self, reason: str) -> Ready:
        """The disk failed or the log is damaged: this member goes out."""
        self._go_out(reason)
        return self._done()

    # State

    @property
    def accepting(self) -> bool:
        """May the broker append? (What is appended before `confirmed_start` must wait for it like everything else.)"""
        return self.role is Role.LEADER and self.transfer_to is None

    @property
    def confirmed_start(self) -> bool:
        """The leader knows that everything it began with is confirmed: it may serve."""
        return self.role is Role.LEADER and self.commit >= self.term_start and self._counted(self.term_start)

    # Terms

    def _takes_newer_term(self, sender: str, message: Message) -> bool:
        """Goes to the message's term where that is right; False when the message is done with."""
        match message:
            case Vote() if not message.transfer and self._has_leader():
                return False  # a member that was cut off for a while does not unseat a leader that others hear
            case Vote(pre=True):
                return True
            case VoteReply(granted=True, pre=True):
                return self.role is Role.PRE_CANDIDATE
            case Probe() | Append():
                self._become_follower(message.term, sender)
            case _:
                self._become_follower(message.term, None)
        return True

    def _answer_older_term(self, sender: str, message: Message) -> None:
        match message:
            case Vote():
                self._send(sender, VoteReply(self.term, False, message.pre))
            case Probe() | Append():
                self._send(sender, Ack(self.term, 0, 0, 0, Verdict.STALE))
            case _:
                pass

    def _become_follower(self, term: int, leader: str | None) -> None:
        if term > self.term:
            self.term = term
            self.voted_for = None
            self._leader_epochs = None
            self._leader_commit = 0
            self._doubt_ends_at = None
            self._persist_vote()
        if self.role is Role.LEADER:
            self._note(f"{self.me} no longer leads; term {self.term}")
        self.role = Role.FOLLOWER
        self.leader = leader
        self.transfer_to = None
        self.progress = {}
        self._wait_for_election()

    def _has_leader(self) -> bool:
        return self.role is Role.LEADER or (self.leader is not None and self._now - self._heard_ms < self.options.election_ms)

    # Elections

    def _campaign_before(self) -> None:
        """Would they vote for me? The term stays as it is."""
        if self.term >= MAX_EPOCH:
            return
        self.role = Role.PRE_CANDIDATE
        self.leader = None
        self._votes = {self.me}
        if len(self._votes) >= self.majority:
            self._campaign()
            return
        for peer in self.peers:
            self._send(peer, Vote(self.term + 1, self.epochs.last, self.end, pre=True))

    def _campaign(self, *, transfer: bool = False) -> None:
        self.role = Role.CANDIDATE
        self.leader = None
        self.term += 1
        self.voted_for = self.me
        self._leader_epochs = None
        self._leader_commit = 0
        self._fresh = False
        self._persist_vote()
        self._wait_for_votes()
        self._votes = {self.me}
        if len(self._votes) >= self.majority:
            self._become_leader()
            return
        for peer in self.peers:
            self._send(peer, Vote(self.term, self.epochs.last, self.end, transfer=transfer))

    def _on_vote(self, sender: str, message: Vote) -> None:
        if self._fresh and message.last_epoch:
            self._begin_doubt("it has no files, and its group has a history")
        current = (message.last_epoch, message.end) >= (self.epochs.last, self.end)
        if message.pre:
            granted = current and not self.doubtful and not self._has_leader() and message.term > self.term
            self._send(sender, VoteReply(message.term if granted else self.term, granted, pre=True))
            return
        free = self.voted_for == sender or (self.voted_for is None and self.leader is None)
        granted = current and free and not self.doubtful
        if granted:
            self._fresh = False
            if self.voted_for is None:
                self.voted_for = sender
                self._persist_vote()
            self._wait_for_election()
        self._send(sender, VoteReply(self.term, granted))

    def _on_vote_reply(self, sender: str, message: VoteReply) -> None:
        wanted = (Role.PRE_CANDIDATE, self.term + 1) if message.pre else (Role.CANDIDATE, self.term)
        if not message.granted or (self.role, message.term) != wanted:
            return
        self._votes.add(sender)
        if len(self._votes) >= self.majority:
            if message.pre:
                self._campaign()
            else:
                self._become_leader()

    def _become_leader(self) -> None:
        assert not self.doubtful, "a member in doubt was elected"
        assert self.epochs.last < self.term, f"epoch {self.epochs.last} is in the table before term {self.term} has begun"
        self.role = Role.LEADER
        self.leader = self.me
        self.term_start = self.end
        self._set_epochs(self.epochs.begun(self.term, self.end, self._log.min_offset))
        self._ready.sync = True
        self._preferred_check_ms = self._now + self.options.preferred_check_ms
        self.progress = {peer: Progress(self._now) for peer in self.peers}
        self._note(f"{self.me} leads term {self.term} from offset {self.end}")
        for peer in self.peers:
            self._send_probe(peer)
        self._advance_commit()

    # Following

    def _on_probe(self, sender: str, message: Probe) -> None:
        if not self._follow(sender):
            return
        if self._leader_epochs is None:
            if self._fresh and message.end > 0:
                self._begin_doubt("it has no files, and its group has a history")
            self._fresh = False
            if not self._agree(message):
                return
            self._leader_epochs = message.epochs
        self._learn_commit(message.commit)
        self._ack(sender)

    def _agree(self, message: Probe) -> bool:
        """Makes the log a beginning of the leader's; False when that would cost something confirmed."""
        point = self.epochs.agreement(message.epochs, self.end)
        kept = point or 0
        if self.commit > max(kept, message.min_offset):
            self._go_out(
                f"the leader of term {self.term} ({self.leader}) shares this log only up to {kept}, and it is confirmed up to "
                f"{self.commit}: nothing was cut off. Compare the store directories of the group before you go on"
            )
            return False
        if kept < max(message.min_offset, self._log.min_offset):
            self._start_anew_at(message)
        elif kept < self.end:
            self._note(
                f"{self.me} cuts its log from {self.end} to {kept}: the leader of term {self.term} has something else there"
            )
            self._ready.truncate_to = kept
            self.end = kept
            self.durable = min(self.durable, kept)
            self.cuts += 1
        self._set_epochs(message.epochs.up_to(self.end))
        return True

    def _start_anew_at(self, message: Probe) -> None:
        """The leader no longer has what would follow our end: the log begins anew where the leader's begins."""
        start = message.min_offset
        self._note(f"{self.me} begins its log anew at {start}: it ended at {self.end} and the leader's begins at {start}")
        self._ready.reset_to = start
        self.epochs = EpochTable()
        self.end = self.durable = start
        self.commit = max(self.commit, start)
        self.cuts += 1

    def _on_append(self, sender: str, message: Append) -> None:
        if not self._follow(sender):
            return
        if self._leader_epochs is None:
            self._ack(sender, Verdict.PROBE)
            return
        if message.echo and message.echo == self._doubt and self._doubt_ends_at is None:
            self._doubt_ends_at = message.end
        if message.offset > self.end:
            self._ack(sender, Verdict.GAP)
            return
        data = message.data[self.end - message.offset :]
        if data:
            self._ready.writes.append((self.end, data))
            self._ready.sync = True
            self.end += len(data)
            self._set_epochs(self._leader_epochs.up_to(self.end))
        self._learn_commit(message.commit)
        self._end_doubt()
        if not data:
            self._ack(sender)

    def _follow(self, leader: str) -> bool:
        """The sender leads our term. Two leaders of one term would mean that a vote was given twice."""
        if self.role is Role.LEADER or self.leader not in (None, leader):
            self._go_out(
                f"{leader} and {self.leader} both lead term {self.term}: do two members have the same id or a copied directory?"
            )
            return False
        self.role = Role.FOLLOWER
        self.leader = leader
        self._heard_ms = self._now
        self._wait_for_election()
        return True

    def _learn_commit(self, commit: int) -> None:
        self._leader_commit = max(self._leader_commit, commit)
        self.commit = max(self.commit, min(self._leader_commit, self.durable))

    def _ack(self, leader: str, verdict: Verdict = Verdict.OK) -> None:
        self._send(leader, Ack(self.term, self.durable, self.end, self.epochs.last, verdict, self._doubt))

    # Doubt

    def _begin_doubt(self, why: str) -> None:
        if not self.doubtful:
            self.doubtful = True
            self._persist_vote()
            self._note(f"{self.me} does not vote until it has caught up: {why}")
        self._doubt = self._new_doubt()
        self._doubt_ends_at = None

    def _end_doubt(self) -> None:
        if self._doubt_ends_at is not None and self.durable >= self._doubt_ends_at and self.epochs.last == self.term:
            self.doubtful = False
            self._doubt = 0
            self._doubt_ends_at = None
            self._persist_vote()
            self._note(f"{self.me} has caught up at {self.durable} and votes again")

    def _new_doubt(self) -> int:
        return self._rng.getrandbits(62) + 1

    # Leading

    def _on_ack(self, sender: str, message: Ack) -> None:
        progress = self.progress.get(sender)
        if self.role is not Role.LEADER or progress is None or message.verdict is Verdict.STALE:
            return
        progress.last_heard_ms = self._now
        progress.doubt = message.doubt
        if message.verdict is Verdict.PROBE or message.end < self._log.min_offset:
            progress.begin_probing()
            self._send_probe(sender)
            return
        if progress.probing:
            progress.begin_streaming(message.end, self._now)
        elif message.verdict is Verdict.GAP:
            progress.close_gap(message.end, self._now, self.options.heartbeat_ms)
        if message.match > progress.acked:
            progress.acked = message.match
            progress.moved_ms = self._now
        progress.next = max(progress.next, progress.acked)
        if message.epoch == self.term and message.match > progress.match:
            progress.match = message.match
            self._advance_commit()
        self._send_bytes(sender)
        self._finish_transfer()

    def _advance_commit(self) -> None:
        """Commit only what the majority holds within the current epoch."""
        own = self.durable if self.durable >= self.term_start else -1
        offsets = sorted([own, *(progress.match for progress in self.progress.values())], reverse=True)
        held = offsets[self.majority - 1]
        if held >= self.term_start and held > self.commit:
            self.commit = held

    def _counted(self, offset: int) -> bool:
        holders = sum(progress.match >= offset for progress in self.progress.values())
        return holders + (self.durable >= offset) >= self.majority

    def _tick_leader(self) -> None:
        heard = sum(self._now - progress.last_heard_ms < self.options.election_ms for progress in self.progress.values())
        if heard + 1 < self.majority:
            self._note(f"{self.me} steps down from term {self.term}: it hears {heard} of {len(self.peers)} others")
            self._become_follower(self.term, None)
            return
        if self.transfer_to is not None and self._now >= self._transfer_until:
            self._note(f"{self.me} goes on leading: {self.transfer_to} did not take over in time")
            self.transfer_to = None
        self._prefer()
        for peer in self.peers:
            progress = self.progress[peer]
            if not progress.probing and progress.in_flight and self._now - progress.moved_ms >= self.options.resend_ms:
                progress.next = progress.acked
                progress.moved_ms = self._now
                self._send_bytes(peer)
            if self._now - progress.last_sent_ms >= self.options.heartbeat_ms:
                if progress.probing:
                    self._send_probe(peer)
                else:
                    self._send_bytes(peer, heartbeat=True)
            if self.role is not Role.LEADER:
                return

    def _prefer(self) -> None:
        preferred = self.progress.get(self.options.preferred_leader or "")
        if preferred is None or self._now < self._preferred_check_ms:
            return
        self._preferred_check_ms = self._now + self.options.preferred_check_ms
        lives = self._now - preferred.last_heard_ms < self.options.election_ms and not preferred.doubt
        near = preferred.match >= self.end - self.options.preferred_lag_bytes
        if lives and near and preferred.match >= 0 and self.transfer_to is None and self.options.preferred_leader is not None:
            self._begin_transfer(self.options.preferred_leader)

    def _begin_transfer(self, to: str) -> None:
        self._note(f"{self.me} hands term {self.term} over to {to}")
        self.transfer_to = to
        self._transfer_until = self._now + self.options.election_ms
        self._send_bytes(to)
        self._finish_transfer()

    def _finish_transfer(self) -> None:
        if self.transfer_to is not None and self.progress[self.transfer_to].match >= self.end:
            self._send(self.transfer_to, TakeOver(self.term))

    def _send_probe(self, peer: str) -> None:
        self.progress[peer].last_sent_ms = self._now
        self._send(peer, Probe(self.term, self._log.min_offset, self.end, self.commit, self.epochs))

    def _send_bytes(self, peer: str, *, heartbeat: bool = False) -> None:
        """Everything the peer lacks and its window allows; a heartbeat when there is nothing."""
        progress = self.progress[peer]
        if progress.probing:
            return
        while progress.next < self.end and progress.in_flight < self.options.window_bytes:
            if progress.next < self._log.min_offset:
                progress.begin_probing()
                self._send_probe(peer)
                return
            data = self._read(progress.next)
            if data is None:
                return
            if not progress.in_flight:
                progress.moved_ms = self._now
            self._send(peer, Append(self.term, progress.next, self.end, self.commit, progress.doubt, data))
            progress.next += len(data)
            progress.last_sent_ms = self._now
            heartbeat = False
        if heartbeat:
            self._send(peer, Append(self.term, progress.next, self.end, self.commit, progress.doubt))
            progress.last_sent_ms = self._now

    def _read(self, offset: int) -> bytes | None:
        try:
            return self._log.read(offset, min(self.options.batch_bytes, self.end - offset))
        except (LogDamagedError, OSError) as error:
            self._go_out(f"the log cannot be read at {offset}: {error}. Start this member again: it repairs from the others")
            return None

    def _go_out(self, reason: str) -> None:
        if self.role is not Role.OUT:
            self.role = Role.OUT
            self.leader = None
            self.reason = reason
            self._ready = Ready()
            self._note(f"{self.me} is out of its group: {reason}")

    # The bundle

    def _done(self) -> Ready:
        ready, self._ready = self._ready, Ready()
        return ready

    def _send(self, to: str, message: Message) -> None:
        if self.role is not Role.OUT:
            self._ready.messages.append((to, message))

    def _note(self, text: str) -> None:
        self._ready.notes.append(text)

    def _persist_vote(self) -> None:
        self._ready.hard_state = HardState(self.term, self.voted_for, self.doubtful)

    def _set_epochs(self, table: EpochTable) -> None:
        if table != self.epochs:
            self.epochs = table
            self._ready.epochs = table

    def _wait_for_election(self) -> None:
        base = self.options.election_ms
        self._election_ms = self._now + base + self._rng.randrange(base)

    def _wait_for_votes(self) -> None:
        """Less long: nobody is there who could be disturbed."""
        base = self.options.election_ms // 2
        self._election_ms = self._now + base + self._rng.randrange(base)

    def _must_lead(self) -> None:
        if self.role is not Role.LEADER:
            raise NotLeaderError(f"{self.me} does not lead its group; {self.leader or 'nobody it knows of'} does")
