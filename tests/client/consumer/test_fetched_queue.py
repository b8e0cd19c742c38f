from __future__ import annotations

from firearrow.client.consumer.fetched_queue import MAX_MESSAGES, FetchedQueue
from firearrow.client.consumer.pull import PullResult, PullStatus
from firearrow.client.consumer.subscription import subscription
from firearrow.client.message import MessageQueue, ReceivedMessage, received
from firearrow.wire.record import Record

QUEUE = MessageQueue("T", "broker-a", 0)


def queue(offset: int = 10) -> FetchedQueue:
    return FetchedQueue(QUEUE, subscription("T", "*", 1), offset)


def message(offset: int) -> ReceivedMessage:
    return received(Record("T", b"body", queue_offset=offset), "broker-a")


def fetch(next_offset: int, *offsets: int, status: PullStatus = PullStatus.FOUND) -> PullResult:
    return PullResult(status, next_offset, 0, 100, [message(offset) for offset in offsets])


def offsets(messages: list[ReceivedMessage]) -> list[int]:
    return [one.queue_offset for one in messages]


def test_fetched_messages_are_returned_in_order_and_consumed_later() -> None:
    held = queue()
    held.add(fetch(13, 10, 11, 12))

    assert offsets(held.hand_out(2)) == [10, 11]
    assert (held.consumed, held.handed, held.next_offset) == (10, 12, 13)
    held.all_consumed()
    assert (held.consumed, held.handed) == (12, 12)
    assert offsets(held.hand_out(5)) == [12]
    assert not held.ready


def test_filtered_messages_count_with_their_predecessors() -> None:
    held = queue()
    held.add(fetch(20, 11, 12))  # 10, and 13 to 19, are of other tags

    assert offsets(held.hand_out(1)) == [11]
    assert held.handed == 12
    held.hand_out(1)
    assert (held.consumed, held.handed) == (10, 20)

    held.add(fetch(30, status=PullStatus.NO_MATCH))
    assert (held.consumed, held.handed) == (10, 30), "12 is still in hand"
    held.all_consumed()
    held.add(fetch(40, status=PullStatus.NO_MATCH))
    assert (held.consumed, held.handed, held.next_offset) == (40, 40, 40)


def test_moved_offset_resets_all_offsets() -> None:
    held = queue()
    held.add(fetch(12, 10, 11))
    held.add(fetch(500, status=PullStatus.OFFSET_MOVED))

    assert len(held) == 0
    assert (held.consumed, held.handed, held.next_offset) == (500, 500, 500)


def test_seek_drops_held_messages() -> None:
    held = queue()
    held.add(fetch(12, 10, 11))
    held.hand_out(1)
    held.seek(3)

    assert held.hand_out(10) == []
    assert (held.consumed, held.handed, held.next_offset) == (3, 3, 3)


def test_full_at_the_message_limit_and_not_ready_while_paused() -> None:
    held = queue()
    held.add(fetch(MAX_MESSAGES + 10, *range(10, MAX_MESSAGES + 10)))

    assert held.full
    assert held.ready
    held.paused = True
    assert not held.ready
    held.hand_out(1)
    assert not held.full


def test_leased_messages_are_consumed_one_behind() -> None:
    held = queue()
    held.add(fetch(20, 10, 12, 14))
    lease = held.lease(2)

    assert held.position == 10
    first = lease.next()
    assert first is not None
    assert first.queue_offset == 10
    held.note_taken()
    assert (held.consumed, held.position) == (10, 12), "the first is in hand"
    lease.next()
    held.note_taken()
    assert held.consumed == 12
    assert lease.next() is None
    held.all_consumed()
    assert (held.consumed, held.position) == (13, 13)


def test_untaken_messages_return_in_order() -> None:
    held = queue()
    held.add(fetch(14, 10, 11, 12, 13))
    lease = held.lease(3)
    lease.next()
    held.return_untaken()

    assert lease.next() is None
    assert (held.consumed, held.handed, held.position) == (10, 11, 11)
    held.all_consumed()
    assert held.consumed == 11
    assert offsets(held.hand_out(10)) == [11, 12, 13]


def test_seek_ends_a_lease() -> None:
    held = queue()
    held.add(fetch(12, 10, 11))
    lease = held.lease(2)
    held.seek(50)

    assert lease.next() is None
    held.all_consumed()
    assert (held.consumed, held.position) == (50, 50)
