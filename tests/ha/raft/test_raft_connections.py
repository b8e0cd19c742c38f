"""Raft events of connections: the loss of the leader's connection, and peers that become reachable."""

from __future__ import annotations

import random

from firearrow.ha.raft.epochs import Epoch, EpochTable
from firearrow.ha.raft.hard_state import HardState
from firearrow.ha.raft.messages import Message, Probe, RequestVote
from firearrow.ha.raft.raft import Options, Raft, Role


class EmptyLog:
    min_offset = end_offset = 0
    lost = False

    def read(self, offset: int, limit: int) -> bytes:
        return b""

    def append(self, offset: int, data: bytes) -> None: ...

    def truncate(self, offset: int) -> None: ...

    def reset(self, offset: int) -> None: ...

    def sync(self) -> int:
        return 0


def follower_of_n0(now_ms: int) -> Raft:
    members = ["n0", "n1", "n2"]
    raft = Raft(
        "n1",
        members,
        EmptyLog(),
        HardState(1),
        EpochTable(),
        options=Options(),
        rng=random.Random(7),
        now_ms=now_ms,
        uninitialised=True,
    )
    raft.step("n0", Probe(1, 0, 0, 0, EpochTable([Epoch(1, 0)])), now_ms)
    assert (raft.role, raft.leader) == (Role.FOLLOWER, "n0")
    return raft


def sent(messages: list[tuple[str, Message]]) -> list[tuple[str, Message]]:
    return sorted(messages, key=lambda one: one[0])


PRE_VOTES = [("n0", RequestVote(2, 1, 0, pre=True)), ("n2", RequestVote(2, 1, 0, pre=True))]


def test_lost_connection_to_the_leader_shortens_the_election_timeout() -> None:
    raft = follower_of_n0(1000)
    raft.disconnected("n0", 1100)
    assert sent(raft.tick(1700).messages) == PRE_VOTES


def test_lost_connection_to_another_follower_changes_nothing() -> None:
    raft = follower_of_n0(1000)
    raft.disconnected("n2", 1100)
    assert raft.tick(1900).messages == []
    assert sent(raft.tick(3000).messages) == PRE_VOTES


def test_member_that_hears_the_leader_grants_no_pre_vote() -> None:
    hears, lost = follower_of_n0(1000), follower_of_n0(1000)
    lost.disconnected("n0", 1100)
    assert lost.tick(1700).messages
    answers = hears.step("n2", RequestVote(2, 1, 0, pre=True), 1700).messages
    assert [message for _, message in answers if getattr(message, "granted", False)] == []


def test_pending_vote_request_is_repeated_to_a_reconnected_peer() -> None:
    raft = follower_of_n0(1000)
    raft.disconnected("n0", 1100)
    raft.tick(1700)
    assert raft.connected("n2", 1750).messages == [("n2", RequestVote(2, 1, 0, pre=True))]
    assert follower_of_n0(1000).connected("n2", 1100).messages == []
