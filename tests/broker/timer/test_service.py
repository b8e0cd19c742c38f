"""Timer messages under a clock that the test turns: when they come, where they wait, and that none is lost."""

from __future__ import annotations

import asyncio
import gc
import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.timer.service import MAX_PER_TICK
from firearrow.broker.timer.slot import MAX_HELD
from firearrow.store.timer.checkpoint import TimerCheckpoint
from firearrow.store.timer.log import DELETE, ROLL
from firearrow.store.timer.wheel import Slot
from firearrow.wire.java_hash import hash_code, tags_code
from firearrow.wire.names import TIMER_TOPIC
from tests.broker.running import bodies, broker, client, records
from tests.broker.timing import BORN, DAY, HOUR, T0, Timing, names_of
from tests.support.waiting import run

# When they come.


@pytest.mark.parametrize(
    ("names", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "5"}, T0 + 5_000),
        ({"TIMER_DELAY_MS": "5001"}, T0 + 5_001),
        ({"TIMER_DELAY_MS": "1"}, T0 + 1),
        ({"TIMER_DELIVER_MS": str(T0 + 7_777)}, T0 + 7_777),
        ({"TIMER_DELIVER_MS": str(T0 + 8_000)}, T0 + 8_000),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "77", "TIMER_DELIVER_MS": "1"}, T0 + 2_000),
        ({"TIMER_DELAY_MS": "77", "TIMER_DELIVER_MS": "1"}, T0 + 77),
    ],
)
def test_message_is_delivered_at_its_exact_time(timing: Timing, names: dict[str, Any], due_ms: int) -> None:
    timing.put(b"x", **names)
    assert timing.at(T0) == []
    assert timing.at(due_ms - 1) == []
    assert timing.at(due_ms) == [b"x"]
    assert timing.at(due_ms + DAY) == [b"x"]


@pytest.mark.parametrize("now_ms", [T0, T0 + 1, T0 + 999])
@pytest.mark.parametrize("delay", ["0", "-1", "-9223372036854775808"])
def test_message_due_already_is_stored_directly(timing: Timing, now_ms: int, delay: str) -> None:
    timing.put(b"x", at_ms=now_ms, TIMER_DELAY_MS=delay)
    assert [record.body for record in timing.delivered()] == [b"x"]
    assert timing.waiting() == []


def test_a_tick_knows_when_the_next_message_is_due(timing: Timing) -> None:
    assert timing.timers.next_due_ms() is None
    timing.put(b"far", TIMER_DELAY_MS="5300")
    timing.put(b"near", TIMER_DELAY_MS="300")
    timing.at(T0 + 10)
    assert timing.timers.next_due_ms() == T0 + 300
    timing.at(T0 + 300)
    assert timing.timers.next_due_ms() is None  # the next slots are empty
    timing.at(T0 + 4_000)
    assert timing.timers.next_due_ms() == T0 + 5_000  # a slot to be opened
    timing.at(T0 + 5_000)
    assert timing.timers.next_due_ms() == T0 + 5_300


def test_ten_thousand_messages_are_delivered_in_time(timing: Timing) -> None:
    chance = random.Random(4)
    timing.flushing = False
    for number in range(10_000):
        timing.append(b"%d" % number, TIMER_DELIVER_MS=str(T0 + chance.randrange(1, 30_000)))
    timing.end_round()
    now_ms = T0
    while now_ms < T0 + 31_000:  # as the broker does: every 100 ms, and when something is due
        timing.go(now_ms)
        due_ms = timing.timers.next_due_ms()
        now_ms = min(now_ms + 100, due_ms if due_ms is not None else now_ms + 100)
    late = [record.store_timestamp - int(names_of(record)["TIMER_DELIVER_MS"]) for record in timing.delivered()]
    assert len(late) == 10_000
    assert min(late) >= 0
    assert max(late) <= 1


def test_many_due_messages_are_delivered_in_batches(timing: Timing) -> None:
    count = MAX_PER_TICK * 3
    for number in range(count):
        timing.append(b"%d" % number, TIMER_DELIVER_MS=str(T0 + 5_000))
    timing.end_round()
    timing.at(T0)
    ticks = 0
    while timing.timers.tick(T0 + 5_000):
        timing.end_round()
        ticks += 1
        assert len(timing.delivered()) <= ticks * MAX_PER_TICK
    timing.end_round()
    assert ticks >= 3
    assert [record.body for record in timing.delivered()] == [b"%d" % number for number in range(count)]


@pytest.mark.slow
def test_slot_larger_than_the_memory_limit_is_delivered(timing: Timing) -> None:
    for number in range(MAX_HELD + 500):
        timing.append(b"%d" % number, TIMER_DELIVER_MS=str(T0 + 5_000 - number % 900))
    timing.end_round()
    timing.go(T0 + 4_050)
    slot = timing.timers.slot
    assert slot is not None
    assert slot.held == MAX_HELD
    assert len(timing.at(T0 + 6_000)) == MAX_HELD + 500


