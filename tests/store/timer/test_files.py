"""Timer files as a whole: opened after a clean stop, or rebuilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.store.filesystem import RealDisk
from firearrow.store.timer.checkpoint import TimerCheckpoint
from firearrow.store.timer.files import TimerFiles
from firearrow.store.timer.log import DELETE, MAGIC, NONE, UNIT
from firearrow.store.timer.wheel import Slot
from tests.store.archives import manifest, unpack

T0 = 1_700_000_000_000
SECOND = 1_000


def make(
    root: Path, *, clean: bool = False, now_ms: int = T0, precision_ms: int = SECOND, segment_size: int = 4096
) -> TimerFiles:
    files = TimerFiles(RealDisk(), str(root), precision_ms=precision_ms, segment_size=segment_size)
    files.open(clean=False, now_ms=now_ms, queue_offset_of=lambda physical_offset: physical_offset // 1000)
    return files


def enter(files: TimerFiles, time_ms: int, number: int, *, magic: int = MAGIC) -> None:
    """Append the entry of a message with this queue offset, due at this time."""
    slot = files.wheel.get(time_ms)
    position = files.log.append(NONE if slot is None else slot.last, magic, T0, time_ms - T0, number * 1000, 200, 0)
    files.wheel.add(time_ms, position, count=-1 if magic & DELETE else 1)
    files.progress.queue_offset = number + 1


def filled(root: Path, count: int = 300) -> TimerFiles:
    files = make(root)
    files.begin(T0)
    for number in range(count):
        enter(files, T0 + (number % 100) * SECOND, number)
    enter(files, T0 + 7 * SECOND, count, magic=MAGIC | DELETE)
    files.log.write_out()
    return files


def chains(files: TimerFiles) -> dict[int, tuple[Slot, list[int]]]:
    """Return every slot in use from the read time, with the messages of its chain."""
    found: dict[int, tuple[Slot, list[int]]] = {}
    at_ms: int | None = files.progress.read_time_ms
    stop_ms = files.progress.read_time_ms + files.wheel.span_ms
    while at_ms is not None and (at_ms := files.wheel.next_used(at_ms, stop_ms)) is not None:
        slot = files.wheel.get(at_ms)
        assert slot is not None
        entries, rest = files.log.walk(slot.last, 100_000)
        assert rest == NONE
        found[at_ms] = slot, [entry.physical_offset // 1000 for entry in entries]
        at_ms += files.wheel.precision_ms
    return found


def test_files_of_a_clean_stop_are_used_unchanged(tmp_path: Path) -> None:
    files = filled(tmp_path)
    before = chains(files)
    files.progress.read_time_ms = T0 + 5 * SECOND
    files.saver(files.snapshot(T0 + 1), clean=True)()
    wheel = (tmp_path / "timerwheel").read_bytes()
    again = make(tmp_path)
    assert (again.progress.read_time_ms, again.progress.queue_offset) == (T0 + 5 * SECOND, 301)
    assert chains(again) == {time_ms: chain for time_ms, chain in before.items() if time_ms >= T0 + 5 * SECOND}
    assert (tmp_path / "timerwheel").read_bytes() == wheel
    # From here on it counts as in use: killed now, it is recovered.
    assert not TimerCheckpoint.decode((tmp_path / "config" / "timercheck").read_bytes()).clean


def test_crash_truncates_the_log_at_the_checkpoint_and_rebuilds_the_wheel(tmp_path: Path) -> None:
    files = filled(tmp_path)
    before = chains(files)
    files.progress.read_time_ms = T0 + 5 * SECOND
    files.saver(files.snapshot(T0 + 1))()
    end = files.log.end
    for number in range(301, 500):
        enter(files, T0 + (number % 150) * SECOND, number)
    files.log.write_out()
    files.wheel.flush()

    again = make(tmp_path)
    assert (again.log.end, again.progress.queue_offset, again.progress.read_time_ms) == (end, 301, T0 + 5 * SECOND)
    assert chains(again) == {time_ms: chain for time_ms, chain in before.items() if time_ms >= T0 + 5 * SECOND}
    assert not again.log.has_entry_at(end)
    assert again.wheel.get(T0 + 7 * SECOND) == Slot(7 * UNIT, end - UNIT, 2)  # three messages, one of them recalled


@pytest.mark.parametrize("length", [0, 100, 38_707_199])
def test_wheel_of_another_length_is_rebuilt(tmp_path: Path, length: int) -> None:
    files = filled(tmp_path)
    before = chains(files)
    files.saver(files.snapshot(T0), clean=True)()
    (tmp_path / "timerwheel").write_bytes(b"\xff" * length)
    assert chains(make(tmp_path)) == before


def test_short_log_is_rebuilt_from_the_queue(tmp_path: Path) -> None:
    files = filled(tmp_path)
    files.progress.read_time_ms = T0 + 9 * SECOND
    files.saver(files.snapshot(T0), clean=True)()
    sorted((tmp_path / "timerlog").iterdir())[-1].unlink()
    for _ in range(2):  # killed before the messages are taken once more, the next one does the same
        again = make(tmp_path)
        assert chains(again) == {}
        assert again.log.end >= files.log.end
        progress = again.progress
        assert (progress.queue_offset, progress.replay_to, progress.replay_from_ms) == (0, 301, T0 + 9 * SECOND)
        assert "rebuilt from the timer queue" in again.problems[-1]
        enter(again, T0 + 10 * SECOND, 0)
        again.log.write_out()


def test_files_of_another_size_are_rebuilt_from_the_queue(tmp_path: Path) -> None:
    files = filled(tmp_path)
    files.saver(files.snapshot(T0), clean=True)()
    again = make(tmp_path, segment_size=8192)
    assert again.progress.replay_to == 301
    enter(again, T0 + SECOND, 0)
    again.log.write_out()
    assert [path.stat().st_size for path in (tmp_path / "timerlog").iterdir()] == [8192]


def test_no_files_before_the_first_message(tmp_path: Path) -> None:
    files = make(tmp_path)
    assert not files.begun
    assert list(tmp_path.iterdir()) == []
    assert files.progress.read_time_ms == T0


def test_expired_files_are_deleted_by_a_job(tmp_path: Path) -> None:
    files = filled(tmp_path)
    assert files.expire(0) is None
    job = files.expire(78_000)
    assert job is not None
    assert len(list((tmp_path / "timerlog").iterdir())) == 4
    job()
    assert min(path.name for path in (tmp_path / "timerlog").iterdir()) == f"{4096:020d}"
    files.saver(files.snapshot(T0))()
    assert len(chains(make(tmp_path))) == 100


@pytest.mark.parametrize(("case", "clean"), [("a-clean", True), ("a-clean", False), ("b-crash", False)])
def test_apache_files_are_opened_after_a_clean_stop_or_a_crash(tmp_path: Path, case: str, clean: bool) -> None:
    timer = manifest(case)["timer"]
    root = unpack(case, tmp_path)
    files = TimerFiles(RealDisk(), str(root), precision_ms=SECOND, segment_size=1_048_576)
    files.open(clean=clean, now_ms=timer["check"]["timestamp"], queue_offset_of=lambda physical_offset: 7)
    read_ms = timer["check"]["lastReadTimeMs"]
    assert (files.progress.read_time_ms, files.progress.queue_offset, files.log.end) == (read_ms, 8, 416)
    expected = {
        slot["timeDivPrecision"] * 1000: Slot(slot["firstPos"], slot["lastPos"], slot["num"])
        for slot in timer["slotsInUse"]
        if slot["timeDivPrecision"] * 1000 >= read_ms
    }
    assert {time_ms: slot for time_ms, (slot, _) in chains(files).items()} == expected
    assert files.problems == []


def test_apache_entries_behind_the_checkpoint_are_read_from_the_queue_again(tmp_path: Path) -> None:
    root = unpack("b-crash", tmp_path)
    offsets = {entry["commitLogOffset"]: number for number, entry in enumerate(manifest("b-crash")["timer"]["log"])}
    path = root / "config" / "timercheck"
    page = bytearray(path.read_bytes())
    page[8:16] = (5 * UNIT).to_bytes(8, "big")
    path.write_bytes(page)
    for clean in (True, False):  # even if it says it was clean
        files = TimerFiles(RealDisk(), str(root), precision_ms=SECOND, segment_size=1_048_576)
        files.open(clean=clean, now_ms=T0, queue_offset_of=offsets.get)
        assert (files.log.end, files.progress.queue_offset) == (5 * UNIT, 5)


def test_the_precision_of_a_wheel_in_use_is_kept(tmp_path: Path) -> None:
    files = filled(tmp_path)
    files.saver(files.snapshot(T0), clean=True)()
    for clean in (True, False):
        again = make(tmp_path, precision_ms=100)
        assert again.wheel.precision_ms == SECOND
        assert "timerPrecisionMs is 100" in again.problems[-1]
        assert len(chains(again)) == 100
        again.saver(again.snapshot(T0), clean=clean)()
    again.progress.read_time_ms = T0 + 100 * SECOND
    again.saver(again.snapshot(T0), clean=True)()
    emptied = make(tmp_path, precision_ms=100, now_ms=T0 + 200 * SECOND + 150)
    assert (emptied.wheel.precision_ms, emptied.progress.read_time_ms) == (100, T0 + 200 * SECOND + 100)
    assert emptied.problems == []


@pytest.mark.parametrize("clean", [False, True])
def test_precision_of_an_apache_wheel_is_detected(tmp_path: Path, clean: bool) -> None:
    root = unpack("a-clean", tmp_path)
    files = TimerFiles(RealDisk(), str(root), precision_ms=100, segment_size=1_048_576)
    files.open(clean=clean, now_ms=T0, queue_offset_of=lambda physical_offset: 7)
    assert files.wheel.precision_ms == SECOND
    assert "it stays 1000" in files.problems[-1]
    assert sum(slot.waiting for slot, _ in chains(files).values()) == 5


def test_checkpoint_copied_from_a_master_is_rebuilt_without_a_problem(tmp_path: Path) -> None:
    """A follower has the master's checkpoint, but never its timer log: this is no damage."""
    files = make(tmp_path)
    files.save_copied(TimerCheckpoint(T0 + 9 * SECOND, 5 * UNIT, 5, 5))
    for _ in range(2):  # killed before the messages are read again
        again = make(tmp_path)
        progress = again.progress
        assert (progress.queue_offset, progress.replay_to, progress.replay_from_ms) == (0, 5, T0 + 9 * SECOND)
        assert again.problems == []
        enter(again, T0 + 10 * SECOND, 0)
        again.log.write_out()


def test_jobs_of_a_discarded_timer_log_touch_no_file(tmp_path: Path) -> None:
    """A deposed leader discards its timer log while jobs of its term wait for the housekeeper."""
    files = filled(tmp_path, 300)
    files.saver(files.snapshot(T0))()
    delete = files.expire(200_000)
    assert delete is not None
    enter(files, T0 + 20 * SECOND, 301)
    files.log.write_out()
    files.discard()
    files.begin(T0)
    enter(files, T0 + 200 * SECOND, 0)
    files.log.write_out()
    files.saver(files.snapshot(T0))()
    delete()
    assert [path.name for path in (tmp_path / "timerlog").iterdir()] == [f"{0:020d}"]


def test_file_that_is_already_deleted_does_not_fail_the_retention(tmp_path: Path) -> None:
    files = filled(tmp_path, 300)
    delete = files.expire(200_000)
    assert delete is not None
    for path in sorted((tmp_path / "timerlog").iterdir())[:-1]:
        path.unlink()
    delete()
