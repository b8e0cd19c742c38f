"""Durability of the commit log: flushes, the files that record them, and losses found at the start."""

from __future__ import annotations

import pytest

from firearrow.store.checkpoint import load_checkpoint
from firearrow.store.commitlog.log import CommitLog
from firearrow.store.durability import LogDurability
from firearrow.store.errors import StoreError
from firearrow.store.group_mark import GroupMark, GroupMarkFile
from firearrow.store.recovery import RecoveryReport
from firearrow.store.settings import StoreSettings
from firearrow.store.threads import Housekeeper
from tests.store.simdisk import SimulatedDisk

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


class Store:
    """A log and its durability on a simulated disk, without threads."""

    def __init__(self, disk: SimulatedDisk, *, flush: str = "SYNC_FLUSH", elected: bool = True) -> None:
        settings = StoreSettings(store_path_root_dir="/store", mapped_file_size_commit_log=4096, flush_disk_type=flush)
        disk.mkdirs("/store")
        self.disk = disk
        self.log = CommitLog(settings, disk, HOST)
        self.durability = LogDurability(settings, disk, self.log, Housekeeper(lambda error: None), elected=elected)
        self.flushed: list[int] = []
        self.errors: list[StoreError] = []

    def open(self, end: int = 0, *, clean: bool = True) -> bool:
        """Open the store with a log that ends at `end`. Return whether durable bytes are lost."""
        self.durability.load()
        self.log.load()
        self.log.begin(end)
        lost = self.durability.begin(RecoveryReport(clean, log_end=end))
        self.durability.start(self.flushed.append, self.errors.append, threads=False)
        return lost

    def write(self, size: int) -> None:
        self.log.write_raw(bytes(size))
        self.durability.written(self.log.written_offset)

    def mark(self) -> GroupMark:
        return GroupMarkFile(self.disk, "/store").mark


def test_sync_flush_reports_a_write_after_the_mark_is_saved() -> None:
    store = Store(SimulatedDisk())
    assert not store.open()
    store.write(100)
    assert store.flushed == [100]
    assert (store.durability.flushed_offset, store.log.durable_offset, store.mark().durable) == (100, 100, 100)


def test_async_flush_syncs_once_per_interval() -> None:
    store = Store(SimulatedDisk(), flush="ASYNC_FLUSH", elected=False)
    store.open()
    store.durability.flush_periodically(1_000_000)
    store.write(100)
    store.durability.flush_periodically(1_000_001)
    assert store.durability.flushed_offset == 0
    store.durability.flush_periodically(2_000_000)
    assert store.durability.flushed_offset == 100
    assert store.flushed == [], "no producer waits for this flush"


def test_failed_sync_is_reported_and_the_log_refuses_writes() -> None:
    store = Store(SimulatedDisk())
    store.open()
    store.disk.fail("fdatasync", "commitlog")
    store.write(100)
    assert len(store.errors) == 1
    assert (store.flushed, store.durability.flushed_offset, store.mark().durable) == ([], 0, 0)
    store.disk.heal()
    with pytest.raises(StoreError, match="fdatasync of the commit log failed"):
        store.durability.flush()


def test_member_detects_a_log_that_ends_below_its_durable_offset_until_the_mark_is_saved() -> None:
    disk = SimulatedDisk()
    store = Store(disk)
    store.open()
    store.write(100)
    store.durability.close()
    again = Store(disk)
    assert again.open(60, clean=False)
    third = Store(disk)
    assert third.open(60, clean=False), "the loss is not recorded by the group yet"
    third.durability.save_mark(60)
    assert not Store(disk).open(60, clean=False)


def test_rewind_lowers_all_recorded_offsets() -> None:
    store = Store(SimulatedDisk())
    store.open()
    store.write(100)
    store.durability.save(lambda checkpoint: None, confirmed=50)
    assert load_checkpoint(store.disk, "/store/checkpoint").flushed_offset == 100
    store.durability.rewind(70, confirmed=50)
    assert store.mark() == GroupMark(70, 50)
    assert load_checkpoint(store.disk, "/store/checkpoint").flushed_offset == 70
    assert (store.durability.flushed_offset, store.log.durable_offset) == (70, 70)
