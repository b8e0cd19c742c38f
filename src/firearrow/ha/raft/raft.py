"""Raft over the commit log: leader election and the committed offset of an elected group.

`Raft` is a plain object without socket, clock or file. Every event (`step` with a message, `tick`, `appended`, `synced`, ...)
returns a `Ready`: what to persist, then what to send. Of the log it only reads the bytes that it puts into messages.

A log position is (epoch, physical offset). The epoch table (epochs.py) records which term wrote which range of the log. Its
newest entry replaces the no-op entry with which a Raft leader begins its term, so the log holds nothing but the broker's
records.

Course of a term. A member that does not hear from a leader for a random time requests pre-votes, which change no state anywhere.
With a majority of these it starts the next term, votes for itself and requests votes. The winner starts its epoch at the end of
its log and sends its epoch table to every peer (Probe). A follower finds the newest epoch that both tables contain with the same
start, truncates its log where the two diverge, adopts the table up to there and replies (AppendResponse). For the rest of the
term its log is a prefix of the leader's, and the leader streams bytes to it (AppendEntries). A leader's table does not change
during its term, so late and repeated probes are harmless.

Identity. Every message carries the group id of its sender's log (hard_state.py). A new group is formed by its founder, the first
member in the order of the names: it needs the votes of all members, which give them only if they have no data either. So members
that lost their directories never form a second group while another member has data, not even together. A member without a group
votes for no candidate with data. It adopts the group of the first leader it hears from, or of the founder it votes for. With
`seed`, set by the operator, a candidate with or without data gets the votes of members without data, and a majority suffices.

Invariants
- A message of a group with another id changes nothing. A member that hears from a majority with another id halts: its directory
  belongs to another group.
- A term, a vote and an epoch are durable before a message that depends on them is sent.
- A member acknowledges only durable bytes. A leader counts only acknowledgements from members whose table contains its epoch:
  the committed offset is the offset that a majority holds within the current epoch.
- The committed offset never decreases, and committed bytes are never truncated. A member that is asked to do so halts instead.
- A leader that has not heard from a majority for `election_ms` steps down. A member that has heard from a leader within that time
  grants no vote, unless the leader itself requested the election.
- A quarantined member (hard_state.py) neither votes nor campaigns. The quarantine ends when the member holds what its leader had
  after the quarantine began: the member sends a random token, and waits until it holds the log up to the end that the leader
  reports together with that token. A member that holds less than it acknowledged in this term is quarantined, too: its directory
  was restored from a backup. The leader's term is not below any in which the member ever acknowledged bytes, and the leader
  was elected without its vote. So the leader has everything that was ever committed with this member's help.
- A member whose disk fails or whose log is damaged halts: it sends nothing until it is restarted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from firearrow.ha.raft.epochs import MAX_EPOCH, EpochTable
from firearrow.ha.raft.hard_state import HardState, new_id
from firearrow.ha.raft.interfaces import LogDamagedError, RaftLog, Ready
from firearrow.ha.raft.messages import (
    AppendEntries,
    AppendResponse,
    AppendStatus,
    Message,
    Probe,
    RequestVote,
    Resignation,
    TimeoutNow,
    VoteResponse,
)
from firearrow.ha.raft.pacing import ElectionPacing
from firearrow.ha.raft.progress import Progress

_NEVER_MS = -(10**9)
_MAX_NOTES = 20
# A term begins with an election, so even a group in trouble for days does not get this far ahead of one of its members.
MAX_TERM_JUMP = 1_000_000


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
    HALTED = "halted"


@dataclass(frozen=True, slots=True)
class Options:
    heartbeat_ms: int = 200
    election_ms: int = 1000  # the election timeout is random between this and twice this, or longer (pacing.py)
    resend_ms: int = 1000  # bytes not acknowledged within this time are sent again
    batch_bytes: int = 256 << 10  # maximum of one AppendEntries
    window_bytes: int = 8 << 20  # maximum in flight to one follower
    slice_bytes: int = 512 << 10  # maximum sent per event, so that a lagging follower does not delay the others
    preferred_leader: str | None = None
    preferred_check_ms: int = 5000
    preferred_lag_bytes: int = 1 << 20  # leadership is transferred to the preferred leader when it lags by at most this


class NotLeaderError(Exception):
    """The operation requires leadership; the text names the leader."""


class Raft:
    """One member of an elected group.

    `uninitialised`: the member has joined no group yet. `commit`: an offset known to be committed from an earlier run.
    """

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
        uninitialised: bool = False,
        commit: int = 0,
    ) -> None:
        self.me = me
        self.peers = [member for member in members if member != me]
        self.majority = len(members) // 2 + 1
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        self.quarantined = hard_state.quarantined
        self.identity = hard_state.identity
        self.seed = hard_state.seed
        self.epochs = epochs  # equals the table on disk once the last Ready is applied
        self.end = log.end_offset
        self.durable = log.end_offset  # opening a log makes its content durable
        self.commit = max(log.min_offset, commit)
        self.truncations = 0  # number of truncations; the result of a sync that began before one is void
        self.halt_reason = ""
        self.progress: dict[str, Progress] = {}  # of the peers, while this member leads
        self._options = options
        self._log = log
        self._rng = rng
        self._uninitialised = uninitialised
        self._is_founder = me == min(members)
        self._foreign: dict[str, int] = {}  # peers of another group, with its id
        self._notes: set[str] = set()  # log lines that are not repeated
        self._now_ms = now_ms
        self._pacing = ElectionPacing(options.election_ms, rng, now_ms)
        self._pre_votes: set[str] = set()
        self._votes: set[str] = set()  # of the current term
        self._campaign_ms = now_ms  # when the votes were requested
        self._term_start = 0  # where this leader's epoch begins
        self._transfer_to: str | None = None
        self._transfer_until_ms = 0
        self._preferred_check_ms = 0
        self._leader_epochs: EpochTable | None = None  # set once our log is a prefix of this term's leader's
        self._leader_commit = 0
        self._leader_heard_ms = _NEVER_MS
        self._quarantine_token = self._new_token() if self.quarantined else 0
        self._quarantine_end: int | None = None
        self._election_due_ms = 0
        self._ready = Ready()
        self._reset_election_timer()
        if uninitialised and self._is_founder:
            self._election_due_ms = now_ms + options.heartbeat_ms // 2  # a new group has no leader to wait for

    # Events

    def step(self, sender: str, message: Message, now_ms: int) -> Ready:
        """Handle a message from a peer."""
        if self.role is Role.HALTED:
            return Ready()
        self._now_ms = now_ms
        if not self._is_admissible(sender, message):
            return self._take_ready()
        if message.term > self.term:
            if not self._accept_newer_term(sender, message):
                return self._take_ready()
        elif message.term < self.term:
            self._reject_older_term(sender, message)
            return self._take_ready()
        match message:
            case RequestVote():
                self._handle_request_vote(sender, message)
            case VoteResponse():
                self._handle_vote_response(sender, message)
            case Probe():
                self._handle_probe(sender, message)
            case AppendEntries():
                self._handle_append_entries(sender, message)
            case AppendResponse():
                self._handle_append_response(sender, message)
            case TimeoutNow():
                if sender == self.leader and self.role is Role.FOLLOWER and not self.quarantined:
                    self._become_candidate(transfer=True)
            case Resignation():
                if sender == self.leader and self.role is Role.FOLLOWER:
                    self._lose_leader()
        return self._take_ready()

    def tick(self, now_ms: int, late_ms: int = 0) -> Ready:
        """Handle the passing of time. Call it several times per heartbeat interval.

        `late_ms`: how much later than planned the driver runs. Messages may have arrived meanwhile that it has not read yet, so
        this time does not count as silence of the others.
        """
        self._now_ms = max(self._now_ms, now_ms)
        self._pacing.observe(late_ms, self._now_ms)
        if late_ms > self._options.heartbeat_ms:
            self._extend_deadlines(min(late_ms, self._pacing.window_ms))
        if self.role is Role.LEADER:
            self._tick_leader()
        elif self.role is not Role.HALTED and self._now_ms >= self._election_due_ms:
            self._reset_campaign_timer()
            if self._may_campaign():
                self._start_pre_vote()
        return self._take_ready()

    def connected(self, peer: str, now_ms: int) -> Ready:
        """Repeat a pending vote request to a peer that has become reachable."""
        self._now_ms = max(self._now_ms, now_ms)
        if self.role is Role.PRE_CANDIDATE:
            self._request_vote(peer, pre=True)
        elif self.role is Role.CANDIDATE:
            self._request_vote(peer)
        return self._take_ready()

    def greeted(self, peer: str, group_id: int) -> Ready:
        """Compare the group of a peer that has connected: followers send nothing else to each other."""
        if self.role is not Role.HALTED and self._is_foreign(group_id) and not self._has_no_data():
            self._note_foreign(peer, group_id)
        return self._take_ready()

    def disconnected(self, peer: str, now_ms: int) -> Ready:
        """Shorten the election timeout if the lost connection came from the leader."""
        self._now_ms = max(self._now_ms, now_ms)
        if self.role is Role.FOLLOWER and peer == self.leader:
            self._lose_leader()
        return self._take_ready()

    def appended(self, end: int, now_ms: int) -> Ready:
        """Replicate records that the leader's broker has written up to `end`."""
        self._require_leader()
        self._now_ms = now_ms
        assert end >= self.end, f"the log ends at {self.end}, not yet at {end}: a leader only appends"
        self.end = end
        self._ready.sync = True
        for peer in self.peers:
            self._send_append(peer)
        return self._take_ready()

    def send_backlog(self, now_ms: int) -> Ready:
        """Send the next slice to followers that lag. Call it while `has_backlog`, after other work had its turn."""
        self._now_ms = max(self._now_ms, now_ms)
        if self.role is Role.LEADER:
            for peer in self.peers:
                self._send_append(peer)
        return self._take_ready()

    def synced(self, offset: int, truncations: int, now_ms: int) -> Ready:
        """Handle the end of a sync that began when the log ended at `offset` and had been truncated `truncations` times."""
        if self.role is Role.HALTED or truncations != self.truncations or offset <= self.durable:
            return self._take_ready()
        self._now_ms = now_ms
        self.durable = min(offset, self.end)
        if self.role is Role.LEADER:
            self._advance_commit()
        elif self._leader_epochs is not None and self.leader is not None:
            self._learn_commit(self._leader_commit)
            self._end_quarantine_if_caught_up()
            self._acknowledge(self.leader)
        return self._take_ready()

    def transfer_leadership(self, to: str, now_ms: int) -> Ready:
        """Ask a peer to take over once it holds the whole log.

        Until the peer takes over, or `election_ms` have passed, the leader does not accept appends.
        """
        self._require_leader()
        if to not in self.progress:
            raise ValueError(f"leadership cannot go to {to!r}: expected one of {', '.join(self.peers)}")
        self._now_ms = now_ms
        self._start_transfer(to)
        return self._take_ready()

    def halt(self, reason: str) -> Ready:
        """Stop taking part in the group because the disk failed or the log is damaged."""
        self._halt(reason)
        return self._take_ready()

    # State

    @property
    def hard_state(self) -> HardState:
        return HardState(self.term, self.voted_for, self.quarantined, self.identity, self.seed)

    @property
    def has_backlog(self) -> bool:
        """True if a follower lacks more than one event sends."""
        return self.role is Role.LEADER and any(
            not progress.probing and progress.next < self.end and progress.in_flight < self._options.window_bytes
            for progress in self.progress.values()
        )

    @property
    def accepts_appends(self) -> bool:
        """True if the broker may append. A leader that transfers leadership accepts nothing."""
        return self.role is Role.LEADER and self._transfer_to is None

    @property
    def is_ready_to_serve(self) -> bool:
        """True if everything that the leader's log contained at the start of its term is committed."""
        if self.role is not Role.LEADER or self.commit < self._term_start:
            return False
        holders = sum(progress.match >= self._term_start for progress in self.progress.values())
        return holders + (self.durable >= self._term_start) >= self.majority

    # Identity

    def _is_admissible(self, sender: str, message: Message) -> bool:
        """Return whether a message may have an effect: it comes from this group, and its term is plausible."""
        if self._is_foreign(message.group_id):
            if not self._has_no_data():
                self._note_foreign(sender, message.group_id)
                return False
            if not isinstance(message, RequestVote | Probe | AppendEntries):
                return False
        self._foreign.pop(sender, None)
        if self.term and message.term - self.term > MAX_TERM_JUMP:
            self._note(
                f"{self.me} ignores {sender}, which is in term {message.term}: term {self.term} here is more than "
                f"{MAX_TERM_JUMP} behind. If the other members agree with {sender}, stop this member, move its store directory "
                "away and start it again"
            )
            return False
        return True

    def _is_foreign(self, group_id: int) -> bool:
        mine = self.identity.group_id
        return bool(mine and group_id) and mine != group_id

    def _has_no_data(self) -> bool:
        """Return whether this member never followed a leader and never led."""
        return not self.epochs.entries and self.end == 0 and not self.quarantined

    def _note_foreign(self, sender: str, group_id: int) -> None:
        self._foreign[sender] = group_id
        self._note(
            f"{self.me} ignores {sender}: the store directory of {sender} belongs to the group with id {group_id:016x}, this one "
            f"to {self.identity.group_id:016x}. Move the wrong directory away and start its member again"
        )
        others = sum(other == group_id for other in self._foreign.values())
        if others >= self.majority:
            self._halt(
                f"its store directory belongs to another group: it has the id {self.identity.group_id:016x}, and {others} other "
                f"members have {group_id:016x}. Nothing was changed. Move the directory away and start again: the member then "
                "copies everything from the others"
            )

    def _would_join(self, message: RequestVote | Probe | AppendEntries) -> bool:
        """Return whether this member has not been in the sender's group before, as far as it knows."""
        return self._uninitialised or message.group_id not in (0, self.identity.group_id)

    def _adopt_group(self, group_id: int) -> None:
        """Join the group of a leader or of a founder. The caller saves the hard state."""
        if group_id and group_id != self.identity.group_id:
            self.identity = replace(self.identity, group_id=group_id)
            self._log_line(f"{self.me} joins the group {group_id:016x} with log {self.identity.log_id:016x}")
            self._persist_hard_state()
        self._uninitialised = False

    def _note(self, text: str) -> None:
        """Log a line once."""
        if text not in self._notes and len(self._notes) < _MAX_NOTES:
            self._notes.add(text)
            self._log_line(text)

    # Terms and roles

    def _may_campaign(self) -> bool:
        if self.quarantined:
            return False
        if self.epochs.entries or self._is_founder or self.seed:
            return True
        self._note(
            f"{self.me} has no data. It waits for a leader, or for {min(self.peers)} to form a new group, for which all members "
            "must run (docs/operate/ha.md)"
        )
        return False

    def _accept_newer_term(self, sender: str, message: Message) -> bool:
        """Adopt the message's term where Raft requires it. Return False if the message is to be ignored."""
        match message:
            case RequestVote() if not message.transfer and self._hears_leader():
                return False  # a member that was partitioned does not depose a leader that others still hear
            case RequestVote(pre=True):
                return True
            case VoteResponse(granted=True, pre=True):
                return self.role is Role.PRE_CANDIDATE
            case Probe() | AppendEntries():
                self._become_follower(message.term, sender)
            case _:
                self._become_follower(message.term, None)
        return True

    def _reject_older_term(self, sender: str, message: Message) -> None:
        match message:
            case RequestVote():
                self._send(sender, VoteResponse(self.term, False, message.pre))
            case Probe() | AppendEntries():
                self._send(sender, AppendResponse(self.term, 0, 0, 0, AppendStatus.STALE_TERM))
            case _:
                pass

    def _become_follower(self, term: int, leader: str | None) -> None:
        if term > self.term:
            self.term = term
            self.voted_for = None
            self._leader_epochs = None
            self._leader_commit = 0
            self._quarantine_end = None
            self._persist_hard_state()
        if self.role is Role.LEADER:
            self._log_line(f"{self.me} no longer leads; term {self.term}")
        self.role = Role.FOLLOWER
        self.leader = leader
        self._transfer_to = None
        self.progress = {}
        self._reset_election_timer()

    def _start_pre_vote(self) -> None:
        """Ask the peers whether they would vote for this member, without changing the term."""
        if self.term >= MAX_EPOCH:
            return
        if self.role is Role.PRE_CANDIDATE and not self.epochs.entries and not self.seed:
            missing = [peer for peer in self.peers if peer not in self._pre_votes]
            self._note(
                f"{self.me} forms a new group when all members run without data; {', '.join(missing)} did not agree yet "
                "(docs/operate/ha.md)"
            )
        self.role = Role.PRE_CANDIDATE
        self.leader = None
        self._pre_votes = {self.me}
        if len(self._pre_votes) >= self._votes_needed:
            self._become_candidate()
            return
        for peer in self.peers:
            self._request_vote(peer, pre=True)

    @property
    def _votes_needed(self) -> int:
        """A candidate without data forms a new group, to which all members must agree: any of them might have data."""
        return self.majority if self.epochs.entries or self.seed else len(self.peers) + 1

    def _request_vote(self, peer: str, *, pre: bool = False, transfer: bool = False) -> None:
        self._send(peer, RequestVote(self.term + pre, self.epochs.last, self.end, pre, transfer, self.seed))

    def _become_candidate(self, *, transfer: bool = False) -> None:
        self.role = Role.CANDIDATE
        self.leader = None
        self.term += 1
        self.voted_for = self.me
        self._leader_epochs = None
        self._leader_commit = 0
        self._uninitialised = False
        if not self.identity.group_id:
            self.identity = replace(self.identity, group_id=new_id(self._rng))
        self._persist_hard_state()
        self._reset_campaign_timer()
        self._campaign_ms = self._now_ms
        self._votes = {self.me}
        if len(self._votes) >= self._votes_needed:
            self._become_leader()
            return
        for peer in self.peers:
            self._request_vote(peer, transfer=transfer)

    def _become_leader(self) -> None:
        assert not self.quarantined, "a quarantined member was elected"
        assert self.epochs.last < self.term, f"the table contains epoch {self.epochs.last} before term {self.term} has begun"
        if not self.epochs.entries:
            self._log_line(f"{self.me} forms the group {self.identity.group_id:016x}")
        self.role = Role.LEADER
        self.leader = self.me
        self._votes = set()
        self._pacing.observe(self._now_ms - self._campaign_ms, self._now_ms)
        self._term_start = self.end
        self._set_epochs(self.epochs.with_epoch(self.term, self.end, self._log.min_offset))
        self._ready.sync = True
        self._preferred_check_ms = self._now_ms + self._options.preferred_check_ms
        self.progress = {peer: Progress(self._now_ms) for peer in self.peers}
        self._log_line(f"{self.me} leads term {self.term} from offset {self.end}")
        for peer in self.peers:
            self._send_probe(peer)
        self._advance_commit()

    def _halt(self, reason: str) -> None:
        if self.role is not Role.HALTED:
            self.role = Role.HALTED
            self.leader = None
            self.halt_reason = reason
            self._ready = Ready()
            self._log_line(f"{self.me} has left its group: {reason}")

    def _hears_leader(self) -> bool:
        if self.role is Role.LEADER:
            return True
        return self.leader is not None and self._now_ms - self._leader_heard_ms < self._options.election_ms

    def _require_leader(self) -> None:
        if self.role is not Role.LEADER:
            raise NotLeaderError(f"{self.me} does not lead its group; the leader is {self.leader or 'unknown'}")

    def _reset_election_timer(self) -> None:
        self._election_due_ms = self._now_ms + self._pacing.election_timeout_ms()

    def _reset_campaign_timer(self) -> None:
        self._election_due_ms = self._now_ms + self._pacing.campaign_timeout_ms()

    def _extend_deadlines(self, late_ms: int) -> None:
        """Give the other members the time in which this one did not run."""
        self._election_due_ms = min(self._election_due_ms + late_ms, self._now_ms + 2 * self._pacing.window_ms)
        for progress in self.progress.values():
            progress.last_heard_ms = min(progress.last_heard_ms + late_ms, self._now_ms)

    def _lose_leader(self) -> None:
        """Shorten the election timeout: the leader is known to be gone."""
        self._leader_heard_ms = _NEVER_MS
        heartbeat_ms = self._options.heartbeat_ms
        due_ms = self._now_ms + heartbeat_ms // 4 + self._rng.randrange(2 * heartbeat_ms)
        self._election_due_ms = min(self._election_due_ms, due_ms)

    # Votes

    def _handle_request_vote(self, sender: str, message: RequestVote) -> None:
        granted = self._may_vote_for(message)
        if message.pre:
            granted = granted and not self._hears_leader() and message.term > self.term
            self._send(sender, VoteResponse(message.term if granted else self.term, granted, pre=True))
            return
        granted = granted and (self.voted_for == sender or (self.voted_for is None and self.leader is None))
        if granted:
            if self._would_join(message) and message.end:
                self._start_quarantine(f"it has no data, and the operator declared the log of {sender} authoritative")
            self._adopt_group(message.group_id)
            if self.voted_for is None:
                self.voted_for = sender
                self._persist_hard_state()
            self._reset_election_timer()
        self._send(sender, VoteResponse(self.term, granted))

    def _may_vote_for(self, message: RequestVote) -> bool:
        """Return whether the candidate's log has everything that this member ever acknowledged."""
        if message.seed and not self.epochs.entries and self.end == 0:
            return True
        if self.quarantined or (self._uninitialised and message.last_epoch):
            return False
        if message.last_epoch and message.group_id not in (0, self.identity.group_id) and self.identity.group_id:
            return False
        return (message.last_epoch, message.end) >= (self.epochs.last, self.end)

    def _handle_vote_response(self, sender: str, message: VoteResponse) -> None:
        if not message.granted:
            return
        if message.pre:
            if self.role is Role.PRE_CANDIDATE and message.term == self.term + 1:
                self._pre_votes.add(sender)
                if len(self._pre_votes) >= self._votes_needed:
                    self._become_candidate()
        # The votes of this term stay valid while the next campaign is prepared: they may be late.
        elif self.role in (Role.CANDIDATE, Role.PRE_CANDIDATE) and message.term == self.term and self.me in self._votes:
            self._votes.add(sender)
            if len(self._votes) >= self._votes_needed:
                self._become_leader()

    # Follower

    def _handle_probe(self, sender: str, message: Probe) -> None:
        last = message.epochs.entries[-1]
        if not max(message.min_offset, message.commit, last.start) <= message.end:
            self._note(
                f"{self.me} ignores the log of {sender}: it is said to be {message.min_offset} to {message.end}, committed up to "
                f"{message.commit}, with epoch {last.epoch} from {last.start}"
            )
            return
        if not self._follow(sender, message):
            return
        if self._leader_epochs is None or message.min_offset > self.end:  # the leader may delete what this member lacks
            if message.acknowledged > self.durable:
                self._start_quarantine(
                    f"it has acknowledged its log up to {message.acknowledged} in term {self.term} and holds it up to "
                    f"{self.durable}: its store directory was restored from a backup, or has lost data"
                )
            if not self._match_leader_log(message):
                return
            self._leader_epochs = message.epochs
        self._learn_commit(message.commit)
        self._acknowledge(sender)

    def _match_leader_log(self, message: Probe) -> bool:
        """Make the log a prefix of the leader's. Halt and return False if that would remove committed bytes."""
        shared = self.epochs.shared_prefix(message.epochs, self.end) or 0
        if self.commit > max(shared, message.min_offset):
            self._halt(
                f"the leader of term {self.term} ({self.leader}) shares this log only up to {shared}, but it is committed up to "
                f"{self.commit}. Nothing was truncated. Compare the store directories of the group before you continue"
            )
            return False
        if shared < max(message.min_offset, self._log.min_offset):
            self._reset_log(message.min_offset)
        elif shared < self.end:
            self._log_line(
                f"{self.me} truncates its log from {self.end} to {shared}, where it diverges from the leader of term {self.term}"
            )
            self._ready.truncate_to = shared
            self.end = shared
            self.durable = min(self.durable, shared)
            self.truncations += 1
        self._set_epochs(message.epochs.up_to(self.end))
        return True

    def _reset_log(self, start: int) -> None:
        """Discard the log and restart it where the leader's begins: the leader no longer has the bytes after our end."""
        self._log_line(f"{self.me} restarts its log at {start}: it ended at {self.end}, and the leader's begins at {start}")
        self._ready.reset_to = start
        self.epochs = EpochTable()
        self.end = self.durable = start
        self.commit = max(self.commit, start)
        self.truncations += 1

    def _handle_append_entries(self, sender: str, message: AppendEntries) -> None:
        if not self._follow(sender, message):
            return
        if self._leader_epochs is None:
            self._acknowledge(sender, AppendStatus.NEEDS_PROBE)
            return
        if message.echoed_token and message.echoed_token == self._quarantine_token and self._quarantine_end is None:
            self._quarantine_end = message.end
        if message.offset > self.end:
            self._acknowledge(sender, AppendStatus.GAP)
            return
        data = message.data[self.end - message.offset :]
        if data:
            self._ready.writes.append((self.end, data))
            self._ready.sync = True
            self.end += len(data)
            self._set_epochs(self._leader_epochs.up_to(self.end))
        self._learn_commit(message.commit)
        self._end_quarantine_if_caught_up()
        if not data:
            self._acknowledge(sender)

    def _follow(self, leader: str, message: Probe | AppendEntries) -> bool:
        """Follow the sender as leader of the current term. A second leader in one term means that a vote was given twice."""
        if self.role is Role.LEADER or self.leader not in (None, leader):
            self._halt(
                f"{leader} and {self.leader} both lead term {self.term}. Check whether two members have the same id or a copied "
                "store directory"
            )
            return False
        if not self.identity.group_id or self._has_no_data():
            if self._would_join(message) and message.end:
                self._start_quarantine("it has no files, and its group has a history")
            self._adopt_group(message.group_id)
        if self.leader == leader:
            gap_ms = self._now_ms - self._leader_heard_ms
            if gap_ms < 2 * self._pacing.window_ms:  # a longer one is a failure, not a delay
                self._pacing.observe(max(gap_ms - self._options.heartbeat_ms, 0), self._now_ms)
        self.role = Role.FOLLOWER
        self.leader = leader
        self._votes = set()
        self._leader_heard_ms = self._now_ms
        self._reset_election_timer()
        return True

    def _learn_commit(self, commit: int) -> None:
        self._leader_commit = max(self._leader_commit, commit)
        self.commit = max(self.commit, min(self._leader_commit, self.durable))

    def _acknowledge(self, leader: str, status: AppendStatus = AppendStatus.OK) -> None:
        token, log_id = self._quarantine_token, self.identity.log_id
        self._send(leader, AppendResponse(self.term, self.durable, self.end, self.epochs.last, status, token, log_id))

    # Quarantine

    def _start_quarantine(self, reason: str) -> None:
        if not self.quarantined:
            self.quarantined = True
            self._persist_hard_state()
            self._log_line(f"{self.me} does not vote until it has caught up: {reason}")
        self._quarantine_token = self._new_token()
        self._quarantine_end = None

    def _end_quarantine_if_caught_up(self) -> None:
        if self._quarantine_end is not None and self.durable >= self._quarantine_end and self.epochs.last == self.term:
            self.quarantined = False
            self._quarantine_token = 0
            self._quarantine_end = None
            self._persist_hard_state()
            self._log_line(f"{self.me} has caught up at {self.durable} and votes again")

    def _new_token(self) -> int:
        return self._rng.getrandbits(62) + 1

    # Leader

    def _handle_append_response(self, sender: str, message: AppendResponse) -> None:
        progress = self.progress.get(sender)
        if self.role is not Role.LEADER or progress is None or message.status is AppendStatus.STALE_TERM:
            return
        if not progress.accept_log(message.log_id):
            return
        progress.last_heard_ms = self._now_ms
        progress.quarantine_token = message.quarantine_token
        if message.status is AppendStatus.NEEDS_PROBE or message.end < self._log.min_offset:
            progress.start_probing()
            self._send_probe(sender)
            return
        if progress.probing:
            progress.start_streaming(message.end, self._now_ms)
        elif message.status is AppendStatus.GAP:
            progress.rewind(message.end, self._now_ms, self._options.heartbeat_ms)
        if message.match > progress.acked:
            progress.acked = message.match
            progress.acknowledged = max(progress.acknowledged, message.match)
            progress.moved_ms = self._now_ms
        progress.next = max(progress.next, progress.acked)
        if message.epoch == self.term and message.match > progress.match:
            progress.match = message.match
            self._advance_commit()
        if self.seed:
            self._end_seed_if_replicated()
        self._send_append(sender)
        self._finish_transfer()

    def _end_seed_if_replicated(self) -> None:
        """End the authority of a seed when a majority has its log and may vote."""
        holders = sum(progress.match >= self._term_start and not progress.quarantine_token for progress in self.progress.values())
        if holders + 1 >= self.majority:
            self.seed = False
            self._persist_hard_state()
            self._log_line(f"{self.me} is an ordinary member again: {holders} other members have its log")

    def _advance_commit(self) -> None:
        """Commit what a majority holds within the current epoch."""
        own = self.durable if self.durable >= self._term_start else -1
        offsets = sorted([own, *(progress.match for progress in self.progress.values())], reverse=True)
        held = offsets[self.majority - 1]
        if held >= self._term_start and held > self.commit:
            self.commit = held

    def _tick_leader(self) -> None:
        options = self._options
        window_ms = self._pacing.window_ms
        heard = sum(self._now_ms - progress.last_heard_ms < window_ms for progress in self.progress.values())
        if heard + 1 < self.majority:
            self._log_line(f"{self.me} steps down from term {self.term}: it hears {heard} of {len(self.peers)} peers")
            for peer in self.peers:
                self._send(peer, Resignation(self.term))  # they may still hear this member
            self._become_follower(self.term, None)
            return
        if self._transfer_to is not None and self._now_ms >= self._transfer_until_ms:
            self._log_line(f"{self.me} continues to lead: {self._transfer_to} did not take over in time")
            self._transfer_to = None
        self._check_preferred_leader()
        for peer in self.peers:
            progress = self.progress[peer]
            if not progress.probing and progress.in_flight and self._now_ms - progress.moved_ms >= options.resend_ms:
                progress.next = progress.acked
                progress.moved_ms = self._now_ms
                self._send_append(peer)
            if self._now_ms - progress.last_sent_ms >= options.heartbeat_ms:
                if progress.probing:
                    self._send_probe(peer)
                else:
                    self._send_append(peer, heartbeat=True)
            if self.role is not Role.LEADER:
                return

    def _check_preferred_leader(self) -> None:
        name = self._options.preferred_leader
        preferred = self.progress.get(name or "")
        if name is None or preferred is None or self._now_ms < self._preferred_check_ms:
            return
        self._preferred_check_ms = self._now_ms + self._options.preferred_check_ms
        is_alive = self._now_ms - preferred.last_heard_ms < self._options.election_ms and not preferred.quarantine_token
        is_near = preferred.match >= max(self.end - self._options.preferred_lag_bytes, 0)
        if is_alive and is_near and self._transfer_to is None:
            self._start_transfer(name)

    def _start_transfer(self, to: str) -> None:
        self._log_line(f"{self.me} transfers the leadership of term {self.term} to {to}")
        self._transfer_to = to
        self._transfer_until_ms = self._now_ms + self._options.election_ms
        self._send_append(to)
        self._finish_transfer()

    def _finish_transfer(self) -> None:
        if self._transfer_to is not None and self.progress[self._transfer_to].match >= self.end:
            self._send(self._transfer_to, TimeoutNow(self.term))

    def _send_probe(self, peer: str) -> None:
        progress = self.progress[peer]
        progress.last_sent_ms = self._now_ms
        acknowledged = progress.acknowledged
        self._send(peer, Probe(self.term, self._log.min_offset, self.end, self.commit, self.epochs, acknowledged))

    def _send_append(self, peer: str, *, heartbeat: bool = False) -> None:
        """Send what the peer lacks, within its window and one slice. `heartbeat`: send an empty message if it lacks nothing."""
        progress = self.progress[peer]
        if progress.probing:
            return
        limit = min(self.end, progress.next + self._options.slice_bytes)
        while progress.next < limit and progress.in_flight < self._options.window_bytes:
            if progress.next < self._log.min_offset:
                progress.start_probing()
                self._send_probe(peer)
                return
            data = self._read(progress.next)
            if data is None:
                return
            if not progress.in_flight:
                progress.moved_ms = self._now_ms
            self._send(peer, AppendEntries(self.term, progress.next, self.end, self.commit, progress.quarantine_token, data))
            progress.next += len(data)
            progress.last_sent_ms = self._now_ms
            heartbeat = False
        if heartbeat:
            self._send(peer, AppendEntries(self.term, progress.next, self.end, self.commit, progress.quarantine_token))
            progress.last_sent_ms = self._now_ms

    def _read(self, offset: int) -> bytes | None:
        try:
            return self._log.read(offset, min(self._options.batch_bytes, self.end - offset))
        except (LogDamagedError, OSError) as error:
            self._halt(f"the log cannot be read at {offset}: {error}. Restart this member: it repairs itself from the others")
            return None

    # Ready

    def _take_ready(self) -> Ready:
        ready, self._ready = self._ready, Ready()
        return ready

    def _send(self, to: str, message: Message) -> None:
        if self.role is not Role.HALTED:
            self._ready.messages.append((to, message))

    def _log_line(self, text: str) -> None:
        self._ready.log_lines.append(text)

    def _persist_hard_state(self) -> None:
        self._ready.hard_state = self.hard_state

    def _set_epochs(self, table: EpochTable) -> None:
        if table != self.epochs:
            self.epochs = table
            self._ready.epochs = table
