"""Recovery: opening a store directory in any state.

The commit log is the only source of truth. Recovery finds its end and makes queues and index agree with it:

1. Load segments, queue files, the queue table and the index.
2. Scan the log from the offset below which everything derived is known to be durable (the queue table's offset; after a clean
   stop the end of the log). A queue or index file that is missing, short or contradicts the table moves the start to the
   beginning of the log.
3. Add the records found to the queues (queue_recovery.py) and the index. Existing entries are compared and kept.
   Records of deleted topics are left out.
4. The log ends where no record follows. Bytes behind the end are saved to `commitlog_cut/` and zeroed, so that later scans cannot
   mistake them for records. Queue entries behind the end are removed.

An unreadable record ends the log only above the *durable end* (the checkpoint's flushed offset; unlimited if the machine has not
been restarted since). Below it the record had been durable and is damaged now: the scan continues with the next readable record,
the bytes stay in place, and the queue gets an absent entry. Above it, because BODYCRC covers only the body, a record whose topic
or properties have a sector of zeros also counts as torn.

A missing `abort` file does not prove a clean stop, because operators delete it. The queue table of a clean stop has the end of
the log; if the log continues behind it, the store is recovered as after a crash.

A segment that is missing in the middle of the log is reported with its range. A member of an elected group ends its log there,
and its leader sends the rest again. On other brokers the messages are lost, and reads continue behind them.

Directories of an Apache broker have no queue table. Up to 4 GiB of log are scanned completely. Larger logs are scanned from where
Apache would start: after a clean stop from the end of the consume queues, after a crash from the newest segment that the
checkpoint covers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from firearrow.config.delay_levels import parse_delay_levels
from firearrow.store.checkpoint import Checkpoint
from firearrow.store.commitlog.log import CommitLog
from firearrow.store.commitlog.scan import ScanResult, Stop, scan
from firearrow.store.commitlog.truncation import first_torn, missing_ranges, next_record, truncate_log
from firearrow.store.consume_queue import ConsumeQueues
from firearrow.store.group_mark import GroupMark
from firearrow.store.key_index.index import KeyIndex
from firearrow.store.queue_recovery import QueueRecovery
from firearrow.store.queue_table import QueueTable, load_queue_table
from firearrow.store.settings import StoreSettings
from firearrow.wire.record import BLANK_BYTES, MAGIC_BLANK, SIZE_AND_MAGIC

_CHUNK = 16 * 1024 * 1024
_SCAN_ALL_UP_TO = 4 * 1024 * 1024 * 1024
_NO_LIMIT = 1 << 62
_PROBLEM_LIMIT = 50


@dataclass(slots=True)
class RecoveryReport:
    """Result of a recovery. `problems` describes everything unexpected."""

    clean: bool  # the last stop was clean
    log_min: int = 0
    log_end: int = 0
    confirmed: int = 0  # queues and index end here
    scanned_bytes: int = 0
    records: int = 0  # found by the scan
    last_record_offset: int = 0
    last_store_ms: int = 0
    cut_bytes: int = 0  # behind the end of the log, saved to cut_path
    cut_path: str | None = None
    damaged: list[tuple[int, int]] = field(default_factory=list)  # unreadable log ranges that had been durable
    rebuilt_queues: int = 0  # queues rebuilt from the whole log
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0
    table: QueueTable | None = None

    def note(self, *problems: str) -> None:
        """Add problems. All are counted but not all are kept: ten thousand queues may have the same one."""
        self.problem_count += len(problems)
        self.problems += problems[: max(0, _PROBLEM_LIMIT - len(self.problems))]


class StoreRecovery:
    """One recovery of a store directory.

    `mark`: of a member of an elected group. Its log ends before the first unreadable record, and its queues and index end at the
    confirmed offset.
    """

    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        checkpoint: Checkpoint,
        *,
        clean: bool,
        now_ms: int,
        mark: GroupMark | None = None,
    ) -> None:
        self._disk = log.disk
        self._log = log
        self._files = queues.files
        self._index = index
        self._checkpoint = checkpoint
        self._now_ms = now_ms
        self._mark = mark
        self._root = settings.store_path_root_dir
        self._check_crc = settings.check_crc_on_recover
        self._delay_levels_ms = parse_delay_levels(settings.message_delay_level)
        self._report = RecoveryReport(clean)
        self._table: QueueTable | None = None
        self._queues = QueueRecovery(log, queues, self._report.note)

    def run(self) -> RecoveryReport:
        report, log = self._report, self._log
        self._files.check_size(self._checkpoint.queue_file_size)
        report.note(*log.load(self._checkpoint.segment_size))
        gaps = missing_ranges(log)
        for start, end in gaps:
            report.note(f"commit-log files are missing between {start} and {end}: the messages in {end - start} bytes are lost")
        self._table = report.table = self._load_table(complete=not gaps)
        self._queues.clean = report.clean = report.clean and not self._has_grown()
        if self._table is None:
            start, durable = self._begin_without_table()
        else:
            start, durable = self._begin_with_table(self._table)
        index_start = self._open_index(start)
        end = max(self._scan_until_complete(min(start, index_start), durable), self._end_of_lost_segment())
        self._truncate(end)
        report.log_min = log.min_offset if log.segments else end
        report.log_end = end
        confirmed = report.confirmed = self._confirmed(end)
        self._queues.settle(confirmed, self._table)
        report.rebuilt_queues = self._queues.rebuilt
        if self._index is not None and self._index.next_offset > confirmed:
            self._index.truncate_to(confirmed)
        if report.problem_count > len(report.problems):
            report.problems.append(f"and {report.problem_count - len(report.problems)} more problems of this kind")
        return report

    def _has_grown(self) -> bool:
        """Return whether the log continues behind the end that the last clean stop has recorded."""
        table = self._table
        if table is None:
            return False
        end = table.stopped
        if end is None:
            # Saved while the store was open, or by a version that did not record the end. In an elected group the log of a
            # clean stop may continue behind the confirmed offset.
            end = table.derived_offset if self._mark is None else max(table.derived_offset, self._checkpoint.flushed_offset)
        grown = any(self._log.read(end, BLANK_BYTES))
        if grown and self._report.clean:
            self._report.note(
                f"the store was not stopped cleanly, although its abort file is missing: the commit log continues behind {end}; "
                "queues and index are checked as after a crash"
            )
        return grown

    def _load_table(self, *, complete: bool) -> QueueTable | None:
        """Load the queue table. A member ignores it if its whole log must be scanned.

        That is the case when a record was found damaged, or when a file of the log is missing.
        """
        table = load_queue_table(self._disk, os.path.join(self._root, "queueTable"), clean=self._report.clean)
        if table is None or self._mark is None:
            return table
        last = max(table.derived_offset - 1, self._log.min_offset)
        lost = table.derived_offset > 0 and self._log.segment_at(last) is None
        return None if self._mark.damaged or lost or not complete else table

    def _confirmed(self, end: int) -> int:
        """Return the confirmed offset. Everything in derived files was confirmed when they were written."""
        if self._mark is None:
            return end
        derived = self._table.derived_offset if self._table is not None else 0
        return max(min(end, max(self._mark.confirmed, derived)), self._log.min_offset if self._log.segments else 0)

    # Where to start: each method returns (start of the scan, durable end)

    def _begin_with_table(self, table: QueueTable) -> tuple[int, int]:
        derived = max(table.derived_offset, self._log.min_offset)
        intact = self._queues.load_with_table(table, derived)
        return derived if intact else self._log.min_offset, self._durable_end(table.derived_offset)

    def _durable_end(self, known: int) -> int:
        """Return the durable end of the log, which is at least `known`. Unless the machine was restarted, nothing was lost."""
        same_boot = self._checkpoint.boot_id != b"" and self._checkpoint.boot_id == self._disk.boot_id()
        return _NO_LIMIT if same_boot else max(known, self._checkpoint.flushed_offset)

    def _begin_without_table(self) -> tuple[int, int]:
        log = self._log
        intact = self._queues.load_without_table()
        log_end = (max(log.segments) + 1) * log.segment_size if log.segments else 0
        known = self._queues.dispatched_end(log_end) if self._report.clean else self._checkpointed_segment()
        small = log_end - log.min_offset <= _SCAN_ALL_UP_TO
        start = log.min_offset if small or not intact else max(known, log.min_offset)
        self._queues.keep_below(start)
        return start, self._durable_end(known)

    def _checkpointed_segment(self) -> int:
        """Return the start of the newest segment whose first record is covered by the checkpoint."""
        for number in sorted(self._log.segments, reverse=True):
            base = number * self._log.segment_size
            first = self._scan_one(base)
            if len(first) and 0 < int(first.store_ms[0]) <= self._checkpoint.min_ms:
                return base
        return self._log.min_offset

    def _open_index(self, start: int) -> int:
        """Open the key index. Return the log offset from which messages have to be added."""
        index, table = self._index, self._table
        if index is None:
            return _NO_LIMIT
        names = set(self._disk.listdir(os.path.join(self._root, "index")))
        self._report.note(*index.open(clean=self._report.clean, trusted_ms=self._checkpoint.index_msg_ms))
        if table is None:
            if start == self._log.min_offset and not self._report.clean:
                index.truncate_to(0)  # the whole log is read anyway, and without a table a missing file would go unnoticed
            return self._last_indexed(index)
        missing = [name for name in table.index_files if name not in names]
        if missing:
            self._report.note(f"index files are missing, the index is rebuilt: {', '.join(missing)}")
            index.truncate_to(0)
            return self._log.min_offset
        if index.next_offset < table.index_last_offset:
            return self._last_indexed(index)
        if index.next_offset == table.index_last_offset and table.index_files:
            # The index drops its last message in doubt. Later ones, up to the table's offset, had no keys.
            index.add_scan(self._scan_one(index.next_offset), self._now_ms)
        return max(table.derived_offset, self._log.min_offset)

    def _last_indexed(self, index: KeyIndex) -> int:
        """Return the last record in the index. Unlike `next_offset` a record begins there, so that a scan can start."""
        return max(index.last_offset, self._log.min_offset) if index.file_names else self._log.min_offset

    def _end_of_lost_segment(self) -> int:
        """Return the lowest offset to continue at if the segment with the end of the log is missing, otherwise 0.

        Log offsets are not used twice and queues keep their numbering: appends start with a new segment behind everything.
        """
        if self._table is None or self._mark is not None:
            return 0
        size, segments = self._log.segment_size, self._log.segments
        known_end = max(self._table.derived_offset, self._checkpoint.flushed_offset)
        if known_end == 0 or (known_end <= self._log.min_offset and segments):
            return 0
        if (known_end - 1) // size in segments:
            return 0
        end = -(-known_end // size) * size
        if segments:
            end = max(end, (max(segments) + 1) * size)
        self._report.note(
            f"the commit log ended at {known_end} and the file with this offset is missing; new messages begin at {end}"
        )
        return end

    # Scanning

    def _scan_until_complete(self, start: int, durable: int) -> int:
        """Scan the log. Queues that turn out to have lost entries are rebuilt with another scan from the beginning."""
        while True:
            end = self._scan(start, durable)
            if not self._queues.rebuild_incomplete():
                return end
            start = self._log.min_offset

    def _scan(self, start: int, durable: int) -> int:
        """Take every readable record from `start`. Return the end of the log."""
        report, log = self._report, self._log
        report.damaged.clear()
        position, length = start, _CHUNK
        while True:
            segment = log.segment_at(position)
            if segment is None and self._is_end_of_last_segment(position):
                return position
            if segment is not None:
                result = self._scan_at(position, length, durable)
                length = _CHUNK
                self._take(result)
                position += result.end
                if result.stop is Stop.END and max(result.needed, BLANK_BYTES) <= segment.end - position:
                    length = max(_CHUNK, result.needed)
                    continue
                if result.stop is Stop.BLANK and self._blank_at(position) == segment.end - position:
                    position = segment.end
                    continue
            found = next_record(log, position, durable, self._check_crc) if position < durable else None
            if found is None:
                return position
            report.damaged.append((position, found))
            if self._mark is not None:
                return position
            report.note(f"the commit log cannot be read from {position} to {found}; the messages there are lost")
            position = found

    def _is_end_of_last_segment(self, position: int) -> bool:
        size = self._log.segment_size
        return position % size == 0 and not any(number * size > position for number in self._log.segments)

    def _scan_at(self, position: int, length: int, durable: int = _NO_LIMIT) -> ScanResult:
        data = self._log.read(position, length)
        result = scan(data, position, check_crc=self._check_crc, delay_levels_ms=self._delay_levels_ms)
        if position + result.end > durable:
            torn = first_torn(data, position, result, durable)
            if torn is not None:
                result = scan(data[:torn], position, check_crc=self._check_crc, delay_levels_ms=self._delay_levels_ms)
                result.stop = Stop.BAD_CRC
        return result

    def _scan_one(self, position: int) -> ScanResult:
        """Scan a single record."""
        data = self._log.read(position, BLANK_BYTES)
        size = SIZE_AND_MAGIC.unpack(data)[0] if len(data) == BLANK_BYTES else 0
        return self._scan_at(position, max(0, size))

    def _blank_at(self, position: int) -> int:
        """Return the size of a blank, or -1."""
        data = self._log.read(position, BLANK_BYTES)
        size, magic = SIZE_AND_MAGIC.unpack(data) if len(data) == BLANK_BYTES else (0, 0)
        return int(size) if magic == MAGIC_BLANK else -1

    def _take(self, result: ScanResult) -> None:
        report = self._report
        report.scanned_bytes += result.end
        if len(result):
            if self._index is not None:
                self._index.add_scan(result, self._now_ms)
            self._queues.add(result)
            report.records += len(result)
            report.last_record_offset = int(result.offset[-1])
            report.last_store_ms = int(result.store_ms[-1])

    # The end of the log

    def _truncate(self, end: int) -> None:
        report = self._report
        directory = os.path.join(self._root, "commitlog_cut")
        report.cut_bytes, report.cut_path = truncate_log(self._log, end, directory, self._now_ms)
        if report.cut_path is not None:
            report.note(
                f"{report.cut_bytes} bytes behind the end {end} of the commit log are no records; saved to {report.cut_path}"
            )
