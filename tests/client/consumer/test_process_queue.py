"""Process queue: offsets to commit and flow control."""

from __future__ import annotations

import random

from firearrow.client.consumer.process_queue import LOCK_EXPIRES_MS, NO_OFFSET, PULL_EXPIRES_MS, ProcessQueue
from firearrow.client.message import MessageQueue, ReceivedMessage, received
from firearrow.wire.record import Record

QUEUE = MessageQueue("T", "broker-a", 0)


def message(offset: int, size: int = 10) -> ReceivedMessage:
    return received(Record("T", b"x" * size, queue_offset=offset), "broker-a")


def filled(*offsets: int) -> tuple[ProcessQueue, dict[int, ReceivedMessage]]:
    held = ProcessQueue(QUEUE, now_ms=0)
    messages = {offset: message(offset) for offset in offsets}
    held.put(list(messages.values()))
    return held, messages


def test_the_offset_to_commit_is_the_smallest_that_is_not_finished() -> None:
    held, messages = filled(11, 12, 13, 14)
    assert held.commit_offset == 11
    assert held.finish([messages[13]]) == 11
    assert held.finish([messages[11]]) == 12
    assert held.finish([messages[14]]) == 12
    assert held.finish([messages[12]]) == 15, "one after the last"
    assert len(held) == 0


def test_offsets_that_were_filtered_out_count_as_consumed() -> None:
    held, messages = filled(3, 7, 20)
    assert held.finish([messages[3]]) == 7
    assert held.finish([messages[7], messages[20]]) == 21


def test_no_commit_offset_before_the_first_message() -> None:
    held = ProcessQueue(QUEUE, now_ms=0)
    assert held.commit_offset == NO_OFFSET
    assert held.finish([message(3)]) == NO_OFFSET


def test_finishing_twice_changes_nothing() -> None:
    held, messages = filled(1, 2)
    size = held.held_bytes
    assert held.finish([messages[1]]) == 2
    assert held.finish([messages[1]]) == 2
    assert held.held_bytes == size // 2
    assert not held.holds(messages[1])
    assert held.holds(messages[2])


def test_no_message_below_the_offset_to_commit_is_ever_unfinished() -> None:
    dice = random.Random(5)
    held = ProcessQueue(QUEUE, now_ms=0)
    open_messages: dict[int, ReceivedMessage] = {}
    next_offset = 0
    for _ in range(2_000):
        if dice.random() < 0.4:
            run = [message(next_offset + n * dice.randint(1, 3)) for n in range(dice.randint(1, 8))]
            run = list({m.queue_offset: m for m in run}.values())
            run.sort(key=lambda m: m.queue_offset)
            held.put(run)
            open_messages |= {m.queue_offset: m for m in run}
            next_offset = run[-1].queue_offset + 1
        elif open_messages:
            some = dice.sample(sorted(open_messages), min(len(open_messages), dice.randint(1, 5)))
            offset = held.finish([open_messages.pop(number) for number in some])
            assert offset == min(open_messages, default=next_offset)
        assert len(held) == len(open_messages)
        assert held.held_bytes == sum(m.store_size for m in open_messages.values())
        assert held.span == (next_offset - 1 - min(open_messages) if open_messages else 0)


def test_reasons_to_pause_pulling() -> None:
    held, messages = filled(*range(10))
    assert held.full() is None
    assert "10 messages" in (held.full(max_messages=10) or "")
    assert "bytes are held" in (held.full(max_bytes=held.held_bytes) or "")
    assert "9 apart" in (held.full(max_span=8) or "")
    assert held.full(max_span=9) is None
    held.finish(list(messages.values())[1:])
    assert "9 apart" in (held.full(max_span=8) or ""), "the first is still there"
    assert held.full(max_span=None) is None, "order has no span"


def test_clear_removes_all_messages() -> None:
    held, messages = filled(1, 2, 3)
    held.waiting.extend(messages.values())
    held.clear()
    assert (len(held), held.held_bytes, held.commit_offset, len(held.waiting)) == (0, 0, NO_OFFSET, 0)
    assert held.finish([messages[2]]) == NO_OFFSET, "nothing is committed for what was forgotten"
    assert held.oldest() is None


def test_pulls_and_locks_expire() -> None:
    held = ProcessQueue(QUEUE, now_ms=1_000)
    assert not held.pull_expired(1_000 + PULL_EXPIRES_MS)
    assert held.pull_expired(1_001 + PULL_EXPIRES_MS)
    held.last_lock_ms = 500
    assert not held.lock_expired(500 + LOCK_EXPIRES_MS)
    assert held.lock_expired(501 + LOCK_EXPIRES_MS)
