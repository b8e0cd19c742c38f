"""From the log to the files derived from it: consume-queue entries to their files, keys to the index, in small portions.

Everything here can be made again from the commit log, so nothing waits for it. `confirmed` notes what a group of messages
brought; `work`, called several times a second, does a bounded part of what is outstanding:

- entries of a queue are written `flushIntervalConsumeQueue` after the first of them became visible, by the housekeeper, since
  making files may take a while: some hundred queues at a time, and the next ones when those are done;
- messages go to the key index in runs of about a thousand, which is much cheaper than one at a time;
- now and then (`flushConsumeQueueThoroughInterval`, or after 512 MiB of log) a sync cycle: once all entries visible at its
  beginning are written, the housekeeper makes the files durable and then the queue table, which lets a recovery begin there.

Invariant: a queue is in the line of dirty queues exactly once when `dirty_since_ms` is set, and the line is in order of it. One
that is being written is not, until more becomes visible in it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection
from itertools import takewhile
from typing import cast

from firearrow.store.commitlog.log import AppendGroup, IndexInput
from firearrow.store.commitlog.scan import ScanResult
from firearrow.store.consume_queue import ConsumeQueue, QueueFiles, QueueWrite
from firearrow.store.filesystem import Disk
from firearrow.store.key_index.index import KeyIndex
from firearrow.store.queue_table import QueueTable, save_queue_table
from firearrow.store.settings import StoreSettings
from firearrow.store.threads import Housekeeper

_INDEX_RUN = 1024  # messages
_INDEX_DELAY_MS = 200  # a message waits this long for others; a query does not wait
_QUEUES_A_BATCH = 256
_ANY_TIME = 1 << 62
_CYCLE_BYTES = 512 * 1024 * 1024
_SYNC_ONE_BY_ONE = 32  # files; more are synced with the whole file system


class Dispatcher:
    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        files: QueueFiles,
        index: KeyIndex | None,
        queues: Callable[[], Collection[ConsumeQueue]],
        sync_log: Callable[[], None],
        housekeeper: Housekeeper,
    ) -> None:
        self.durable_offset = 0  # consume-queue entries of the log below are durable: where a recovery would begin
        self.durable_ms = 0  # store time that belongs to it
        self._settings = settings
        self._disk = disk
        self._files = files
        self._index = index
        self._queues = queues
        self._sync_log = sync_log
        self._housekeeper = housekeeper
        self._table_path = os.path.join(settings.store_path_root_dir, "queueTable")
        self._dirty: deque[ConsumeQueue] = deque()
        self._batch: _Batch | None = None  # queues being written
        self._backlog: list[IndexInput | ScanResult] = []  # in the order of the log
        self._scans = 0  # how many of these are scans
        self._confirmed_offset = 0
        self._confirmed_ms = 0
        self._cycle: tuple[int, int] | None = None  # log offset and store time a running sync cycle will make durable
        self._cycle_left = 0  # dirty queues that were in line when it began
        self._cycle_syncing = False
        self._next_cycle_ms = 0
        self._table_changed = False
        self._sync_everything = False

    @property
    def behind(self) -> int:
        """Messages that the key index does not know yet."""
        return sum(len(one) if isinstance(one, ScanResult) else 1 for one in self._backlog)

    def begin(self, offset: int, time_ms: int, table: QueueTable | None, *, clean: bool, now_ms: int) -> None:
        """After recovery: the log ends at `offset`, stored at `time_ms`; it began with `table`, after a clean stop or not."""
        self._confirmed_offset = offset
        self._confirmed_ms = time_ms
        # Unless everything was synced at the end, nobody knows any more what was not; in an empty store there is nothing.
        self._sync_everything = offset > 0 and not (clean and table is not None and not table.boot_id)
        self.durable_offset = table.derived_offset if table is not None and not table.boot_id else 0
        self._next_cycle_ms = now_ms if self.durable_offset < offset else now_ms + self._interval_ms

    def confirmed(self, group: AppendGroup) -> None:
        """These messages are readable now."""
        time_ms = max(1, group.store_ms)
        dirty = self._dirty
        for queue in group.touched:
            if not queue.dirty_since_ms and not queue.dropped:
                queue.dirty_since_ms = time_ms
                dirty.append(queue)
        self._confirmed_offset = group.end_offset
        self._confirmed_ms = group.store_ms
        if self._index is not None:
            self._backlog += group.index_input
            if group.scans:
                self._backlog += group.scans
                self._scans += len(group.scans)
                self.catch_up_index(time_ms)  # each of them is a long run
            # A group may hold many runs. What is not indexed now would pile up under load: nobody is faster than the index then.
            while len(self._backlog) >= _INDEX_RUN:
                self._index_some(time_ms)

    def work(self, now_ms: int) -> None:
        """Does a bounded part of what is outstanding. Raises OSError when a derived file cannot be written."""
        if self._backlog and now_ms - _place(self._backlog[0])[1] >= _INDEX_DELAY_MS:
            self._index_some(now_ms)
        self._end_batch()
        # The more queues there are, the longer each waits, so that writing them costs the same share of the time.
        patience = 1 + len(self._dirty) // 1000
        self._begin_batch(now_ms - self._settings.flush_interval_consume_queue * patience)
        self._end_batch()  # without a housekeeper's thread it is done already
        self._turn_cycle(now_ms)

    def catch_up_index(self, now_ms: int) -> None:
        """Puts everything confirmed into the index, so that a query finds what was just sent."""
        while self._backlog:
            self._index_some(now_ms)

    def finish(self, now_ms: Callable[[], int], limit_ms: int) -> bool:
        """Writes everything, in this thread: the log was closed cleanly, the housekeeper has stopped.

        Gives up after `limit_ms` and returns False: the next start has to do the rest as after a crash.
        """
        deadline_ms = now_ms() + limit_ms
        self.catch_up_index(now_ms())
        self._end_batch()
        while self._dirty:
            if now_ms() > deadline_ms:
                return False
            self._begin_batch(_ANY_TIME)
            self._end_batch()
        unsynced = self._take_unsynced()
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
        save_queue_table(self._disk, self._table_path, unsynced.table)
        return True

    def drop(self, queue: ConsumeQueue) -> None:
        """The queue is gone with its topic; its files are deleted by the caller."""
        queue.dropped = True
        self._table_changed = True

    def files_deleted(self) -> None:
        """Files that the queue table may name are gone: it is written again soon, lest a recovery misses them."""
        self._table_changed = True

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
        if self._index.waits_to_be_written:
            self._housekeeper.submit(self._index.write_behind)

    def _begin_batch(self, due_ms: int) -> None:
        """Has queues written that are dirty since `due_ms` or earlier, or that a sync cycle waits for."""
        dirty = self._dirty
        if self._batch is not None or not dirty:
            return
        batch = _Batch()
        while dirty and batch.taken < _QUEUES_A_BATCH and (dirty[0].dirty_since_ms <= due_ms or self._cycle_left > batch.taken):
            queue = dirty.popleft()
            queue.dirty_since_ms = 0
            batch.taken += 1
            if not queue.dropped:
                batch.writes.append(QueueWrite(queue))
        if batch.taken:
            self._batch = batch
            self._housekeeper.submit(lambda: batch.perform(self._files))

    def _end_batch(self) -> None:
        """Takes note of what the housekeeper has written."""
        batch = self._batch
        if batch is None or not batch.done:
            return
        self._batch = None
        if batch.error is not None:
            for write in reversed(batch.writes):
                if not write.queue.dirty_since_ms:
                    write.queue.dirty_since_ms = 1
                    self._dirty.appendleft(write.queue)
            self._cycle = None
            self._cycle_left = 0
            raise batch.error
        for write in batch.writes:
            if not write.queue.dropped:
                self._files.apply(write)
        self._cycle_left = max(0, self._cycle_left - batch.taken)

    @property
    def _interval_ms(self) -> int:
        return self._settings.flush_consume_queue_thorough_interval

    def _turn_cycle(self, now_ms: int) -> None:
        if self._cycle is None:
            behind = self._confirmed_offset - self.durable_offset
            if self._table_changed or (behind and (now_ms >= self._next_cycle_ms or behind >= _CYCLE_BYTES)):
                self._table_changed = False
                self._cycle = (self._confirmed_offset, self._confirmed_ms)
                self._cycle_left = len(self._dirty) + (self._batch.taken if self._batch is not None else 0)
                self._next_cycle_ms = now_ms + self._interval_ms
        if self._cycle is None or self._cycle_left or self._cycle_syncing:
            return
        offset, time_ms = self._cycle
        if self._index is not None and self._backlog and _place(self._backlog[0])[0] < offset:
            return  # the index has to get there first
        self._cycle_syncing = True
        unsynced = self._take_unsynced()
        self._housekeeper.submit(lambda: self._sync_cycle(offset, time_ms, unsynced))

    def _sync_cycle(self, offset: int, time_ms: int, unsynced: SyncSet) -> None:
        """Housekeeper."""
        try:
            if self._index is not None:
                # Here and not when the cycle began: files may have been deleted by an earlier job. Before the flush, so that
                # nothing is named that it does not cover.
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
        """What the next sync has to make durable, and the table that will be true afterwards (as far as queues are concerned)."""
        table = QueueTable(
            queues={
                (queue.topic, queue.queue_id): (queue.first_file, queue.written)
                for queue in self._queues()
                if queue.written and not queue.dropped
            }
        )
        unsynced = SyncSet(self._files.unsynced, self._files.unsynced_dirs, table)
        self._files.unsynced = set()
        self._files.unsynced_dirs = set()
        return unsynced

    def _make_durable(self, offset: int, time_ms: int, unsynced: SyncSet) -> None:
        # The log first: an entry must never outlive its record.
        self._sync_log()
        if self._sync_everything or len(unsynced.files) > _SYNC_ONE_BY_ONE:
            self._disk.sync_all(self._settings.store_path_root_dir)
            self._sync_everything = False
        else:
            for path in unsynced.files:
                self._sync_file(path)
            for path in unsynced.directories:
                if self._disk.exists(path):
                    self._disk.fsync_dir(path)
        unsynced.table.derived_offset = offset
        save_queue_table(self._disk, self._table_path, unsynced.table)
        self.durable_offset = offset
        self.durable_ms = time_ms

    def _sync_file(self, path: str) -> None:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return  # deleted meanwhile, with its topic or by retention
        try:
            file.fdatasync()
        finally:
            file.close()


def _place(one: IndexInput | ScanResult) -> tuple[int, int]:
    """Log offset and store time of the (first) message."""
    return (int(one.offset[0]), int(one.store_ms[0])) if isinstance(one, ScanResult) else one[:2]


class _Batch:
    """Queues being written by the housekeeper. `done` is set last; from then on it is the dispatcher's again."""

    __slots__ = ("done", "error", "taken", "writes")

    def __init__(self) -> None:
        self.writes: list[QueueWrite] = []
        self.taken = 0  # from the line of dirty queues
        self.error: OSError | None = None
        self.done = False

    def perform(self, files: QueueFiles) -> None:
        try:
            for write in self.writes:
                self._perform_one(files, write)
        except OSError as error:
            self.error = error
        finally:
            self.done = True

    def _perform_one(self, files: QueueFiles, write: QueueWrite) -> None:
        if write.queue.dropped:
            return
        try:
            files.perform(write)
        except FileNotFoundError:
            if not write.queue.dropped:  # while it was being written
                raise


class SyncSet:
    __slots__ = ("directories", "files", "table")

    def __init__(self, files: set[str], directories: set[str], table: QueueTable) -> None:
        self.files = files
        self.directories = directories
        self.table = table
