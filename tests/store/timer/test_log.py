"""Timer log: Apache's format, chains, file boundaries, truncation and deletion."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from firearrow.store.filesystem import RealDisk
from firearrow.store.timer.log import DELETE, MAGIC, NONE, ROLL, UNIT, TimerEntry, TimerLog
from tests.store.archives import manifest, unpack
from tests.store.simdisk import SimulatedDisk

SMALL = 4096  # 78 entries and 40 bytes of blank


def make(tmp_path: Path, segment_size: int = SMALL) -> TimerLog:
    return TimerLog(RealDisk(), str(tmp_path / "timerlog"), segment_size)


def fill(log: TimerLog, count: int, *, chains: int = 1, first: int = 0) -> list[int]:
    """Append entries of several chains alternately, with physical offsets 1000, 2000, ..."""
    last = [NONE] * chains
    positions = []
    for number in range(first, first + count):
        chain = number % chains
        last[chain] = log.append(last[chain], MAGIC, 5_000, number, number * 1000, 200, -7)
        positions.append(last[chain])
    log.write_out()
    return positions


@pytest.mark.parametrize("case", ["a-clean", "b-crash"])
def test_apache_files_are_read_and_written_identically(tmp_path: Path, case: str) -> None:
    timer = manifest(case)["timer"]
    theirs = unpack(case, tmp_path / "theirs") / "timerlog" / f"{0:020d}"
    log = make(tmp_path, 1_048_576)
    for entry in timer["log"]:
        position = log.append(
            entry["prevPos"],
            entry["magic"],
            entry["currWriteTime"],
            entry["delayedMs"],
            entry["commitLogOffset"],
            entry["size"],
            entry["topicHash"],
        )
        assert position == entry["pos"]
    log.write_out()
    assert (tmp_path / "timerlog" / f"{0:020d}").read_bytes() == theirs.read_bytes()

    read = TimerLog(RealDisk(), str(theirs.parent), 1_048_576)
    read.load()
    assert read.begin(timer["check"]["lastTimerLogFlushPos"])
    fields = ("pos", "prevPos", "magic", "currWriteTime", "delayedMs", "commitLogOffset", "size", "topicHash")
    expected = [TimerEntry(*(entry[name] for name in fields)) for entry in timer["log"]]
    assert [read.entry(entry.position) for entry in expected] == expected
    assert read.last_entry() == expected[-1]
    for slot in timer["slotsInUse"]:
        found, rest = read.walk(slot["lastPos"], 100)
        assert (found[-1].position, len(found), rest) == (slot["firstPos"], slot["num"], NONE)
        assert {entry.slot_ms for entry in found} == {slot["timeDivPrecision"] * 1000}


def test_chain_is_walked_newest_first_in_batches_across_files(tmp_path: Path) -> None:
    log = make(tmp_path)
    positions = fill(log, 1000, chains=3)
    walked: list[int] = []
    at = positions[999]
    while at != NONE:
        entries, at = log.walk(at, 10)
        assert len(entries) <= 10
        walked += [entry.position for entry in entries]
    assert walked == positions[999::-3]
    assert [log.entry(position) for position in positions[5:7]] == [
        TimerEntry(positions[5], positions[2], MAGIC, 5_000, 5, 5_000, 200, -7),
        TimerEntry(positions[6], positions[3], MAGIC, 5_000, 6, 6_000, 200, -7),
    ]


@pytest.mark.parametrize(
    ("size", "units", "rest"), [(SMALL, 78, 40), (52 * 100, 99, 52), (52 * 100 + 16, 100, 16), (52 * 100 + 15, 99, 67)]
)
def test_file_ends_with_a_blank_of_its_own_length(tmp_path: Path, size: int, units: int, rest: int) -> None:
    log = make(tmp_path, size)
    positions = fill(log, units + 1)
    assert positions[-2] == (units - 1) * UNIT
    assert positions[-1] == size
    names = sorted(path.name for path in (tmp_path / "timerlog").iterdir())
    assert names == [f"{0:020d}", f"{size:020d}"]
    data = (tmp_path / "timerlog" / names[0]).read_bytes()
    assert len(data) == size
    assert data[units * UNIT :] == rest.to_bytes(4, "big") + bytes(8) + bytes.fromhex("CBD43194") + bytes(rest - 16)


def test_file_of_the_default_size_ends_with_the_blank_only() -> None:
    assert 104_857_600 % UNIT == 16


def test_begin_continues_at_the_given_end(tmp_path: Path) -> None:
    positions = fill(make(tmp_path), 200)
    log = make(tmp_path)
    log.load()
    assert log.begin(positions[-1] + UNIT)
    last = log.last_entry()
    assert last is not None
    assert last.position == positions[-1]
    assert not log.begin(4 * SMALL)  # there are only three files
    assert fill(log, 1, first=200) == [positions[-1] + UNIT]


def test_last_entry_before_the_end_of_a_file(tmp_path: Path) -> None:
    log = make(tmp_path)
    positions = fill(log, 78)
    log.end = SMALL
    assert log.last_entry() == log.entry(positions[-1])
    assert make(tmp_path / "none").last_entry() is None


def test_truncate_removes_everything_behind(tmp_path: Path) -> None:
    log = make(tmp_path)
    positions = fill(log, 200)
    log.truncate(positions[90])
    assert log.end == positions[90]
    assert log.entry(positions[90]) is None
    assert log.entry(positions[89]) is not None
    assert sorted(path.name for path in (tmp_path / "timerlog").iterdir()) == [f"{0:020d}", f"{SMALL:020d}"]
    again = make(tmp_path)
    again.load()
    assert not again.has_entry_at(positions[90])
    assert again.has_entry_at(positions[89])
    log.reset()
    assert list((tmp_path / "timerlog").iterdir()) == []


def test_runs_cover_every_entry_once(tmp_path: Path) -> None:
    log = make(tmp_path)
    positions = fill(log, 300)
    found = [at + unit for at, data in log.runs() for unit in range(0, len(data), UNIT)]
    assert found == positions


def test_files_of_deleted_messages_are_removed_except_the_newest(tmp_path: Path) -> None:
    log = make(tmp_path)
    positions = fill(log, 200)  # messages at 0, 1000, ...; 78 in a file
    assert log.remove_before(77_000) == []
    paths = log.remove_before(77_001)
    assert [Path(path).name for path in paths] == [f"{0:020d}"]
    assert log.start == SMALL
    assert len(log.remove_before(1 << 40)) == 1
    entries, rest = log.walk(positions[-1], 1000)
    assert (len(entries), rest) == (200 - 156, NONE)  # the chain ends where the files end


def test_damage_ends_a_chain_and_is_reported(tmp_path: Path) -> None:
    log = make(tmp_path)
    positions = fill(log, 20)
    path = tmp_path / "timerlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[positions[5] : positions[5] + 4] = bytes(4)
    path.write_bytes(data)
    entries, rest = log.walk(positions[-1], 1000)
    assert ([entry.position for entry in entries], rest) == (positions[:5:-1], NONE)
    assert f"at {positions[5]}" in log.problems[0]


def test_entry_that_leads_forward_counts_as_damage(tmp_path: Path) -> None:
    log = make(tmp_path)
    first = log.append(NONE, MAGIC | ROLL | DELETE, 1, 1, 1, 1, 1)
    log.write_out()
    path = tmp_path / "timerlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[first + 4 : first + 12] = (4000).to_bytes(8, "big")
    path.write_bytes(data)
    assert log.walk(first, 10) == ([], NONE)


def test_foreign_files_are_ignored(tmp_path: Path) -> None:
    fill(make(tmp_path), 200)
    (tmp_path / "timerlog" / "notes.txt").write_text("x")
    (tmp_path / "timerlog" / f"{SMALL:020d}").unlink()
    log = make(tmp_path)
    log.load()
    assert log.start == 2 * SMALL
    assert len(log.problems) == 2
    assert (tmp_path / "timerlog" / "notes.txt").exists()


def test_failed_write_is_retried() -> None:
    disk = SimulatedDisk()
    log = TimerLog(disk, "/store/timerlog", SMALL)
    fill(log, 10)
    disk.fail("pwrite", "timerlog", errno.ENOSPC)
    position = log.append(NONE, MAGIC, 1, 1, 77, 1, 1)
    with pytest.raises(OSError, match="timerlog"):
        log.write_out()
    assert log.pending
    disk.heal()
    log.write_out()
    entry = log.entry(position)
    assert entry is not None
    assert entry.physical_offset == 77
