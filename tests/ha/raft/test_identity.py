"""Identity of groups and logs: formation of new groups, foreign, lost and restored directories, implausible messages."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import cast

import pytest

from firearrow.ha.raft.epochs import Epoch, EpochTable
from firearrow.ha.raft.hard_state import HardState, LogIdentity, load_hard_state, mark_as_seed, mark_for_rejoin, save_hard_state
from firearrow.ha.raft.interfaces import RaftLog, Ready
from firearrow.ha.raft.messages import AppendEntries, AppendResponse, AppendStatus, Probe, RequestVote, TimeoutNow, VoteResponse
from firearrow.ha.raft.node import RaftNode
from firearrow.ha.raft.raft import MAX_TERM_JUMP, Options, Raft, Role
from firearrow.store.errors import StoreError
from tests.ha.raft.test_raft import Bytes
from tests.sim.model_log import ModelLog
from tests.store.simdisk import SimulatedDisk

MEMBERS = ["n0", "n1", "n2"]
OURS, THEIRS = 0xAAAA, 0xBBBB
DATA = EpochTable([Epoch(1, 0)])


def member(me: str = "n0", end: int = 0, state: HardState | None = None, *, uninitialised: bool = False) -> Raft:
    """Return a member: with a log of epoch 1 if it has an end, otherwise without data."""
    state = state or HardState(1 if end else 0, identity=LogIdentity("g", me, OURS if end else 0, 7))
    epochs = DATA if end else EpochTable()
    log = cast(RaftLog, Bytes(end))
    rng = random.Random(1)
    return Raft(me, MEMBERS, log, state, epochs, options=Options(), rng=rng, now_ms=0, uninitialised=uninitialised)


def granted(ready: Ready) -> list[bool]:
    return [message.granted for _, message in ready.messages if isinstance(message, VoteResponse)]


def role_of(raft: Raft) -> Role:
    return raft.role


# New groups


def test_new_group_is_formed_by_the_first_member_with_the_votes_of_all() -> None:
    raft = member(uninitialised=True)
    assert [to for to, _ in raft.tick(150).messages] == ["n1", "n2"]  # at once: there is no leader to wait for
    raft.step("n1", VoteResponse(1, True, pre=True), 160)
    assert role_of(raft) is Role.PRE_CANDIDATE
    raft.step("n2", VoteResponse(1, True, pre=True), 170)
    raft.step("n1", VoteResponse(1, True), 180)
    assert role_of(raft) is Role.CANDIDATE
    ready = raft.step("n2", VoteResponse(1, True), 190)
    assert role_of(raft) is Role.LEADER
    assert raft.identity.group_id
    assert f"n0 forms the group {raft.identity.group_id:016x}" in ready.log_lines


def test_member_without_data_votes_for_the_founder_and_adopts_its_group() -> None:
    raft = member("n1", uninitialised=True)
    assert granted(raft.step("n0", RequestVote(1, 0, 0, pre=True, group_id=0), 10)) == [True]
    ready = raft.step("n0", RequestVote(1, 0, 0, group_id=OURS), 20)
    assert granted(ready) == [True]
    assert ready.hard_state is not None
    assert (ready.hard_state.voted_for, ready.hard_state.identity.group_id) == ("n0", OURS)
    assert not raft.quarantined


def test_other_members_without_data_do_not_campaign() -> None:
    raft = member("n1", uninitialised=True)
    ready = raft.tick(5000)
    assert ready.messages == []
    assert "waits for a leader, or for n0 to form a new group" in ready.log_lines[0]


def test_founder_that_waits_for_members_names_them() -> None:
    raft = member(uninitialised=True)
    raft.tick(150)
    raft.step("n1", VoteResponse(1, True, pre=True), 160)
    assert "n2 did not agree yet" in raft.tick(5000).log_lines[0]


def test_member_with_data_does_not_vote_for_a_new_group() -> None:
    assert granted(member(end=50).step("n1", RequestVote(2, 0, 0, pre=True), 10)) == [False]
    assert granted(member(end=50).step("n1", RequestVote(2, 0, 0), 10)) == [False]


def test_member_without_group_votes_for_no_candidate_with_data() -> None:
    raft = member(uninitialised=True)
    assert granted(raft.step("n1", RequestVote(5, 4, 100, group_id=OURS), 10)) == [False]
    assert raft.identity.group_id == 0


def test_lost_directory_follows_a_leader_in_quarantine() -> None:
    raft = member(uninitialised=True)
    ready = raft.step("n1", Probe(5, 0, 90, 0, EpochTable([Epoch(5, 0)]), group_id=OURS), 10)
    assert (raft.identity.group_id, raft.quarantined) == (OURS, True)
    assert ready.hard_state == raft.hard_state


# Foreign directories


@pytest.mark.parametrize(
    "message",
    [
        RequestVote(9, 9, 1000, group_id=THEIRS),
        Probe(9, 0, 10, 10, EpochTable([Epoch(9, 0)]), group_id=THEIRS),
        AppendEntries(9, 50, 60, 60, data=bytes(10), group_id=THEIRS),
        VoteResponse(9, False, group_id=THEIRS),
        TimeoutNow(1, THEIRS),
    ],
    ids=lambda message: type(message).__name__,
)
def test_message_of_another_group_changes_nothing(message: Probe) -> None:
    raft = member(end=50)
    before = raft.hard_state
    ready = raft.step("n1", message, 10)
    assert (ready.messages, ready.hard_state, ready.truncate_to, ready.reset_to, ready.writes) == ([], None, None, None, [])
    assert (raft.hard_state, raft.end, role_of(raft)) == (before, 50, Role.FOLLOWER)
    assert "the store directory of n1 belongs to the group with id 000000000000bbbb" in ready.log_lines[0]
    assert raft.step("n1", message, 20).log_lines == []  # once


def test_member_among_members_of_another_group_halts_with_its_directory_unchanged() -> None:
    raft = member(end=50)
    raft.step("n1", RequestVote(9, 9, 1000, group_id=THEIRS), 10)
    ready = raft.step("n2", RequestVote(9, 9, 1000, group_id=THEIRS), 20)
    assert role_of(raft) is Role.HALTED
    assert "its store directory belongs to another group" in raft.halt_reason
    assert ready.hard_state is None


def test_group_of_a_follower_is_known_from_its_greeting() -> None:
    """Followers send no other messages to each other."""
    raft = member(end=50)
    raft.step("n1", RequestVote(9, 9, 1000, group_id=THEIRS), 10)
    assert raft.greeted("n2", OURS).log_lines == []
    raft.greeted("n2", THEIRS)
    assert role_of(raft) is Role.HALTED
    empty = member(uninitialised=True)
    empty.greeted("n1", THEIRS)
    empty.greeted("n2", THEIRS)
    assert role_of(empty) is Role.FOLLOWER


def test_founder_that_lost_its_directory_replaces_the_group_of_members_without_data() -> None:
    """It had formed a group with members that never received anything."""
    raft = member("n1", 0, HardState(1, "n0", identity=LogIdentity("g", "n1", THEIRS, 7)))
    assert granted(raft.step("n0", RequestVote(2, 0, 0, group_id=OURS), 10)) == [True]
    assert raft.identity.group_id == OURS


def node(disk: SimulatedDisk, me: str = "n0", group: str = "g") -> RaftNode:
    disk.mkdirs("/store")
    log = ModelLog(disk, "/store")
    rng = random.Random(1)
    return RaftNode(group, MEMBERS, me, disk=disk, directory="/store", log=log, options=Options(), rng=rng, now_ms=0)


@pytest.mark.parametrize(("me", "group"), [("n1", "g"), ("n0", "other")])
def test_directory_of_another_member_or_group_is_rejected(me: str, group: str) -> None:
    disk = SimulatedDisk()
    node(disk).step("n1", RequestVote(3, 0, 0), 10)
    with pytest.raises(StoreError, match=r"/store belongs to member n0 of group g, not to member .*Nothing was changed"):
        node(disk, me, group)


def test_directories_of_earlier_versions_get_the_same_group_id_on_every_member() -> None:
    ids = set()
    for me in MEMBERS:
        disk = SimulatedDisk()
        disk.mkdirs("/store")
        save_hard_state(disk, "/store/currterm", HardState(3, "n1"))
        first = node(disk, me)
        assert "was written by a version without ids" in first.log_lines[0]
        saved = load_hard_state(disk, "/store/currterm")
        assert saved is not None
        assert saved == replace(HardState(3, "n1"), identity=first.raft.identity)
        assert node(disk, me).log_lines == []
        ids.add(saved.identity.group_id)
    assert len(ids) == 1
    assert 0 not in ids


# Lost and restored directories


def leader() -> Raft:
    raft = member(end=50)
    raft.tick(2000)
    raft.step("n1", VoteResponse(2, True, pre=True), 2000)
    raft.step("n1", VoteResponse(2, True), 2000)
    assert raft.role is Role.LEADER
    return raft


def test_follower_that_returns_with_an_empty_log_is_not_counted_for_the_lost_one() -> None:
    raft = leader()
    raft.step("n1", AppendResponse(2, 50, 50, 2, log_id=1), 2010)
    assert raft.progress["n1"].match == 50
    ready = raft.step("n1", AppendResponse(2, 0, 0, 0, AppendStatus.NEEDS_PROBE, log_id=2), 2020)
    assert raft.progress["n1"].match == -1
    assert [message.acknowledged for _, message in ready.messages if isinstance(message, Probe)] == [0]
    raft.step("n1", AppendResponse(2, 50, 50, 2, log_id=1), 2030)  # a late one of the lost log
    assert raft.progress["n1"].match == -1


def test_restored_backup_is_detected_by_the_leader_of_the_same_term() -> None:
    raft = leader()
    raft.step("n1", AppendResponse(2, 50, 50, 2, log_id=1), 2010)
    ready = raft.step("n1", AppendResponse(2, 30, 30, 1, AppendStatus.NEEDS_PROBE, log_id=1), 2020)
    (probe,) = [message for _, message in ready.messages if isinstance(message, Probe)]
    restored = member("n1", 30, HardState(1, identity=LogIdentity("g", "n1", OURS, 1)))
    ready = restored.step("n0", probe, 10)
    assert restored.quarantined
    assert any("has acknowledged its log up to 50 in term 2 and holds it up to 30" in line for line in ready.log_lines)


def test_directory_marked_for_rejoin_is_quarantined() -> None:
    disk = SimulatedDisk()
    node(disk).step("n1", RequestVote(3, 0, 0), 10)
    before = load_hard_state(disk, "/store/currterm")
    marked = mark_for_rejoin(disk, "/store", random.Random(2))
    assert before is not None
    assert marked is not None
    assert marked.identity.log_id != before.identity.log_id  # a leader that knows the log does not take it for the same one
    again = node(disk)
    assert again.raft.quarantined
    assert again.raft.term == 3
    assert mark_for_rejoin(SimulatedDisk(), "/store", random.Random(2)) is None


# Seeds


def seed() -> Raft:
    raft = member("n2", 50, HardState(4, identity=LogIdentity("g", "n2", OURS, 9), seed=True))
    raft.tick(2000)
    return raft


def test_seed_gets_the_votes_of_members_without_data() -> None:
    raft, empty = seed(), member("n0", uninitialised=True)
    request = RequestVote(5, 1, 50, pre=True, seed=True, group_id=OURS)
    assert granted(empty.step("n2", request, 10)) == [True]
    raft.step("n0", VoteResponse(5, True, pre=True), 2010)
    ready = empty.step("n2", replace(request, pre=False), 20)
    assert granted(ready) == [True]
    assert ready.hard_state is not None
    assert ready.hard_state.quarantined  # it votes for no other candidate before it has caught up
    assert ready.hard_state.identity.group_id == OURS
    raft.step("n0", VoteResponse(5, True), 2020)
    assert role_of(raft) is Role.LEADER
    assert raft.seed
    raft.step("n0", AppendResponse(5, 50, 50, 5, quarantine_token=3), 2030)
    assert raft.seed
    ready = raft.step("n0", AppendResponse(5, 50, 50, 5), 2040)
    assert not raft.seed
    assert ready.hard_state == raft.hard_state


def test_seed_gets_no_vote_of_a_member_with_a_longer_log() -> None:
    assert granted(member(end=60).step("n2", RequestVote(5, 1, 50, seed=True, group_id=OURS), 10)) == [False]


def test_directory_marked_as_seed_campaigns_without_data() -> None:
    disk = SimulatedDisk()
    node(disk, "n2").step("n1", RequestVote(3, 0, 0), 10)
    mark_as_seed(disk, "/store")
    marked = node(disk, "n2").raft
    assert [to for to, _ in marked.tick(5000).messages] == ["n0", "n1"]
    marked.step("n1", VoteResponse(4, True, pre=True), 5010)
    marked.step("n1", VoteResponse(4, True), 5020)
    assert marked.role is Role.LEADER


# Implausible messages


def test_term_far_ahead_is_refused() -> None:
    raft = member(end=50)
    ready = raft.step("n1", VoteResponse(MAX_TERM_JUMP + 2, False, group_id=OURS), 10)
    assert (raft.term, ready.hard_state) == (1, None)
    assert f"n1, which is in term {MAX_TERM_JUMP + 2}" in ready.log_lines[0]
    raft.step("n1", VoteResponse(MAX_TERM_JUMP + 1, False, group_id=OURS), 20)
    assert raft.term == MAX_TERM_JUMP + 1
    fresh = member(uninitialised=True)
    fresh.step("n1", Probe(9_000_000, 0, 0, 0, EpochTable([Epoch(9_000_000, 0)]), group_id=OURS), 10)
    assert fresh.term == 9_000_000


@pytest.mark.parametrize(("min_offset", "end", "commit", "start"), [(100, 90, 0, 0), (0, 90, 100, 0), (0, 90, 0, 95)])
def test_probe_that_contradicts_itself_deletes_nothing(min_offset: int, end: int, commit: int, start: int) -> None:
    raft = member(end=50)
    ready = raft.step("n1", Probe(9, min_offset, end, commit, EpochTable([Epoch(9, start)]), group_id=OURS), 10)
    assert (ready.reset_to, ready.truncate_to, raft.end) == (None, None, 50)
    assert "ignores the log of n1" in ready.log_lines[-1]
