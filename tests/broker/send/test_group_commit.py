"""Who hears what, and when: the store and the connections are stand-ins that write a transcript."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from firearrow.broker.observability.stats import BrokerStats
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.broker.send.handler import Reply
from firearrow.store.errors import NotWritableError
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command, FrameDecoder, encode_response


class Peer:
    """A connection that remembers the writes it got, each as the list of (opaque, code) in it."""

    def __init__(self) -> None:
        self.writes: list[list[tuple[int, int]]] = []
        self.state = SimpleNamespace(in_flight=0)

    def write(self, data: bytes) -> None:
        self.writes.append([(command.opaque, command.code) for command in FrameDecoder().feed(data)])


class Store:
    """`pending` messages of one queue; confirms what it is told."""

    def __init__(self) -> None:
        self.end = 0
        self.pending = 0
        self.broken: str | None = None
        self.queue = SimpleNamespace(waiters=["somebody"])

    def write_out(self) -> Any:
        if self.broken:
            raise NotWritableError(self.broken)
        if not self.pending:
            return None
        self.end, self.pending = self.end + self.pending, 0
        return SimpleNamespace(end_offset=self.end)

    def forget_pending(self) -> None:
        self.pending = 0

    def confirm(self, offset: int) -> list[tuple[Any, int, int]]:
        return [(self.queue, 0, offset)]


class Story:
    def __init__(self, *, sync_flush: bool) -> None:
        self.store = Store()
        self.sends = SimpleNamespace(replies=[], early_replies=[])
        self.arrived: list[int] = []
        self.stats = BrokerStats("C", 0)
        self.now = 0
        self.rounds = GroupCommit(
            self.store,  # type: ignore[arg-type]  # a stand-in
            self.sends,  # type: ignore[arg-type]  # a stand-in
            lambda queue, first, end: self.arrived.append(end),
            self.stats,
            lambda: self.now,
            sync_flush=sync_flush,
            flush_timeout_ms=5_000,
        )

    def send(self, peer: Peer, opaque: int, *, wait: bool = True, binary: bool = False, stored: int = 1) -> None:
        request = Command(310, opaque=opaque, binary=binary)
        reply = Reply(peer, request, encode_response(request, 0, ext={"msgId": "1"}))  # type: ignore[arg-type]  # a stand-in
        (self.sends.replies if wait else self.sends.early_replies).append(reply)
        peer.state.in_flight += 1
        self.store.pending += stored


def test_async_flush_answers_when_the_round_is_written() -> None:
    story, a, b = Story(sync_flush=False), Peer(), Peer()
    story.send(a, 1)
    story.send(a, 2)
    story.send(b, 3)
    story.send(a, 4)
    assert (a.writes, b.writes) == ([], [])
    story.rounds.end_round(1_000)
    assert a.writes == [[(1, 0), (2, 0)], [(4, 0)]]
    assert b.writes == [[(3, 0)]]
    assert story.arrived == [4]
    assert (a.state.in_flight, b.state.in_flight) == (0, 0)


def test_sync_flush_answers_when_the_disk_has_it_and_not_before() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.rounds.end_round(1_000)
    story.send(peer, 2)
    story.rounds.end_round(1_001)
    assert (peer.writes, story.arrived) == ([], [])
    assert story.rounds.flushing_since_ms == 1_000

    story.rounds.flushed(1)
    assert (peer.writes, story.arrived) == ([[(1, 0)]], [1])
    assert story.rounds.flushing_since_ms == 1_001
    story.rounds.flushed(2)
    assert (peer.writes, story.arrived) == ([[(1, 0)], [(2, 0)]], [1, 2])
    assert story.rounds.flushing_since_ms is None


def test_one_flush_may_cover_several_rounds() -> None:
    story, peer = Story(sync_flush=True), Peer()
    for opaque in (1, 2, 3):
        story.send(peer, opaque)
        story.rounds.end_round(1_000 + opaque)
    story.rounds.flushed(3)
    assert [opaque for write in peer.writes for opaque, _ in write] == [1, 2, 3]


def test_rounds_during_a_flush_are_written_together_when_it_is_over() -> None:
    story, peer = Story(sync_flush=True), Peer()
    for opaque in (1, 2, 3):
        story.send(peer, opaque)
        story.rounds.end_round(1_000 + opaque)
    assert (story.store.end, story.store.pending) == (1, 2)
    story.rounds.flushed(1)
    assert (story.store.end, story.store.pending) == (3, 0)
    assert peer.writes == [[(1, 0)]]
    assert story.rounds.waiting
    story.rounds.flushed(3)
    assert peer.writes == [[(1, 0)], [(2, 0), (3, 0)]]
    assert not story.rounds.waiting


def test_a_flush_that_hangs_does_not_keep_others_from_being_written() -> None:
    story, peer = Story(sync_flush=True), Peer()
    for opaque in (1, 2):
        story.send(peer, opaque)
        story.rounds.end_round(1_000)
    story.rounds.expire(1_099)
    assert (story.store.end, story.store.pending) == (1, 1)
    story.rounds.expire(1_100)
    assert (story.store.end, story.store.pending) == (2, 0)
    story.rounds.expire(6_000)
    assert peer.writes == [[(1, ResponseCode.FLUSH_DISK_TIMEOUT)], [(2, ResponseCode.FLUSH_DISK_TIMEOUT)]]


def test_who_copies_the_log_gets_every_round_at_once() -> None:
    story, peer = Story(sync_flush=True), Peer()
    heard: list[int] = []
    story.rounds.durable = heard.append
    for opaque in (1, 2):
        story.send(peer, opaque)
        story.rounds.end_round(1_000)
    assert (story.store.end, story.store.pending) == (2, 0)


def test_what_is_held_when_the_broker_gives_up_is_not_written_later() -> None:
    story, peer = Story(sync_flush=True), Peer()
    for opaque in (1, 2):
        story.send(peer, opaque)
        story.rounds.end_round(1_000)
    story.rounds.give_up("no longer the leader")
    assert [code for write in peer.writes for _, code in write] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    story.rounds.flushed(1)
    assert story.store.end == 1
    assert not story.rounds.waiting


def test_who_does_not_wait_for_the_disk_is_answered_when_it_is_written() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.send(peer, 2, wait=False)
    story.rounds.end_round(1_000)
    assert peer.writes == [[(2, 0)]]
    story.send(peer, 3)
    story.rounds.end_round(1_001)
    story.send(peer, 4, wait=False)
    story.rounds.end_round(1_002)  # also while a flush is under way
    assert peer.writes == [[(2, 0)], [(4, 0)]]
    assert story.store.pending == 0


def test_a_failed_write_tells_everybody_of_the_round() -> None:
    story, peer = Story(sync_flush=False), Peer()
    story.send(peer, 1)
    story.send(peer, 2, wait=False)
    story.store.broken = "no space left"
    story.rounds.end_round(1_000)
    assert peer.writes == [[(1, ResponseCode.SERVICE_NOT_AVAILABLE), (2, ResponseCode.SERVICE_NOT_AVAILABLE)]]
    assert peer.state.in_flight == 0


def test_a_failed_flush_tells_everybody_who_waits_and_nobody_hears_success_later() -> None:
    story, peer = Story(sync_flush=True), Peer()
    for opaque in (1, 2):
        story.send(peer, opaque)
        story.rounds.end_round(1_000)
    story.store.broken = "fdatasync: I/O error"
    story.rounds.flush_failed("fdatasync: I/O error")
    assert peer.writes == [[(1, ResponseCode.SERVICE_NOT_AVAILABLE)], [(2, ResponseCode.SERVICE_NOT_AVAILABLE)]]
    story.rounds.flushed(2)
    assert len(peer.writes) == 2
    assert story.arrived == []


def test_a_flush_that_takes_too_long_is_answered_with_code_10_and_only_once() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.send(peer, 2, binary=True)
    story.rounds.end_round(1_000)
    story.rounds.expire(5_999)
    assert peer.writes == []
    story.rounds.expire(6_000)
    assert peer.writes == [[(1, ResponseCode.FLUSH_DISK_TIMEOUT), (2, ResponseCode.FLUSH_DISK_TIMEOUT)]]
    story.rounds.flushed(2)  # the messages become visible all the same
    assert len(peer.writes) == 1
    assert story.arrived == [2]


def test_a_repeated_send_that_stores_nothing_waits_for_what_was_written_before() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.rounds.end_round(1_000)
    story.send(peer, 2, stored=0)
    story.send(peer, 3, stored=0, wait=False)
    story.rounds.end_round(1_001)
    assert peer.writes == [[(3, 0)]]
    story.rounds.flushed(1)
    assert peer.writes == [[(3, 0)], [(1, 0), (2, 0)]]
    story.send(peer, 4, stored=0)
    story.rounds.end_round(1_002)
    assert peer.writes[-1] == [(4, 0)]
    assert peer.state.in_flight == 0


def test_a_round_without_sends_writes_nothing() -> None:
    story = Story(sync_flush=True)
    story.rounds.end_round(1_000)
    assert story.rounds.flushing_since_ms is None


def test_put_times_are_from_the_write_to_the_answer() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.send(peer, 2)
    story.rounds.end_round(1_000)
    assert sum(story.stats.put_time_counts) == 0
    story.now = 1_030
    story.rounds.flushed(2)
    assert (story.stats.put_time_counts[2], story.stats.put_time_max_ms) == (2, 30)  # 10 to 50 ms

    story = Story(sync_flush=False)
    story.send(peer, 1)
    story.send(peer, 2, wait=False)
    story.now = 1_005
    story.rounds.end_round(1_000)
    assert (story.stats.put_time_counts[1], story.stats.put_time_max_ms) == (2, 5)


def test_what_the_disk_refused_is_counted() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.rounds.end_round(1_000)
    story.rounds.flush_failed("the disk is gone")
    story.store.broken = "the disk is gone"
    story.send(peer, 2)
    story.send(peer, 3)
    story.rounds.end_round(1_001)
    assert (story.stats.put_failed, sum(story.stats.put_time_counts)) == (3, 0)
