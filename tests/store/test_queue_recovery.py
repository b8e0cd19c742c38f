"""Recovery of consume queues from scanned records, stored entries and the queue table."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from firearrow.store.commitlog.scan import ScanResult, scan
from firearrow.store.consume_queue import ABSENT_SIZE, UNIT, ConsumeQueue, ConsumeQueues, QueueFiles
from firearrow.store.queue_recovery import QueueRecovery
from firearrow.store.queue_table import QueueTable
from firearrow.wire.record import Record, encode
from tests.store.simdisk import SimulatedDisk


class Log:
    """Records of one queue: (physical offset, size) of each, and their bytes."""

    def __init__(self, *queue_offsets: int, start: int = 0) -> None:
        self.places: list[tuple[int, int]] = []
        self.data = b""
        self.start = start
        for queue_offset in queue_offsets:
            record = replace(Record("T", b"body", queue_offset=queue_offset), physical_offset=self.end)
            self.places.append((self.end, record.total_size))
            self.data += encode(record)

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def scanned(self) -> ScanResult:
        return scan(self.data, self.start, check_crc=True)


class Recovery:
    """A recovery of the queues on a disk."""

    def __init__(self, disk: SimulatedDisk, *, clean: bool = False) -> None:
        self.files = QueueFiles(disk, "/q", 10 * UNIT)
        self.queues = ConsumeQueues(self.files, plain=True)
        self.notes: list[str] = []
        log: Any = SimpleNamespace(min_offset=0, segments={0: None})
        self.recovery = QueueRecovery(log, self.queues, lambda *texts: self.notes.extend(texts), clean=clean)

    @property
    def queue(self) -> ConsumeQueue:
        return self.queues["T", 0]

    def places(self) -> list[tuple[int, int]]:
        """Return (physical offset, size) of the visible entries."""
        entries = [self.queue.entry(offset) for offset in range(self.queue.min_offset, self.queue.max_offset)]
        return [(entry[0], entry[1]) for entry in entries if entry is not None]


def stored(log: Log) -> SimulatedDisk:
    """Return a disk whose queue files have the entries of the log."""
    disk = SimulatedDisk()
    disk.mkdirs("/q")
    first = Recovery(disk)
    first.recovery.add(log.scanned())
    assert not first.recovery.rebuild_incomplete()
    first.recovery.settle(log.end, None)
    return disk


def test_scanned_records_become_entries_in_the_queue_files() -> None:
    log = Log(*range(25))
    again = Recovery(stored(log))
    assert again.recovery.load_without_table()
    again.recovery.keep_below(log.end)
    again.recovery.settle(log.end, None)
    assert again.places() == log.places
    assert again.notes == []


def test_records_that_have_entries_are_not_added_again() -> None:
    log = Log(0, 1, 2)
    again = Recovery(stored(log))
    again.recovery.load_without_table()
    again.recovery.keep_below(log.places[1][0])
    again.recovery.add(log.scanned())
    again.recovery.add(log.scanned())
    assert not again.recovery.rebuild_incomplete()
    again.recovery.settle(log.end, None)
    assert again.places() == log.places


def test_missing_queue_offsets_in_the_log_get_absent_entries() -> None:
    log = Log(0, 3)
    disk = SimulatedDisk()
    disk.mkdirs("/q")
    recovered = Recovery(disk)
    recovered.recovery.add(log.scanned())
    assert not recovered.recovery.rebuild_incomplete()
    assert [size for _, size in recovered.places()] == [log.places[0][1], ABSENT_SIZE, ABSENT_SIZE, log.places[1][1]]
    assert recovered.notes == ["T queue 0: queue offsets 1 to 2 have no message"]


@pytest.mark.parametrize("damaged", [0, 1, 8214])
def test_damaged_queue_offset_of_one_record_hides_no_other(damaged: int) -> None:
    log = Log(0, 1, 2, damaged, 4, 5)
    disk = SimulatedDisk()
    disk.mkdirs("/q")
    recovered = Recovery(disk)
    recovered.recovery.add(log.scanned())
    assert not recovered.recovery.rebuild_incomplete()
    sizes = [size for _, size in log.places]
    assert [size for _, size in recovered.places()] == [*sizes[:3], ABSENT_SIZE, *sizes[4:]]
    assert recovered.notes[0] == f"T queue 0: record at {log.places[3][0]} has the damaged queue offset {damaged}; skipped"


def test_entries_of_records_behind_the_end_of_the_log_are_removed() -> None:
    log = Log(0, 1, 2)
    again = Recovery(stored(log))
    again.recovery.load_without_table()
    again.recovery.keep_below(log.places[0][0])
    again.recovery.add(log.scanned())
    assert not again.recovery.rebuild_incomplete()
    again.recovery.settle(log.end - 1, None)
    assert again.places() == log.places[:2]
    assert again.queue.next_offset == 2


def test_queue_with_fewer_entries_than_its_table_is_rebuilt_and_keeps_its_numbering() -> None:
    log = Log(0, 1, 2)
    again = Recovery(stored(log))
    table = QueueTable(derived_offset=log.end, queues={("T", 0): (0, 5)})
    assert not again.recovery.load_with_table(table, log.end)
    assert (again.recovery.rebuilt, again.notes) == (1, ["/q/T/0: entries are missing or damaged"])
    again.recovery.add(log.scanned())
    assert not again.recovery.rebuild_incomplete()
    again.recovery.settle(log.end, table)
    assert again.places() == [*log.places, *[(log.places[-1][0], ABSENT_SIZE)] * 2]


def test_trusted_queue_that_has_lost_entries_is_rebuilt_from_the_whole_log() -> None:
    log = Log(0, 1, 2)
    again = Recovery(stored(log))
    table = QueueTable(derived_offset=log.end, queues={("T", 0): (0, 3)})
    assert again.recovery.load_with_table(table, log.end)
    later = Log(5, start=log.end)
    again.recovery.add(later.scanned())
    assert again.recovery.rebuild_incomplete()
    assert (again.recovery.rebuilt, again.queue.max_offset) == (1, 0)


@pytest.mark.parametrize(("first", "intact"), [(-1, True), (0, False)], ids=["files deleted before", "files lost"])
def test_queue_without_messages_continues_its_numbering(first: int, intact: bool) -> None:
    disk = SimulatedDisk()
    disk.mkdirs("/q")
    recovered = Recovery(disk, clean=True)
    table = QueueTable(derived_offset=500, queues={("T", 0): (first, 40)})
    assert recovered.recovery.load_with_table(table, 500) == intact
    recovered.recovery.settle(500, table)
    assert (recovered.queue.min_offset, recovered.queue.next_offset) == (40, 40)
