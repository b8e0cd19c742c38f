"""What one member of an elected group knows (raft.py has the rules), the bundle that is being put together, and the few steps
that more than one duty takes: becoming a follower, going out, waiting, doubting.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from firearrow.ha.raft.epochs import EpochTable
from firearrow.ha.raft.hard_state import HardState
from firearrow.ha.raft.interfaces import RaftLog, Ready
from firearrow.ha.raft.messages import Message
from firearrow.ha.raft.progress import Progress


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
    slice_bytes: int = 512 << 10  # at once: one that is far behind must not hold up the others (`Raft.lagging`)
    preferred_leader: str | None = None
    preferred_check_ms: int = 5000
    preferred_lag_bytes: int = 1 << 20  # the preferred leader is asked to take over when it lacks no more than this


class NotLeaderError(Exception):
    """Only the leader can do this; the text says who leads."""


class RaftState:
    """`fresh`: it has no files yet."""

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
        self.log = log
        self.rng = rng
        self.fresh = fresh
        self.now_ms = now_ms
        self.votes: set[str] = set()
        self.leader_epochs: EpochTable | None = None  # of this term's leader, once we agreed with it
        self.leader_commit = 0
        self.heard_ms = -(10**9)  # from the leader
        self.doubt = self.new_doubt() if self.doubtful else 0
        self.doubt_ends_at: int | None = None
        self.transfer_until_ms = 0
        self.preferred_check_ms = 0
        self.election_due_ms = 0
        self.ready = Ready()
        self.wait_for_election()

    # Terms

    def become_follower(self, term: int, leader: str | None) -> None:
        if term > self.term:
            self.term = term
            self.voted_for = None
            self.leader_epochs = None
            self.leader_commit = 0
            self.doubt_ends_at = None
            self.persist_vote()
        if self.role is Role.LEADER:
            self.note(f"{self.me} no longer leads; term {self.term}")
        self.role = Role.FOLLOWER
        self.leader = leader
        self.transfer_to = None
        self.progress = {}
        self.wait_for_election()

    def has_leader(self) -> bool:
        return self.role is Role.LEADER or (self.leader is not None and self.now_ms - self.heard_ms < self.options.election_ms)

    def must_lead(self) -> None:
        if self.role is not Role.LEADER:
            raise NotLeaderError(f"{self.me} does not lead its group; {self.leader or 'nobody it knows of'} does")

    def go_out(self, reason: str) -> None:
        if self.role is not Role.OUT:
            self.role = Role.OUT
            self.leader = None
            self.reason = reason
            self.ready = Ready()
            self.note(f"{self.me} is out of its group: {reason}")

    # Time

    def wait_for_election(self) -> None:
        base = self.options.election_ms
        self.election_due_ms = self.now_ms + base + self.rng.randrange(base)

    def wait_for_votes(self) -> None:
        """Less long: nobody is there who could be disturbed."""
        base = self.options.election_ms // 2
        self.election_due_ms = self.now_ms + base + self.rng.randrange(base)

    # Doubt

    def begin_doubt(self, why: str) -> None:
        if not self.doubtful:
            self.doubtful = True
            self.persist_vote()
            self.note(f"{self.me} does not vote until it has caught up: {why}")
        self.doubt = self.new_doubt()
        self.doubt_ends_at = None

    def new_doubt(self) -> int:
        return self.rng.getrandbits(62) + 1

    # The bundle

    def done(self) -> Ready:
        ready, self.ready = self.ready, Ready()
        return ready

    def send(self, to: str, message: Message) -> None:
        if self.role is not Role.OUT:
            self.ready.messages.append((to, message))

    def note(self, text: str) -> None:
        self.ready.notes.append(text)

    def persist_vote(self) -> None:
        self.ready.hard_state = HardState(self.term, self.voted_for, self.doubtful)

    def set_epochs(self, table: EpochTable) -> None:
        if table != self.epochs:
            self.epochs = table
            self.ready.epochs = table
