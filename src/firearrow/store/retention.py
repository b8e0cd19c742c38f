"""Deletion of commit-log files and of the queue and index files that refer to them.

Checked every `cleanResourceInterval`, and when the log begins a new file, so that a fast producer does not fill the disk between
two checks. With u the disk usage in percent:

    hour of the day in deleteWhen        delete files older than fileReservedTime
    u >= diskMaxUsedSpaceRatio (75)      the same, at any hour
    u >= diskSpaceCleanForciblyRatio 85  delete the oldest file, expired or not, and check again soon
    u >= diskSpaceWarningLevelRatio 90   the same, and refuse messages (`disk_full` is the reason)

Files are deleted oldest first, never the newest file, never an unsynced one. Whether messages were consumed is irrelevant.

The start of the log moves at once. The queues follow, some in each call, so that ten thousand of them do not block the broker:
min_offset of a queue moves to its first remaining message, and files below are deleted. The index drops the files that refer only
to deleted records. The housekeeper deletes the files.

Order of the changes on disk, so that a crash between any two of them costs neither queue offsets nor a scan of the whole log:

1. The queue table becomes durable with the entries of all records in a segment. Until then the segment is not deleted
   (`Dispatcher.request_cycle`), because only the table knows the numbering of a queue without records.
2. The segments are deleted, which needs no space on a full disk.
3. The table is saved without the index files to delete. Then they are deleted.
4. The table is saved without the queue files to delete. Then they are deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from firearrow.store.commitlog.log import CommitLog
from firearrow.store.commitlog.segment import Segment
from firearrow.store.consume_queue import ConsumeQueue, ConsumeQueues
from firearrow.store.dispatcher import Dispatcher
from firearrow.store.filesystem import Disk
from firearrow.store.key_index.index import KeyIndex
from firearrow.store.queue_table import QueueTable, edit_queue_table
from firearrow.store.settings import StoreSettings, delete_hours
from firearrow.store.threads import Housekeeper

_HOUR_MS = 3_600_000
_QUEUES_PER_CALL = 50
_FILES_PER_JOB = 1000  # queue files deleted with one change of the queue table
_FORCED_INTERVAL_MS = 1000


class MovedMin(NamedTuple):
    """Deletion of the oldest messages of a queue, which now begins at `new_min`. Groups with lower offsets lose messages."""

    topic: str
    queue_id: int
    old_min: int
    new_min: int


class Retention:
    """`on_problem` is called once each time the disk becomes too full."""

    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        housekeeper: Housekeeper,
        on_problem: Callable[[str], None],
    ) -> None:
        self.disk_full: str | None = None  # the reason for refusing messages while the disk is too full
        self.used_percent = 0.0
        self._settings = settings
        self._disk = disk
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._housekeeper = housekeeper
        self._on_problem = on_problem
        self._outdated: dict[ConsumeQueue, None] = {}  # queues that have to follow the new start of the log
        self._unused: list[tuple[ConsumeQueue, list[str]]] = []  # their files that can be deleted
        self._next_check_ms = 0
        self._checked_segment = 0  # newest segment at the last check
        self._requested = False

    def begin(self, now_ms: int) -> None:
        self._next_check_ms = now_ms

    def request(self) -> None:
        """Delete expired files at the next check, at any hour."""
        self._requested = True
        self._next_check_ms = 0

    def check(self, now_ms: int, synced_offset: int) -> list[MovedMin]:
        """Do what is due. Return the queues that lost their oldest messages since the last call."""
        newest = self._log.written_offset // self._log.segment_size
        if now_ms >= self._next_check_ms or newest != self._checked_segment:
            self._checked_segment = newest
            self._next_check_ms = now_ms + self._settings.clean_resource_interval
            self._delete_due(now_ms, synced_offset)
        return self._update_queues() if self._outdated else []

    def _delete_due(self, now_ms: int, synced_offset: int) -> None:
        settings = self._settings
        used = max(self._disk.usage(self._log.directory), self._disk.usage(settings.store_path_root_dir))
        self.used_percent = used
        was_full = self.disk_full is not None
        self.disk_full = _full_text(used, settings) if used >= settings.disk_space_warning_level_ratio else None
        if self.disk_full is not None and not was_full:
            self._on_problem(self.disk_full)
        forced = used >= settings.disk_space_clean_forcibly_ratio and settings.clean_file_forcibly_enable
        hour = datetime.fromtimestamp(now_ms / 1000).hour
        timely = hour in delete_hours(settings.delete_when) or used >= settings.disk_max_used_space_ratio or self._requested
        self._requested = False
        doomed = self._expired(now_ms, synced_offset) if timely else []
        if forced and not doomed:
            doomed = self._deletable(synced_offset)[:1]
        if not doomed:
            return
        if forced:
            self._next_check_ms = now_ms + min(_FORCED_INTERVAL_MS, settings.clean_resource_interval)
        covered = [segment for segment in doomed if segment.end <= self._dispatcher.durable_offset]
        if len(covered) < len(doomed):
            self._dispatcher.request_cycle()
            self._requested = self._requested or timely
            self._next_check_ms = now_ms  # at the next call
        if covered:
            self._delete_oldest(covered)

    def _delete_oldest(self, doomed: list[Segment]) -> None:
        log_min = self._log.drop_oldest(len(doomed))
        self._dispatcher.log_begins_at(log_min)
        self._outdated |= dict.fromkeys(self._queues.values())  # those that wait keep their place
        self._housekeeper.submit(lambda: self._delete(doomed, log_min))

    def _deletable(self, synced_offset: int) -> list[Segment]:
        """Return all synced segments except for the newest, oldest first."""
        segments = [self._log.segments[number] for number in sorted(self._log.segments)]
        return [segment for segment in segments[:-1] if segment.end <= synced_offset]

    def _expired(self, now_ms: int, synced_offset: int) -> list[Segment]:
        expired: list[Segment] = []
        for segment in self._deletable(synced_offset)[: self._settings.delete_file_batch_max]:
            if self._disk.mtime_ms(segment.path) + self._settings.file_reserved_time * _HOUR_MS > now_ms:
                break
            expired.append(segment)
        return expired

    def _delete(self, segments: list[Segment], log_min: int) -> None:
        """Delete segments and index files. Housekeeper."""
        for segment in segments:  # first, because the table cannot be saved on a full disk
            segment.delete()
            # One by one: after a power cut a file must not be missing in the middle of the log.
            self._disk.fsync_dir(self._log.directory)
        if self._index is not None:
            names = self._index.names_before(log_min)
            if names:
                self._edit_table(lambda table: table.remove_index_files(names))
            self._index.delete_before(log_min)

    def _edit_table(self, edit: Callable[[QueueTable], None]) -> None:
        edit_queue_table(self._disk, self._dispatcher.table_path, edit)

    def _update_queues(self) -> list[MovedMin]:
        moved = []
        log_min = self._log.min_offset
        for _ in range(min(_QUEUES_PER_CALL, len(self._outdated))):
            queue = next(iter(self._outdated))
            del self._outdated[queue]
            old_min = queue.min_offset
            if queue.dropped or not queue.correct_min(log_min):
                continue
            moved.append(MovedMin(queue.topic, queue.queue_id, old_min, queue.min_offset))
            paths = self._queues.files.remove_below(queue, queue.min_offset)
            if paths:
                self._unused.append((queue, paths))
        if self._unused and (not self._outdated or len(self._unused) >= _FILES_PER_JOB):
            unused, self._unused = self._unused, []
            self._housekeeper.submit(lambda: self._unlink(unused))
        return moved

    def _unlink(self, unused: list[tuple[ConsumeQueue, list[str]]]) -> None:
        """Delete queue files. Housekeeper."""
        # The queues of a topic that was created again have files with the same names. They are written after this job.
        unused = [(queue, paths) for queue, paths in unused if not queue.dropped]
        firsts = {(queue.topic, queue.queue_id): queue.first_file for queue, _ in unused}
        paths = [path for _, paths in unused for path in paths]
        self._edit_table(lambda table: table.move_first_files(firsts))
        for path in paths:
            if self._disk.exists(path):
                self._disk.unlink(path)
        for directory in {os.path.dirname(path) for path in paths}:
            if self._disk.exists(directory):
                self._disk.fsync_dir(directory)


def _full_text(used: float, settings: StoreSettings) -> str:
    return (
        f"the disk is {used:.1f} % full; messages are refused from diskSpaceWarningLevelRatio="
        f"{settings.disk_space_warning_level_ratio} %; free space, lower fileReservedTime or move the store to a bigger disk"
    )
