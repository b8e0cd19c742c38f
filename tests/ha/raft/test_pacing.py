"""Election timeouts under delays."""

from __future__ import annotations

import random

from firearrow.ha.raft.epochs import Epoch, EpochTable
from firearrow.ha.raft.hard_state import HardState
from firearrow.ha.raft.messages import AppendEntries, AppendResponse, Probe, Resignation, VoteResponse
from firearrow.ha.raft.pacing import ElectionPacing
from firearrow.ha.raft.raft import Role
from tests.ha.raft.test_raft import elected, member, role_of, table, transcript


def test_timeouts_grow_with_delays_and_shrink_without_them() -> None:
    pacing = ElectionPacing(1000, random.Random(1), 0)
    assert pacing.window_ms == 1000
    pacing.observe(600, 100)
    assert pacing.window_ms == 2200
    assert all(2200 <= pacing.election_timeout_ms() < 4400 for _ in range(100))
    assert all(1100 <= pacing.campaign_timeout_ms() < 2200 for _ in range(100))
    pacing.observe(0, 10_100)
    assert pacing.window_ms == 1600
    pacing.observe(0, 200_000)
    assert pacing.window_ms == 1000
    pacing.observe(100_000, 200_000)
    assert pacing.window_ms == 8000


def test_time_in_which_a_follower_did_not_run_is_no_silence_of_its_leader() -> None:
    raft, _ = member(0, table((1, 0)), HardState(1))
    raft.step("n1", AppendEntries(1, 0, 0, 0), 100)
    assert transcript(raft.tick(2500, 2350)) == []
    assert raft.role is Role.FOLLOWER
    for _ in range(100):
        raft.tick(2500, 2350)
    assert transcript(raft.tick(20_000, 0)) != []  # the extension is bounded


def test_time_in_which_a_leader_did_not_run_is_no_silence_of_its_followers() -> None:
    raft, _ = elected()
    raft.step("n1", AppendResponse(1, 0, 0, 1), 2500)
    raft.tick(4000, 1450)
    assert raft.role is Role.LEADER
    raft.tick(9000)
    assert role_of(raft) is Role.FOLLOWER


def test_late_votes_elect_a_candidate_that_prepares_its_next_campaign() -> None:
    raft, _ = member(0, table((1, 0)), HardState(1))
    raft.tick(2000)
    raft.step("n1", VoteResponse(2, True, pre=True), 2010)
    assert role_of(raft) is Role.CANDIDATE
    raft.tick(4000)
    assert role_of(raft) is Role.PRE_CANDIDATE
    raft.step("n1", VoteResponse(2, True), 4100)
    assert role_of(raft) is Role.LEADER
    raft.step("n2", VoteResponse(2, True), 4200)
    assert raft.epochs == EpochTable([Epoch(2, 0)])


def test_votes_of_a_term_elect_a_leader_once() -> None:
    raft, _ = elected()
    raft.tick(5000)
    raft.tick(9000)
    assert role_of(raft) is Role.PRE_CANDIDATE
    raft.step("n1", VoteResponse(1, True), 9010)
    raft.step("n2", VoteResponse(1, True), 9010)
    assert role_of(raft) is Role.PRE_CANDIDATE


def test_leader_that_hears_nobody_resigns_and_its_followers_campaign_soon() -> None:
    raft, _ = elected()
    ready = raft.tick(3500)
    assert [(to, message) for to, message in ready.messages if isinstance(message, Resignation)] == [
        ("n1", Resignation(1)),
        ("n2", Resignation(1)),
    ]
    follower, _ = member(0, table((1, 0)), HardState(1))
    follower.step("n1", Probe(2, 0, 0, 0, table((2, 0))), 1000)
    follower.step("n2", Resignation(2), 1010)  # not the leader
    assert transcript(follower.tick(1500)) == []
    follower.step("n1", Resignation(2), 1510)
    assert transcript(follower.tick(2000)) != []