def test_new_messages_join_the_open_slot(timing: Timing) -> None:
    timing.put(b"first", TIMER_DELIVER_MS=str(T0 + 1_900))
    timing.at(T0 + 1_100)
    timing.put(b"second", at_ms=T0 + 1_200, TIMER_DELIVER_MS=str(T0 + 1_500))
    assert timing.at(T0 + 1_400) == []
    assert timing.at(T0 + 1_500) == [b"second"]
    assert timing.at(T0 + 1_900) == [b"second", b"first"]


def test_clock_jump_of_two_hours_delivers_everything(timing: Timing) -> None:
    for minute in range(1, 120):
        timing.put(b"%d" % minute, TIMER_DELIVER_MS=str(T0 + minute * 60_000))
    assert timing.at(T0 + HOUR) == [b"%d" % minute for minute in range(1, 61)]
    assert timing.at(T0 + 2 * HOUR) == [b"%d" % minute for minute in range(1, 120)]


def test_a_clock_that_was_set_back_delivers_new_messages_by_its_time(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_MS="100")
    timing.at(T0 + HOUR)
    timing.put(b"later", at_ms=T0, TIMER_DELAY_MS="500")
    assert timing.at(T0 + 499) == [b"x"]
    assert timing.at(T0 + 500) == [b"x", b"later"]


def test_a_hundred_milliseconds_precision(make: Callable[..., Timing]) -> None:
    timing = make(timer_precision_ms=100)
    timing.put(b"x", TIMER_DELAY_MS="1234")
    assert names_of(timing.waiting()[0])["TIMER_OUT_MS"] == str(T0 + 1_200)
    assert timing.at(T0 + 1_233) == []
    assert timing.at(T0 + 1_234) == [b"x"]


# What is stored.


def test_held_message_has_apaches_format_and_is_delivered_unchanged(timing: Timing) -> None:
    sent: dict[str, Any] = {"TAGS": "new", "KEYS": "k", "UNIQ_KEY": "U", "TIMER_DELAY_MS": "5500"}
    timing.put(b"x", at_ms=T0 + 300, **sent)
    (waiting,) = timing.waiting()
    placed = sent | {"TIMER_OUT_MS": str(T0 + 5_000), "REAL_TOPIC": "Orders", "REAL_QID": "2"}
    assert names_of(waiting) == placed
    entry = timing.store.queue(TIMER_TOPIC, 0).entry(0)
    assert entry == (waiting.physical_offset, waiting.total_size, tags_code("new"))

    timing.at(T0 + 1_234)
    files = timing.timers.files
    assert files.wheel.get(T0 + 5_000) == Slot(0, 0, 1)
    logged = files.log.entry(0)
    assert logged is not None
    assert logged == (
        0, -1, 1, T0 + 1_000, 4_000, waiting.physical_offset, waiting.total_size, hash_code("Orders")
    )  # fmt: skip

    timing.at(T0 + 5_900)
    (record,) = timing.delivered()
    assert names_of(record) == placed | {"TIMER_ENQUEUE_MS": str(T0 + 1_000), "TIMER_DEQUEUE_MS": str(T0 + 5_900)}
    assert (record.body, record.flag, record.reconsume_times) == (b"x", 7, 3)
    assert (record.born_timestamp, record.born_host, record.store_timestamp) == (T0 - 5, BORN, T0 + 5_900)
    delivered = timing.store.queue("Orders", 2).entry(0)
    assert delivered is not None
    assert delivered[2] == tags_code("new")


def test_the_files_are_made_with_the_first_message(timing: Timing, tmp_path: Path) -> None:
    root = tmp_path / "store"
    timing.at(T0 + HOUR)
    assert not (root / "timerwheel").exists()
    timing.restart()
    assert not (root / "config" / "timercheck").exists()
    timing.put(b"x", TIMER_DELAY_SEC="60")
    timing.at(timing.now)
    timing.stop()
    assert (root / "timerwheel").stat().st_size == 38_707_200
    assert (root / "config" / "timercheck").stat().st_size == 4096
    check = TimerCheckpoint.decode((root / "config" / "timercheck").read_bytes())
    assert (check.log_position, check.queue_offset, check.master_queue_offset, check.clean) == (52, 1, 1, True)


def test_an_idle_wheel_writes_nothing(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="1")
    timing.at(T0 + 3_000)
    check = Path(timing.store_settings.store_path_root_dir) / "config" / "timercheck"
    timing.at(T0 + 5_000)
    before = check.read_bytes()
    for minute in range(60):
        timing.at(T0 + minute * 60_000)
    assert check.read_bytes() == before


def test_forwarded_message_is_not_delayed_again(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="5", UNIQ_KEY="U")
    timing.at(T0 + 5_000)
    names: dict[str, Any] = {**names_of(timing.delivered()[0])}
    timing.put(b"again", **names)
    assert [record.body for record in timing.delivered()] == [b"x", b"again"]


