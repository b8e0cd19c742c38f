"""The wheel's open slot: the messages that become due now, in the order they become due.

    the slot's chain --walk--> positions in the timer log --read--> records, by due time --due--> delivered

All of it is done in portions: a slot may hold a million messages, and the loop has others to serve. The positions of a slot take
8 bytes each; of the records only so many are held at once.

Entries that recall a message are dealt with before any message is read: they may stand behind or before it in the chain.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from heapq import heappop, heappush

from firearrow.broker.deferred.records import DeferredRecord, effort, portion, read_waiting
from firearrow.store.message_store import MessageStore
from firearrow.store.timer.log import DELETE, NONE, ROLL, TimerEntry, TimerLog

MAX_HELD = 32_768  # records
MAX_HELD_BYTES = 16 * 1024 * 1024
_RUN = 256  # records looked at together
_WALKED_FOR_ONE = 8  # entries of the chain that cost as much as reading one record


class OpenSlot:
    """`time_ms` is the slot's moment, `last` the end of its chain in the timer log; `left` hears of every entry that is done."""

    def __init__(
        self,
        time_ms: int,
        last: int,
        log: TimerLog,
        store: MessageStore,
        precision_ms: int,
        left: Callable[[TimerEntry], None],
    ) -> None:
        self.time_ms = time_ms
        self.used = last != NONE  # whether there was anything in it
        self.lost = 0  # messages whose records are gone
        self._log = log
        self._store = store
        self._left = left
        self._precision_ms = precision_ms
        self._end_ms = time_ms + precision_ms
        self._next = last  # of the chain, to walk from
        self._walked = array("q")  # positions, newest first, while it is walked
        self._positions = array("q")  # to be read, oldest first from `_read` on
        self._read = 0
        self._markers: list[tuple[int, int]] = []  # (physical offset, size) of recalling messages, to be read
        self._marker_positions: list[int] = []  # all of them
        self._recalled: set[str] = set()
        self._due: list[tuple[int, int, TimerEntry, DeferredRecord]] = []  # a heap: due time, position
        self._held_bytes = 0

    @property
    def empty(self) -> bool:
        """Whether nothing of it is left to deliver."""
        return not self._due and self.all_read

    @property
    def all_read(self) -> bool:
        """Whether what is left of it is only waited for."""
        return self._read == len(self._positions) and self._next == NONE and not self._markers

    @property
    def next_due_ms(self) -> int | None:
        """When the first message that was read is due; None when nothing was read."""
        return self._due[0][0] if self._due else None

    @property
    def markers_done(self) -> list[int]:
        """Positions of the entries that recall a message and were dealt with."""
        return self._marker_positions

    def add(self, position: int) -> None:
        """A message has come for this slot while it is open; its entry is in the timer log."""
        self._positions.append(position)
        self.used = True

    def recall(self, identity: str) -> None:
        """A message of this slot is not wanted any more."""
        self._recalled.add(identity)

    def prepare(self, budget: int) -> int:
        """Walks or reads a run; returns what of the budget is left. The same as before: nothing can be prepared now."""
        if self._next != NONE:
            return self._walk(budget)
        if self._markers:
            return self._read_markers(budget)
        run = min(budget, _RUN, MAX_HELD - len(self._due), len(self._positions) - self._read)
        return budget - self._read_messages(run) if run > 0 and self._held_bytes < MAX_HELD_BYTES else budget

    def take(self, now_ms: int) -> tuple[TimerEntry, DeferredRecord] | None:
        """The next message that is due, to be delivered or to be rolled on; None when none is due of those that were read."""
        while self._due and self._due[0][0] <= now_ms:
            _, _, entry, record = heappop(self._due)
            self._held_bytes -= len(record.raw)
            self._left(entry)
            if not self._recalled or record.identity not in self._recalled:
                return entry, record
        return None

    def rest(self) -> list[TimerEntry]:
        """The entries of the messages that were not taken, oldest first, with those that recall some; empty when none waits."""
        while self._next != NONE:
            self._walk(1 << 20)
        waiting = [*self._positions[self._read :], *(position for _, position, _, _ in self._due)]
        if not waiting:
            return []
        positions = sorted({*waiting, *self._marker_positions})
        return [entry for position in positions if (entry := self._log.entry(position)) is not None]

    def _walk(self, budget: int) -> int:
        entries, self._next = self._log.walk(self._next, budget * _WALKED_FOR_ONE)
        for entry in entries:
            if _is_marker(entry):
                self._markers.append((entry.physical_offset, entry.record_size))
            self._walked.append(entry.position)
        if self._next == NONE:
            self._positions = self._walked[::-1] + self._positions
            self._walked = array("q")
        return budget - 1 - len(entries) // _WALKED_FOR_ONE

    def _read_markers(self, budget: int) -> int:
        portion = self._markers[:budget]
        for record in read_waiting(self._store, portion):
            identity = None if record is None else record.recalls
            if identity is not None:
                self._recalled.add(identity)
        del self._markers[: len(portion)]
        return budget - len(portion)

    def _read_messages(self, count: int) -> int:
        """Reads some of the next messages; returns what that took."""
        positions = self._positions[self._read : self._read + count]
        entries = [self._log.entry(position) for position in positions]
        count = portion([0 if entry is None else entry.record_size for entry in entries])
        self._read += count
        if self._read == len(self._positions):
            self._positions = array("q")
            self._read = 0
        known = [entry for entry in entries[:count] if entry is not None]
        for marker in filter(_is_marker, known):
            self._marker_positions.append(marker.position)
            self._left(marker)
        wanted = [entry for entry in known if not _is_marker(entry)]
        records = read_waiting(self._store, [(entry.physical_offset, entry.record_size) for entry in wanted])
        took = count
        for entry, record in zip(wanted, records, strict=True):
            out_ms = None if record is None else record.number(b"TIMER_OUT_MS")
            if record is None or out_ms is None or (out_ms >= self._end_ms and not entry.magic & ROLL):
                self.lost += 1  # deleted with its file, or lost with the log's tail and another one is there now
                self._left(entry)
                continue
            due_ms = self.time_ms if entry.magic & ROLL else record.due_ms(out_ms, self._precision_ms)
            heappush(self._due, (due_ms, entry.position, entry, record))
            self._held_bytes += len(record.raw)
            took += effort(len(record.raw)) - 1
        return took


def _is_marker(entry: TimerEntry) -> bool:
    """Whether it only says that another message is not wanted. One that still has to roll is carried on like a message."""
    return bool(entry.magic & DELETE) and not entry.magic & ROLL
