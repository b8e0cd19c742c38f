"""Raft as transcripts: events at times and the requested effects.

A line of a transcript is an effect, in order: `save` the hard state, `truncate` the log, `table` for the epoch table, `write`,
`sync`, then the messages by receiver.
"""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from firearrow.ha.raft.epochs import Epoch, EpochTable
from firearrow.ha.raft.hard_state import HardState
from firearrow.ha.raft.interfaces import LogDamagedError, RaftLog, Ready
from firearrow.ha.raft.messages import AppendEntries, AppendResponse, AppendStatus, Probe, RequestVote, TimeoutNow, VoteResponse
from firearrow.ha.raft.raft import NotLeaderError, Options, Raft, Role

OPTIONS = Options(heartbeat_ms=200, election_ms=1000, batch_bytes=100, window_bytes=250)


class Bytes:
    """A log of ten-byte records."""

    def __init__(self, end: int = 0, start: int = 0) -> None:
        self.min_offset = start
        self.end_offset = end
        self.lost = False
        self.damaged = False

    def read(self, offset: int, limit: int) -> bytes:
        if self.damaged:
            raise LogDamagedError(f"no record at {offset}")
        return bytes(max(10, limit // 10 * 10))


def table(*entries: tuple[int, int]) -> EpochTable:
    return EpochTable(Epoch(*entry) for entry in entries)


def member(
    end: int = 0,
    epochs: EpochTable | None = None,
    state: HardState | None = None,
    *,
    members: int = 3,
    start: int = 0,
    **more: Any,
) -> tuple[Raft, Bytes]:
    log = Bytes(end, start)
    names = [f"n{i}" for i in range(members)]
    options = more.pop("options", OPTIONS)
    raft = Raft(
        "n0",
        names,
        cast(RaftLog, log),
        state or HardState(),
        epochs or table(),
        options=options,
        rng=random.Random(1),
        now_ms=0,
        **more,
    )
    return raft, log


def role_of(raft: Raft) -> Role:
    """Return the current role. A type checker does not know that `step` changes `raft.role`."""
    return raft.role


def transcript(ready: Ready) -> list[str]:
    lines = []
    if ready.hard_state is not None:
        state = ready.hard_state
        lines.append(f"save term {state.term} vote {state.voted_for}" + " quarantined" * state.quarantined)
    if ready.reset_to is not None:
        lines.append(f"reset to {ready.reset_to}")
    if ready.truncate_to is not None:
        lines.append(f"truncate to {ready.truncate_to}")
    if ready.epochs is not None:
        lines.append(f"table {ready.epochs}")
    lines += [f"write {offset}..{offset + len(data)}" for offset, data in ready.writes]
    if ready.sync:
        lines.append("sync")
    return lines + [f"{to} <- {short(message)}" for to, message in ready.messages]


def short(message: object) -> str:
    match message:
        case RequestVote(term, last_epoch, end, pre, transfer):
            return f"{'pre-vote' if pre else 'vote'} term {term} log {last_epoch}:{end}" + " for transfer" * transfer
        case VoteResponse(term, granted, pre):
            return f"{'yes' if granted else 'no'} term {term}" + " (pre)" * pre
        case Probe(term, min_offset, end, commit, epochs):
            return f"probe term {term} log {min_offset}..{end} commit {commit} table {epochs}"
        case AppendEntries(term, offset, end, commit, _, data):
            return f"append term {term} {offset}+{len(data)} of {end} commit {commit}"
        case AppendResponse(term, match_, end, epoch, status, token):
            return f"ack term {term} {epoch}:{match_} end {end} {status.name}" + " quarantined" * bool(token)
        case TimeoutNow(term):
            return f"timeout now, term {term}"
    raise AssertionError(message)


def elected(end: int = 0, epochs: EpochTable | None = None, state: HardState | None = None, **more: object) -> tuple[Raft, Bytes]:
    """Return a new leader without acknowledgements, at time 2000."""
    raft, log = member(end, epochs, state, **more)  # type: ignore[arg-type]
    raft.tick(2000)
    # A new group needs the votes of all.
    for peer in raft.peers if epochs is None else raft.peers[: raft.majority - 1]:
        raft.step(peer, VoteResponse(raft.term + 1, True, pre=True), 2000)
    for peer in raft.peers if epochs is None else raft.peers[: raft.majority - 1]:
        raft.step(peer, VoteResponse(raft.term, True), 2000)
    assert raft.role is Role.LEADER
    return raft, log


# Elections


def test_election_from_silence_to_the_first_committed_record() -> None:
    raft, log = member()
    assert transcript(raft.tick(900)) == []
    assert transcript(raft.tick(2000)) == ["n1 <- pre-vote term 1 log 0:0", "n2 <- pre-vote term 1 log 0:0"]
    assert raft.term == 0
    assert transcript(raft.step("n1", VoteResponse(1, True, pre=True), 2005)) == []
    assert transcript(raft.step("n2", VoteResponse(1, True, pre=True), 2010)) == [
        "save term 1 vote n0",
        "n1 <- vote term 1 log 0:0",
        "n2 <- vote term 1 log 0:0",
    ]
    assert transcript(raft.step("n1", VoteResponse(1, True), 2015)) == []
    assert transcript(raft.step("n2", VoteResponse(1, True), 2020)) == [
        "table 1@0",
        "sync",
        "n1 <- probe term 1 log 0..0 commit 0 table 1@0",
        "n2 <- probe term 1 log 0..0 commit 0 table 1@0",
    ]
    assert raft.accepts_appends
    assert not raft.is_ready_to_serve
    raft.step("n1", AppendResponse(1, 0, 0, 1), 2030)
    assert raft.is_ready_to_serve
    log.end_offset = 30
    assert transcript(raft.appended(30, 2040)) == ["sync", "n1 <- append term 1 0+30 of 30 commit 0"]
    raft.step("n1", AppendResponse(1, 30, 30, 1), 2050)
    assert raft.commit == 0  # not durable on our own disk, and one member is no majority
    raft.synced(30, 0, 2060)
    assert raft.commit == 30


def test_vote_is_saved_before_it_is_sent_and_given_once_per_term() -> None:
    raft, _ = member()
    assert transcript(raft.step("n1", RequestVote(4, 0, 0), 100)) == ["save term 4 vote n1", "n1 <- yes term 4"]
    assert transcript(raft.step("n1", RequestVote(4, 0, 0), 110)) == ["n1 <- yes term 4"]
    assert transcript(raft.step("n2", RequestVote(4, 9, 900), 120)) == ["n2 <- no term 4"]
    assert transcript(raft.step("n2", RequestVote(3, 9, 900), 130)) == ["n2 <- no term 4"]


@pytest.mark.parametrize(("last_epoch", "end", "answer"), [(3, 50, "yes"), (3, 49, "no"), (2, 900, "no"), (4, 0, "yes")])
def test_vote_is_granted_only_to_a_log_at_least_as_current(last_epoch: int, end: int, answer: str) -> None:
    raft, _ = member(50, table((1, 0), (3, 20)), HardState(3))
    assert transcript(raft.step("n1", RequestVote(5, last_epoch, end), 100))[-1] == f"n1 <- {answer} term 5"


def test_pre_vote_changes_nothing_and_is_ignored_while_a_leader_is_heard() -> None:
    raft, _ = member()
    assert transcript(raft.step("n1", RequestVote(1, 0, 0, pre=True), 10)) == ["n1 <- yes term 1 (pre)"]
    assert (raft.term, raft.voted_for) == (0, None)
    raft.step("n1", Probe(1, 0, 0, 0, table((1, 0))), 20)
    assert transcript(raft.step("n2", RequestVote(2, 1, 0, pre=True), 900)) == []
    assert transcript(raft.step("n2", RequestVote(9, 1, 0), 900)) == []
    assert raft.term == 1
    assert transcript(raft.step("n2", RequestVote(2, 1, 0, pre=True), 1100)) == ["n2 <- yes term 2 (pre)"]


def test_votes_for_another_term_or_from_the_same_member_do_not_count() -> None:
    raft, _ = member(0, table((1, 0)), HardState(1), members=5)
    raft.tick(2000)
    raft.step("n1", VoteResponse(2, True, pre=True), 2000)
    raft.step("n1", VoteResponse(2, True, pre=True), 2000)
    assert role_of(raft) is Role.PRE_CANDIDATE
    raft.step("n2", VoteResponse(2, True, pre=True), 2000)
    assert role_of(raft) is Role.CANDIDATE
    raft.step("n1", VoteResponse(2, True), 2000)
    raft.step("n1", VoteResponse(2, True), 2000)
    raft.step("n3", VoteResponse(2, True, pre=True), 2000)
    assert raft.role is Role.CANDIDATE


def test_single_member_elects_itself() -> None:
    raft, _ = member(members=1)
    assert transcript(raft.tick(2000)) == ["save term 1 vote n0", "table 1@0", "sync"]
    assert raft.is_ready_to_serve


# Committed offset


def test_bytes_of_an_earlier_term_are_committed_only_with_the_current_epoch() -> None:
    """A majority holds them, but a member with a later epoch could still be elected and replace them."""
    raft, _ = elected(50, table((1, 0), (2, 20)), HardState(3))
    raft.synced(50, 0, 2000)
    raft.step("n1", AppendResponse(4, 50, 50, 2), 2010)
    raft.step("n2", AppendResponse(4, 50, 50, 2), 2010)
    assert raft.commit == 0
    raft.step("n1", AppendResponse(4, 50, 50, 4), 2020)
    assert raft.commit == 50


def test_empty_epoch_is_replaced() -> None:
    raft, _ = elected(50, table((1, 0), (2, 50)), HardState(2))
    assert raft.epochs == table((1, 0), (3, 50))


def test_sync_that_began_before_a_truncation_is_ignored() -> None:
    raft, _ = member(50, table((1, 0), (2, 20)), HardState(2))
    raft.step("n1", Probe(3, 0, 30, 0, table((1, 0), (3, 20))), 10)
    raft.step("n1", AppendEntries(3, 20, 30, 0, data=bytes(10)), 20)
    assert transcript(raft.synced(50, 0, 30)) == []
    assert transcript(raft.synced(30, 1, 40)) == ["n1 <- ack term 3 3:30 end 30 OK"]


# Follower


def test_follower_truncates_where_the_logs_diverge_and_acknowledges_durable_bytes() -> None:
    raft, _ = member(50, table((1, 0), (2, 20)), HardState(2))
    probe = Probe(3, 0, 40, 0, table((1, 0), (3, 20)))
    assert transcript(raft.step("n1", probe, 10)) == [
        "save term 3 vote None",
        "truncate to 20",
        "table 1@0 3@20",
        "n1 <- ack term 3 3:20 end 20 OK",
    ]
    assert transcript(raft.step("n1", AppendEntries(3, 20, 40, 20, data=bytes(20)), 20)) == ["write 20..40", "sync"]
    assert raft.commit == 20
    assert transcript(raft.synced(40, 1, 30)) == ["n1 <- ack term 3 3:40 end 40 OK"]
    assert transcript(raft.step("n1", probe, 40)) == ["n1 <- ack term 3 3:40 end 40 OK"]  # late probes are harmless


def test_follower_without_the_leaders_table_requests_a_probe_and_keeps_its_log() -> None:
    raft, _ = member(40, table((1, 0), (3, 20)), HardState(3))
    assert transcript(raft.step("n1", AppendEntries(3, 40, 60, 0, data=bytes(20)), 10)) == [
        "n1 <- ack term 3 3:40 end 40 NEEDS_PROBE"
    ]
    assert transcript(raft.step("n1", Probe(3, 0, 20, 0, table((1, 0), (3, 20))), 20)) == ["n1 <- ack term 3 3:40 end 40 OK"]


def test_gaps_are_reported_and_repetitions_skipped() -> None:
    raft, _ = member()
    raft.step("n1", Probe(1, 0, 0, 0, table((1, 0))), 10)
    assert transcript(raft.step("n1", AppendEntries(1, 10, 30, 0, data=bytes(20)), 20)) == ["n1 <- ack term 1 1:0 end 0 GAP"]
    assert transcript(raft.step("n1", AppendEntries(1, 0, 30, 0, data=bytes(20)), 30)) == ["write 0..20", "sync"]
    assert transcript(raft.step("n1", AppendEntries(1, 10, 30, 0, data=bytes(20)), 40)) == ["write 20..30", "sync"]
    assert transcript(raft.step("n1", AppendEntries(1, 0, 30, 0, data=bytes(20)), 50)) == ["n1 <- ack term 1 1:0 end 30 OK"]


def test_epoch_is_saved_before_its_bytes() -> None:
    raft, _ = member()
    raft.step("n1", Probe(3, 0, 40, 0, table((1, 0), (3, 20))), 10)
    assert transcript(raft.step("n1", AppendEntries(3, 0, 40, 0, data=bytes(30)), 20)) == [
        "table 1@0 3@20",
        "write 0..30",
        "sync",
    ]


def test_follower_whose_log_is_deleted_elsewhere_restarts_its_log() -> None:
    raft, _ = member(50, table((1, 0)), HardState(1))
    ready = raft.step("n1", Probe(4, 300, 900, 800, table((3, 280), (4, 600))), 10)
    assert transcript(ready) == ["save term 4 vote None", "reset to 300", "table 3@280", "n1 <- ack term 4 3:300 end 300 OK"]


def test_follower_whose_log_is_deleted_elsewhere_during_the_term_restarts_its_log() -> None:
    raft, _ = member(50, table((1, 0)), HardState(1))
    raft.step("n1", Probe(4, 0, 900, 800, table((1, 0), (4, 600))), 10)
    ready = raft.step("n1", Probe(4, 300, 900, 800, table((1, 0), (4, 600))), 20)
    assert transcript(ready) == ["reset to 300", "table 1@0", "n1 <- ack term 4 1:300 end 300 OK"]


def test_committed_bytes_are_never_truncated() -> None:
    raft, _ = member(50, table((1, 0)), HardState(1))
    raft.step("n1", Probe(1, 0, 50, 50, table((1, 0))), 10)
    assert raft.commit == 50
    ready = raft.step("n2", Probe(2, 0, 10, 0, table((2, 0))), 20)
    assert transcript(ready) == []
    assert raft.role is Role.HALTED
    assert "committed up to 50. Nothing was truncated" in raft.halt_reason
    assert ready.log_lines == [f"n0 has left its group: {raft.halt_reason}"]


def test_second_leader_of_a_term_halts_the_member() -> None:
    raft, _ = member()
    raft.step("n1", Probe(1, 0, 0, 0, table((1, 0))), 10)
    raft.step("n2", Probe(1, 0, 0, 0, table((1, 0))), 20)
    assert raft.role is Role.HALTED
    assert "n2 and n1 both lead term 1" in raft.halt_reason


# Leader


def test_leader_without_majority_steps_down() -> None:
    raft, _ = elected()
    raft.step("n1", AppendResponse(1, 0, 0, 1), 2500)
    assert raft.tick(3400).log_lines == []
    assert raft.tick(3500).log_lines[0] == "n0 steps down from term 1: it hears 0 of 2 peers"
    with pytest.raises(NotLeaderError, match="the leader is unknown"):
        raft.appended(10, 3500)


def test_leader_follows_a_later_term() -> None:
    raft, _ = elected()
    assert transcript(raft.step("n1", AppendResponse(7, 0, 0, 0, AppendStatus.STALE_TERM), 2100)) == ["save term 7 vote None"]
    assert raft.role is Role.FOLLOWER


def test_former_leader_is_told_of_the_newer_term() -> None:
    raft, _ = member(0, None, HardState(5))
    assert transcript(raft.step("n1", AppendEntries(3, 0, 0, 0), 10)) == ["n1 <- ack term 5 0:0 end 0 STALE_TERM"]


def test_bytes_in_flight_are_bounded_and_resent() -> None:
    raft, log = elected()
    raft.step("n1", AppendResponse(1, 0, 0, 1), 2000)
    log.end_offset = 1000
    sent = transcript(raft.appended(1000, 2010))
    assert sent == ["sync", *(f"n1 <- append term 1 {at}+100 of 1000 commit 0" for at in (0, 100, 200))]
    assert transcript(raft.step("n1", AppendResponse(1, 100, 100, 1), 2020)) == ["n1 <- append term 1 300+100 of 1000 commit 0"]
    raft.step("n2", AppendResponse(1, 0, 0, 1), 2900)
    assert "n1 <- append term 1 100+100 of 1000 commit 0" in transcript(raft.tick(3019)) + transcript(raft.tick(3020))


def test_leader_that_cannot_read_its_log_halts() -> None:
    raft, log = elected()
    raft.step("n1", AppendResponse(1, 0, 0, 1), 2000)
    log.damaged = True
    assert transcript(raft.appended(100, 2010)) == []
    assert raft.role is Role.HALTED
    assert "Restart this member: it repairs itself from the others" in raft.halt_reason
    assert transcript(raft.tick(9000)) == []


def test_leadership_is_transferred_when_the_follower_is_complete() -> None:
    raft, log = elected()
    raft.step("n1", AppendResponse(1, 0, 0, 1), 2000)
    log.end_offset = 50
    raft.appended(50, 2010)
    assert transcript(raft.transfer_leadership("n1", 2020)) == []
    assert not raft.accepts_appends
    assert transcript(raft.step("n1", AppendResponse(1, 50, 50, 1), 2030)) == ["n1 <- timeout now, term 1"]
    assert transcript(raft.step("n1", RequestVote(2, 1, 50, transfer=True), 2040)) == ["save term 2 vote n1", "n1 <- yes term 2"]
    with pytest.raises(NotLeaderError):
        raft.transfer_leadership("n1", 2050)


def test_leadership_transfer_times_out() -> None:
    raft, _ = elected()
    raft.transfer_leadership("n1", 2100)
    raft.step("n2", AppendResponse(1, 0, 0, 1), 3000)
    raft.tick(3100)
    assert raft.accepts_appends
    with pytest.raises(ValueError, match="expected one of n1, n2"):
        raft.transfer_leadership("n9", 3200)


def test_timeout_now_starts_an_election() -> None:
    raft, _ = member()
    raft.step("n1", Probe(1, 0, 0, 0, table((1, 0))), 10)
    assert transcript(raft.step("n1", TimeoutNow(1), 20)) == [
        "save term 2 vote n0",
        "n1 <- vote term 2 log 1:0 for transfer",
        "n2 <- vote term 2 log 1:0 for transfer",
    ]


def test_leadership_goes_to_the_preferred_leader_when_it_has_caught_up() -> None:
    raft, _ = elected(options=Options(preferred_leader="n2", preferred_check_ms=500))
    raft.step("n1", AppendResponse(1, 0, 0, 1), 2400)
    raft.step("n2", AppendResponse(1, 0, 0, 1, quarantine_token=5), 2400)
    assert "n2 <- timeout now, term 1" not in transcript(raft.tick(2600))  # it is quarantined
    raft.step("n2", AppendResponse(1, 0, 0, 1), 2900)
    assert "n2 <- timeout now, term 1" in transcript(raft.tick(3200))


# Quarantine


def test_quarantined_member_neither_votes_nor_campaigns() -> None:
    raft, _ = member(50, table((1, 0)), HardState(1, None, True))
    assert transcript(raft.tick(5000)) == []
    assert transcript(raft.step("n1", RequestVote(2, 1, 90, pre=True), 5000)) == ["n1 <- no term 1 (pre)"]
    assert transcript(raft.step("n1", RequestVote(2, 1, 90), 5000)) == ["save term 2 vote None quarantined", "n1 <- no term 2"]
    raft.step("n1", Probe(2, 0, 90, 0, table((1, 0), (2, 90))), 5010)
    assert transcript(raft.step("n1", TimeoutNow(2), 5020)) == []


def test_quarantine_ends_with_the_log_that_the_leader_had_after_it_began() -> None:
    raft, _ = member(50, table((1, 0)), HardState(1, None, True))
    ready = raft.step("n1", Probe(2, 0, 90, 0, table((1, 0), (2, 60))), 10)
    (_, ack) = ready.messages[0]
    assert isinstance(ack, AppendResponse)
    assert ack.quarantine_token
    raft.step("n1", AppendEntries(2, 50, 60, 0, data=bytes(10)), 20)  # sent before the leader knew of the quarantine
    raft.synced(60, 0, 30)
    assert raft.quarantined
    raft.step("n1", AppendEntries(2, 60, 90, 0, ack.quarantine_token, bytes(20)), 40)
    raft.synced(80, 0, 50)
    assert raft.quarantined
    raft.step("n1", AppendEntries(2, 80, 100, 0, ack.quarantine_token, bytes(10)), 60)
    assert transcript(raft.synced(90, 0, 70)) == ["save term 2 vote None", "n1 <- ack term 2 2:90 end 90 OK"]
    assert not raft.quarantined


def test_member_without_files_does_not_vote_in_a_group_with_a_history() -> None:
    raft, _ = member(uninitialised=True)
    assert transcript(raft.step("n1", RequestVote(5, 4, 100), 10)) == ["save term 5 vote None", "n1 <- no term 5"]
    raft, _ = member(uninitialised=True)
    assert transcript(raft.step("n1", RequestVote(1, 0, 0), 10)) == ["save term 1 vote n1", "n1 <- yes term 1"]


def test_lagging_follower_receives_one_slice_at_a_time() -> None:
    options = Options(batch_bytes=100, window_bytes=1000, slice_bytes=200)
    raft, _ = elected(5000, table((1, 0)), HardState(1), options=options)
    assert transcript(raft.step("n1", AppendResponse(2, 0, 0, 1, AppendStatus.OK), 2010)) == [
        "n1 <- append term 2 0+100 of 5000 commit 0",
        "n1 <- append term 2 100+100 of 5000 commit 0",
    ]
    assert raft.has_backlog
    slices = 1
    while raft.has_backlog:
        assert len(transcript(raft.send_backlog(2011))) == 2
        slices += 1
    assert slices == 5  # limited by the window
    assert transcript(raft.send_backlog(2012)) == []
    raft.step("n1", AppendResponse(2, 300, 1000, 1, AppendStatus.OK), 2020)
    assert raft.progress["n1"].next == 1200
    assert raft.has_backlog
