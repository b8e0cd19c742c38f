"""Each test is a transcript: what happens on the left, whom we answer on the right."""

from __future__ import annotations

from typing import cast

from firearrow.broker.pull.long_polling import HeldPull, LongPolling
from firearrow.store.consume_queue import ENTRY, ConsumeQueue, QueueFiles

NEW, PAID = 78208, 2448076


def queue_with(*tags_codes: int) -> ConsumeQueue:
    """A queue whose messages have these tags codes. They are in memory, so its files are never asked."""
    queue = ConsumeQueue("Orders", 0, cast(QueueFiles, None))
    for number, code in enumerate(tags_codes):
        queue.tail += ENTRY.pack(number * 100, 100, code)
    queue.next_offset = queue.max_offset = len(tags_codes)
    return queue


def pull(queue: ConsumeQueue, name: str, from_offset: int, deadline_ms: int, *tags: int) -> HeldPull:
    return HeldPull(queue, from_offset, deadline_ms, frozenset(tags) or None, name)


def names(pulls: list[HeldPull]) -> list[object]:
    return [p.answer_to for p in pulls]


def test_an_arriving_message_answers_everyone_it_satisfies_and_nobody_else() -> None:
    held = LongPolling()
    orders, other = queue_with(NEW, PAID, NEW), queue_with(PAID)
    held.hold(pull(orders, "any", 0, 20_000))
    held.hold(pull(orders, "paid", 0, 20_000, PAID))
    held.hold(pull(orders, "ahead", 2, 20_000))

    assert names(held.arrived(other, 0, 1)) == []  # another queue
    assert names(held.arrived(orders, 0, 1)) == ["any"]  # message 0 is NEW
    assert names(held.arrived(orders, 1, 2)) == ["paid"]
    assert names(held.arrived(orders, 2, 3)) == ["ahead"]
    assert orders.waiters is None
    assert held.count == 0


def test_several_messages_at_once_are_enough_when_one_of_them_matches() -> None:
    held = LongPolling()
    orders = queue_with(NEW, NEW, PAID)
    held.hold(pull(orders, "paid", 0, 20_000, PAID))
    assert names(held.arrived(orders, 0, 3)) == ["paid"]


def test_a_pull_is_answered_once_by_whichever_comes_first() -> None:
    held = LongPolling()
    orders = queue_with(NEW)
    held.hold(pull(orders, "early", 0, 1_000))
    held.hold(pull(orders, "late", 0, 2_000))

    assert names(held.expired(999)) == []
    assert names(held.expired(1_000)) == ["early"]
    assert names(held.arrived(orders, 0, 1)) == ["late"]
    assert names(held.expired(9_999)) == []  # answered already


def test_a_reset_releases_the_whole_queue() -> None:
    held = LongPolling()
    orders = queue_with(NEW)
    held.hold(pull(orders, "a", 1, 1_000))
    held.hold(pull(orders, "b", 1, 1_000, PAID))
    assert names(held.release_queue(orders)) == ["a", "b"]
    assert names(held.release_queue(orders)) == []


def test_a_busy_consumer_leaves_no_trail_of_old_deadlines() -> None:
    held = LongPolling()
    orders = queue_with(NEW)
    for _ in range(10_000):
        held.hold(pull(orders, "again", 0, 15_000))
        held.arrived(orders, 0, 1)
    assert len(held._deadlines) <= 1025
