"""The open slot of the timer wheel: its messages, in order of delivery time.

    the slot's chain --walk--> positions in the timer log --read--> records, by due time --due--> delivered

Every step works in batches: a slot may hold a million messages, and the event loop must not be blocked. The positions of a slot
take 8 bytes each; the number of records in memory is limited.

Recall markers are processed before any message is read, since they may be on either side of their message in the chain.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from heapq import heappop, heappush

from firearrow.broker.deferred.records import DeferredRecord, batch_within_limit, read_cost, read_records
from firearrow.store.message_store import MessageStore
from firearrow.store.timer.log import DELETE, NONE, ROLL, TimerEntry, TimerLog

MAX_HELD = 32_768  # records
MAX_HELD_BYTES = 16 * 1024 * 1024
_BATCH = 256  # records read together
_WALK_PER_READ = 8  # chain entries that can be walked at the cost of reading one record


class OpenSlot:
    """The messages of one slot.

    `time_ms` is the slot's time, `last` the end of its chain in the timer log. `dequeued` is called for every processed entry.
    """

    def __init__(
        self,
        time_ms: int,
        last: int,
        log: TimerLog,
        store: MessageStore,
        precision_ms: int,
        dequeued: Callable[[TimerEntry], None],
    ) -> None:
        self.time_ms = time_ms
        self.used = last != NONE  # whether it ever had an entry
        self.lost = 0  # messages whose record is missing
        self._log = log
        self._store = store
        self._dequeued = dequeued
        self._precision_ms = precision_ms
        self._end_ms = time_ms + precision_ms
        self._next = last  # position from which to continue walking the chain
        self._walked = array("q")  # positions walked so far, newest first
        self._positions = array("q")  # to be read from index `_read` on, oldest first
        self._read = 0
        self._markers: list[tuple[int, int]] = []  # (physical offset, size) of markers to read
        self.processed_markers: list[int] = []  # positions
        self._recalled: set[str] = set()
        self._due: list[tuple[int, int, TimerEntry, DeferredRecord]] = []  # heap by due time, position
        self._held_bytes = 0

    @property
    def held(self) -> int:
        """Records in memory."""
        return len(self._due)

    @property
    def empty(self) -> bool:
        """True once all messages are delivered."""
        return not self._due and self.all_read

    @property
    def all_read(self) -> bool:
        """True once all records are read, so that the remaining messages only wait for their time."""
        return self._read == len(self._positions) and self._next == NONE and not self._markers

    @property
    def next_due_ms(self) -> int | None:
        """Due time of the first message in memory; None without messages."""
        return self._due[0][0] if self._due else None

    def add(self, position: int) -> None:
        """Add a message enqueued while the slot is open; its entry is in the timer log."""
        self._positions.append(position)
        self.used = True

    def recall(self, identity: str) -> None:
        """Cancel the delivery of a message of this slot."""
        self._recalled.add(identity)

    def prepare(self, budget: int) -> int:
        """Walk or read one batch. Return the remaining budget; an unchanged budget means that there is nothing to prepare now."""
        if self._next != NONE:
            return self._walk(budget)
        if self._markers:
            return self._read_markers(budget)
        count = min(budget, _BATCH, MAX_HELD - len(self._due), len(self._positions) - self._read)
        return budget - self._read_messages(count) if count > 0 and self._held_bytes < MAX_HELD_BYTES else budget

    def take(self, now_ms: int) -> tuple[TimerEntry, DeferredRecord] | None:
        """Return the next due message, to be delivered or rolled; None if no message in memory is due."""
        while self._due and self._due[0][0] <= now_ms:
            _, _, entry, record = heappop(self._due)
            self._held_bytes -= len(record.raw)
            self._dequeued(entry)
            if not self._recalled or record.identity not in self._recalled:
                return entry, record
        return None

    def remaining(self) -> list[TimerEntry]:
        """Return the entries of undelivered messages and of the markers, oldest first; empty if all are delivered."""
        while self._next != NONE:
            self._walk(1 << 20)
        undelivered = [*self._positions[self._read :], *(position for _, position, _, _ in self._due)]
        if not undelivered:
            return []
        positions = sorted({*undelivered, *self.processed_markers})
        return [entry for position in positions if (entry := self._log.entry(position)) is not None]

    def _walk(self, budget: int) -> int:
        entries, self._next = self._log.walk(self._next, budget * _WALK_PER_READ)
        for entry in entries:
            if _is_marker(entry):
                self._markers.append((entry.physical_offset, entry.record_size))
            self._walked.append(entry.position)
        if self._next == NONE:
            self._positions = self._walked[::-1] + self._positions
            self._walked = array("q")
        return budget - 1 - len(entries) // _WALK_PER_READ

    def _read_markers(self, budget: int) -> int:
        batch = self._markers[:budget]
        for record in read_records(self._store, batch):
            identity = None if record is None else record.recalls
            if identity is not None:
                self._recalled.add(identity)
        del self._markers[: len(batch)]
        return budget - len(batch)

    def _read_messages(self, count: int) -> int:
        """Read the next messages, at most `count`. Return the cost."""
        positions = self._positions[self._read : self._read + count]
        entries = [self._log.entry(position) for position in positions]
        count = batch_within_limit([0 if entry is None else entry.record_size for entry in entries])
        self._read += count
        if self._read == len(self._positions):
            self._positions = array("q")
            self._read = 0
        known = [entry for entry in entries[:count] if entry is not None]
        for marker in filter(_is_marker, known):
            self.processed_markers.append(marker.position)
            self._dequeued(marker)
        wanted = [entry for entry in known if not _is_marker(entry)]
        records = read_records(self._store, [(entry.physical_offset, entry.record_size) for entry in wanted])
        cost = count
        for entry, record in zip(wanted, records, strict=True):
            out_ms = None if record is None else record.number(b"TIMER_OUT_MS")
            if record is None or out_ms is None or (out_ms >= self._end_ms and not entry.magic & ROLL):
                self.lost += 1  # its file was deleted, or the log was truncated and another record is there now
                self._dequeued(entry)
                continue
            due_ms = self.time_ms if entry.magic & ROLL else record.due_ms(out_ms, self._precision_ms)
            heappush(self._due, (due_ms, entry.position, entry, record))
            self._held_bytes += len(record.raw)
            cost += read_cost(len(record.raw)) - 1
        return cost


def _is_marker(entry: TimerEntry) -> bool:
    """Return whether the entry is a recall marker in its final slot. A marker that has to be rolled is treated like a message."""
    return bool(entry.magic & DELETE) and not entry.magic & ROLL
