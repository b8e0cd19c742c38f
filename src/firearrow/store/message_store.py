"""The message store: the commit log, what is derived from it, and the rules by which they change together.

One thread, the event loop's, calls everything here. Two threads of the store's own work behind it (`flush.py`); what they
have to say arrives through the callbacks given to `start`.

A message's way:

    append / append_batch    it has its physical offset and its queue offset; nothing is written
    write_out                one pwrite for all that is pending; under SYNC_FLUSH the flusher is asked to sync it
    confirm(offset)          everything below is durable enough (SYNC_FLUSH: the flusher said so; ASYNC_FLUSH: at once): it
                             becomes visible in its queue, and only now may anybody be told that it is stored
    tick                     its queue entry reaches the queue's file, its keys the index

A replica's log is another broker's (`log_copy.py`): write_raw and look_at_raw instead of the first two steps.

On an I/O error of the log the store takes no more writes (`refusal` says why) and never confirms what it could not write or sync.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator

from firearrow.store.checkpoint import AbortFile, Checkpoint, CheckpointFile
from firearrow.store.commitlog.log import AppendGroup, CommitLog
from firearrow.store.commitlog.reader import GetResult, GetStatus, StoreReader
from firearrow.store.commitlog.replica import FollowError, ReplicaLog, StoreParts
from firearrow.store.commitlog.segment import SegmentPreallocator
from firearrow.store.consume_queue import ConsumeQueue, QueueFiles
from firearrow.store.dispatcher import Dispatcher
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk, Lock, RealDisk
from firearrow.store.group_mark import Mark, MarkFile
from firearrow.store.key_index.index import KeyIndex
from firearrow.store.recovery import RecoveryReport, recover
from firearrow.store.retention import MovedMin, Retention
from firearrow.store.settings import StoreSettings
from firearrow.store.threads import Flusher, Housekeeper

__all__ = ["AppendGroup", "GetResult", "GetStatus", "MessageStore", "MovedMin", "QueryResult", "RecoveryReport"]

_CHECKPOINT_INTERVAL_MS = 1000
_STOP_LIMIT_MS = 1200  # for writing queue entries at a clean stop; see Dispatcher.finish


class QueryResult:
    """Records found by key, oldest first, and how far the index was: store time and physical offset of its last message."""

    __slots__ = ("index_last_offset", "index_last_update_ms", "records")

    def __init__(self, records: list[bytes], index_last_update_ms: int, index_last_offset: int) -> None:
        self.records = records
        self.index_last_update_ms = index_last_update_ms
        self.index_last_offset = index_last_offset


class MessageStore:
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
        """`elected`: the store of a member of an elected group. What is confirmed is the group's decision, also after a restart,
        and the log can be cut where it is not."""
        self.settings = settings
        self._elected = elected
        self.lost = False  # of a member, found at the opening: bytes that had been durable are gone or damaged
        self._on_min_moved = on_min_moved
        self.problems: list[str] = []  # what the threads or `tick` met and could live with; the owner logs and clears it
        self._disk: Disk = disk if disk is not None else RealDisk()
        self._now_ms = now_ms
        self._plain = len(store_host) == 8
        root = settings.store_path_root_dir
        self._root = root
        self._log = CommitLog(settings, self._disk, store_host)
        self._files = QueueFiles(self._disk, os.path.join(root, "consumequeue"), settings.consume_queue_file_size)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._index: KeyIndex | None = None
        if settings.message_index_enable:
            self._index = KeyIndex(
                self._disk,
                os.path.join(root, "index"),
                slot_count=settings.max_hash_slot_num,
                entry_limit=settings.max_index_num,
            )
        self._reader = StoreReader(settings, self._log, memory_bytes)
        self._housekeeper = Housekeeper(self._job_failed)
        self._dispatcher = Dispatcher(
            settings, self._disk, self._files, self._index, self._queues.values, self._sync_for_derived, self._housekeeper
        )
        self._retention = Retention(
            settings, self._disk, self._log, self._files, self._index, self._queues.values, self.problems.append
        )
        self._on_flushed: Callable[[int], None] = _ignore_offset
        self._on_error: Callable[[StoreError], None] = _ignore_error
        self._flusher = Flusher(self._sync, self._flushed, self._flush_failed)
        self.flushes = self._flusher.stats
        self._lock: Lock | None = None
        self._unconfirmed: deque[AppendGroup] = deque()
        self._abort = AbortFile(self._disk, root)
        self._checkpoint = CheckpointFile(self._disk, root, self._housekeeper)
        self._confirmed_ms = 0
        self._ahead = SegmentPreallocator(self._log, self._housekeeper)
        parts = StoreParts(
            settings=settings,
            disk=self._disk,
            root=root,
            log=self._log,
            reader=self._reader,
            flusher=self._flusher,
            housekeeper=self._housekeeper,
            dispatcher=self._dispatcher,
            index=self._index,
            ahead=self._ahead,
            checkpoint=self._checkpoint,
            unconfirmed=self._unconfirmed,
            problems=self.problems,
            queue=self.queue,
            drop_topic=self.drop_topic,
            topics=self.topics,
            now_ms=now_ms,
        )
        self._copy = ReplicaLog(parts)
        self._next_checkpoint_ms = 0
        self._next_flush_ms = 0
        self._derived_failure: str | None = None
        self._opened = False
        # The hot methods are the log's and the reader's own: no second call per message.
        self.append = self._log.append
        self.append_batch = self._log.append_batch
        self.append_batch_body = self._log.append_batch_body
        self.get_messages = self._reader.get_messages
        self.read = self._reader.read
        self.read_log = self._log.read  # written bytes, confirmed or not: for those who copy them
        self.read_record = self._reader.read_record
        self.store_time = self._reader.store_time
        self.earliest_store_time = self._reader.earliest_store_time
        self.offset_by_time = self._reader.offset_by_time
        self.append_raw = self._copy.append_raw
        self.write_raw = self._copy.write_raw
        self.look_at_raw = self._copy.look_at_raw
        self.follow_no_more = self._copy.follow_no_more
        self.cut = self._copy.cut
        self.begin_anew = self._copy.begin_anew
        self.found_damaged = self._copy.found_damaged

    # Life

    def open(self) -> RecoveryReport:
        """Takes the directory, recovers what is in it and makes it ready for reading and writing."""
        disk, root = self._disk, self._root
        disk.mkdirs(root)
        self._lock = disk.lock(os.path.join(root, "lock"))
        clean = not self._abort.exists
        try:
            checkpoint = self._checkpoint.load()
            mark = Mark()
            if self._elected:
                self._copy.mark_file = MarkFile(disk, root)
                mark = self._copy.mark_file.mark
                mark.durable = max(mark.durable, checkpoint.flushed_offset)
            same_boot = checkpoint.boot_id == disk.boot_id()
            self._abort.write()
            report = recover(
                self.settings,
                disk,
                self._log,
                self._files,
                self._index,
                self.queue,
                checkpoint,
                clean=clean,
                now_ms=self._now_ms(),
                mark=mark if self._elected else None,
            )
            end = report.log_end
            self._log.begin(end)
            if self._elected:
                torn = not (clean or same_boot or self.settings.sync_flush) and mark.durable > 0
                self.lost = end < mark.durable or bool(report.damaged) or torn
                self._remember_loss(mark)
            self._flusher.flushed_offset = self._log.durable_offset = self._durable_after_recovery(end)
            checkpoint.flushed_offset = self._flusher.flushed_offset
            checkpoint.boot_id = disk.boot_id()
            checkpoint.segment_size = self._log.segment_size
            checkpoint.queue_file_size = self._files.file_size
            checkpoint.confirm_phy_offset = report.last_record_offset or checkpoint.confirm_phy_offset
            self._checkpoint.save()
        except BaseException as error:
            if clean and isinstance(error, StoreError):
                self._abort.remove()  # refused before anything was touched, for a setting that does not fit: still clean
            self._release()
            raise
        confirmed = self._reader.confirm_offset = report.confirmed
        self._confirmed_ms = report.last_store_ms or checkpoint.physic_msg_ms
        self._dispatcher.begin(confirmed, self._confirmed_ms, report.table, clean=report.clean, now_ms=self._now_ms())
        self._retention.begin(self._now_ms())
        if confirmed < end:
            self._copy.follow_from(confirmed)
        self._opened = True
        return report

    def _remember_loss(self, mark: Mark) -> None:
        """Until the mark is written again: by then whoever needs to know has noted it."""
        if self.lost and self._copy.mark_file is not None:
            self._copy.mark_file.save(Mark(max(mark.durable, self._log.next_offset + 1), mark.confirmed))

    def start(self, on_flushed: Callable[[int], None], on_error: Callable[[StoreError], None], *, threads: bool = True) -> None:
        """Start flushing, in the store's own threads or, with `threads=False`, within `write_out` in the caller's.

        The callbacks are called from the thread that flushes and schedule the rest on the event loop. `on_flushed(offset)`, under
        SYNC_FLUSH only: pass the offset to `confirm`. `on_error`: the log could not be synced, so the pending sends have failed.
        """
        self._on_flushed = on_flushed
        self._on_error = on_error
        if threads:
            self._flusher.start()
            self._housekeeper.start()
        else:
            self._flusher.start_inline()
        self._ahead.look()

    def close(self) -> None:
        """Writes and syncs everything and leaves the directory as after a clean stop, unless an I/O error has happened."""
        if self._lock is None:
            return
        try:
            if self._opened and self._log.failure is None:
                self._finish()
        finally:
            self._flusher.stop()
            self._housekeeper.stop()
            self._files.close()
            self._log.close()
            if self._copy.mark_file is not None:
                self._copy.mark_file.close()
            self._release()

    @property
    def disk(self) -> Disk:
        return self._disk

    def submit(self, job: Callable[[], None]) -> None:
        """Runs a job that may block (a file to save) in the housekeeper's thread, after those submitted before."""
        self._housekeeper.submit(job)

    def drain(self) -> None:
        """Waits for the jobs that were submitted."""
        self._housekeeper.drain()

    # Writing

    def write_out(self) -> AppendGroup | None:
        """Writes everything appended since the last call; None when that is nothing.

        On an I/O error: NotWritableError, nothing of it is stored and the queue offsets are taken back.
        """
        try:
            group = self._log.write_out()
        except StoreError:
            self._copy.take_back()
            raise
        if group is None:
            return None
        self._unconfirmed.append(group)
        end = group.end_offset
        if self.settings.sync_flush:
            self._flusher.request(end)
        if end >= self._ahead.due:
            self._ahead.look()
        return group

    def confirm(self, offset: int) -> list[tuple[ConsumeQueue, int, int]]:
        """Everything written below `offset` becomes visible; returns (queue, from, to) for each run of messages that did."""
        visible: list[tuple[ConsumeQueue, int, int]] = []
        unconfirmed = self._unconfirmed
        while unconfirmed and unconfirmed[0].end_offset <= offset:
            group = unconfirmed.popleft()
            for queue, end in group.touched.items():
                start = queue.max_offset
                if end > start:
                    queue.max_offset = end
                    visible.append((queue, start, end))
            self._reader.confirm_offset = group.end_offset
            self._confirmed_ms = group.store_ms
            try:
                self._dispatcher.confirmed(group)
            except OSError as error:
                self._derived_failed(error)
        return visible

    def _sync(self, start: int, end: int) -> None:
        """Makes the log in [start, end) durable, and of a group's member that it was. Any thread. OSError."""
        self._log.sync(start, end)
        if self._copy.mark_file is not None and self.settings.sync_flush:
            self._copy.mark_file.synced(end)

    def flush(self) -> int:
        """Makes everything written durable, here and now; returns up to where. For stores without threads."""
        end = self._log.written_offset
        if self._log.failure is not None:
            raise self._log.refusal()
        if end > self._flusher.flushed_offset:
            try:
                self._sync(self._flusher.flushed_offset, end)
            except OSError as error:
                raise self._log.fail(f"fdatasync of the commit log failed: {error}") from error
            self._flusher.flushed_offset = self._log.durable_offset = end
        return end

    @property
    def refusal(self) -> str | None:
        """Why no message can be stored now, fit for a remark; None when the store takes writes."""
        if self._log.failure is not None:
            return str(self._log.refusal())
        return self._derived_failure or self._retention.disk_full

    @property
    def broken(self) -> bool:
        """The disk failed: nothing can be stored until the store is opened anew."""
        return self._log.failure is not None

    @property
    def writable(self) -> bool:
        return self._log.failure is None and self._derived_failure is None and self._retention.disk_full is None

    # Queues

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made if there is none. A queue without messages leaves no trace on the disk."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            _check_path_name(topic, queue_id)
            queue = self._queues[topic, queue_id] = ConsumeQueue(topic, queue_id, self._files, plain=self._plain)
        return queue

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def queues(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    @property
    def queue_count(self) -> int:
        return len(self._queues)

    def topics(self) -> set[str]:
        """Topics that have or had messages here."""
        return {topic for topic, _ in self._queues}

    def drop_topic(self, topic: str) -> None:
        """Forgets the queues of a topic; its records stay in the log until they expire."""
        _check_path_name(topic, 0)
        for key in [key for key in self._queues if key[0] == topic]:
            self._dispatcher.drop(self._queues.pop(key))
        path = self._files.forget(topic)
        # In the housekeeper's turn: it may be writing one of them, and a topic of that name may be made again.
        self._housekeeper.submit(lambda: self._disk.rmtree(path) if self._disk.exists(path) else None)

    # Offsets

    @property
    def min_offset(self) -> int:
        return self._log.min_offset

    @property
    def max_offset(self) -> int:
        """Where the written log ends."""
        return self._log.written_offset

    @property
    def appended_offset(self) -> int:
        """Where the log will end when everything appended is written."""
        return self._log.next_offset

    @property
    def flushed_offset(self) -> int:
        """What lies below stays: it is on the disk, and the group of a member has confirmed it."""
        flushed = self._flusher.flushed_offset
        return min(flushed, self._reader.confirm_offset) if self._elected else flushed

    @property
    def synced_offset(self) -> int:
        return self._flusher.flushed_offset

    @property
    def confirm_offset(self) -> int:
        return self._reader.confirm_offset

    @property
    def confirmed_ms(self) -> int:
        """When the newest readable message was stored."""
        return self._confirmed_ms

    @property
    def index_backlog(self) -> int:
        """Messages that cannot be found by key yet."""
        return self._dispatcher.behind

    def disk_usage(self) -> float:
        """How full the disk of the commit log is, in percent."""
        return self._disk.usage(self._log.directory)

    # Looking up

    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, kind: str = "K") -> QueryResult:
        """Records of a topic that carry a key (or unique key; `kind` T: tag), stored in the given time, oldest first.

        Hashes of keys may collide: a record may be among them that does not carry the key. Clients compare again.
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

    # Time

    def tick(self, now_ms: int) -> None:
        """Bounded work that is due; call it about every 50 ms, and at least every second."""
        if not self._opened:
            return
        try:
            self._dispatcher.work(now_ms)
            if self._copy.mark_file is not None:
                self._copy.mark_file.note(self._flusher.flushed_offset, self._reader.confirm_offset)
            self._derived_failure = None
        except OSError as error:
            self._derived_failed(error)
        if not self.settings.sync_flush and now_ms >= self._next_flush_ms:
            self._next_flush_ms = now_ms + self.settings.flush_interval_commit_log
            if self._log.written_offset > self._flusher.flushed_offset:
                self._flusher.request(self._log.written_offset)
        if now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + _CHECKPOINT_INTERVAL_MS
            self._checkpoint.save_later(self._refresh, self._sync_mark)
        moved = self._retention.check(now_ms, self._flusher.flushed_offset, self._housekeeper)
        if moved:
            self._dispatcher.files_deleted()
            self._on_min_moved(moved)

    def delete_expired(self, now_ms: int) -> None:
        """An operator wants expired files gone now, whatever the hour."""
        self._retention.ask()
        self.tick(now_ms)

    # Inside

    def _finish(self) -> None:
        self.write_out()
        self._flusher.stop()
        self._housekeeper.stop()
        with contextlib.suppress(FollowError):  # what cannot be followed is found again by the recovery
            self.look_at_raw()
        follower = self._copy.follower
        if follower is not None and not follower.broken and not self._elected:
            self._log.take_back_raw(follower.position)  # the beginning of a record: it comes again
            self._flusher.flushed_offset = min(self._flusher.flushed_offset, self._log.written_offset)
        end = self.flush()
        if not self._elected:
            self.confirm(end)
        complete = self._dispatcher.finish(self._now_ms, _STOP_LIMIT_MS)
        self._refresh(self._checkpoint.now)
        self._checkpoint.save()
        self._copy.set_mark()
        if complete:
            self._abort.remove()
        self._disk.fsync_dir(self._root)

    def _release(self) -> None:
        self._opened = False
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _durable_after_recovery(self, end: int) -> int:
        """What recovery read may have been in the system's cache only: under SYNC_FLUSH it is synced before anybody sees it."""
        known = max(self._log.min_offset, min(self._checkpoint.now.flushed_offset, end))
        if known < end and self.settings.sync_flush:
            self._log.sync(known, end)
            return end
        return known

    def forget_pending(self) -> None:
        """What was appended and not written is not stored."""
        self._copy.take_back()

    def _sync_for_derived(self) -> None:
        """Housekeeper, or `close`: everything that derived files may speak of becomes durable before they do."""
        flushed, confirmed = self._flusher.flushed_offset, self._reader.confirm_offset
        if flushed < confirmed:
            try:
                self._log.sync(flushed, confirmed)
            except OSError as error:
                self._flush_failed(error)
                raise

    def _flushed(self, offset: int) -> None:
        """Flusher."""
        self._log.durable_offset = offset
        if self.settings.sync_flush:
            self._on_flushed(offset)

    def _flush_failed(self, error: OSError) -> None:
        """Flusher or housekeeper."""
        self._on_error(self._log.fail(f"fdatasync of the commit log failed: {error}"))

    def _job_failed(self, error: Exception) -> None:
        self.problems.append(f"housekeeping: {type(error).__name__}: {error}")

    def _derived_failed(self, error: OSError) -> None:
        text = (
            f"consume queues or index cannot be written: {error}; free space or repair the disk, the store goes on by itself then"
        )
        if self._derived_failure is None:
            self.problems.append(text)
        self._derived_failure = text

    def _refresh(self, checkpoint: Checkpoint) -> None:
        flushed = self._flusher.flushed_offset
        if flushed >= self._reader.confirm_offset:
            checkpoint.physic_msg_ms = max(checkpoint.physic_msg_ms, self._confirmed_ms)
        checkpoint.flushed_offset = flushed
        checkpoint.logics_msg_ms = max(checkpoint.logics_msg_ms, self._dispatcher.durable_ms)
        checkpoint.logics_physical_offset = self._dispatcher.durable_offset
        if self._index is not None:
            checkpoint.index_msg_ms = self._index.full_ms

    def _sync_mark(self) -> None:
        """Housekeeper."""
        if self._copy.mark_file is not None:
            self._copy.mark_file.sync()


def _check_path_name(topic: str, queue_id: int) -> None:
    """The topic becomes a directory name. The broker has stricter rules; this one keeps the store inside its directory."""
    unfit = not topic or topic in (".", "..") or "/" in topic or os.sep in topic or min(topic) < " "
    if unfit or len(topic.encode()) > 255:
        raise ValueError(f"topic {topic!r} cannot be the name of a directory")
    if queue_id < 0:
        raise ValueError(f"queue id {queue_id} of topic {topic!r}: expected 0 or more")


def _ignore_offset(_: int) -> None:
    pass


def _ignore_error(_: StoreError) -> None:
    pass
