"""Timer wheel: Apache's format, shared slots, search for the next slot in use, memory limit."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from firearrow.store.filesystem import RealDisk
from firearrow.store.timer.wheel import FILE_SIZE, SLOTS, Slot, TimerWheel
from tests.store.archives import manifest, unpack

T0 = 1_700_000_000_000
SECOND, DAY = 1_000, 86_400_000


@pytest.fixture
def wheel(tmp_path: Path) -> TimerWheel:
    return TimerWheel(RealDisk(), str(tmp_path / "timerwheel"), SECOND)


@pytest.mark.parametrize("case", ["a-clean", "b-crash"])
def test_apache_files_are_read_and_written_identically(tmp_path: Path, wheel: TimerWheel, case: str) -> None:
    slots = manifest(case)["timer"]["slotsInUse"]
    theirs = unpack(case, tmp_path / "theirs") / "timerwheel"
    for slot in slots:
        wheel.put(slot["timeDivPrecision"] * 1000, slot["firstPos"], slot["lastPos"], slot["num"])
    wheel.flush()
    assert (tmp_path / "timerwheel").read_bytes() == theirs.read_bytes()
    assert FILE_SIZE == theirs.stat().st_size == 38_707_200

    read = TimerWheel(RealDisk(), str(theirs), SECOND)
    assert read.is_whole()
    times = [slot["timeDivPrecision"] * 1000 for slot in slots]
    found = [times[0] - DAY]
    while (found_ms := read.next_used(found[-1] + SECOND, times[-1] + DAY)) is not None:
        found.append(found_ms)
    assert found[1:] == times
    assert [read.get(time_ms) for time_ms in times] == [Slot(slot["firstPos"], slot["lastPos"], slot["num"]) for slot in slots]


def test_entries_of_a_slot_are_counted_and_chained_from_the_last(wheel: TimerWheel) -> None:
    assert wheel.get(T0) is None
    wheel.add(T0, 52)
    wheel.add(T0, 104)
    wheel.add(T0 + 999, 208)  # still the same second
    wheel.add(T0, 260, count=-1)
    assert wheel.get(T0) == Slot(52, 260, 2)
    assert wheel.get(T0 + SECOND) is None


def test_time_one_turn_later_takes_over_the_slot(wheel: TimerWheel) -> None:
    assert wheel.span_ms == 14 * DAY
    wheel.add(T0, 52)
    assert wheel.get(T0 + 14 * DAY) is None
    wheel.add(T0 + 14 * DAY, 104)
    assert wheel.get(T0 + 14 * DAY) == Slot(104, 104, 1)
    assert wheel.get(T0) is None


def test_flushed_slots_survive_a_restart(tmp_path: Path, wheel: TimerWheel) -> None:
    for number in range(5000):
        wheel.add(T0 + number * 37 * SECOND, number * 52)
    wheel.flush()
    wheel.sync()
    wheel.close()
    again = TimerWheel(RealDisk(), str(tmp_path / "timerwheel"), SECOND)
    assert [again.get(T0 + number * 37 * SECOND) for number in range(5000)] == [Slot(n * 52, n * 52, 1) for n in range(5000)]


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("ahead", [0, 1, 127, 128, 129, 5000, SLOTS - 1])
def test_next_used_slot_is_found_across_the_wheel_end(wheel: TimerWheel, ahead: int, flushed: bool) -> None:
    start_ms = (T0 // SECOND // SLOTS * SLOTS + SLOTS - 100) * SECOND  # a hundred slots before the end of the file
    wanted_ms = start_ms + ahead * SECOND
    wheel.add(start_ms - SECOND, 104)  # before
    wheel.add(wanted_ms, 52)
    if flushed:
        wheel.flush()
    assert wheel.next_used(start_ms, wanted_ms + SECOND) == wanted_ms
    assert wheel.next_used(start_ms, wanted_ms) is None
    assert wheel.next_used(wanted_ms + SECOND, start_ms + 1000 * DAY) is None


def test_wheel_is_empty_without_a_file_and_after_a_reset(tmp_path: Path, wheel: TimerWheel) -> None:
    assert wheel.next_used(T0, T0 + 100 * DAY) is None
    assert not wheel.is_whole()
    wheel.add(T0, 52)
    wheel.flush()
    assert wheel.is_whole()
    assert (tmp_path / "timerwheel").stat().st_blocks * 512 < 100_000  # a hole where nothing is
    wheel.reset()
    assert wheel.get(T0) is None
    assert wheel.is_whole()


def test_page_cache_is_limited(wheel: TimerWheel) -> None:
    tracemalloc.start()
    for step in range(0, SLOTS, 64):
        wheel.add(T0 + step * SECOND, step * 52)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < FILE_SIZE / 2
    for step in range(0, SLOTS, 64 * 1001):
        assert wheel.get(T0 + step * SECOND) == Slot(step * 52, step * 52, 1)


def test_precision_determines_the_steps(tmp_path: Path) -> None:
    wheel = TimerWheel(RealDisk(), str(tmp_path / "timerwheel"), 100)
    wheel.add(T0 + 100, 52)
    assert wheel.get(T0 + 199) == Slot(52, 52, 1)
    assert wheel.get(T0 + 200) is None
    assert wheel.floor(T0 + 199) == T0 + 100
    assert wheel.next_used(T0, T0 + SECOND) == T0 + 100


@pytest.mark.parametrize("flushed", [False, True])
def test_waiting_yields_the_slots_between_two_times(tmp_path: Path, wheel: TimerWheel, flushed: bool) -> None:
    """Slots across the end of the file, on disk or in memory."""
    end_ms = (T0 // (SLOTS * SECOND) + 1) * SLOTS * SECOND
    moments = [end_ms - 2 * DAY, end_ms - 1_000 * SECOND, end_ms - SECOND, end_ms, end_ms + 999 * SECOND, end_ms + DAY]
    for count, moment_ms in enumerate(moments, 1):
        wheel.put(moment_ms, 0, 52, count)
    if flushed:
        wheel.flush()
        wheel = TimerWheel(RealDisk(), wheel.path, SECOND)
    assert [*wheel.waiting(end_ms - 3 * DAY, end_ms + 3 * DAY)] == [*zip(moments, range(1, 7), strict=True)]
    assert [*wheel.waiting(moments[1], moments[4])] == [*zip(moments[1:4], range(2, 5), strict=True)]
    assert [*wheel.waiting(end_ms + 14 * DAY, end_ms + 20 * DAY)] == []  # the same places, another round
