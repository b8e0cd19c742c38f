"""Retention: deletion by age, hour and disk usage; queues and index follow, and lost ranges are reported."""

from __future__ import annotations

import datetime

import pytest

from firearrow.store.commitlog.reader import GetStatus
from firearrow.store.errors import NotWritableError
from firearrow.store.message_store import MovedMin
from firearrow.wire import record
from tests.store.history import ROOT, History, small_settings

HOUR_MS = 3_600_000
SEGMENT = 8192


class Retained(History):
    """A store of one queue, filled at a known local time, with a disk usage set by the test."""

    def __init__(self, hour: int = 12) -> None:
        settings = small_settings()
        settings.clean_resource_interval = 10_000
        super().__init__(settings)
        start = datetime.datetime(2026, 11, 16, hour, 30)
        self.now_ms = int(start.timestamp() * 1000)

    def fill(self, segments: int) -> None:
        while self.store.max_offset < segments * SEGMENT:
            self.send("Orders", 0, 300)
            self.write()
            self.flush()
        self.tick(2000)

    def segments(self) -> list[int]:
        return [int(path.rpartition("/")[2]) // SEGMENT for path in self.disk.files(f"{ROOT}/commitlog")]

    def pass_time(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.store.tick(self.now_ms)
        self.store.tick(self.now_ms)

    def first_in(self, segment: int) -> int:
        """Return the queue offset of the first message in a segment."""
        offsets = [record.decode(data).physical_offset for data in self.sent["Orders", 0]]
        return min(number for number, offset in enumerate(offsets) if offset >= segment * SEGMENT)


def test_expired_files_are_deleted_at_the_configured_hour() -> None:
    store = Retained(hour=12)
    store.fill(5)
    kept = store.segments()
    store.pass_time(80 * HOUR_MS)  # 20:30
    assert store.segments() == kept
    store.pass_time(8 * HOUR_MS)  # 04:30, deleteWhen=04
    assert store.segments() == kept[-1:]  # never the newest


def test_unexpired_files_are_kept_at_the_configured_hour() -> None:
    store = Retained(hour=12)
    store.fill(5)
    kept = store.segments()
    store.pass_time(16 * HOUR_MS)  # 04:30
    assert store.segments() == kept


def test_expired_files_are_deleted_at_any_hour_above_75_percent() -> None:
    store = Retained(hour=12)
    store.fill(5)
    kept = store.segments()
    store.disk.used_percent = 75.0
    store.pass_time(10_000)
    assert store.segments() == kept  # none has expired
    store.pass_time(73 * HOUR_MS)
    assert store.segments() == kept[-1:]


def test_oldest_files_are_deleted_from_85_percent() -> None:
    store = Retained(hour=12)
    store.fill(5)
    kept = store.segments()
    store.disk.used_percent = 85.0
    store.pass_time(10_000)
    assert store.segments() == kept[1:]
    assert store.store.writable
    store.pass_time(1_000)  # soon again, not after the usual interval
    assert store.segments() == kept[2:]
    store.disk.used_percent = 84.0
    store.pass_time(10_000)
    assert store.segments() == kept[2:]


def test_usage_is_checked_when_a_new_segment_begins() -> None:
    store = Retained(hour=12)
    store.fill(3)
    store.disk.used_percent = 86.0
    oldest = store.segments()[0]
    store.fill(6)  # within seconds
    assert store.segments()[0] > oldest
    store.disk.used_percent = 91.0
    while store.store.max_offset < 9 * SEGMENT:
        store.send("Orders", 0, 300)
        store.write()
    store.pass_time(50)
    assert not store.store.writable


def test_unexpired_files_are_kept_with_clean_file_forcibly_disabled() -> None:
    store = Retained(hour=12)
    store.settings.clean_file_forcibly_enable = False
    store.fill(5)
    kept = store.segments()
    store.disk.used_percent = 88.0
    store.pass_time(10_000)
    assert store.segments() == kept


def test_messages_are_refused_from_90_percent_with_a_reason() -> None:
    store = Retained(hour=12)
    store.fill(3)
    store.disk.used_percent = 91.5
    store.pass_time(10_000)
    assert not store.store.writable
    assert store.store.refusal is not None
    assert "91.5 % full" in store.store.refusal
    assert "diskSpaceWarningLevelRatio=90" in store.store.refusal
    store.pass_time(10_000)
    assert store.store.problems == [store.store.refusal]  # said once
    store.disk.used_percent = 70.0
    store.pass_time(10_000)
    assert store.store.writable
    assert store.store.refusal is None


def test_queues_and_index_follow_the_log_and_moved_minimums_are_reported() -> None:
    store = Retained(hour=12)
    store.fill(6)
    before = len(list(store.disk.files(f"{ROOT}/index")))
    store.disk.used_percent = 86.0
    store.pass_time(10_000)
    store.pass_time(1_000)
    queue = store.store.queue("Orders", 0)
    first = store.first_in(2)
    assert store.store.min_offset == 2 * SEGMENT
    assert queue.min_offset == first
    assert [moved.new_min for moved in store.moved] == [store.first_in(1), first]
    assert store.moved[1] == MovedMin("Orders", 0, store.first_in(1), first)
    files = store.disk.files(f"{ROOT}/consumequeue/Orders/0")
    assert int(files[0].rpartition("/")[2]) == first * 20 // 200 * 200  # 10 entries a file
    assert len(store.disk.files(f"{ROOT}/index")) < before

    too_small = store.store.get_messages(queue, 0, 32)
    assert (too_small.status, too_small.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, first)
    assert store.store.get_messages(queue, first, 32).status is GetStatus.FOUND

    store.kill()
    queue = store.store.queue("Orders", 0)
    assert (queue.min_offset, queue.max_offset) == (first, len(store.sent["Orders", 0]))
    assert store.report.rebuilt_queues == 0


def test_queue_without_messages_keeps_its_numbering() -> None:
    store = Retained(hour=12)
    for _ in range(3):
        store.send("Rare", 0, 10)
    store.write()
    store.flush()
    store.fill(4)
    store.disk.used_percent = 86.0
    store.pass_time(10_000)
    rare = store.store.queue("Rare", 0)
    assert (rare.min_offset, rare.max_offset) == (3, 3)
    assert store.store.get_messages(rare, 3, 1).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert store.store.get_messages(rare, 1, 1).next_begin_offset == 3
    store.disk.used_percent = 10.0
    store.store.close()
    store.reopen(store.disk.copy())
    rare = store.store.queue("Rare", 0)
    assert (rare.min_offset, rare.max_offset) == (3, 3)
    store.sent["Rare", 0] = [b""] * 3
    store.send("Rare", 0, 10)
    store.write()
    store.flush()
    assert store.store.get_messages(rare, 3, 1).body == store.sent["Rare", 0][3]


def test_numbering_survives_the_loss_of_the_queue_files_too() -> None:
    store = Retained(hour=12)
    for _ in range(3):
        store.send("Rare", 0, 10)
    store.write()
    store.flush()
    store.fill(4)
    store.disk.used_percent = 86.0
    store.pass_time(10_000)
    store.disk.used_percent = 10.0
    store.store.close()
    store.disk.rmtree(f"{ROOT}/consumequeue/Rare")
    for rebuilt in (1, 0):  # nothing is missing the second time
        store.reopen(store.disk.copy())
        rare = store.store.queue("Rare", 0)
        assert (rare.min_offset, rare.max_offset) == (3, 3)
        assert store.report.rebuilt_queues == rebuilt
        store.store.close()


def test_expired_files_are_deleted_on_request() -> None:
    store = Retained(hour=12)
    store.fill(4)
    kept = store.segments()
    store.now_ms += 80 * HOUR_MS
    store.store.tick(store.now_ms)
    assert store.segments() == kept
    store.store.delete_expired(store.now_ms)
    assert store.segments() == kept[-1:]


def test_unsynced_files_are_not_deleted() -> None:
    store = Retained(hour=12)
    store.fill(2)
    while store.store.max_offset < 5 * SEGMENT:
        store.send("Orders", 0, 300)
        store.write()
    kept = store.segments()
    store.disk.used_percent = 86.0
    for _ in range(6):
        store.pass_time(10_000)
    synced = store.store.flushed_offset // SEGMENT
    assert store.segments() == kept[synced:]


def test_writes_are_refused_after_an_error_and_offsets_unchanged() -> None:
    store = Retained()
    store.fill(1)
    queue = store.store.queue("Orders", 0)
    before = queue.next_offset
    store.disk.fail("pwrite", "/commitlog/")
    store.send("Orders", 0, 10)
    with pytest.raises(NotWritableError, match="I/O error"):
        store.store.write_out()
    assert queue.next_offset == before
    assert not store.store.writable
    store.disk.heal()
    del store.sent["Orders", 0][before:]
    with pytest.raises(NotWritableError, match="restart the broker"):
        store.send("Orders", 0, 10)
