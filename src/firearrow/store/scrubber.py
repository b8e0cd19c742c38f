"""Slow verification of the whole log and of the queue entries that belong to it, in the background.

One pass reads every record that this process has not written recently, and compares

- the record with its checksum and its position,
- its queue entry, with the tags code, with the record.

Damaged parts of the log are reported once (damage.py). A wrong queue entry whose record is intact is written again. The next pass
begins a day after the previous one. Consumers do not depend on it: pulls verify what they read. The scrubber finds damage before
a consumer does, while replicas still have the messages, and entries that hide messages from filters.

The housekeeper reads and scans `scrubBytesPerSecond`, in steps of at most 1 MiB (4 ms). The event loop compares the queue
entries.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from firearrow.config.delay_levels import parse_delay_levels
from firearrow.store.commitlog.log import CommitLog
from firearrow.store.commitlog.scan import ScanResult, Stop, scan
from firearrow.store.commitlog.segment import segment_name
from firearrow.store.commitlog.truncation import next_record
from firearrow.store.consume_queue import UNIT, ConsumeQueue, ConsumeQueues
from firearrow.store.damage import DamageRegistry
from firearrow.store.filesystem import Disk
from firearrow.store.queue_recovery import queue_entries, runs_by_queue
from firearrow.store.settings import StoreSettings
from firearrow.store.threads import Housekeeper
from firearrow.wire.record import BLANK_BYTES

_STEP = 1024 * 1024  # bytes
_SEARCH = 4 * 1024 * 1024  # bytes in which the next intact record is searched in one step
_PASS_INTERVAL_MS = 24 * 3_600_000


@dataclass(slots=True)
class _Step:
    """A part of the log that the housekeeper has scanned. `result`: None if its segment does not exist."""

    position: int
    result: ScanResult | None


class Scrubber:
    """`check` is called often and does one step when it is due."""

    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        log: CommitLog,
        queues: ConsumeQueues,
        damage: DamageRegistry,
        housekeeper: Housekeeper,
        report: Callable[[str], None],
    ) -> None:
        self.verified_bytes = 0
        self.passes = 0
        self._settings = settings
        self._disk = disk
        self._log = log
        self._queues = queues
        self._damage = damage
        self._housekeeper = housekeeper
        self._report = report
        self._delay_levels_ms = parse_delay_levels(settings.message_delay_level)
        self._position = 0
        self._needed = 0  # bytes of the next record, as far as known
        self._next_ms = 0
        self._busy = False
        self._done: _Step | None = None

    def begin(self, now_ms: int) -> None:
        self._next_ms = now_ms

    def check(self, now_ms: int, end: int) -> None:
        """Apply the last step, and begin the next one if it is due. `end`: the log is verified up to here."""
        step, self._done = self._done, None
        if step is not None:
            self._busy = False
            try:
                self._apply(step, end)
            except OSError as error:
                # Reported once in a pass: the next step would fail in the same file.
                self._position = self._segment_end(step.position)
                self._report(f"log from {step.position} not verified up to {self._position}: {error}")
        rate = self._settings.scrub_bytes_per_second
        if self._busy or now_ms < self._next_ms or not rate:
            return
        self._position = max(self._position, self._log.min_offset)
        if self._position >= end:
            if self._position > self._log.min_offset:
                self.passes += 1
                self._next_ms = now_ms + _PASS_INTERVAL_MS
                self._position = 0
            return
        position = self._position
        length = min(max(min(rate, _STEP), self._needed), end - position)
        self._next_ms = now_ms + 1000 * length // rate
        self._busy = True
        self._housekeeper.submit(lambda: self._scan(position, length))

    def _scan(self, position: int, length: int) -> None:
        """Scan a part of the log. Housekeeper, with a descriptor of its own, because the event loop may close the segment's."""
        base = position - position % self._log.segment_size
        path = os.path.join(self._log.directory, segment_name(base))
        result = None
        try:
            with closing(self._disk.open(path)) as file:
                data = file.pread(min(length, base + self._log.segment_size - position), position - base)
            result = scan(data, position, check_crc=True, delay_levels_ms=self._delay_levels_ms)
        except FileNotFoundError:
            pass
        finally:
            self._done = _Step(position, result)

    def _segment_end(self, position: int) -> int:
        return position - position % self._log.segment_size + self._log.segment_size

    def _apply(self, step: _Step, end: int) -> None:
        position, result = step.position, step.result
        segment_end = self._segment_end(position)
        self._needed = 0
        if position < self._log.min_offset or self._log.segment_at(position) is None or result is None:
            self._position = segment_end  # deleted meanwhile, or reported as missing when the store was opened
            return
        self._compare(result)
        self.verified_bytes += result.end
        self._position = position = position + result.end
        if result.stop is Stop.BLANK:
            self._position = segment_end
        elif result.stop is Stop.END and max(result.needed, BLANK_BYTES) <= min(segment_end, end) - position:
            self._needed = result.needed
        elif position < min(segment_end, end):
            limit = min(segment_end, end, position + _SEARCH)
            found = next_record(self._log, position, limit, check_crc=True)
            self._position = found or limit
            self._damage.report_range(position, self._position)

    def _compare(self, result: ScanResult) -> None:
        """Compare the records of a scan with their queue entries."""
        if not len(result):
            return
        picked, keys, entries = queue_entries(result, np.arange(len(result.topics)))
        order = np.argsort(keys, kind="stable")
        data = entries[order].tobytes()
        queue_offsets = result.queue_offset[picked[order]]
        for topic_number, queue_id, begin, stop in runs_by_queue(keys[order]):
            queue = self._queues.get((result.topics[topic_number], queue_id))
            if queue is None:
                continue  # the topic was deleted
            breaks = np.flatnonzero(np.diff(queue_offsets[begin:stop]) != 1) + 1 + begin
            for first, last in zip([begin, *breaks.tolist()], [*breaks.tolist(), stop], strict=True):
                self._compare_run(queue, int(queue_offsets[first]), data[first * UNIT : last * UNIT])

    def _compare_run(self, queue: ConsumeQueue, offset: int, expected: bytes) -> None:
        skipped = max(queue.lowest_entry() - offset, 0)
        offset, expected = offset + skipped, expected[skipped * UNIT :]
        count = min(len(expected) // UNIT, queue.written - offset)
        if count <= 0:
            return
        stored = queue.files.read_stored(queue, offset, count)
        expected = expected[: count * UNIT]
        if stored == expected:
            return
        places = [(offset + i, slice(i * UNIT, (i + 1) * UNIT)) for i in range(len(stored) // UNIT)]
        wrong = {number: expected[place] for number, place in places if stored[place] != expected[place]}
        self._damage.replace_entries(queue, wrong)
