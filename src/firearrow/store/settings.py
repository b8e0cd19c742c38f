"""Settings of the store, with Apache RocketMQ's names and defaults.

One default differs: `flushDiskType` is SYNC_FLUSH, so that acknowledged messages are on the disk.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from firearrow.config.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from firearrow.config.fields import SettingError, setting

CONSUME_QUEUE_UNIT = 20
_MIB = 1024 * 1024


@dataclass
class StoreSettings:
    """Settings of a store directory."""

    store_path_root_dir: str = setting(os.path.join(os.path.expanduser("~"), "store"), "the store directory")
    store_path_commit_log: str | None = setting(None, "directory of the commit log; default commitlog in the store directory")
    mapped_file_size_commit_log: int = setting(1024 * _MIB, "bytes of a commit-log file", low=4096, high=2**31 - 1)
    mapped_file_size_consume_queue: int = setting(
        300_000 * CONSUME_QUEUE_UNIT, "bytes of a consume-queue file", low=CONSUME_QUEUE_UNIT, high=2**31 - 1
    )
    max_hash_slot_num: int = setting(5_000_000, "hash slots of an index file", low=1, high=2**28)
    max_index_num: int = setting(20_000_000, "entries of an index file", low=2, high=2**26)
    message_index_enable: bool = setting(True, "whether messages can be found by key")
    max_message_size: int = setting(4 * _MIB, "largest message body in bytes", low=1, high=512 * _MIB, runtime=True)

    flush_disk_type: str = setting(
        "SYNC_FLUSH",
        "SYNC_FLUSH: acknowledge when the message is on the disk; ASYNC_FLUSH: when the operating system has it",
        choices=("SYNC_FLUSH", "ASYNC_FLUSH"),
    )
    sync_flush_timeout: int = setting(
        5000, "ms after which a send is answered although the disk has not confirmed it", low=1, high=600_000
    )
    flush_interval_commit_log: int = setting(
        500, "ms between flushes of the log under ASYNC_FLUSH", low=1, high=3_600_000, runtime=True
    )
    flush_interval_consume_queue: int = setting(
        1000, "ms after which a new consume-queue entry is written to its file", low=1, high=3_600_000, runtime=True
    )
    flush_consume_queue_thorough_interval: int = setting(
        60_000,
        "ms between syncs of the derived files, which bound what a recovery has to scan",
        low=100,
        high=3_600_000,
        runtime=True,
    )
    check_crc_on_recover: bool = setting(True, "compare body checksums while recovering", key="checkCRCOnRecover")

    scrub_bytes_per_second: int = setting(
        _MIB, "bytes of old log verified in the background each second; 0: none", low=0, high=1024 * _MIB, runtime=True
    )

    delete_when: str = setting("04", "hours of the day, separated by ';', at which expired files are deleted", runtime=True)
    file_reserved_time: int = setting(72, "hours to keep commit-log files", low=0, high=24 * 3650, runtime=True)
    disk_max_used_space_ratio: int = setting(
        75, "percent of disk use above which expired files go at once", low=10, high=95, runtime=True
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85, "percent of disk use above which the oldest files go, expired or not", low=30, high=95, runtime=True
    )
    disk_space_warning_level_ratio: int = setting(
        90, "percent of disk use above which writes are refused", low=35, high=99, runtime=True
    )
    clean_file_forcibly_enable: bool = setting(True, "whether files that are not expired may be deleted", runtime=True)
    clean_resource_interval: int = setting(10_000, "ms between checks for files to delete", low=10, high=86_400_000, runtime=True)
    delete_file_batch_max: int = setting(10, "commit-log files deleted in one round at most", low=1, high=1000, runtime=True)

    max_transfer_bytes_on_message_in_memory: int = setting(
        262_144, "bytes of one pull near the end of the log", low=1, runtime=True
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32, "messages of one pull near the end of the log", low=1, runtime=True
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        65_536, "bytes of one pull far from the end of the log", low=1, runtime=True
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8, "messages of one pull far from the end of the log", low=1, runtime=True
    )
    max_transfer_bytes_of_bulk_pull: int = setting(
        2 * 1024 * 1024, "bytes of one pull that asks for many (our own clients can)", low=1, high=12 * 1024 * 1024, runtime=True
    )
    max_transfer_count_of_bulk_pull: int = setting(
        1024, "messages of one pull that asks for many", low=1, high=1_000_000, runtime=True
    )
    access_message_in_memory_max_ratio: int = setting(
        40, "percent of memory that counts as near the end", low=0, high=100, runtime=True
    )
    max_filter_message_size: int = setting(16_000, "bytes of queue entries one pull looks through at most", low=20, runtime=True)
    max_msgs_num_batch: int = setting(64, "messages one query by key finds at most", low=1, high=1_000_000, runtime=True)
    message_delay_level: str = setting(DEFAULT_DELAY_LEVELS, "the delay levels")

    @property
    def sync_flush(self) -> bool:
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def commit_log_dir(self) -> str:
        return self.store_path_commit_log or os.path.join(self.store_path_root_dir, "commitlog")

    @property
    def consume_queue_file_size(self) -> int:
        """File size rounded up to whole entries, as Apache does."""
        return -(-self.mapped_file_size_consume_queue // CONSUME_QUEUE_UNIT) * CONSUME_QUEUE_UNIT

    def check(self) -> None:
        if "," in (self.store_path_commit_log or ""):
            raise SettingError("storePathCommitLog", self.store_path_commit_log, "one directory (several are not supported)")
        delete_hours(self.delete_when)
        parse_delay_levels(self.message_delay_level)


def delete_hours(text: str) -> frozenset[int]:
    """Parse the hours of `deleteWhen`: `04` or `04;16`."""
    hours = [part.strip() for part in text.split(";") if part.strip()]
    if not all(part.isdecimal() and int(part) < 24 for part in hours):
        raise SettingError("deleteWhen", text, "hours from 00 to 23, separated by ';'")
    return frozenset(int(part) for part in hours)
