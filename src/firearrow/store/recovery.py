"""Opening a store directory, whatever state it is in.

The commit log is the only truth. Recovery finds its end, and makes queues and index agree with it:

1. Load what is there: segments, queue files, the queue table, the index.
2. Scan the log from where everything derived is known to be durable (the queue table's offset; after a clean stop that is the
   end of the log). A queue or index file that is missing, short or contradicts the table moves the start back to the beginning
   of the log.
3. What the scan finds goes to the queues and the index; what they have already is compared and left alone.
4. The log ends where no record follows. What lies behind that place is saved to `commitlog_cut/` and zeroed, so that later scans
   cannot take leftovers for records. Queue entries behind it go as well.

A record that cannot be read ends the log only where the disk had not confirmed it yet, above the *mark* (the checkpoint's
flushed offset; the end of everything if the machine has not been started anew since). Below it the record had been safe and is
damaged now: the scan goes on with the next record that can be read, the bytes stay where they are, and its place in the queue
says "no message here". Above it, since BODYCRC covers the body only, a record whose topic or properties have a sector of zeros
counts as torn, too.

Directories of an Apache broker have no queue table. They are scanned as a whole up to 4 GiB of log; above that from where
Apache would begin: after a clean stop where the consume queues end, after a crash at the newest segment that the checkpoint
vouches for.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from firearrow.config.delay_levels import parse_delay_levels
from firearrow.store.checkpoint import Checkpoint
from firearrow.store.commitlog.log import BLANK, BLANK_SIZE, NOT_DISPATCHED, CommitLog
from firearrow.store.commitlog.scan import ScanResult, Stop, scan
from firearrow.store.commitlog.truncation import cut_log, first_torn, next_record
from firearrow.store.consume_queue import ABSENT_SIZE, ENTRY, UNIT, ConsumeQueue, QueueFiles
from firearrow.store.filesystem import Disk
from firearrow.store.group_mark import Mark
from firearrow.store.key_index.hashing import IntArray
from firearrow.store.key_index.index import KeyIndex
from firearrow.store.queue_table import QueueTable, load_queue_table
from firearrow.store.settings import StoreSettings
from firearrow.wire.record import MAGIC_BLANK

_CHUNK = 16 * 1024 * 1024
_SCAN_ALL_UP_TO = 4 * 1024 * 1024 * 1024
_FLUSH_TAIL = 64 * 1024
_FEED = 250_000  # records
_NO_LIMIT = 1 << 62
_TOLD = 50
_LOOK_AT = 20_000_000  # queue entries
_LARGEST_GAP = 1_000_000  # entries; a queue offset further ahead is itself damaged
_ENTRY_TYPE = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


@dataclass(slots=True)
class RecoveryReport:
    clean: bool  # the last stop was clean
    log_min: int = 0
    log_end: int = 0
    scanned_bytes: int = 0
    records: int = 0  # found by the scan
    last_record_offset: int = 0
    last_store_ms: int = 0
    cut_bytes: int = 0  # behind the end of the log, saved to cut_path
    cut_path: str | None = None
    damaged: list[tuple[int, int]] = field(default_factory=list)  # log ranges that had been durable and cannot be read
    confirmed: int = 0  # queues and index go up to here
    rebuilt_queues: int = 0  # queues made anew from the whole log
    problems: list[str] = field(default_factory=list)  # everything odd, in words
    table: QueueTable | None = None


def recover(
    settings: StoreSettings,
    disk: Disk,
    log: CommitLog,
    files: QueueFiles,
    index: KeyIndex | None,
    queue_of: Callable[[str, int], ConsumeQueue],
    checkpoint: Checkpoint,
    *,
    clean: bool,
    now_ms: int,
    mark: Mark | None = None,
) -> RecoveryReport:
    """`mark`: of a member of an elected group. Its log ends before the first record that cannot be read, and its
    queues and index end where the log is confirmed."""
    recovery = _Recovery(settings, disk, log, files, index, queue_of, checkpoint, clean, now_ms, mark)
    return recovery.run()


class _Recovery:
    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        log: CommitLog,
        files: QueueFiles,
        index: KeyIndex | None,
        queue_of: Callable[[str, int], ConsumeQueue],
        checkpoint: Checkpoint,
        clean: bool,
        now_ms: int,
        mark: Mark | None,
    ) -> None:
        self.disk = disk
        self.group_mark = mark
        self.log = log
        self.files = files
        self.index = index
        self.queue_of = queue_of
        self.checkpoint = checkpoint
        self.now_ms = now_ms
        self.root = settings.store_path_root_dir
        self.check_crc = settings.check_crc_on_recover
        self.delay_levels_ms = parse_delay_levels(settings.message_delay_level)
        self.report = RecoveryReport(clean)
        self.queues: dict[ConsumeQueue, int] = {}  # every queue, and from which log offset on it takes entries
        self.last_end: dict[ConsumeQueue, int] = {}  # where the record of its last stored entry ends
        self.changed: set[ConsumeQueue] = set()
        self.noted = 0
        self.looked_at = 0
        self.topic_ids: dict[str, int] = {}
        # Records on their way to the queues: key of the queue, queue offset, log offset, entry
        self.waiting: list[tuple[IntArray, IntArray, IntArray, npt.NDArray[Any]]] = []
        self.table: QueueTable | None = None

    def run(self) -> RecoveryReport:
        report, log = self.report, self.log
        self.files.check_size(self.checkpoint.queue_file_size)
        self._note(*log.load(self.checkpoint.segment_size))
        self.table = report.table = load_queue_table(self.disk, os.path.join(self.root, "queueTable"), clean=report.clean)
        if self.table is not None and self.group_mark is not None and self._must_look_at_everything(self.table):
            self.table = report.table = None
        if self.table is None:
            start, mark = self._begin_without_table()
        else:
            start, mark = self._begin_with_table(self.table)
        index_start = self._open_index(start)
        end = max(self._scan_until_complete(min(start, index_start), mark), self._lost_end())
        self._cut(end)
        report.log_min = log.min_offset if log.segments else end
        report.log_end = end
        confirmed = report.confirmed = self._confirmed(end)
        self._settle_queues(confirmed)
        if self.index is not None and self.index.next_offset > confirmed:
            self.index.truncate_to(confirmed)
        if self.noted > len(report.problems):
            report.problems.append(f"and {self.noted - len(report.problems)} more of the kind")
        return report

    # Of a member of an elected group

    def _must_look_at_everything(self, table: QueueTable) -> bool:
        """Something was found damaged, or the file is gone in which the log ended: the place is to be found."""
        assert self.group_mark is not None
        last = max(table.derived_offset - 1, self.log.min_offset)
        return self.group_mark.damaged or (table.derived_offset > 0 and self.log.segment_at(last) is None)

    def _confirmed(self, end: int) -> int:
        """What derived files vouch for was confirmed when they were written."""
        if self.group_mark is None:
            return end
        derived = self.table.derived_offset if self.table is not None else 0
        return max(min(end, max(self.group_mark.confirmed, derived)), self.log.min_offset if self.log.segments else 0)

    # Where to begin

    def _begin_with_table(self, table: QueueTable) -> tuple[int, int]:
        start = derived = max(table.derived_offset, self.log.min_offset)
        stored = set(self.files.stored_queues())
        for topic, queue_id in sorted(stored | set(table.queues)):
            queue = self._known(topic, queue_id)
            if queue is None:
                continue
            self.queues[queue] = derived
            wrong = self.files.load(queue) if (topic, queue_id) in stored else []
            first, count = table.queues.get((topic, queue_id), (0, 0))
            self._keep(queue, count)
            if 0 <= first < queue.first_file:
                wrong.append((first, f"{self.files.directory(queue)}: the first file is missing"))
            # A queue without files (first is -1) had lost them all before, and kept its numbering only.
            if count and first >= 0 and not (self._has_entry(queue, count - 1) and self._looks_good(queue, count)):
                wrong.append((count - 1, f"{self.files.directory(queue)}: entries are missing or damaged"))
            # What is wrong behind the entries that were durable is what a crash does; the scan goes over it.
            serious = [text for first, text in wrong if first < count]
            if serious:
                self._note(*serious)
                self._rebuild(queue)
                start = self.log.min_offset
        same_boot = self.checkpoint.boot_id != b"" and self.checkpoint.boot_id == self.disk.boot_id()
        return start, _NO_LIMIT if same_boot else max(table.derived_offset, self.checkpoint.flushed_offset)

    def _begin_without_table(self) -> tuple[int, int]:
        log = self.log
        whole = True
        for topic, queue_id in list(self.files.stored_queues()):
            queue = self._known(topic, queue_id)
            if queue is not None:
                wrong = [text for _, text in self.files.load(queue)]
                self._note(*wrong)
                self.queues[queue] = log.min_offset
                if wrong:
                    self._rebuild(queue)
                    whole = False
        log_end = (max(log.segments) + 1) * log.segment_size if log.segments else 0
        mark = self._dispatched_end(log_end) if self.report.clean else self._vouched_segment()
        small = log_end - log.min_offset <= _SCAN_ALL_UP_TO
        start = log.min_offset if small or not whole else max(mark, log.min_offset)
        for queue in self.queues:
            self.queues[queue] = start
            self._keep(queue, self._count_below(queue, start))
        return start, mark

    def _dispatched_end(self, log_end: int) -> int:
        """Where the record of the last consume-queue entry ends."""
        end = self.log.min_offset
        for queue in self.queues:
            count = self._count_below(queue, log_end)
            entry = self.files.entry(queue, count - 1) if count else None
            if entry is not None and entry[1] != ABSENT_SIZE:
                end = max(end, min(entry[0] + entry[1], log_end))
        return end

    def _vouched_segment(self) -> int:
        """The newest segment whose first record is old enough for the checkpoint to vouch for everything before it."""
        for number in sorted(self.log.segments, reverse=True):
            base = number * self.log.segment_size
            first = self._scan_one(base)
            if len(first) and 0 < int(first.store_ms[0]) <= self.checkpoint.min_ms:
                return base
        return self.log.min_offset

    def _open_index(self, start: int) -> int:
        """Opens the key index; returns from which log offset on messages have to be added."""
        index, table = self.index, self.table
        if index is None:
            return _NO_LIMIT
        names = set(self.disk.listdir(os.path.join(self.root, "index")))
        self._note(*index.open(clean=self.report.clean, trusted_ms=self.checkpoint.index_msg_ms))
        if table is None:
            if start == self.log.min_offset and not self.report.clean:
                index.truncate_to(0)  # the whole log is read anyway: rather too much than a file that nobody misses
            return self._last_indexed(index)
        missing = [name for name in table.index_files if name not in names]
        if missing:
            self._note(f"index files are missing, the index is made again: {', '.join(missing)}")
            index.truncate_to(0)
            return self.log.min_offset
        if index.next_offset < table.index_last_offset:
            return self._last_indexed(index)
        if index.next_offset == table.index_last_offset and table.index_files:
            # In doubt the index dropped its last message. The later ones, up to where the table speaks of, had no keys.
            index.add_scan(self._scan_one(index.next_offset), self.now_ms)
        return max(table.derived_offset, self.log.min_offset)

    def _last_indexed(self, index: KeyIndex) -> int:
        """The last record that is in the index: a place to begin a scan, unlike `next_offset`, which need not begin a record."""
        return max(index.last_offset, self.log.min_offset) if index.file_names else self.log.min_offset

    def _lost_end(self) -> int:
        """Where to go on at least when the segment in which the log ended is not there any more; 0 in the ordinary case.

        Log offsets are not used twice, and queues keep their numbering: appends begin with a new segment behind everything.
        """
        if self.table is None or self.group_mark is not None:
            return 0
        size = self.log.segment_size
        known_end = max(self.table.derived_offset, self.checkpoint.flushed_offset)
        if known_end == 0 or (known_end <= self.log.min_offset and self.log.segments):
            return 0
        if (known_end - 1) // size in self.log.segments:
            return 0
        end = -(-known_end // size) * size
        if self.log.segments:
            end = max(end, (max(self.log.segments) + 1) * size)
        self._note(f"the commit log ended at {known_end} and the file with that place is gone; new messages begin at {end}")
        return end

    # Scanning

    def _scan_until_complete(self, start: int, mark: int) -> int:
        """Scans; when a queue turns out to have lost entries, once more from the beginning for that queue."""
        while True:
            lost: set[ConsumeQueue] = set()
            end = self._scan(start, mark, lost)
            self._feed(lost)
            if not lost:
                return end
            start = self.log.min_offset
            for queue in lost:
                self._note(f"{self.files.directory(queue)}: entries are missing, made again from the log")
                self._rebuild(queue)

    def _scan(self, start: int, mark: int, lost: set[ConsumeQueue]) -> int:
        """Takes every readable record from `start` on; returns the end of the log, and in `lost` queues that lost entries."""
        report, log = self.report, self.log
        report.damaged.clear()
        position, length = start, _CHUNK
        while True:
            segment = log.segment_at(position)
            if (
                segment is None
                and position % log.segment_size == 0
                and not any(n * log.segment_size > position for n in log.segments)
            ):
                return position  # the log ends with a full segment
            if segment is not None:
                result = self._scan_at(position, length, mark)
                length = _CHUNK
                if len(result):
                    self._take(result, lost)
                    report.records += len(result)
                    report.last_record_offset = int(result.offset[-1])
                    report.last_store_ms = int(result.store_ms[-1])
                position += result.end
                report.scanned_bytes += result.end
                if result.stop is Stop.END and max(result.needed, BLANK_SIZE) <= segment.end - position:
                    length = max(_CHUNK, result.needed)
                    continue
                if result.stop is Stop.BLANK and self._blank_at(position) == segment.end - position:
                    position = segment.end
                    continue
            found = next_record(log, position, mark, self.check_crc) if position < mark else None
            if found is None:
                return position
            if self.group_mark is not None:
                report.damaged.append((position, found))
                return position
            report.damaged.append((position, found))
            self._note(f"the commit log cannot be read from {position} to {found}; the messages there are lost")
            position = found

    def _scan_at(self, position: int, length: int, mark: int = _NO_LIMIT) -> ScanResult:
        data = self.log.read(position, length)
        result = scan(data, position, check_crc=self.check_crc, delay_levels_ms=self.delay_levels_ms)
        if position + result.end > mark:
            torn = first_torn(data, position, result, mark)
            if torn is not None:
                result = scan(data[:torn], position, check_crc=self.check_crc, delay_levels_ms=self.delay_levels_ms)
                result.stop = Stop.BAD_CRC
        return result

    def _scan_one(self, position: int) -> ScanResult:
        """The record at this place, alone."""
        data = self.log.read(position, BLANK_SIZE)
        size = BLANK.unpack(data)[0] if len(data) == BLANK_SIZE else 0
        data = self.log.read(position, max(0, size))
        return scan(data, position, check_crc=self.check_crc, delay_levels_ms=self.delay_levels_ms)

    def _blank_at(self, position: int) -> int:
        data = self.log.read(position, BLANK_SIZE)
        size, magic = BLANK.unpack(data) if len(data) == BLANK_SIZE else (0, 0)
        return int(size) if magic == MAGIC_BLANK else -1

    def _take(self, result: ScanResult, lost: set[ConsumeQueue]) -> None:
        """Gives records to the index, and to the queues when there are many: one step per queue, not one per queue and chunk."""
        if self.index is not None:
            self.index.add_scan(result, self.now_ms)
        topics = np.array([self.topic_ids.setdefault(topic, len(self.topic_ids)) for topic in result.topics], np.int64)
        picked = np.flatnonzero((result.sys_flag & NOT_DISPATCHED) == 0)
        entries = np.empty(len(picked), _ENTRY_TYPE)
        entries["offset"] = result.offset[picked]
        entries["size"] = result.size[picked]
        entries["tags_code"] = result.tags_code[picked]
        keys = (topics[result.topic_id[picked]] << 32) | (result.queue_id[picked] & 0xFFFFFFFF)
        # As plain bytes: joining arrays of records would turn their fields into the machine's byte order.
        self.waiting.append((keys, result.queue_offset[picked], result.offset[picked], entries.view(f"V{UNIT}")))
        if sum(len(waiting[0]) for waiting in self.waiting) >= _FEED:
            self._feed(lost)

    def _feed(self, lost: set[ConsumeQueue]) -> None:
        """Gives the queues what waits for them."""
        if not self.waiting:
            return
        keys, queue_offsets, offsets, entries = (np.concatenate(column) for column in zip(*self.waiting, strict=True))
        self.waiting.clear()
        order = np.argsort(keys, kind="stable")
        keys, queue_offsets, offsets = keys[order], queue_offsets[order], offsets[order]
        data = entries[order].tobytes()
        topics = list(self.topic_ids)
        bounds = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
        for begin, end in itertools.pairwise(bounds):
            if begin == end:
                continue
            key = int(keys[begin])
            queue_id = (key & 0xFFFFFFFF) - ((key & 0x80000000) << 1)
            queue = self._known(topics[key >> 32], queue_id)
            if queue is not None and queue not in lost:
                self._extend(queue, queue_offsets[begin:end], offsets[begin:end], data[begin * UNIT : end * UNIT], lost)

    def _extend(
        self, queue: ConsumeQueue, queue_offsets: IntArray, offsets: IntArray, data: bytes, lost: set[ConsumeQueue]
    ) -> None:
        """Adds the entries of a run of records of one queue, in log order."""
        since = self.queues.setdefault(queue, self.log.min_offset)
        if int(offsets[0]) < since:
            skipped = int(np.searchsorted(offsets, since))
            if skipped == len(offsets):
                return
            queue_offsets, offsets, data = queue_offsets[skipped:], offsets[skipped:], data[skipped * UNIT :]
        first, count = int(queue_offsets[0]), len(queue_offsets)
        if int(queue_offsets[-1]) - first == count - 1 and (np.diff(queue_offsets) == 1).all():
            known = queue.next_offset - first
            if known > 0 and self._same_record(queue, first, int(offsets[0])):
                data = data[known * UNIT :]
                known = 0
            if known == 0:
                self._append(queue, data)
                return
        for i in range(count):
            if not self._extend_by_one(queue, int(queue_offsets[i]), int(offsets[i]), data[i * UNIT : (i + 1) * UNIT]):
                lost.add(queue)
                return

    def _extend_by_one(self, queue: ConsumeQueue, queue_offset: int, offset: int, entry: bytes) -> bool:
        """False when the queue must have lost entries that were before this record."""
        gap = queue_offset - queue.next_offset
        if gap < 0:
            if self._same_record(queue, queue_offset, offset):
                return True
            missing = queue_offset < queue.lowest_entry()
            if missing and self.queues[queue] > self.log.min_offset:
                return False
            if not missing and queue_offset != 0:
                self._complain(queue, f"record at {offset} claims queue offset {queue_offset}, taken already; left out")
                return True
            # Its first files are missing, or the topic was deleted and made again.
            self.files.remove_all(queue)
            queue.reset(queue_offset)
        elif gap > 0:
            empty = queue.lowest_entry() == queue.max_offset
            if self.queues[queue] > self.log.min_offset:
                return False
            if empty:
                self.files.remove_all(queue)
                queue.reset(queue_offset)
            elif gap > _LARGEST_GAP:
                self._complain(queue, f"record at {offset} claims queue offset {queue_offset}, far ahead; left out")
                return True
            else:
                self._complain(queue, f"queue offsets {queue.next_offset} to {queue_offset - 1} have no message")
                self._append(queue, ENTRY.pack(offset, ABSENT_SIZE, 0) * gap)
        self._append(queue, entry)
        return True

    def _append(self, queue: ConsumeQueue, entries: bytes) -> None:
        if not entries:
            return
        queue.tail += entries
        queue.next_offset += len(entries) // UNIT
        queue.max_offset = queue.next_offset
        self.changed.add(queue)
        if len(queue.tail) > _FLUSH_TAIL:
            self.files.flush(queue)

    def _same_record(self, queue: ConsumeQueue, queue_offset: int, offset: int) -> bool:
        entry = queue.entry(queue_offset)
        return entry is not None and entry[0] == offset and entry[1] != ABSENT_SIZE

    # Queues

    def _known(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        try:
            return self.queue_of(topic, queue_id)
        except ValueError as error:
            if str(error) not in self.report.problems:
                self._note(str(error))
            return None

    def _keep(self, queue: ConsumeQueue, count: int) -> None:
        """The first `count` entries are good; nothing is known of later ones."""
        queue.next_offset = queue.max_offset = queue.written = queue.tail_start = count
        queue.tail = bytearray()

    def _has_entry(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        entry = self.files.entry(queue, queue_offset)
        if entry is None or entry[1] <= 0:
            return False
        self.last_end[queue] = entry[0] + entry[1] if entry[1] != ABSENT_SIZE else entry[0]
        return True

    def _looks_good(self, queue: ConsumeQueue, count: int) -> bool:
        """After a crash: whether log offsets ascend along the queue's newest file, unless there are too many."""
        base = (count - 1) - (count - 1) % self.files.per_file
        if self.report.clean or self.looked_at + count - base > _LOOK_AT:
            return True
        self.looked_at += count - base
        entries = np.frombuffer(self.files.read(queue, base, count - base), _ENTRY_TYPE)
        return bool((entries["size"] > 0).all() and (np.diff(entries["offset"]) >= 0).all())

    def _rebuild(self, queue: ConsumeQueue) -> None:
        """The queue's files cannot be relied on: they go, and the whole log is asked."""
        self.files.remove_all(queue)
        queue.reset(0)
        self.queues[queue] = self.log.min_offset
        self.report.rebuilt_queues += 1
        self.changed.add(queue)

    def _count_below(self, queue: ConsumeQueue, offset: int) -> int:
        """How many entries there are whose records lie below a log offset: the queue offset of the first that does not."""
        if queue.first_file < 0:
            return 0
        low, high = queue.first_file, queue.last_file + self.files.per_file
        while low < high:
            middle = (low + high) // 2
            entry = self.files.entry(queue, middle)
            if entry is not None and entry[1] > 0 and 0 <= entry[0] < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _settle_queues(self, end: int) -> None:
        for queue in self.queues:
            self._keep_numbering(queue)
            if self.last_end.get(queue, 0) > end or queue in self.changed:
                self._cut_queue(queue, end)
            if queue in self.changed or not self.report.clean or self.table is None:
                self.files.flush(queue)
                self.files.clear_from(queue, queue.max_offset)
            queue.correct_min(self.log.min_offset if self.log.segments else end)

    def _keep_numbering(self, queue: ConsumeQueue) -> None:
        """A queue whose messages are all gone goes on counting where the table says."""
        _, counted = self.table.queues.get((queue.topic, queue.queue_id), (0, 0)) if self.table is not None else (0, 0)
        if queue.max_offset == 0 and counted and queue not in self.last_end:
            queue.reset(counted)

    def _cut_queue(self, queue: ConsumeQueue, end: int) -> None:
        """Takes entries back whose records do not lie below `end` as a whole."""
        count = queue.max_offset
        entry = queue.entry(count - 1)
        if entry is not None and entry[0] >= end:
            count = queue.first_at_or_after(end)
            entry = queue.entry(count - 1)
        if entry is not None and entry[1] != ABSENT_SIZE and entry[0] + entry[1] > end:
            count -= 1
        if count == queue.max_offset:
            return
        if count >= queue.tail_start:
            del queue.tail[(count - queue.tail_start) * UNIT :]
        else:
            queue.tail = bytearray()
            queue.tail_start = count
        queue.next_offset = queue.max_offset = count
        queue.written = min(queue.written, count)
        self.changed.add(queue)

    def _complain(self, queue: ConsumeQueue, text: str) -> None:
        self._note(f"{queue.topic} queue {queue.queue_id}: {text}")

    def _note(self, *problems: str) -> None:
        """Every problem is counted, not every one is told: ten thousand queues may have the same."""
        self.noted += len(problems)
        self.report.problems += problems[: max(0, _TOLD - len(self.report.problems))]

    # The end of the log

    def _cut(self, end: int) -> None:
        report = self.report
        report.cut_bytes, report.cut_path = cut_log(
            self.disk, self.log, end, os.path.join(self.root, "commitlog_cut"), self.now_ms
        )
        if report.cut_path is not None:
            self._note(
                f"{report.cut_bytes} bytes behind the end {end} of the commit log are no records; saved to {report.cut_path}"
            )
