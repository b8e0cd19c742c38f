"""Group commit against a fake store and fake connections: which replies leave when."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from firearrow.broker.observability.stats import BrokerStats
from firearrow.broker.requests.flow_control import FlowControl
from firearrow.broker.send.ack_policy import DISK_STALL, AckPolicy, LocalFlush, Stall
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.broker.send.replies import PendingReplies
from firearrow.broker.settings import BrokerSettings
from firearrow.store.errors import NotWritableError
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command, FrameDecoder, encode_response


class Peer:
    """A connection that records its writes, each as a list of (opaque, code)."""

    def __init__(self) -> None:
        self.writes: list[list[tuple[int, int]]] = []
        self.state = SimpleNamespace(in_flight=0)

    def write(self, data: bytes) -> None:
        self.writes.append([(command.opaque, command.code) for command in FrameDecoder().feed(data)])


class Store:
    """`pending` messages of one queue, each one byte long."""

    def __init__(self, *, sync_flush: bool) -> None:
        self.settings = SimpleNamespace(sync_flush=sync_flush, sync_flush_timeout=5_000)
        self.end = 0
        self.pending = 0
        self.failure: str | None = None
        self.queue = object()

    def write_out(self) -> Any:
        if self.failure:
            raise NotWritableError(self.failure)
        if not self.pending:
            return None
        self.end, self.pending = self.end + self.pending, 0
        return SimpleNamespace(end_offset=self.end)

    def discard_pending(self) -> None:
        self.pending = 0

    def confirm(self, offset: int) -> list[tuple[Any, int, int]]:
        return [(self.queue, 0, offset)]


class Replicated:
    """A policy that waits for replicas, which never confirm."""

    defers = replicates = True

    def __init__(self) -> None:
        self.writes = 0
        self.flushes: list[int] = []

    def written(self) -> None:
        self.writes += 1

    def flushed(self, commit: GroupCommit, offset: int) -> None:
        self.flushes.append(offset)

    def stall(self, *, flushed: bool) -> Stall | None:
        return Stall("waiting for replicas", "check them") if flushed else DISK_STALL


class Parked:
    """Long polling with a pull at one queue; records how far that has become readable."""

    def __init__(self, queue: object, readable: list[int]) -> None:
        self.parked = {queue}
        self._readable = readable

    def queue_grew(self, queue: object, first: int, end: int) -> None:
        self._readable.append(end)


class Story:
    def __init__(self, *, sync_flush: bool, policy: AckPolicy | None = None) -> None:
        self.store = Store(sync_flush=sync_flush)
        self.replies = PendingReplies()
        self.readable: list[int] = []
        self.stats = BrokerStats("C", 0)
        self.now = 0
        self.scheduled: list[Callable[[], None]] = []
        self.commit = GroupCommit(
            self.store,  # type: ignore[arg-type]  # a fake
            policy or LocalFlush(sync_flush=sync_flush),
            self.replies,
            Parked(self.store.queue, self.readable),  # type: ignore[arg-type]  # a fake
            self.stats,
            FlowControl(BrokerSettings()),
            lambda: self.now,
            self.scheduled.append,
        )

    def send(self, peer: Peer, opaque: int, *, wait: bool = True, binary: bool = False, stored: int = 1) -> None:
        request = Command(310, opaque=opaque, binary=binary)
        data = encode_response(request, 0, ext={"msgId": "1"})
        self.replies.add(peer, request, data, on_write=not wait)  # type: ignore[arg-type]  # a fake
        self.store.pending += stored


def test_async_flush_acknowledges_when_written() -> None:
    story, a, b = Story(sync_flush=False), Peer(), Peer()
    story.send(a, 1)
    story.send(a, 2)
    story.send(b, 3)
    story.send(a, 4)
    assert (a.writes, b.writes) == ([], [])
    story.commit.commit(1_000)
    assert a.writes == [[(1, 0), (2, 0)], [(4, 0)]]
    assert b.writes == [[(3, 0)]]
    assert story.readable == [4]
    assert (a.state.in_flight, b.state.in_flight) == (0, 0)


def test_sync_flush_acknowledges_when_flushed() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.commit.commit(1_000)
    story.send(peer, 2)
    story.commit.commit(1_001)
    assert (peer.writes, story.readable) == ([], [])
    assert story.commit.pending_since_ms == 1_000

    story.commit.flushed(1)
    assert (peer.writes, story.readable) == ([[(1, 0)]], [1])
    assert story.commit.pending_since_ms == 1_001
    story.commit.flushed(2)
    assert (peer.writes, story.readable) == ([[(1, 0)], [(2, 0)]], [1, 2])
    assert story.commit.pending_since_ms is None


def test_one_flush_acknowledges_several_commits() -> None:
    story, peer = Story(sync_flush=True), Peer()
    for opaque in (1, 2, 3):
        story.send(peer, opaque)
        story.commit.commit(1_000 + opaque)
    story.commit.flushed(3)
    assert [opaque for write in peer.writes for opaque, _ in write] == [1, 2, 3]


def test_commits_during_a_flush_are_written_together_at_its_end() -> None:
    story, peer = Story(sync_flush=True), Peer()
    for opaque in (1, 2, 3):
        story.send(peer, opaque)
        story.commit.commit(1_000 + opaque)
    assert (story.store.end, story.store.pending) == (1, 2)
    story.commit.flushed(1)
    assert (story.store.end, story.store.pending) == (3, 0)
    assert peer.writes == [[(1, 0)]]
    assert story.commit.pending
    story.commit.flushed(3)
    assert peer.writes == [[(1, 0)], [(2, 0), (3, 0)]]
    assert not story.commit.pending


def test_messages_are_written_although_a_flush_hangs() -> None:
    story, peer = Story(sync_flush=True), Peer()
    for opaque in (1, 2):
        story.send(peer, opaque)
        story.commit.commit(1_000)
    story.commit.expire(1_099)
    assert (story.store.end, story.store.pending) == (1, 1)
    story.commit.expire(1_100)
    assert (story.store.end, story.store.pending) == (2, 0)
    story.commit.expire(6_000)
    assert peer.writes == [[(1, ResponseCode.FLUSH_DISK_TIMEOUT)], [(2, ResponseCode.FLUSH_DISK_TIMEOUT)]]


def test_replicating_policy_gets_every_commit_at_once() -> None:
    policy, peer = Replicated(), Peer()
    story = Story(sync_flush=True, policy=policy)
    for opaque in (1, 2):
        story.send(peer, opaque)
        story.commit.commit(1_000)
    assert (story.store.end, story.store.pending) == (2, 0)
    assert (policy.writes, policy.flushes) == (2, [])
    story.commit.flushed(2)
    assert (policy.flushes, peer.writes) == ([2], [])
    story.commit.release(2)
    assert peer.writes == [[(1, 0), (2, 0)]]


def test_replicating_policy_hears_of_writes_without_flush() -> None:
    policy, peer = Replicated(), Peer()
    story = Story(sync_flush=False, policy=policy)
    story.send(peer, 1)
    story.commit.commit(1_000)
    assert (policy.flushes, peer.writes) == ([1], [])


def test_stall_names_the_disk_until_it_has_flushed_and_then_the_replicas() -> None:
    story, peer = Story(sync_flush=True, policy=Replicated()), Peer()
    story.send(peer, 1)
    story.commit.commit(1_000)
    assert story.commit.stall() == DISK_STALL
    story.commit.flushed(1)
    assert story.commit.stall() == Stall("waiting for replicas", "check them")


def test_slow_replicas_are_answered_with_flush_slave_timeout() -> None:
    story, peer = Story(sync_flush=True, policy=Replicated()), Peer()
    story.send(peer, 1)
    story.commit.commit(1_000)
    story.commit.flushed(1)
    story.commit.expire(6_000)
    assert peer.writes == [[(1, ResponseCode.FLUSH_SLAVE_TIMEOUT)]]


def test_new_policy_decides_on_pending_messages() -> None:
    story, peer = Story(sync_flush=True, policy=Replicated()), Peer()
    story.send(peer, 1)
    story.commit.commit(1_000)
    story.commit.set_policy(LocalFlush(sync_flush=True))
    story.commit.flushed(1)
    assert peer.writes == [[(1, 0)]]


def test_scheduled_commit_runs_once() -> None:
    story, peer = Story(sync_flush=False), Peer()
    story.send(peer, 1)
    story.commit.schedule_commit(1_000)
    story.commit.schedule_commit(1_000)
    assert (len(story.scheduled), story.commit.scheduled_ms) == (1, 1_000)
    story.commit.commit_scheduled()
    assert peer.writes == [[(1, 0)]]
    story.send(peer, 2)
    story.scheduled.pop()()
    assert peer.writes == [[(1, 0)]]


def test_failed_pending_messages_are_not_written_later() -> None:
    story, peer = Story(sync_flush=True), Peer()
    for opaque in (1, 2):
        story.send(peer, opaque)
        story.commit.commit(1_000)
    story.commit.fail_pending("no longer the leader")
    assert [code for write in peer.writes for _, code in write] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    story.commit.flushed(1)
    assert story.store.end == 1
    assert not story.commit.pending


def test_wait_false_is_acknowledged_when_written() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.send(peer, 2, wait=False)
    story.commit.commit(1_000)
    assert peer.writes == [[(2, 0)]]
    story.send(peer, 3)
    story.commit.commit(1_001)
    story.send(peer, 4, wait=False)
    story.commit.commit(1_002)  # also while a flush is under way
    assert peer.writes == [[(2, 0)], [(4, 0)]]
    assert story.store.pending == 0


def test_failed_write_rejects_all_its_messages() -> None:
    story, peer = Story(sync_flush=False), Peer()
    story.send(peer, 1)
    story.send(peer, 2, wait=False)
    story.store.failure = "no space left"
    story.commit.commit(1_000)
    assert peer.writes == [[(1, ResponseCode.SERVICE_NOT_AVAILABLE), (2, ResponseCode.SERVICE_NOT_AVAILABLE)]]
    assert peer.state.in_flight == 0


def test_failed_flush_rejects_all_pending_messages_for_good() -> None:
    story, peer = Story(sync_flush=True), Peer()
    for opaque in (1, 2):
        story.send(peer, opaque)
        story.commit.commit(1_000)
    story.store.failure = "fdatasync: I/O error"
    story.commit.flush_failed("fdatasync: I/O error")
    assert peer.writes == [[(1, ResponseCode.SERVICE_NOT_AVAILABLE)], [(2, ResponseCode.SERVICE_NOT_AVAILABLE)]]
    story.commit.flushed(2)
    assert len(peer.writes) == 2
    assert story.readable == []


def test_slow_flush_is_answered_once_with_flush_disk_timeout() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.send(peer, 2, binary=True)
    story.commit.commit(1_000)
    story.commit.expire(5_999)
    assert peer.writes == []
    story.commit.expire(6_000)
    assert peer.writes == [[(1, ResponseCode.FLUSH_DISK_TIMEOUT), (2, ResponseCode.FLUSH_DISK_TIMEOUT)]]
    story.commit.flushed(2)  # the messages become visible all the same
    assert len(peer.writes) == 1
    assert story.readable == [2]


def test_repeated_send_waits_for_the_messages_written_before() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.commit.commit(1_000)
    story.send(peer, 2, stored=0)
    story.send(peer, 3, stored=0, wait=False)
    story.commit.commit(1_001)
    assert peer.writes == [[(3, 0)]]
    story.commit.flushed(1)
    assert peer.writes == [[(3, 0)], [(1, 0), (2, 0)]]
    story.send(peer, 4, stored=0)
    story.commit.commit(1_002)
    assert peer.writes[-1] == [(4, 0)]
    assert peer.state.in_flight == 0


def test_commit_without_messages_writes_nothing() -> None:
    story = Story(sync_flush=True)
    story.commit.commit(1_000)
    assert story.commit.pending_since_ms is None


def test_put_time_is_measured_from_write_to_reply() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.send(peer, 2)
    story.commit.commit(1_000)
    assert sum(story.stats.put_time_counts) == 0
    story.now = 1_030
    story.commit.flushed(2)
    assert (story.stats.put_time_counts[2], story.stats.put_time_max_ms) == (2, 30)  # 10 to 50 ms

    story = Story(sync_flush=False)
    story.send(peer, 1)
    story.send(peer, 2, wait=False)
    story.now = 1_005
    story.commit.commit(1_000)
    assert (story.stats.put_time_counts[1], story.stats.put_time_max_ms) == (2, 5)


def test_failed_messages_are_counted() -> None:
    story, peer = Story(sync_flush=True), Peer()
    story.send(peer, 1)
    story.commit.commit(1_000)
    story.commit.flush_failed("the disk is gone")
    story.store.failure = "the disk is gone"
    story.send(peer, 2)
    story.send(peer, 3)
    story.commit.commit(1_001)
    assert (story.stats.put_failed, sum(story.stats.put_time_counts)) == (3, 0)


class FailingReplication(Replicated):
    def written(self) -> None:
        raise RuntimeError("the handler is closed")


def test_replies_are_queued_before_replication_can_fail() -> None:
    story, peer = Story(sync_flush=True, policy=FailingReplication()), Peer()
    story.send(peer, 1)
    with pytest.raises(RuntimeError):
        story.commit.commit(1_000)
    story.commit.release(1)
    assert peer.writes == [[(1, 0)]]
