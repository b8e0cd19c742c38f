"""Recovery of the consume queues: which entries can be trusted, adding those of scanned records, removing the rest.

A queue takes entries from the log offset `since` on; its entries below are in its files. An entry that contradicts a trusted
queue means that the queue has lost entries. The queue is then rebuilt from the whole log. It keeps the numbering of the queue
table even if its last records are gone, so that no queue offset is used twice.

Records of a deleted topic, below the log offset of its deletion, belong to no queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from firearrow.store.commitlog.log import NOT_DISPATCHED, CommitLog
from firearrow.store.commitlog.scan import ScanResult
from firearrow.store.consume_queue import ABSENT_SIZE, UNIT, ConsumeQueue, ConsumeQueues
from firearrow.store.key_index.hashing import IntArray
from firearrow.store.queue_table import QueueTable

_FLUSH_TAIL = 64 * 1024
_BATCH = 250_000  # records
_CHECK_LIMIT = 20_000_000  # queue entries
_LARGEST_GAP = 1_000_000  # entries; a queue offset further ahead is itself damaged
_ENTRY_TYPE = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


class QueueRecovery:
    """`note` receives descriptions of problems."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, note: Callable[..., None], *, clean: bool = False) -> None:
        self.clean = clean  # the last stop was clean
        self.rebuilt = 0  # queues
        self._log = log
        self._queues = queues
        self._files = queues.files
        self._note = note
        self._since: dict[ConsumeQueue, int] = {}  # every queue, and the log offset from which it takes entries
        self._last_end: dict[ConsumeQueue, int] = {}  # end of the record of the last stored entry
        self._changed: set[ConsumeQueue] = set()
        self._incomplete: set[ConsumeQueue] = set()
        self._bad_names: set[str] = set()
        self._rebuilt: set[ConsumeQueue] = set()
        self._dropped: dict[str, int] = {}
        self._checked = 0  # entries
        self._topic_ids: dict[str, int] = {}
        # Records to add: key of the queue, queue offset, log offset, entry
        self._batches: list[tuple[IntArray, IntArray, IntArray, npt.NDArray[Any]]] = []

    # Loading

    def load_with_table(self, table: QueueTable, derived: int) -> bool:
        """Load the queues. The table covers the log below `derived`. Return False if a queue must be rebuilt."""
        intact = True
        self._dropped = table.dropped
        stored = set(self._files.stored_queues())
        for topic, queue_id in sorted(stored | set(table.queues)):
            queue = self._queue(topic, queue_id)
            if queue is None:
                continue
            self._since[queue] = derived
            if topic in table.dropped and (topic, queue_id) not in table.queues:
                self._files.remove_all(queue)  # the deletion of the topic was interrupted, or the scan adds its new messages
                continue
            wrong = self._files.load(queue) if (topic, queue_id) in stored else []
            first, count = table.queues.get((topic, queue_id), (0, 0))
            queue.restart_at(count)
            if 0 <= first < queue.first_file:
                wrong.append((first, f"{self._files.directory(queue)}: the first file is missing"))
            # A queue without files (first is -1) had lost them all before and only kept its numbering.
            if count > first >= 0 and not (self._has_entry(queue, count - 1) and self._are_plausible(queue, first, count)):
                wrong.append((count - 1, f"{self._files.directory(queue)}: entries are missing or damaged"))
            # Problems behind the durable entries are normal after a crash; the scan overwrites them. Those before the first file
            # are caused by a power cut during the deletion of expired files.
            serious = [text for at, text in wrong if first <= at < count]
            if wrong and not serious:
                self._files.remove_detached(queue)
            if serious:
                self._note(*serious)
                self._rebuild(queue)
                intact = False
        return intact

    def load_without_table(self) -> bool:
        """Load the queues of a directory without a table. Return False if a queue must be rebuilt."""
        intact = True
        for topic, queue_id in list(self._files.stored_queues()):
            queue = self._queue(topic, queue_id)
            if queue is not None:
                wrong = [text for _, text in self._files.load(queue)]
                self._note(*wrong)
                self._since[queue] = self._log.min_offset
                if wrong:
                    self._rebuild(queue)
                    intact = False
        return intact

    def keep_below(self, offset: int) -> None:
        """Trust the stored entries of records below a log offset, and take entries from there."""
        for queue in self._since:
            self._since[queue] = offset
            queue.restart_at(self._count_below(queue, offset))

    def dispatched_end(self, log_end: int) -> int:
        """Return the end of the last record that has a queue entry."""
        end = self._log.min_offset
        for queue in self._since:
            count = self._count_below(queue, log_end)
            entry = self._files.entry(queue, count - 1) if count else None
            if entry is not None and entry[1] != ABSENT_SIZE:
                end = max(end, min(entry[0] + entry[1], log_end))
        return end

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        try:
            return self._queues.get_or_create(topic, queue_id)
        except ValueError as error:
            if str(error) not in self._bad_names:
                self._bad_names.add(str(error))
                self._note(str(error))
            return None

    def _has_entry(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        entry = self._files.entry(queue, queue_offset)
        if entry is None or entry[1] <= 0:
            return False
        self._last_end[queue] = entry[0] + entry[1] if entry[1] != ABSENT_SIZE else entry[0]
        return True

    def _are_plausible(self, queue: ConsumeQueue, first: int, count: int) -> bool:
        """Return whether the stored entries follow each other in the log. The newest file is checked first.

        At most `_CHECK_LIMIT` entries of all queues are checked, in about 30 ms for each million. The scrubber
        compares the others with the log later.
        """
        end = count
        while end > first:
            base = max((end - 1) - (end - 1) % self._files.per_file, first)
            if self._checked + end - base > _CHECK_LIMIT:
                return True
            self._checked += end - base
            stop = min(end + 1, count)  # with the first entry of the next file
            data = self._files.read_stored(queue, base, stop - base)
            if len(data) != (stop - base) * UNIT or not are_ascending(np.frombuffer(data, _ENTRY_TYPE)):
                return False
            end = base
        return True

    def _count_below(self, queue: ConsumeQueue, offset: int) -> int:
        """Return the queue offset of the first stored entry whose record is not below a log offset."""
        if queue.first_file < 0:
            return 0

        def is_not_below(number: int) -> bool:
            entry = self._files.entry(queue, number)
            return entry is None or entry[1] <= 0 or not 0 <= entry[0] < offset

        numbers = range(queue.last_file + self._files.per_file)
        return bisect_left(numbers, True, lo=queue.first_file, key=is_not_below)

    def _rebuild(self, queue: ConsumeQueue) -> None:
        """Delete the files of a queue, so that it is rebuilt from the whole log."""
        self._files.remove_all(queue)
        queue.reset(0)
        self._since[queue] = self._log.min_offset
        self._last_end.pop(queue, None)
        self._rebuilt.add(queue)
        self.rebuilt += 1
        self._changed.add(queue)

    # Adding entries

    def add(self, result: ScanResult) -> None:
        """Add the records of a scan, in large batches: one step per queue and batch, not per queue and scan."""
        topics = np.array([self._topic_ids.setdefault(topic, len(self._topic_ids)) for topic in result.topics], np.int64)
        picked, keys, entries = queue_entries(result, topics)
        if self._dropped:
            begin = np.array([self._dropped.get(topic, 0) for topic in result.topics], np.int64)
            kept = result.offset[picked] >= begin[result.topic_id[picked]]
            picked, keys, entries = picked[kept], keys[kept], entries[kept]
        # As plain bytes, because joining structured arrays would convert the fields to the machine's byte order.
        self._batches.append((keys, result.queue_offset[picked], result.offset[picked], entries.view(f"V{UNIT}")))
        if sum(len(batch[0]) for batch in self._batches) >= _BATCH:
            self._add_batches()

    def rebuild_incomplete(self) -> bool:
        """End a scan. Return whether queues have lost entries: they are emptied, for a scan of the whole log."""
        self._add_batches()
        incomplete, self._incomplete = self._incomplete, set()
        for queue in incomplete:
            self._note(f"{self._files.directory(queue)}: entries are missing, rebuilt from the log")
            self._rebuild(queue)
        return bool(incomplete)

    def _add_batches(self) -> None:
        if not self._batches:
            return
        keys, queue_offsets, offsets, entries = (np.concatenate(column) for column in zip(*self._batches, strict=True))
        self._batches.clear()
        order = np.argsort(keys, kind="stable")
        keys, queue_offsets, offsets = keys[order], queue_offsets[order], offsets[order]
        data = entries[order].tobytes()
        topics = list(self._topic_ids)
        for topic_number, queue_id, begin, end in runs_by_queue(keys):
            queue = self._queue(topics[topic_number], queue_id)
            if queue is not None and queue not in self._incomplete:
                self._add_run(queue, queue_offsets[begin:end], offsets[begin:end], data[begin * UNIT : end * UNIT])

    def _add_run(self, queue: ConsumeQueue, queue_offsets: IntArray, offsets: IntArray, data: bytes) -> None:
        """Add the entries of records of one queue, in log order."""
        since = self._since.setdefault(queue, self._log.min_offset)
        if int(offsets[0]) < since:
            skipped = int(np.searchsorted(offsets, since))
            if skipped == len(offsets):
                return
            queue_offsets, offsets, data = queue_offsets[skipped:], offsets[skipped:], data[skipped * UNIT :]
        first, count = int(queue_offsets[0]), len(queue_offsets)
        if int(queue_offsets[-1]) - first == count - 1 and (np.diff(queue_offsets) == 1).all():
            known = queue.next_offset - first
            if known > 0 and _has_record(queue, first, int(offsets[0])):
                data = data[known * UNIT :]
                known = 0
            if known == 0:
                self._append(queue, data)
                return
        for i in range(count):
            expected = queue.next_offset
            if i + 1 < count and queue_offsets[i] != expected and queue_offsets[i + 1] == expected + 1:
                # BODYCRC does not cover it. The next record shows that no message is missing here.
                self._note_queue(queue, f"record at {offsets[i]} has the damaged queue offset {queue_offsets[i]}; skipped")
                continue
            if not self._add_entry(queue, int(queue_offsets[i]), int(offsets[i]), data[i * UNIT : (i + 1) * UNIT]):
                self._incomplete.add(queue)
                return

    def _add_entry(self, queue: ConsumeQueue, queue_offset: int, offset: int, entry: bytes) -> bool:
        """Add an entry whose queue offset may not be the next one. Return False if the queue has lost earlier entries."""
        gap = queue_offset - queue.next_offset
        trusted = self._since[queue] > self._log.min_offset
        if gap < 0:
            if _has_record(queue, queue_offset, offset):
                return True
            missing = queue_offset < queue.lowest_entry()
            if missing and trusted:
                return False
            if not missing and queue_offset != 0:
                self._note_queue(queue, f"record at {offset} has queue offset {queue_offset}, which is in use; skipped")
                return True
            # Its first files are missing, or the topic was deleted and created again.
            self._restart(queue, queue_offset)
        elif gap > 0:
            if trusted:
                return False
            if queue.lowest_entry() == queue.max_offset:
                self._restart(queue, queue_offset)
            elif gap > _LARGEST_GAP:
                self._note_queue(queue, f"record at {offset} has queue offset {queue_offset}, which is far ahead; skipped")
                return True
            else:
                self._note_queue(queue, f"queue offsets {queue.next_offset} to {queue_offset - 1} have no message")
                queue.fill_gap(queue_offset, offset)
        self._append(queue, entry)
        return True

    def _restart(self, queue: ConsumeQueue, queue_offset: int) -> None:
        if queue.lowest_entry() < queue.max_offset:
            self._rebuilt.discard(queue)  # the topic was created again, with another numbering
        self._files.remove_all(queue)
        queue.reset(queue_offset)

    def _append(self, queue: ConsumeQueue, entries: bytes) -> None:
        if not entries:
            return
        queue.publish(queue.extend(entries, len(entries) // UNIT))
        self._changed.add(queue)
        if len(queue.tail) > _FLUSH_TAIL:
            self._files.flush(queue)

    def _note_queue(self, queue: ConsumeQueue, text: str) -> None:
        self._note(f"{queue.topic} queue {queue.queue_id}: {text}")

    # Settling

    def settle(self, end: int, table: QueueTable | None) -> None:
        """Remove the entries behind the end of the log, write the rest and set the minimum offsets."""
        for queue in self._since:
            if table is not None:
                self._keep_numbering(queue, table)
            if self._last_end.get(queue, 0) > end or queue in self._changed:
                self._truncate(queue, end)
            if queue in self._changed or not self.clean or table is None:
                self._files.flush(queue)
                self._files.clear_from(queue, queue.max_offset)
            queue.correct_min(self._log.min_offset if self._log.segments else end)

    def _keep_numbering(self, queue: ConsumeQueue, table: QueueTable) -> None:
        """Continue the numbering of the table in a queue that has lost its last messages, or all of them."""
        _, count = table.queues.get((queue.topic, queue.queue_id), (0, 0))
        if queue.max_offset == 0 and count and queue not in self._last_end:
            queue.reset(count)
        elif queue in self._rebuilt and 0 < queue.max_offset < count:
            self._note_queue(queue, f"queue offsets {queue.max_offset} to {count - 1} have no message")
            last = queue.entry(queue.max_offset - 1)
            queue.fill_gap(count, last[0] if last is not None else 0)
            queue.publish(count)

    def _truncate(self, queue: ConsumeQueue, end: int) -> None:
        """Remove the entries whose records do not end at or below `end`."""
        count = queue.max_offset
        entry = queue.entry(count - 1)
        if entry is not None and entry[0] >= end:
            count = queue.first_at_or_after(end)
            entry = queue.entry(count - 1)
        if entry is not None and entry[1] != ABSENT_SIZE and entry[0] + entry[1] > end:
            count -= 1
        if count < queue.max_offset:
            queue.truncate(count)
            self._changed.add(queue)


def are_ascending(entries: npt.NDArray[Any]) -> bool:
    """Return whether every entry has a size and its record begins behind the one before. Absent messages have no record."""
    offset, size = entries["offset"].astype(np.int64), entries["size"].astype(np.int64)
    absent = size == ABSENT_SIZE
    ends = offset + np.where(absent, 0, size)
    follows = (ends[:-1] <= offset[1:]) | (absent[1:] & (offset[:-1] <= offset[1:]))
    return bool((size > 0).all() and (offset >= 0).all() and follows.all())


def queue_entries(result: ScanResult, topic_numbers: IntArray) -> tuple[IntArray, IntArray, npt.NDArray[Any]]:
    """Return the records that belong to queues: their indices, keys of their queues and queue entries.

    `topic_numbers` has the number of each topic of the scan. A key is topic number and queue id, see `runs_by_queue`.
    """
    picked = np.flatnonzero((result.sys_flag & NOT_DISPATCHED) == 0)
    keys = (topic_numbers[result.topic_id[picked]] << 32) | (result.queue_id[picked] & 0xFFFFFFFF)
    entries = np.empty(len(picked), _ENTRY_TYPE)
    entries["offset"] = result.offset[picked]
    entries["size"] = result.size[picked]
    entries["tags_code"] = result.tags_code[picked]
    return picked, keys, entries


def runs_by_queue(keys: IntArray) -> Iterator[tuple[int, int, int, int]]:
    """Yield (topic number, queue id, start, end) of each run of equal keys."""
    bounds = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
    for start, end in pairwise(bounds):
        if start < end:
            key = int(keys[start])
            yield key >> 32, (key & 0xFFFFFFFF) - ((key & 0x80000000) << 1), start, end


def _has_record(queue: ConsumeQueue, queue_offset: int, offset: int) -> bool:
    entry = queue.entry(queue_offset)
    return entry is not None and entry[0] == offset and entry[1] != ABSENT_SIZE
