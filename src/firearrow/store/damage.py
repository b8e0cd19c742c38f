"""Messages that cannot be read: reports, counters, and the repair of queue entries from the log.

A pull that meets a record or a queue entry that is not intact (commitlog/verification.py) calls `examine`. If the record is
intact and only its entry is damaged, the entry is found again in the log and written to its file. Otherwise the message is
skipped: the consumer continues behind it. Every damaged message is reported once, with topic, queue offsets and log range.

`ranges` are the damaged parts of the log found so far, which a replica can copy from another broker (ReplicaLog.repair).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np

from firearrow.config.delay_levels import parse_delay_levels
from firearrow.store.commitlog.log import CommitLog
from firearrow.store.commitlog.scan import ScanResult, Stop, scan
from firearrow.store.commitlog.truncation import next_record
from firearrow.store.commitlog.verification import count_intact
from firearrow.store.consume_queue import ABSENT_SIZE, ENTRY, UNIT, ConsumeQueue
from firearrow.store.queue_recovery import queue_entries
from firearrow.store.settings import StoreSettings
from firearrow.wire.record import BLANK_BYTES, FIXED_BYTES_V1

_NEIGHBOURS = 64  # entries before and behind a damaged one among which an intact one is searched
_SEARCH_LIMIT = 16 * 1024 * 1024  # bytes of log between them; scanning takes about 50 ms
_CHUNK = 4 * 1024 * 1024
_KNOWN_LIMIT = 100_000


class Unreadable(NamedTuple):
    """A message whose record is not intact where its queue entry says."""

    queue_offset: int
    offset: int
    size: int


class DamageRegistry:
    """`confirmed` returns the end of the visible log. `on_problem` receives reports, `on_damage` is called for each new range."""

    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog,
        confirmed: Callable[[], int],
        on_problem: Callable[[str], None],
        on_damage: Callable[[], None],
    ) -> None:
        self.messages = 0  # skipped since the start, each counted once
        self.repaired_entries = 0
        self.ranges: dict[int, int] = {}  # start of a damaged part of the log: its end
        self._log = log
        self._confirmed = confirmed
        self._on_problem = on_problem
        self._on_damage = on_damage
        self._delay_levels_ms = parse_delay_levels(settings.message_delay_level)
        self._known: set[tuple[str, int, int, int]] = set()  # (topic, queue id, queue offset, log offset)

    def examine(self, queue: ConsumeQueue, unreadable: list[Unreadable]) -> bool:
        """Report messages of a pull that cannot be read. Return True if entries were repaired, so that reading again helps."""
        new = [one for one in unreadable if self._learn((queue.topic, queue.queue_id, one.queue_offset, one.offset))]
        if not new:
            return False
        first, last = new[0].queue_offset, new[-1].queue_offset
        numbers = {one.queue_offset for one in new}
        found = {number: entry for number, entry in self._search(queue, first, last) if number in numbers}
        for number, entry in found.items():
            queue.files.rewrite(queue, number, entry)
        self._entries_repaired(queue, found)
        lost = [one for one in new if one.queue_offset not in found]
        if lost:
            self._report(queue, lost)
        return bool(found)

    def replace_entries(self, queue: ConsumeQueue, entries: dict[int, bytes]) -> None:
        """Replace stored entries that differ from intact records of their queue offsets, unless they refer to others.

        A topic that was deleted and created again has two intact records of a queue offset in the log.
        """
        replaced = []
        for number, entry in entries.items():
            stored = queue.entry(number)
            if stored is None or (stored[0] != ENTRY.unpack(entry)[0] and self._is_intact(queue, number, stored)):
                continue
            queue.files.rewrite(queue, number, entry)
            replaced.append(number)
        self._entries_repaired(queue, replaced)

    def _entries_repaired(self, queue: ConsumeQueue, numbers: Collection[int]) -> None:
        if numbers:
            self.repaired_entries += len(numbers)
            self._on_problem(
                f"{queue.topic} queue {queue.queue_id}: {len(numbers)} damaged entries of the consume queue between "
                f"{min(numbers)} and {max(numbers)} were repaired from the commit log"
            )

    def report_range(self, start: int, end: int) -> None:
        """Report a part of the log without an intact record, once."""
        if self.ranges.get(start, -1) < end:
            self.add_range(start, end)
            self._on_problem(f"the commit log is damaged from {start} to {end}: the messages there cannot be read")

    def range_repaired(self, start: int, end: int) -> None:
        """Take note that the log in [start, end), the beginning of a damaged range, is intact again."""
        rest = self.ranges.pop(start, end)
        if rest > end:
            self.ranges[end] = rest
        self._known = {key for key in self._known if not start <= key[3] < end}

    @property
    def damaged_bytes(self) -> int:
        return sum(end - start for start, end in self.ranges.items())

    def add_range(self, start: int, end: int) -> None:
        """Take note of a damaged part of the log."""
        if self.ranges.get(start, -1) < end and len(self.ranges) < _KNOWN_LIMIT:
            self.ranges[start] = end
            self._on_damage()

    def _learn(self, key: tuple[str, int, int, int]) -> bool:
        if key in self._known or len(self._known) >= _KNOWN_LIMIT:
            return False
        self._known.add(key)
        return True

    def _report(self, queue: ConsumeQueue, lost: list[Unreadable]) -> None:
        self.messages += len(lost)
        places = [one for one in lost if one.size >= FIXED_BYTES_V1 and self._log.min_offset <= one.offset < self._confirmed()]
        for one in places:
            self.add_range(one.offset, one.offset + one.size)
        where = "their entries in the consume queue are damaged"
        if places:
            where = f"commit log from {places[0].offset} to {places[-1].offset + places[-1].size}"
        self._on_problem(
            f"{queue.topic} queue {queue.queue_id}: {len(lost)} messages from queue offset {lost[0].queue_offset} to "
            f"{lost[-1].queue_offset} are damaged and skipped ({where})"
        )

    # Searching entries in the log

    def _search(self, queue: ConsumeQueue, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield queue offset and entry of the intact records that belong to queue offsets from `first` to `last`."""
        start, end = self._end_before(queue, first), self._start_behind(queue, last)
        if end - start > _SEARCH_LIMIT:
            return
        for result in self._scan(start, end):
            picked, _, entries = queue_entries(result, np.arange(len(result.topics)))
            data = entries.tobytes()
            for i, number in enumerate(picked.tolist()):
                queue_offset = int(result.queue_offset[number])
                of_queue = (result.topics[int(result.topic_id[number])], int(result.queue_id[number])) == (
                    queue.topic,
                    queue.queue_id,
                )
                if first <= queue_offset <= last and of_queue:
                    yield queue_offset, data[i * UNIT : (i + 1) * UNIT]

    def _end_before(self, queue: ConsumeQueue, number: int) -> int:
        for before in range(number - 1, max(number - 1 - _NEIGHBOURS, queue.lowest_entry() - 1), -1):
            entry = queue.entry(before)
            if entry is not None and self._is_intact(queue, before, entry):
                return entry[0] + entry[1]
        return self._log.min_offset

    def _start_behind(self, queue: ConsumeQueue, number: int) -> int:
        for behind in range(number + 1, min(number + 1 + _NEIGHBOURS, queue.max_offset)):
            entry = queue.entry(behind)
            if entry is not None and self._is_intact(queue, behind, entry):
                return entry[0]
        return self._confirmed()

    def _is_intact(self, queue: ConsumeQueue, number: int, entry: tuple[int, int, int]) -> bool:
        offset, size, _ = entry
        if size == ABSENT_SIZE or size < FIXED_BYTES_V1 or not self._log.min_offset <= offset < self._confirmed():
            return False
        return count_intact(self._log.read(offset, size), ENTRY.pack(*entry), queue, number) == 1

    def _scan(self, start: int, end: int) -> Iterator[ScanResult]:
        """Yield the intact records of the log in [start, end), with gaps where it is damaged."""
        log, position, length = self._log, start, _CHUNK
        while position < end:
            segment = log.segment_at(position)
            stop = Stop.ZERO
            if segment is not None:
                result = scan(log.read(position, length), position, check_crc=True, delay_levels_ms=self._delay_levels_ms)
                yield result
                position += result.end
                stop = result.stop
                if stop is Stop.BLANK:
                    position = segment.end
                    continue
                if stop is Stop.END and max(result.needed, BLANK_BYTES) <= segment.end - position:
                    length = max(_CHUNK, result.needed)
                    continue
            found = next_record(log, position, end, check_crc=True)
            if found is None:
                return
            position, length = found, _CHUNK
