"""Dispatch of confirmed messages to the consume-queue files and the key index, in small steps.

Everything here can be rebuilt from the commit log, so no client waits for it. `confirmed` notes the messages of a group. `work`,
called several times a second, does a bounded part of what is outstanding:

- Queue entries are written `flushIntervalConsumeQueue` after the first of them became visible. The housekeeper writes them, some
  hundred queues at a time, because creating files may take a while.
- Messages are added to the key index in runs of about a thousand, which is much cheaper than one at a time.
- A sync cycle runs every `flushConsumeQueueThoroughInterval`, after 512 MiB of log, or when retention waits for it
  (`request_cycle`). Once all entries visible at its start are written, the housekeeper syncs the files and then saves the queue
  table, from which a recovery can start.

A dropped topic disappears from the queue table before its directory does, so that a crash in between leaves files without a
table entry, which the recovery deletes, and never an entry without files.

Invariant: `_dirty` holds the queues with visible entries that are neither written nor being written, and the time since when, in
order of that time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import cast

from firearrow.store.commitlog.log import AppendGroup, IndexInput
from firearrow.store.commitlog.scan import ScanResult
from firearrow.store.consume_queue import ConsumeQueue, ConsumeQueues, QueueFiles, QueueWrite
from firearrow.store.filesystem import Disk
from firearrow.store.key_index.index import KeyIndex
from firearrow.store.queue_table import QueueTable, edit_queue_table, save_queue_table
from firearrow.store.settings import StoreSettings
from firearrow.store.threads import Housekeeper

_INDEX_RUN = 1024  # messages
_INDEX_DELAY_MS = 200  # for a run to fill; a query indexes everything at once
_QUEUES_PER_BATCH = 256
_ANY_TIME_MS = 1 << 62
_CYCLE_BYTES = 512 * 1024 * 1024
_SYNC_ONE_BY_ONE = 32  # files; for more, the whole file system is synced


class Dispatcher:
    """`sync_log` makes the confirmed log durable."""

    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        sync_log: Callable[[], None],
        housekeeper: Housekeeper,
    ) -> None:
        self.durable_offset = 0  # the entries of the log below are durable: a recovery starts here
        self.durable_ms = 0  # store time at durable_offset
        self._settings = settings
        self._disk = disk
        self._queues = queues
        self._files = queues.files
        self._index = index
        self._sync_log = sync_log
        self._housekeeper = housekeeper
        self.table_path = os.path.join(settings.store_path_root_dir, "queueTable")
        self._dirty: dict[ConsumeQueue, int] = {}
        self._batch: _WriteBatch | None = None  # in progress
        self._backlog: list[IndexInput | ScanResult] = []  # in the order of the log
        self._scans = 0  # number of scans in the backlog
        self._confirmed_offset = 0
        self._confirmed_ms = 0
        self._cycle: tuple[int, int] | None = None  # (log offset, store time) that the current sync cycle makes durable
        self._cycle_left = 0  # queues to write before the cycle can sync
        self._cycle_syncing = False
        self._next_cycle_ms = 0
        self._cycle_requested = False
        self._sync_everything = False
        self._dropped: dict[str, int] = {}  # deleted topics, with the end of the log at that time
        self._drops = 0
        self._to_delete: deque[tuple[int, str, int, str]] = deque()  # (number of the drop, topic, log offset, directory)

    @property
    def index_backlog(self) -> int:
        """Number of messages that are not in the key index yet."""
        return sum(len(one) if isinstance(one, ScanResult) else 1 for one in self._backlog)

    def begin(self, offset: int, time_ms: int, table: QueueTable | None, *, clean: bool, now_ms: int) -> None:
        """Start after a recovery that began with `table`. The confirmed log ends at `offset`, stored at `time_ms`."""
        self._confirmed_offset = offset
        self._confirmed_ms = time_ms
        # Unless the last stop synced everything, the unsynced files are unknown.
        self._sync_everything = offset > 0 and not (clean and table is not None and not table.boot_id)
        self.durable_offset = table.derived_offset if table is not None and not table.boot_id else 0
        self._next_cycle_ms = now_ms if self.durable_offset < offset else now_ms + self._interval_ms
        self._dropped = dict(table.dropped) if table is not None else {}

    def confirmed(self, group: AppendGroup) -> None:
        """Take note of messages that have become visible."""
        time_ms = group.store_ms
        dirty = self._dirty
        for queue in group.touched:
            if queue not in dirty and not queue.dropped:
                dirty[queue] = time_ms
        self._confirmed_offset = group.end_offset
        self._confirmed_ms = group.store_ms
        if self._index is not None:
            self._backlog += group.index_input
            if group.scans:
                self._backlog += group.scans
                self._scans += len(group.scans)
                self.catch_up_index(time_ms)  # each scan is a long run
            # A group may hold many runs. Indexing them now slows producers down to the speed of the index under load.
            while len(self._backlog) >= _INDEX_RUN:
                self._index_some(time_ms)

    def work(self, now_ms: int) -> None:
        """Do a bounded part of the outstanding work. OSError if a derived file cannot be written."""
        if self._backlog and now_ms - _position(self._backlog[0])[1] >= _INDEX_DELAY_MS:
            self._index_some(now_ms)
        self._end_batch()
        # With more queues each waits longer, so that writing them takes a constant share of the time.
        intervals = 1 + len(self._dirty) // 1000
        self._begin_batch(now_ms - self._settings.flush_interval_consume_queue * intervals)
        self._end_batch()  # without a housekeeper thread it is already done
        self._advance_cycle(now_ms)

    def catch_up_index(self, now_ms: int) -> None:
        """Index everything confirmed, so that a query finds the latest messages."""
        while self._backlog:
            self._index_some(now_ms)

    def finish(self, now_ms: Callable[[], int], limit_ms: int, log_end: int) -> bool:
        """Write everything in this thread, after the housekeeper has stopped. The log ends at `log_end`.

        Return False when `limit_ms` was not enough. The next start then recovers as after a crash.
        """
        deadline_ms = now_ms() + limit_ms
        self.catch_up_index(now_ms())
        self._end_batch()
        while self._dirty:
            if now_ms() > deadline_ms:
                return False
            self._begin_batch(_ANY_TIME_MS)
            self._end_batch()
        unsynced = self._take_unsynced()
        unsynced.table.stopped = log_end
        if self._index is not None:
            self._index.close()
            unsynced.table.index_last_offset = self._index.last_offset
            unsynced.table.index_files = self._index.file_names
        many = self._sync_everything or len(unsynced.files) > _SYNC_ONE_BY_ONE
        if not many or not (boot_id := self._disk.boot_id()):
            self._make_durable(self._confirmed_offset, self._confirmed_ms, unsynced)
            return True
        unsynced.table.derived_offset = self._confirmed_offset
        unsynced.table.boot_id = boot_id
        save_queue_table(self._disk, self.table_path, unsynced.table)
        return True

    def drop_topic(self, topic: str, offset: int) -> None:
        """Remove the queues of a topic and their files. Its records below the log offset `offset` belong to no queue."""
        self._dropped.pop(topic, None)
        self._dropped[topic] = offset
        self._drops = number = self._drops + 1
        self._to_delete.append((number, topic, offset, self._queues.drop(topic)))
        # As a job of the housekeeper, which may be writing one of the queues. The topic may be created again meanwhile.
        self._housekeeper.submit(lambda: self._delete_dropped(number))

    def _delete_dropped(self, number: int) -> None:
        """Delete the directories of topics dropped up to `number`, after their entries in the queue table. Housekeeper.

        If other drops follow, their job deletes everything: the table, perhaps with many queues, is not saved for each topic.
        """
        if number != self._drops:
            return
        dropped: dict[str, int] = {}
        paths: list[str] = []
        while self._to_delete and self._to_delete[0][0] <= number:  # a later drop must not overtake a cycle before it
            _, topic, offset, path = self._to_delete.popleft()
            dropped[topic] = offset
            paths.append(path)
        try:
            edit_queue_table(self._disk, self.table_path, lambda table: table.drop_topics(dropped))
        finally:
            # Even without the table, because the topic may have new queues in the same directory afterwards.
            for path in paths:
                if self._disk.exists(path):
                    self._disk.rmtree(path)
            if self._disk.exists(self._files.root):
                self._disk.fsync_dir(self._files.root)

    def log_truncated(self, offset: int) -> None:
        """Take note, before the log is truncated at `offset`, that new records will follow there. The housekeeper is idle."""
        late = [topic for topic, end in self._dropped.items() if end > offset]
        if late:
            lowered = dict.fromkeys(late, offset)
            self._dropped |= lowered
            edit_queue_table(self._disk, self.table_path, lambda table: table.dropped.update(lowered))

    def log_begins_at(self, offset: int) -> None:
        """Forget deleted topics whose records are all gone, because the log begins at `offset` now."""
        self._dropped = {topic: end for topic, end in self._dropped.items() if end > offset}

    def drop_everything(self) -> None:
        """Drop all queues and empty the index, before the log is deleted. Durable on return."""
        for topic in self._queues.topics():
            self.drop_topic(topic, 0)
        self._housekeeper.drain()
        self._dropped.clear()
        self._dirty.clear()
        self._backlog.clear()
        self._scans = 0
        self._cycle = None
        self._cycle_left = 0
        if self._index is not None:
            self._index.truncate_to(0)
        save_queue_table(self._disk, self.table_path, QueueTable())

    def request_cycle(self) -> None:
        """Run a sync cycle soon, because segments above `durable_offset` are to be deleted."""
        self._cycle_requested = True

    def _index_some(self, now_ms: int) -> None:
        assert self._index is not None
        first = self._backlog[0]
        if isinstance(first, ScanResult):
            self._index.add_scan(first, now_ms)
            del self._backlog[0]
            self._scans -= 1
            return
        run = self._backlog[: 2 * _INDEX_RUN]
        if self._scans:
            run = list(takewhile(lambda one: not isinstance(one, ScanResult), run))
        self._index.add_run(cast(list[IndexInput], run), now_ms)
        del self._backlog[: len(run)]
        if self._index.should_write_behind:
            self._housekeeper.submit(self._index.write_behind)

    def _begin_batch(self, due_ms: int) -> None:
        """Write the queues that are dirty since `due_ms` or earlier, or that the sync cycle waits for."""
        dirty = self._dirty
        if self._batch is not None or not dirty:
            return
        batch = _WriteBatch()
        for queue, since_ms in dirty.items():
            if len(batch.queues) == _QUEUES_PER_BATCH or (since_ms > due_ms and self._cycle_left <= len(batch.queues)):
                break
            batch.queues.append(queue)
        for queue in batch.queues:
            del dirty[queue]
            if not queue.dropped:
                batch.writes.append(QueueWrite(queue))
        if batch.queues:
            self._batch = batch
            self._housekeeper.submit(lambda: batch.perform(self._files))

    def _end_batch(self) -> None:
        """Take note of a batch that the housekeeper has written."""
        batch = self._batch
        if batch is None or not batch.done:
            return
        self._batch = None
        if batch.error is not None:
            failed = dict.fromkeys((write.queue for write in batch.writes), 0)
            self._dirty = failed | self._dirty | failed  # in front, also those that have become dirty again
            self._cycle = None
            self._cycle_left = 0
            raise batch.error
        for write in batch.writes:
            if not write.queue.dropped:
                self._files.apply(write)
        self._cycle_left = max(0, self._cycle_left - len(batch.queues))

    @property
    def _interval_ms(self) -> int:
        return self._settings.flush_consume_queue_thorough_interval

    def _advance_cycle(self, now_ms: int) -> None:
        if self._cycle is None:
            behind = self._confirmed_offset - self.durable_offset
            due = now_ms >= self._next_cycle_ms or behind >= _CYCLE_BYTES or self._cycle_requested
            self._cycle_requested = False
            if behind and due:
                self._cycle = (self._confirmed_offset, self._confirmed_ms)
                self._cycle_left = len(self._dirty) + (len(self._batch.queues) if self._batch is not None else 0)
                self._next_cycle_ms = now_ms + self._interval_ms
        if self._cycle is None or self._cycle_left or self._cycle_syncing:
            return
        offset, time_ms = self._cycle
        if self._index is not None and self._backlog and _position(self._backlog[0])[0] < offset:
            return  # the index is still behind
        self._cycle_syncing = True
        unsynced = self._take_unsynced()
        self._housekeeper.submit(lambda: self._sync_cycle(offset, time_ms, unsynced))

    def _sync_cycle(self, offset: int, time_ms: int, unsynced: SyncSet) -> None:
        """Run one sync cycle. Housekeeper."""
        try:
            if self._index is not None:
                # Not when the cycle began, because an earlier job may have deleted files. Before the flush, so that it covers
                # everything that the table names.
                unsynced.table.index_last_offset = self._index.last_offset
                unsynced.table.index_files = self._index.file_names
                self._index.flush()
            self._make_durable(offset, time_ms, unsynced)
        except BaseException:
            self._files.unsynced |= unsynced.files
            self._files.unsynced_dirs |= unsynced.directories
            raise
        finally:
            self._cycle = None
            self._cycle_syncing = False

    def _take_unsynced(self) -> SyncSet:
        """Return what the next sync has to make durable, with the queue table that is true afterwards."""
        table = QueueTable(
            queues={
                (queue.topic, queue.queue_id): (queue.first_file, queue.written)
                for queue in self._queues.values()
                if queue.written and not queue.dropped
            },
            dropped=dict(self._dropped),
        )
        unsynced = SyncSet(self._files.unsynced, self._files.unsynced_dirs, table)
        self._files.unsynced = set()
        self._files.unsynced_dirs = set()
        return unsynced

    def _make_durable(self, offset: int, time_ms: int, unsynced: SyncSet) -> None:
        # The log first: an entry must not survive its record.
        self._sync_log()
        if self._sync_everything or len(unsynced.files) > _SYNC_ONE_BY_ONE:
            self._disk.sync_all(self._settings.store_path_root_dir)
            self._sync_everything = False
        else:
            for path in unsynced.files:
                # It may have been deleted with its topic or by retention.
                with suppress(FileNotFoundError), closing(self._disk.open(path)) as file:
                    file.fdatasync()
            for path in unsynced.directories:
                if self._disk.exists(path):
                    self._disk.fsync_dir(path)
        unsynced.table.derived_offset = offset
        save_queue_table(self._disk, self.table_path, unsynced.table)
        self.durable_offset = offset
        self.durable_ms = time_ms


def _position(one: IndexInput | ScanResult) -> tuple[int, int]:
    """Return log offset and store time of the (first) message."""
    return (int(one.offset[0]), int(one.store_ms[0])) if isinstance(one, ScanResult) else one[:2]


@dataclass(slots=True)
class _WriteBatch:
    """Queues that the housekeeper writes. `done` is set last and returns the batch to the dispatcher."""

    queues: list[ConsumeQueue] = field(default_factory=list)  # taken from the dirty queues
    writes: list[QueueWrite] = field(default_factory=list)
    error: OSError | None = None
    done: bool = False

    def perform(self, files: QueueFiles) -> None:
        try:
            for write in self.writes:
                try:
                    if not write.queue.dropped:
                        files.perform(write)
                except FileNotFoundError:
                    if not write.queue.dropped:  # meanwhile
                        raise
        except OSError as error:
            self.error = error
        finally:
            self.done = True


@dataclass(slots=True)
class SyncSet:
    """Files and directories to sync, and the queue table to save afterwards."""

    files: set[str]
    directories: set[str]
    table: QueueTable
