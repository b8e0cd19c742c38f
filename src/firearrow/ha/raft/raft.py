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

What is known is in `RaftState` (raft_state.py); what events do to it is told apart by duty: raft_election.py, raft_following.py,
raft_leading.py.
"""

from __future__ import annotations

from firearrow.ha.raft import raft_election as election
from firearrow.ha.raft import raft_following as following
from firearrow.ha.raft import raft_leading as leading
from firearrow.ha.raft.interfaces import Ready
from firearrow.ha.raft.messages import Ack, Append, Message, Probe, TakeOver, Vote, VoteReply
from firearrow.ha.raft.raft_state import NotLeaderError, Options, RaftState, Role

__all__ = ["NotLeaderError", "Options", "Raft", "Role"]


class Raft(RaftState):
    """One member."""

    def step(self, sender: str, message: Message, now_ms: int) -> Ready:
        """A message arrived."""
        if self.role is Role.OUT:
            return Ready()
        self.now_ms = now_ms
        if message.term > self.term:
            if not election.takes_newer_term(self, sender, message):
                return self.done()
        elif message.term < self.term:
            election.answer_older_term(self, sender, message)
            return self.done()
        match message:
            case Vote():
                election.on_vote(self, sender, message)
            case VoteReply():
                election.on_vote_reply(self, sender, message)
            case Probe():
                following.on_probe(self, sender, message)
            case Append():
                following.on_append(self, sender, message)
            case Ack():
                leading.on_ack(self, sender, message)
            case TakeOver():
                if sender == self.leader and self.role is Role.FOLLOWER and not self.doubtful:
                    election.campaign(self, transfer=True)
        return self.done()

    def tick(self, now_ms: int) -> Ready:
        """Time passed. To be called several times a heartbeat."""
        self.now_ms = max(self.now_ms, now_ms)
        if self.role is Role.LEADER:
            leading.tick_leader(self)
        elif self.role is not Role.OUT and self.now_ms >= self.election_due_ms:
            self.wait_for_votes()
            if not self.doubtful:
                election.campaign_before(self)
        return self.done()

    def disconnected(self, peer: str, now_ms: int) -> Ready:
        """The connection from a member ended. Of the leader, that is a reason not to wait for long."""
        self.now_ms = max(self.now_ms, now_ms)
        if self.role is Role.FOLLOWER and peer == self.leader:
            self.heard_ms = -(10**9)
            soon = self.options.heartbeat_ms
            self.election_due_ms = min(self.election_due_ms, self.now_ms + soon // 4 + self.rng.randrange(2 * soon))
        return self.done()

    def connected(self, peer: str, now_ms: int) -> Ready:
        """Messages reach a member from now on: it has not heard yet that we want to be elected."""
        self.now_ms = max(self.now_ms, now_ms)
        if self.role is Role.PRE_CANDIDATE:
            self.send(peer, Vote(self.term + 1, self.epochs.last, self.end, pre=True))
        elif self.role is Role.CANDIDATE:
            self.send(peer, Vote(self.term, self.epochs.last, self.end))
        return self.done()

    def appended(self, end: int, now_ms: int) -> Ready:
        """The leader's broker wrote records up to `end`."""
        self.must_lead()
        self.now_ms = now_ms
        assert end >= self.end, f"the log ends at {self.end}, not yet at {end}: a leader only appends"
        self.end = end
        self.ready.sync = True
        for peer in self.peers:
            leading.send_bytes(self, peer)
        return self.done()

    def pump(self, now_ms: int) -> Ready:
        """More for those that are `lagging`. To be called soon, when others had their turn."""
        self.now_ms = max(self.now_ms, now_ms)
        if self.role is Role.LEADER:
            for peer in self.peers:
                leading.send_bytes(self, peer)
        return self.done()

    def synced(self, offset: int, cuts: int, now_ms: int) -> Ready:
        """A sync that began when the log ended at `offset` and had been cut `cuts` times is complete."""
        if self.role is Role.OUT or cuts != self.cuts or offset <= self.durable:
            return self.done()
        self.now_ms = now_ms
        self.durable = min(offset, self.end)
        if self.role is Role.LEADER:
            leading.advance_commit(self)
        elif self.leader_epochs is not None and self.leader is not None:
            following.learn_commit(self, self.leader_commit)
            following.end_doubt(self)
            following.ack(self, self.leader)
        return self.done()

    def transfer(self, to: str, now_ms: int) -> Ready:
        """Asks another member to take over once it has everything. Until then, or for `election_ms`, nothing is accepted."""
        self.must_lead()
        if to not in self.progress:
            raise ValueError(f"leadership cannot go to {to!r}: expected one of {', '.join(self.peers)}")
        self.now_ms = now_ms
        leading.begin_transfer(self, to)
        return self.done()

    def fail(self, reason: str) -> Ready:
        """The disk failed or the log is damaged: this member goes out."""
        self.go_out(reason)
        return self.done()

    # State

    @property
    def lagging(self) -> bool:
        """There is more to send to somebody than went out at once."""
        return self.role is Role.LEADER and any(leading.may_send(self, progress) for progress in self.progress.values())

    @property
    def accepting(self) -> bool:
        """May the broker append? (What is appended before `confirmed_start` must wait for it like everything else.)"""
        return self.role is Role.LEADER and self.transfer_to is None

    @property
    def confirmed_start(self) -> bool:
        """The leader knows that everything it began with is confirmed: it may serve."""
        return self.role is Role.LEADER and self.commit >= self.term_start and leading.counted(self, self.term_start)