def test_maximum_delay_is_accepted(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="259200")
    assert timing.at(T0 + 3 * DAY - 1) == []
    assert timing.at(T0 + 3 * DAY) == [b"x"]


# Rolling.


def test_distant_message_is_rolled_and_delivered_in_time(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="216000", UNIQ_KEY="U")  # two and a half days
    timing.at(T0)
    assert timing.timers.files.wheel.get(T0 + DAY) == Slot(0, 0, 1)
    entry = timing.timers.files.log.entry(0)
    assert entry is not None
    assert entry.magic == 1 | ROLL
    timing.at(T0 + DAY)
    first, rolled = timing.waiting()
    known = names_of(rolled)
    assert known == names_of(first) | {
        "TIMER_ROLL_TIMES": "1", "TIMER_ENQUEUE_MS": str(T0), "TIMER_DEQUEUE_MS": str(T0 + DAY)
    }  # fmt: skip
    assert timing.at(T0 + 216_000_000 - 1) == []
    assert timing.at(T0 + 216_000_000) == [b"x"]
    assert names_of(timing.delivered()[0])["TIMER_ENQUEUE_MS"] == str(T0 + DAY)


def test_very_distant_message_is_rolled_by_the_whole_window(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="259200")
    timing.at(T0)
    assert timing.timers.files.wheel.get(T0 + 2 * DAY) == Slot(0, 0, 1)


def test_a_message_is_rolled_before_its_file_expires(make: Callable[..., Timing]) -> None:
    timing = make()
    timing.store_settings.file_reserved_time = 24
    timing.put(b"x", TIMER_DELAY_SEC=str(40 * 3600))
    timing.at(T0)
    assert timing.timers.files.wheel.get(T0 + 16 * HOUR) is not None
    assert timing.at(T0 + 40 * HOUR) == [b"x"]
    assert len(timing.waiting()) > 1


def test_small_windows_roll_often(make: Callable[..., Timing]) -> None:
    timing = make(timer_roll_window_slot=10, timer_precision_ms=100)
    timing.put(b"x", TIMER_DELAY_SEC="20")
    for now_ms in range(T0, T0 + 20_000, 100):
        assert timing.at(now_ms) == []
    assert timing.at(T0 + 20_000) == [b"x"]
    assert len(timing.waiting()) > 10


def test_markers_are_marked_in_the_log(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="5", UNIQ_KEY="U")
    timing.put(b"0", TIMER_DELAY_SEC="5", UNIQ_KEY="U", TIMER_DEL_UNIQKEY="Orders+U")
    timing.at(T0)
    files = timing.timers.files
    assert files.wheel.get(T0 + 4_000) == Slot(0, 52, 0)
    marker = files.log.entry(52)
    assert marker is not None
    assert marker.magic == 1 | DELETE
    assert timing.at(T0 + HOUR) == []


@pytest.mark.slow
def test_pending_messages_are_not_in_memory(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="1000")
    timing.go(T0)
    timing.store.tick(T0 + HOUR)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20_000):
            timing.append(b"x" * 200, TIMER_DELIVER_MS=str(T0 + 10_000 + number * 100))
            if number % 500 == 499:
                timing.end_round()
                timing.go(T0)
                timing.store.tick(T0 + HOUR)  # consume-queue entries go to their file
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 20_000 < 25  # bytes each; a million are then below 25 MB


# Over sockets, by the wall clock.


def test_many_due_messages_do_not_block_the_broker(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            due_ms = time.time_ns() // 1_000_000 + 4_000
            for start in range(0, 4_000, 100):
                await asyncio.gather(
                    *(c.send("Orders", b"%d" % number, TIMER_DELIVER_MS=str(due_ms)) for number in range(start, start + 100))
                )
            while not bodies(await c.pull("Orders", 0, flags=6, hold_ms=10_000)):
                pass
            began, worst = time.process_time(), 0.0  # CPU time, so that a busy machine passes
            while not bodies(await c.pull("Orders", 3_999)):
                asked = time.process_time()
                await c.send("Other", b"x")
                worst = max(worst, time.process_time() - asked)
            (last,) = records(await c.pull("Orders", 3_999))
            assert last.store_timestamp >= due_ms
            assert time.process_time() - began < 3.0
            assert worst < 1.0

    run(story())


# Large messages.


def test_large_messages_are_delivered_in_small_batches(timing: Timing) -> None:
    for number in range(30):
        timing.put(b"%04d" % number + bytes(1_000_000), TIMER_DELIVER_MS=str(T0 + 5_000))
    timing.go(T0)
    ticks, most, before = 0, 0, 0
    more = True
    while more:
        more = timing.timers.tick(T0 + 5_000)
        timing.end_round()
        now = timing.store.queue("Orders", 2).max_offset
        most, before = max(most, now - before), now
        ticks += 1
    assert (before, most <= 10, ticks >= 3) == (30, True, True)
