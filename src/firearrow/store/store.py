"""The message store: the commit log, what is derived from it, and the rules by which they change together.

One thread, the event loop's, calls everything here. Two threads of the store's own work behind it (`flush.py`); what they
have to say arrives through the callbacks given to `start`.

A message's way:

    append / append_batch    it has its physical offset and its queue offset; nothing is written
    write_out                one pwrite for all that is pending; under SYNC_FLUSH the flusher is asked to sync it
    confirm(offset)          everything below is durable enough (SYNC_FLUSH: the flusher said so; ASYNC_FLUSH: at once): it
                             becomes visible in its queue, and only now may anybody be told that it is stored
    tick                     its queue entry reaches the queue's file, its keys the index

On an I/O error of the log the store takes no more writes (`refusal` says why) and never confirms what it could not write or sync.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator

from firearrow.store.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from firearrow.store.commitlog import AppendGroup, CommitLog
from firearrow.store.consumequeue import ConsumeQueue, QueueFiles
from firearrow.store.cutting import forget_groups, pieces, take_back
from firearrow.store.disk import Disk, Lock, RealDisk
from firearrow.store.dispatch import Dispatcher
from firearrow.store.errors import StoreError
from firearrow.store.flush import Flusher, Housekeeper
from firearrow.store.follow import Follower, FollowError
from firearrow.store.index import KeyIndex
from firearrow.store.logtail import cut_log
from firearrow.store.mark import Mark, MarkFile
from firearrow.store.queuetable import QueueTable, save_queue_table
from firearrow.store.reader import GetResult, GetStatus, StoreReader
from firearrow.store.recovery import RecoveryReport, recover
from firearrow.store.retention import MovedMin, Retention
from firearrow.store.settings import StoreSettings

__all__ = ["AppendGroup", "GetResult", "GetStatus", "MessageStore", "MovedMin", "QueryResult", "RecoveryReport"]

_CHECKPOINT_INTERVAL_MS = 1000
_STOP_LIMIT_MS = 1200  # for writing queue entries at a clean stop; see Dispatcher.finish
_HOUSEKEEPING_BYTES = 1024 * 1024  # of log between two looks at whether a segment should be prepared


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
    ) -> None:
        """`elected`: the store of a member of an elected group. What is confirmed is the group's decision, also after a restart,
        and the log can be cut where it is not."""
        self.settings = settings
        self._elected = elected
        self._mark_file: MarkFile | None = None
        self.lost = False  # of a member, found at the opening: bytes that had been durable are gone or damaged
        self.on_min_moved: Callable[[list[MovedMin]], None] = _ignore_moved
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
        self.flushes = self._flusher.figures
        self._lock: Lock | None = None
        self._unconfirmed: deque[AppendGroup] = deque()
        self._follower: Follower | None = None  # of a replica
        self._checkpoint = Checkpoint()
        self._checkpoint_path = os.path.join(root, "checkpoint")
        self._checkpoint_saving = False
        self._confirmed_ms = 0
        self._next_housekeeping = 0
        self._preparing: int | None = None
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

    # Life

    def open(self) -> RecoveryReport:
        """Takes the directory, recovers what is in it and makes it ready for reading and writing."""
        disk, root = self._disk, self._root
        disk.mkdirs(root)
        self._lock = disk.lock(os.path.join(root, "lock"))
        abort = os.path.join(root, "abort")
        clean = not disk.exists(abort)
        try:
            self._checkpoint = load_checkpoint(disk, self._checkpoint_path)
            mark = Mark()
            if self._elected:
                self._mark_file = MarkFile(disk, root)
                mark = self._mark_file.mark
                mark.durable = max(mark.durable, self._checkpoint.flushed_offset)
            same_boot = self._checkpoint.boot_id == disk.boot_id()
            self._write_abort(abort)
            report = recover(
                self.settings,
                disk,
                self._log,
                self._files,
                self._index,
                self.queue,
                self._checkpoint,
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
            self._checkpoint.flushed_offset = self._flusher.flushed_offset
            self._checkpoint.boot_id = disk.boot_id()
            self._checkpoint.segment_size = self._log.segment_size
            self._checkpoint.queue_file_size = self._files.file_size
            self._checkpoint.confirm_phy_offset = report.last_record_offset or self._checkpoint.confirm_phy_offset
            save_checkpoint(disk, self._checkpoint_path, self._checkpoint)
        except BaseException as error:
            if clean and isinstance(error, StoreError) and disk.exists(abort):
                disk.unlink(abort)  # refused before anything was touched, for a setting that does not fit: still clean
            self._release()
            raise
        confirmed = self._reader.confirm_offset = report.confirmed
        self._confirmed_ms = report.last_store_ms or self._checkpoint.physic_msg_ms
        self._dispatcher.begin(confirmed, self._confirmed_ms, report.table, clean=report.clean, now_ms=self._now_ms())
        self._retention.begin(self._now_ms())
        if confirmed < end:
            self._follow_from(confirmed)
        self._opened = True
        return report

    def _remember_loss(self, mark: Mark) -> None:
        """Until the mark is written again: by then whoever needs to know has noted it."""
        if self.lost and self._mark_file is not None:
            self._mark_file.save(Mark(max(mark.durable, self._log.next_offset + 1), mark.confirmed))

    def start(self, on_flushed: Callable[[int], None], on_error: Callable[[StoreError], None]) -> None:
        """Starts the store's threads; both callbacks are called from them.

        `on_flushed(offset)`, under SYNC_FLUSH only: hand the offset to `confirm` in the event loop's thread. `on_error`: the log
        could not be synced; whoever still waits must be told that it failed.
        """
        self._on_flushed = on_flushed
        self._on_error = on_error
        self._flusher.start()
        self._housekeeper.start()
        self._look_ahead()

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
            if self._mark_file is not None:
                self._mark_file.close()
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
            self._take_back()
            raise
        if group is None:
            return None
        self._unconfirmed.append(group)
        end = group.end_offset
        if self.settings.sync_flush:
            self._flusher.request(end)
        if end >= self._next_housekeeping:
            self._look_ahead()
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

    def append_raw(self, data: bytes, offset: int) -> AppendGroup | None:
        """Takes bytes of another broker's log, which begin at `offset`, as they are; this store is its replica from then on.

        Returns the group of records that became whole; `confirm` makes it readable. An empty log begins wherever the first
        bytes do. FollowError when the bytes cannot follow what is here.
        """
        self.write_raw(data, offset)
        return self.look_at_raw()

    def write_raw(self, data: bytes, offset: int) -> int:
        """The first half of `append_raw`: nobody has looked at the records yet. Returns how many bytes nobody has looked at."""
        log = self._log
        if self._follower is None or log.next_offset == log.min_offset != offset:
            self._begin_following(offset)
        assert self._follower is not None
        if offset != log.next_offset:
            raise FollowError(f"bytes of log offset {offset} cannot follow a log that ends at {log.next_offset}")
        log.write_raw(data)
        if self.settings.sync_flush:
            self._flusher.request(log.written_offset)
        if log.written_offset >= self._next_housekeeping:
            self._look_ahead()
        self._follower.add(data)
        return self._follower.unseen_bytes

    def look_at_raw(self) -> AppendGroup | None:
        """The second half: for many pieces at once it costs much less."""
        group = self._follower.look() if self._follower is not None else None
        if group is not None:
            self._unconfirmed.append(group)
        return group

    # Of a member of an elected group

    def cut(self, offset: int) -> None:
        """Takes back everything behind `offset`, where a record ends, above what is confirmed. Durable on return.

        The bytes that were there are kept in `commitlog_cut`.
        """
        log = self._log
        if not self._reader.confirm_offset <= offset <= log.written_offset:
            raise StoreError(
                f"the log cannot be cut at {offset}: it is confirmed up to {self._reader.confirm_offset} and ends at "
                f"{log.written_offset}"
            )
        self._take_back()
        self._rewind(offset)
        cut_log(self._disk, log, offset, os.path.join(self._root, "commitlog_cut"), self._now_ms())
        log.begin(offset)
        forget_groups(self._unconfirmed, offset)
        self._follow_from(self._unconfirmed[-1].end_offset if self._unconfirmed else self._reader.confirm_offset)

    def begin_anew(self, offset: int) -> None:
        """Gives up everything that is here: the log begins at `offset`, where the others' logs begin. Durable on return."""
        log, disk = self._log, self._disk
        self._take_back()
        self._unconfirmed.clear()
        for topic in self.topics():
            self.drop_topic(topic)
        self._rewind(0)
        if self._index is not None:
            self._index.truncate_to(0)
        save_queue_table(disk, os.path.join(self._root, "queueTable"), QueueTable())
        for number in sorted(log.segments, reverse=True):
            segment = log.segments.pop(number)
            segment.close()
            disk.unlink(segment.path)
        disk.fsync_dir(log.directory)
        log.next_offset = log.written_offset = log.min_offset
        self._begin_following(offset)
        self._set_mark()

    def follow_no_more(self) -> None:
        """What is appended from now on is this broker's own."""
        self._follower = None

    def found_damaged(self) -> None:
        """A record cannot be read: the next opening looks for the place, and ends the log there."""
        if self._mark_file is not None:
            self._mark_file.damage()

    def _rewind(self, offset: int) -> None:
        """Nothing that is written down, or is about to be, may speak of the log behind `offset` any more."""
        self._housekeeper.drain()
        self._flusher.rewind(offset)
        self._log.durable_offset = min(self._log.durable_offset, offset)
        self._set_mark()
        self._checkpoint.flushed_offset = min(self._checkpoint.flushed_offset, offset)
        save_checkpoint(self._disk, self._checkpoint_path, self._checkpoint)

    def _follow_from(self, offset: int) -> None:
        """Records from `offset` on are in the log already: they wait to be confirmed."""
        log = self._log
        follower = self._follower = Follower(self.settings, self.queue, self.drop_topic, self.problems.append, offset)
        for data in pieces(log, offset, log.written_offset):
            group = follower.take(data)
            if group is not None:
                self._unconfirmed.append(group)

    def _set_mark(self) -> None:
        """Nothing is being flushed: the mark says what is so, also when that is less than before. Durable on return."""
        if self._mark_file is not None:
            known = self._mark_file.mark
            self._mark_file.save(Mark(self._flusher.flushed_offset, self._reader.confirm_offset, known.damaged))

    def _sync(self, start: int, end: int) -> None:
        """Makes the log in [start, end) durable, and of a group's member that it was. Any thread. OSError."""
        self._log.sync(start, end)
        if self._mark_file is not None and self.settings.sync_flush:
            self._mark_file.synced(end)

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
            if self._mark_file is not None:
                self._mark_file.note(self._flusher.flushed_offset, self._reader.confirm_offset)
            self._derived_failure = None
        except OSError as error:
            self._derived_failed(error)
        if not self.settings.sync_flush and now_ms >= self._next_flush_ms:
            self._next_flush_ms = now_ms + self.settings.flush_interval_commit_log
            if self._log.written_offset > self._flusher.flushed_offset:
                self._flusher.request(self._log.written_offset)
        if now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + _CHECKPOINT_INTERVAL_MS
            self._save_checkpoint_later()
        moved = self._retention.check(now_ms, self._flusher.flushed_offset, self._housekeeper)
        if moved:
            self._dispatcher.files_deleted()
            self.on_min_moved(moved)

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
        if self._follower is not None and not self._follower.broken and not self._elected:
            self._log.take_back_raw(self._follower.position)  # the beginning of a record: it comes again
            self._flusher.flushed_offset = min(self._flusher.flushed_offset, self._log.written_offset)
        end = self.flush()
        if not self._elected:
            self.confirm(end)
        complete = self._dispatcher.finish(self._now_ms, _STOP_LIMIT_MS)
        save_checkpoint(self._disk, self._checkpoint_path, self._checkpoint_now())
        self._set_mark()
        abort = os.path.join(self._root, "abort")
        if complete and self._disk.exists(abort):
            self._disk.unlink(abort)
        self._disk.fsync_dir(self._root)

    def _release(self) -> None:
        self._opened = False
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _durable_after_recovery(self, end: int) -> int:
        """What recovery read may have been in the system's cache only: under SYNC_FLUSH it is synced before anybody sees it."""
        known = max(self._log.min_offset, min(self._checkpoint.flushed_offset, end))
        if known < end and self.settings.sync_flush:
            self._log.sync(known, end)
            return end
        return known

    def _write_abort(self, path: str) -> None:
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            file.pwrite(str(os.getpid()).encode(), 0)
            file.fdatasync()
        finally:
            file.close()
        self._disk.fsync_dir(self._root)

    def _begin_following(self, offset: int) -> None:
        log = self._log
        if log.next_offset == log.min_offset != offset:
            if offset % log.segment_size:
                raise FollowError(
                    f"the master's log begins at {offset}, where no segment of {log.segment_size} bytes does; set "
                    "mappedFileSizeCommitLog as there"
                )
            log.begin_anew(offset)
            self._flusher.flushed_offset = log.durable_offset = self._reader.confirm_offset = offset
            self._checkpoint.flushed_offset = offset
            self._dispatcher.begin(offset, 0, None, clean=True, now_ms=self._now_ms())
        self._follower = Follower(self.settings, self.queue, self.drop_topic, self.problems.append, log.next_offset)

    def forget_pending(self) -> None:
        """What was appended and not written is not stored."""
        self._take_back()

    def _take_back(self) -> None:
        """The pending group is lost: its queues continue where the last written group left them."""
        take_back(self._log.forget_pending(), self._unconfirmed)

    def _look_ahead(self) -> None:
        """Asks the housekeeper for the next segment in time."""
        log = self._log
        self._next_housekeeping = log.next_offset + _HOUSEKEEPING_BYTES
        number = log.wants_next_segment()
        if number is not None and self._preparing != number:
            self._preparing = number
            self._housekeeper.submit(lambda: self._prepare(number))

    def _prepare(self, number: int) -> None:
        """Housekeeper."""
        try:
            self._log.prepare(number)
        except OSError:
            self._preparing = None
            raise

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

    def _checkpoint_now(self) -> Checkpoint:
        checkpoint = self._checkpoint
        flushed = self._flusher.flushed_offset
        if flushed >= self._reader.confirm_offset:
            checkpoint.physic_msg_ms = max(checkpoint.physic_msg_ms, self._confirmed_ms)
        checkpoint.flushed_offset = flushed
        checkpoint.logics_msg_ms = max(checkpoint.logics_msg_ms, self._dispatcher.durable_ms)
        checkpoint.logics_physical_offset = self._dispatcher.durable_offset
        if self._index is not None:
            checkpoint.index_msg_ms = self._index.full_ms
        return checkpoint

    def _save_checkpoint_later(self) -> None:
        before = self._checkpoint.encode()
        data = self._checkpoint_now()
        if data.encode() == before or self._checkpoint_saving:
            return
        snapshot = Checkpoint.decode(data.encode())
        self._checkpoint_saving = True

        def save() -> None:
            try:
                save_checkpoint(self._disk, self._checkpoint_path, snapshot)
                if self._mark_file is not None:
                    self._mark_file.sync()
            finally:
                self._checkpoint_saving = False

        self._housekeeper.submit(save)


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


def _ignore_moved(_: list[MovedMin]) -> None:
    pass
