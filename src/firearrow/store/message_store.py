"""The message store: the commit log, the files derived from it, and the order in which they change.

All methods are called from one thread, that of the event loop. The store has two background threads (`threads.py`), which report
through the callbacks passed to `start`.

The way of a message:

    append / append_batch    assigns the physical offset and the queue offset; nothing is written
    write_out                writes everything pending with one pwrite; under SYNC_FLUSH requests a flush
    confirm(offset)          makes everything below visible, once it is durable enough (SYNC_FLUSH: flushed, ASYNC_FLUSH: at
                             once); only then may the producer be answered
    tick                     writes queue entries to their files and keys to the index

On a replica, whose log is that of another broker, `replica.write_raw` and `replica.index_new_records` replace the first two
steps.

After an I/O error of the log the store refuses writes (`refusal` gives the reason) and confirms nothing that it could not write
or sync.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from firearrow.store.checkpoint import AbortFile, Checkpoint
from firearrow.store.commitlog.log import AppendGroup, CommitLog
from firearrow.store.commitlog.reader import GetResult, GetStatus, StoreReader
from firearrow.store.commitlog.replica import FollowError, ReplicaLog
from firearrow.store.commitlog.segment import SegmentPreallocator
from firearrow.store.commitlog.unconfirmed import UnconfirmedGroups
from firearrow.store.consume_queue import ConsumeQueue, ConsumeQueues, QueueFiles, check_directory_name
from firearrow.store.damage import DamageRegistry
from firearrow.store.dispatcher import Dispatcher
from firearrow.store.durability import LogDurability
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk, Lock, RealDisk
from firearrow.store.key_index.index import KeyIndex
from firearrow.store.recovery import RecoveryReport, StoreRecovery
from firearrow.store.retention import MovedMin, Retention
from firearrow.store.scrubber import Scrubber
from firearrow.store.settings import StoreSettings
from firearrow.store.threads import Housekeeper

__all__ = ["AppendGroup", "GetResult", "GetStatus", "MessageStore", "MovedMin", "QueryResult", "RecoveryReport"]

_CHECKPOINT_INTERVAL_MS = 1000
_STOP_LIMIT_MS = 1200  # for writing queue entries at a clean stop; see Dispatcher.finish


@dataclass(slots=True)
class QueryResult:
    """Records found by key, oldest first, with store time and physical offset of the last message in the index."""

    records: list[bytes]
    index_last_update_ms: int
    index_last_offset: int


class MessageStore:
    """`reader` looks up messages by offset and time. `replica` copies and truncates the log.

    `problems` collects what the threads and `tick` met and could tolerate; the owner logs and clears it.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        disk: Disk | None = None,
        store_host: bytes,
        now_ms: Callable[[], int],
        memory_bytes: int | None = None,
        elected: bool = False,
        on_min_moved: Callable[[list[MovedMin]], None] = lambda moved: None,
    ) -> None:
        """`elected`: for a member of an elected group, which decides what is confirmed and truncates the log above.

        `on_min_moved` receives the queues that lost their oldest messages to retention.
        """
        self.settings = settings
        self.disk: Disk = disk if disk is not None else RealDisk()
        self.problems: list[str] = []
        self.lost = False  # found at the opening of a member: bytes that had been durable are missing or damaged
        self._on_min_moved = on_min_moved
        self._elected = elected
        self._now_ms = now_ms
        self._root = root = settings.store_path_root_dir
        self._log = CommitLog(settings, self.disk, store_host, self.problems.append)
        files = QueueFiles(self.disk, os.path.join(root, "consumequeue"), settings.consume_queue_file_size)
        self._queues = ConsumeQueues(files, plain=len(store_host) == 8)
        self._index = _open_index(settings, self.disk)
        self.damage = DamageRegistry(settings, self._log, lambda: self.confirm_offset, self.problems.append, self._log_damaged)
        self.reader = StoreReader(settings, self._log, self.damage, memory_bytes)
        self._housekeeper = Housekeeper(self._job_failed)
        self._durability = LogDurability(settings, self.disk, self._log, self._housekeeper, elected=elected)
        self._dispatcher = Dispatcher(settings, self.disk, self._queues, self._index, self._sync_for_derived, self._housekeeper)
        self._groups = UnconfirmedGroups(self.reader, self._dispatcher, self._derived_failed)
        self._retention = Retention(
            settings, self.disk, self._log, self._queues, self._index, self._dispatcher, self._housekeeper, self.problems.append
        )
        self._preallocator = SegmentPreallocator(self._log, self._housekeeper)
        self.scrubber = Scrubber(
            settings, self.disk, self._log, self._queues, self.damage, self._housekeeper, self.problems.append
        )
        self.replica = ReplicaLog(
            settings,
            self._log,
            self._durability,
            self._groups,
            self._queues,
            self._dispatcher,
            self._preallocator,
            self.problems.append,
            now_ms,
        )
        self._abort = AbortFile(self.disk, root)
        self._lock: Lock | None = None
        self._opened = False
        self._next_checkpoint_ms = 0
        self._derived_failure: str | None = None
        # Methods of the parts, without a second call per message.
        self.append = self._log.append
        self.append_batch = self._log.append_batch
        self.append_batch_body = self._log.append_batch_body
        self.get_messages = self.reader.get_messages
        self.read = self.reader.read
        self.read_record = self.reader.read_record
        self.read_log = self._log.read  # confirmed or not, for replication
        self.confirm = self._groups.confirm
        self.flush = self._durability.flush  # for stores without threads
        self.flush_stats = self._durability.flush_stats
        self.discard_pending = self.replica.discard_pending
        self.topics = self._queues.topics
        self.submit = self._housekeeper.submit
        self.drain = self._housekeeper.drain

    # Opening and closing

    def open(self) -> RecoveryReport:
        """Lock the directory, recover its content and make the store ready for reads and writes."""
        self.disk.mkdirs(self._root)
        self._lock = self.disk.lock(os.path.join(self._root, "lock"))
        clean = not self._abort.exists
        try:
            checkpoint, mark = self._durability.load()
            self._abort.write()
            report = StoreRecovery(
                self.settings,
                self._log,
                self._queues,
                self._index,
                checkpoint,
                clean=clean,
                now_ms=self._now_ms(),
                mark=mark,
            ).run()
            self._log.begin(report.log_end)
            self.lost = self._durability.begin(report)
        except BaseException as error:
            if clean and isinstance(error, StoreError):
                self._abort.remove()  # a setting does not fit the files: nothing was changed, the store is still clean
            self._release()
            raise
        now_ms, confirmed_ms = self._now_ms(), report.last_store_ms or checkpoint.physic_msg_ms
        self.reader.begin(report.log_end)
        self._groups.begin(report.confirmed, confirmed_ms)
        self._dispatcher.begin(report.confirmed, confirmed_ms, report.table, clean=report.clean, now_ms=now_ms)
        self._retention.begin(now_ms)
        self.scrubber.begin(now_ms)
        if not self._elected:  # a member has ended its log before the damage
            self.damage.ranges.update(report.damaged)
        if report.confirmed < report.log_end:
            self.replica.index_from(report.confirmed)
        self._opened = True
        return report

    def start(self, on_flushed: Callable[[int], None], on_error: Callable[[StoreError], None], *, threads: bool = True) -> None:
        """Start flushing, in the store's own threads or, with `threads=False`, within `write_out` in the caller's.

        The callbacks are called from the thread that flushes and schedule the rest on the event loop. `on_flushed(offset)`, under
        SYNC_FLUSH only: pass the offset to `confirm`. `on_error`: the log could not be synced, so the pending sends have failed.
        """
        self._durability.start(on_flushed, on_error, threads=threads)
        if threads:
            self._housekeeper.start()
        self._preallocator.check()

    def close(self) -> None:
        """Write and sync everything. Without a preceding I/O error the directory is as after a clean stop."""
        if self._lock is None:
            return
        try:
            if self._opened and self._log.failure is None:
                self._finish()
        finally:
            self._durability.stop()
            self._housekeeper.stop()
            self._queues.files.close()
            self._log.close()
            self._durability.close()
            self._release()

    def _finish(self) -> None:
        self.write_out()
        self._durability.stop()
        self._housekeeper.stop()
        with contextlib.suppress(FollowError):  # the next recovery finds the same bytes
            self.replica.index_new_records()
        if not self._elected:
            self.replica.remove_incomplete_record()
        end = self.flush()
        if not self._elected:
            self.confirm(end)
        complete = self._dispatcher.finish(self._now_ms, _STOP_LIMIT_MS, end)
        self._durability.save(self._refresh, self.confirm_offset)
        if complete:
            self._abort.remove()
        self.disk.fsync_dir(self._root)

    def _release(self) -> None:
        self._opened = False
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # Writing

    def write_out(self) -> AppendGroup | None:
        """Write everything appended since the last call. Return None if nothing was.

        On an I/O error NotWritableError: none of it is stored, and its queue offsets are free again.
        """
        try:
            group = self._log.write_out()
        except StoreError:
            self.replica.discard_pending()
            raise
        if group is None:
            return None
        self._groups.add(group)
        end = group.end_offset
        self._durability.written(end)
        if end >= self._preallocator.next_check_offset:
            self._preallocator.check()
        return group

    @property
    def refusal(self) -> str | None:
        """The reason why no message can be stored now, for a response remark; None if the store accepts writes."""
        if self._log.failure is not None:
            return str(self._log.refusal())
        return self._derived_failure or self._retention.disk_full

    @property
    def broken(self) -> bool:
        """True after a disk failure: the store accepts no writes until it is opened again."""
        return self._log.failure is not None

    @property
    def writable(self) -> bool:
        return self._log.failure is None and self._derived_failure is None and self._retention.disk_full is None

    # Queues

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue, created if necessary. A queue without messages leaves no trace on the disk."""
        return self._queues.get((topic, queue_id)) or self._queues.get_or_create(topic, queue_id)

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def queues(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    @property
    def queue_count(self) -> int:
        return len(self._queues)

    def drop_topic(self, topic: str) -> None:
        """Remove the queues of a topic. Its records stay in the log until they expire."""
        check_directory_name(topic)
        self._dispatcher.drop_topic(topic, self.replica.queues_end)

    # Offsets

    @property
    def min_offset(self) -> int:
        return self._log.min_offset

    @property
    def max_offset(self) -> int:
        """End of the written log."""
        return self._log.written_offset

    @property
    def appended_offset(self) -> int:
        """End of the log once everything appended is written."""
        return self._log.next_offset

    @property
    def flushed_offset(self) -> int:
        """End of the log that cannot be lost: durable and, in an elected group, confirmed."""
        flushed = self._durability.flushed_offset
        return min(flushed, self.reader.confirm_offset) if self._elected else flushed

    @property
    def synced_offset(self) -> int:
        """End of the durable log."""
        return self._durability.flushed_offset

    @property
    def confirm_offset(self) -> int:
        return self.reader.confirm_offset

    @property
    def confirmed_ms(self) -> int:
        """Store time of the newest visible message."""
        return self._groups.confirmed_ms

    @property
    def index_backlog(self) -> int:
        """Number of messages that cannot be found by key yet."""
        return self._dispatcher.index_backlog

    def disk_usage(self) -> float:
        """Return the usage of the commit log's file system in percent."""
        return self.disk.usage(self._log.directory)

    # Lookup

    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, kind: str = "K") -> QueryResult:
        """Find the records of a topic with a key or unique key (`kind` T: tag), stored in the given time, oldest first.

        Hashes of keys may collide, so the result may contain other records. Clients compare the keys.
        """
        index = self._index
        if index is None:
            return QueryResult([], 0, 0)
        try:
            self._dispatcher.catch_up_index(self._now_ms())
        except OSError as error:
            self._derived_failed(error)
        found = index.query(topic, key, min(max_num, self.settings.max_msgs_num_batch), begin_ms, end_ms, kind)
        records = [record for offset in sorted(found) if (record := self.read_record(offset)) is not None]
        return QueryResult(records, index.last_ms, index.last_offset)

    # Periodic work

    def tick(self, now_ms: int) -> None:
        """Do a bounded part of the work that is due. Call it about every 50 ms, and at least every second."""
        if not self._opened:
            return
        try:
            self._dispatcher.work(now_ms)
            self._durability.note_progress(self.confirm_offset)
            self._derived_failure = None
        except OSError as error:
            self._derived_failed(error)
        self._durability.flush_periodically(now_ms)
        if now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + _CHECKPOINT_INTERVAL_MS
            self._durability.save_checkpoint_later(self._refresh)
        moved = self._retention.check(now_ms, self._durability.flushed_offset)
        if moved:
            self._on_min_moved(moved)
        self.scrubber.check(now_ms, min(self.reader.recent_from, self._dispatcher.durable_offset))

    def delete_expired(self, now_ms: int) -> None:
        """Delete expired files now, at the request of an operator, at any hour."""
        self._retention.request()
        self.tick(now_ms)

    def _refresh(self, checkpoint: Checkpoint) -> None:
        """Update the values of the checkpoint, whose flushed offset is current."""
        if checkpoint.flushed_offset >= self.confirm_offset:
            checkpoint.physic_msg_ms = max(checkpoint.physic_msg_ms, self.confirmed_ms)
        checkpoint.logics_msg_ms = max(checkpoint.logics_msg_ms, self._dispatcher.durable_ms)
        checkpoint.logics_physical_offset = self._dispatcher.durable_offset
        if self._index is not None:
            checkpoint.index_msg_ms = self._index.full_ms

    def _sync_for_derived(self) -> None:
        """Make everything durable that derived files may refer to, before they are. Housekeeper, or `close`."""
        self._durability.sync_to(self.confirm_offset)

    # Errors

    def _log_damaged(self) -> None:
        """Let a member copy its log again: at the next opening it ends before the damage, and the leader sends the rest."""
        if self._elected:
            self._durability.mark_damaged()

    def _job_failed(self, error: Exception) -> None:
        self.problems.append(f"housekeeping: {type(error).__name__}: {error}")

    def _derived_failed(self, error: OSError) -> None:
        text = f"consume queues or index cannot be written: {error}; free space or repair the disk: the store retries by itself"
        if self._derived_failure is None:
            self.problems.append(text)
        self._derived_failure = text


def _open_index(settings: StoreSettings, disk: Disk) -> KeyIndex | None:
    if not settings.message_index_enable:
        return None
    return KeyIndex(
        disk,
        os.path.join(settings.store_path_root_dir, "index"),
        slot_count=settings.max_hash_slot_num,
        entry_limit=settings.max_index_num,
    )
