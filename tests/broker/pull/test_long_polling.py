"""Parked pulls: which are resumed by which event."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from firearrow.broker.pull.long_polling import EXPIRE_SLICE, SLICE, SQL_SLICE, LongPolling, ParkedPull
from firearrow.broker.sql92 import Filter, compile_expression
from firearrow.store.consume_queue import ENTRY, ConsumeQueue, QueueFiles

NEW, PAID = 78208, 2448076


def queue_with(*tags_codes: int) -> ConsumeQueue:
    """A queue whose messages have these tags codes. They are in memory, so its files are never asked."""
    queue = ConsumeQueue("Orders", 0, cast(QueueFiles, None))
    for number, code in enumerate(tags_codes):
        queue.tail += ENTRY.pack(number * 100, 100, code)
    queue.next_offset = queue.max_offset = len(tags_codes)
    return queue


class Story:
    """Long polling whose resumed pulls are recorded by name."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self.polling = LongPolling(call_soon)
        self.names: list[str] = []

    def park(
        self, queue: ConsumeQueue, name: str, from_offset: int, deadline_ms: int, *tags: int, sql: Filter | None = None
    ) -> ParkedPull:
        def resume(parked: ParkedPull) -> None:
            self.names.append(f"{name}, expired" if parked.expired else name)

        pull: Any = SimpleNamespace(conn=name, header=SimpleNamespace(consumer_group="G"))
        parked = ParkedPull(queue, from_offset, deadline_ms, frozenset(tags) or None, pull, resume, sql)
        self.polling.park(parked)
        return parked

    def resumed(self) -> list[str]:
        names, self.names = self.names, []
        return names

    def grow(self, queue: ConsumeQueue, first: int, end: int) -> list[str]:
        self.polling.queue_grew(queue, first, end)
        return self.resumed()

    def expire(self, now_ms: int) -> list[str]:
        self.polling.expire(now_ms)
        return self.resumed()

    def release(self, queue: ConsumeQueue) -> list[str]:
        self.polling.release_queue(queue)
        return self.resumed()


def test_arriving_message_resumes_the_pulls_it_satisfies() -> None:
    story, orders, other = Story(), queue_with(NEW, PAID, NEW), queue_with(PAID)
    story.park(orders, "any", 0, 20_000)
    story.park(orders, "paid", 0, 20_000, PAID)
    story.park(orders, "ahead", 2, 20_000)

    assert story.grow(other, 0, 1) == []  # another queue
    assert story.grow(orders, 0, 1) == ["any"]  # message 0 is NEW
    assert story.grow(orders, 1, 2) == ["paid"]
    assert story.grow(orders, 2, 3) == ["ahead"]
    assert (story.polling.parked, story.polling.count) == ({}, 0)


def test_one_matching_message_of_several_resumes_a_pull() -> None:
    story, orders = Story(), queue_with(NEW, NEW, PAID)
    story.park(orders, "paid", 0, 20_000, PAID)
    assert story.grow(orders, 0, 3) == ["paid"]


def test_pull_is_resumed_once() -> None:
    story, orders = Story(), queue_with(NEW)
    story.park(orders, "early", 0, 1_000)
    story.park(orders, "late", 0, 2_000)

    assert story.expire(999) == []
    assert story.expire(1_000) == ["early, expired"]
    assert story.grow(orders, 0, 1) == ["late"]
    assert story.expire(9_999) == []


def test_release_queue_resumes_all_its_pulls() -> None:
    story, orders = Story(), queue_with(NEW)
    story.park(orders, "a", 1, 1_000)
    story.park(orders, "b", 1, 1_000, PAID)
    assert story.release(orders) == ["a", "b"]
    assert story.release(orders) == []


def test_resumed_pull_may_be_parked_again() -> None:
    polling, orders = LongPolling(), queue_with(NEW, NEW)
    pull: Any = None

    def resume(parked: ParkedPull) -> None:
        polling.park(ParkedPull(orders, 2, parked.deadline_ms, None, pull, resume))

    polling.park(ParkedPull(orders, 0, 1_000, None, pull, resume))
    polling.queue_grew(orders, 0, 2)
    assert ([parked.from_offset for parked in polling.parked[orders]], polling.count) == ([2], 1)


def test_parked_pulls_are_found_by_connection_and_group() -> None:
    story, orders = Story(), queue_with(NEW)
    story.park(orders, "conn", 1, 1_000)
    conn: Any = "conn"
    assert story.polling.has_parked(orders, conn, "G")
    assert not story.polling.has_parked(orders, conn, "other")
    assert not story.polling.has_parked(queue_with(NEW), conn, "G")


def test_busy_consumer_does_not_pile_up_deadlines() -> None:
    story, orders = Story(), queue_with(NEW)
    for _ in range(10_000):
        story.park(orders, "again", 0, 15_000)
        story.grow(orders, 0, 1)
    assert len(story.polling.deadlines) <= 1025


def test_twenty_thousand_pulls_of_a_queue_expire_in_linear_time() -> None:
    story, orders = Story(), queue_with(NEW)
    for number in range(20_000):
        story.park(orders, str(number), 1, 1_000)
    started = time.process_time()
    while story.polling.count:
        assert 0 < len(story.expire(1_000)) <= EXPIRE_SLICE
    assert time.process_time() - started < 3.0
    assert story.polling.parked == {}


def test_pulls_that_become_ready_together_are_resumed_in_slices() -> None:
    turns: list[Callable[[], None]] = []
    story, orders = Story(turns.append), queue_with(NEW)
    for number in range(2 * SLICE + 1):
        story.park(orders, str(number), 0, 1_000)

    assert len(story.grow(orders, 0, 1)) == SLICE
    assert story.polling.count == 0
    late = story.park(orders, "late", 0, 1_000)
    assert story.grow(orders, 0, 1) == []  # behind those that are ready
    assert late.resumed
    turns.pop()()
    assert len(story.resumed()) == SLICE
    turns.pop()()
    assert story.resumed() == [str(2 * SLICE), "late"]
    assert turns == []


def test_pulls_with_sql_filters_do_not_hold_up_others() -> None:
    turns: list[Callable[[], None]] = []
    story, orders, other = Story(turns.append), queue_with(NEW), queue_with(NEW)
    sql = compile_expression("price > 1")
    for number in range(100):
        story.park(orders, f"sql {number}", 0, 1_000, sql=sql)
    assert story.grow(orders, 0, 1) == [f"sql {number}" for number in range(SQL_SLICE)]
    story.park(other, "plain", 0, 1_000)
    story.grow(other, 0, 1)
    turns.pop()()
    assert story.resumed()[0] == "plain"


def test_dropped_pulls_are_not_resumed() -> None:
    story, orders = Story(), queue_with(NEW)
    gone = [story.park(orders, "gone", 0, 1_000) for _ in range(5_000)]
    story.park(orders, "stays", 0, 1_000)
    story.polling.drop(gone)
    assert (story.polling.count, len(story.polling.deadlines)) == (1, 1)
    assert story.grow(orders, 0, 1) == ["stays"]


def test_size_of_the_filters_counts_each_filter_once() -> None:
    story, orders = Story(), queue_with(NEW)
    one, two = compile_expression("a = 1"), compile_expression("a = 2 OR b = 3")
    for sql in (one, one, two):
        story.park(orders, "x", 0, 1_000, sql=sql)
    assert story.polling.filter_size == one.size + two.size
    story.grow(orders, 0, 1)
    assert story.polling.filter_size == 0
