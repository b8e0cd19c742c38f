"""When commit-log files are deleted, and what follows from it.

Looked at every `cleanResourceInterval`, and when the log has begun a new file, so that a quick producer does not fill the disk
before the next look; u is how full the disk is, in percent:

    hour of the day in deleteWhen        files older than fileReservedTime go
    u >= diskMaxUsedSpaceRatio (75)      the same, at any hour
    u >= diskSpaceCleanForciblyRatio 85  the oldest file goes, old enough or not, and again soon until u falls below
    u >= diskSpaceWarningLevelRatio 90   the same, and no message is taken (`disk_full` says so)

Oldest first, never the newest file, never one that is not synced yet. Whether messages were consumed plays no part.

The log's start moves at once. Then the queues follow, some in each call, so that ten thousand of them do not hold up the
broker: a queue's min_offset moves to its first message that is left, its files below go. The index drops the files that lead
only below. Names are deleted by the housekeeper.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection
from datetime import datetime
from typing import NamedTuple

from firearrow.store.commitlog.log import CommitLog
from firearrow.store.commitlog.segment import Segment
from firearrow.store.consume_queue import ConsumeQueue, QueueFiles
from firearrow.store.filesystem import Disk
from firearrow.store.key_index.index import KeyIndex
from firearrow.store.settings import StoreSettings, delete_hours
from firearrow.store.threads import Housekeeper

_HOUR_MS = 3_600_000
_QUEUES_A_TURN = 50
_SOON_MS = 1000


class MovedMin(NamedTuple):
    """The oldest messages of a queue are gone: it begins at `new_min` now. Groups whose offset is below lost something."""

    topic: str
    queue_id: int
    old_min: int
    new_min: int


class Retention:
    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        log: CommitLog,
        files: QueueFiles,
        index: KeyIndex | None,
        queues: Callable[[], Collection[ConsumeQueue]],
        problem: Callable[[str], None],
    ) -> None:
        self.disk_full: str | None = None  # why no message may be stored, while the disk is too full
        self.used_percent = 0.0
        self._settings = settings
        self._disk = disk
        self._log = log
        self._files = files
        self._index = index
        self._queues = queues
        self._problem = problem  # told when the disk becomes too full, and not again while it is
        self._following: deque[ConsumeQueue] = deque()  # queues that have to follow the log's new start
        self._next_check_ms = 0
        self._looked_at = 0  # number of the file that the log ended in when the disk was last looked at
        self._asked = False

    def begin(self, now_ms: int) -> None:
        self._next_check_ms = now_ms

    def ask(self) -> None:
        """An operator wants expired files deleted now, whatever the hour."""
        self._asked = True
        self._next_check_ms = 0

    def check(self, now_ms: int, synced_offset: int, housekeeper: Housekeeper) -> list[MovedMin]:
        """Does what is due; returns the queues whose oldest messages are gone since the last call."""
        newest = self._log.written_offset // self._log.segment_size
        if now_ms >= self._next_check_ms or newest != self._looked_at:
            self._looked_at = newest
            self._next_check_ms = now_ms + self._settings.clean_resource_interval
            self._delete_due(now_ms, synced_offset, housekeeper)
        return self._follow(housekeeper) if self._following else []

    def _delete_due(self, now_ms: int, synced_offset: int, housekeeper: Housekeeper) -> None:
        settings = self._settings
        used = max(self._disk.usage(self._log.directory), self._disk.usage(settings.store_path_root_dir))
        self.used_percent = used
        was_full = self.disk_full is not None
        self.disk_full = _full_text(used, settings) if used >= settings.disk_space_warning_level_ratio else None
        if self.disk_full is not None and not was_full:
            self._problem(self.disk_full)
        forced = used >= settings.disk_space_clean_forcibly_ratio and settings.clean_file_forcibly_enable
        hour = datetime.fromtimestamp(now_ms / 1000).hour
        timely = hour in delete_hours(settings.delete_when) or used >= settings.disk_max_used_space_ratio or self._asked
        self._asked = False
        victims = self._expired(now_ms, synced_offset) if timely else []
        if forced and not victims:
            victims = self._deletable(synced_offset)[:1]
        if not victims:
            return
        if forced:
            self._next_check_ms = now_ms + min(_SOON_MS, settings.clean_resource_interval)
        log_min = self._log.drop_oldest(len(victims))
        self._following = deque(self._queues())
        housekeeper.submit(lambda: self._delete(victims, log_min))

    def _deletable(self, synced_offset: int) -> list[Segment]:
        """All files but the newest, oldest first, as far as they are synced."""
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
        """Housekeeper."""
        for segment in segments:
            segment.close()
            self._disk.unlink(segment.path)
        self._disk.fsync_dir(self._log.directory)
        if self._index is not None:
            self._index.delete_before(log_min)

    def _follow(self, housekeeper: Housekeeper) -> list[MovedMin]:
        moved = []
        paths: list[str] = []
        log_min = self._log.min_offset
        for _ in range(min(_QUEUES_A_TURN, len(self._following))):
            queue = self._following.popleft()
            old_min = queue.min_offset
            if queue.dropped or not queue.correct_min(log_min):
                continue
            moved.append(MovedMin(queue.topic, queue.queue_id, old_min, queue.min_offset))
            paths += self._files.remove_below(queue, queue.min_offset)
        if paths:
            housekeeper.submit(lambda: self._unlink(paths))
        return moved

    def _unlink(self, paths: list[str]) -> None:
        """Housekeeper."""
        for path in paths:
            if self._disk.exists(path):
                self._disk.unlink(path)
        for directory in {os.path.dirname(path) for path in paths}:
            if self._disk.exists(directory):
                self._disk.fsync_dir(directory)


def _full_text(used: float, settings: StoreSettings) -> str:
    return (
        f"the disk is {used:.1f} % full and from diskSpaceWarningLevelRatio={settings.disk_space_warning_level_ratio} % on "
        "no message is taken; free space, lower fileReservedTime or move the store to a bigger disk"
    )
