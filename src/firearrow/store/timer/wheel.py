"""The timer wheel: for each time step the chain of timer-log entries that are due.

One file of 1,209,600 slots of 32 bytes, 38,707,200 bytes. Time is counted in steps of the wheel's precision; step n has slot
n mod 1,209,600 (with one second: two weeks). A slot, big-endian:

    0   8  the step that owns it; for every other step the slot is empty
    8   8  position of its first entry in the timer log
    16  8  position of its last entry, which leads to the others
    24  4  pending messages: entries minus those that recall another message
    28  4  0

Slots are not cleared when their time is over: they belong to a step that does not recur.

The file is sparse, and only pages in use are in memory: at most 1,024 of 4 KiB. Changed pages are written by `flush`, or when the
cache is full. The wheel can be rebuilt from the timer log.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from firearrow.store.filesystem import Disk, File, LazyFile

SLOTS = 2 * 7 * 86_400
SLOT_BYTES = 32
FILE_SIZE = SLOTS * SLOT_BYTES

_SLOT = Struct(">qqqii")
assert _SLOT.size == SLOT_BYTES
_PAGE = 4096
_PAGE_SLOTS = _PAGE // SLOT_BYTES
assert SLOTS % _PAGE_SLOTS == 0
_PAGES = SLOTS // _PAGE_SLOTS
_CACHED_PAGES = 1024


class Slot(NamedTuple):
    """The chain of a time step, and the number of pending messages."""

    first: int
    last: int
    waiting: int


class TimerWheel(LazyFile):
    """The wheel file and its page cache."""

    def __init__(self, disk: Disk, path: str, precision_ms: int) -> None:
        super().__init__(disk, path)
        self.precision_ms = precision_ms
        self._pages: dict[int, bytearray] = {}
        self._dirty: set[int] = set()

    @property
    def span_ms(self) -> int:
        """Duration of one turn: times this far apart share a slot."""
        return SLOTS * self.precision_ms

    def floor(self, time_ms: int) -> int:
        """Return the time of the slot for `time_ms`."""
        return time_ms - time_ms % self.precision_ms

    # Slots

    def get(self, time_ms: int) -> Slot | None:
        """Return the chain of a time, or None."""
        step = time_ms // self.precision_ms
        index = step % SLOTS
        page = self._page(index // _PAGE_SLOTS)
        owner, first, last, count, _ = _SLOT.unpack_from(page, index % _PAGE_SLOTS * SLOT_BYTES)
        return Slot(first, last, count) if owner == step else None

    def put(self, time_ms: int, first: int, last: int, count: int) -> None:
        step = time_ms // self.precision_ms
        index = step % SLOTS
        number = index // _PAGE_SLOTS
        _SLOT.pack_into(self._page(number), index % _PAGE_SLOTS * SLOT_BYTES, step, first, last, count, 0)
        self._dirty.add(number)

    def add(self, time_ms: int, position: int, *, count: int = 1) -> None:
        """Make the entry at `position` the last of the chain of a time."""
        slot = self.get(time_ms)
        if slot is None:
            self.put(time_ms, position, position, count)
        else:
            self.put(time_ms, slot.first, position, slot.waiting + count)

    def next_used(self, start_ms: int, stop_ms: int) -> int | None:
        """Return the first time in [start, stop) with a chain, or None."""
        return next((time_ms for time_ms, _ in self.waiting(start_ms, stop_ms)), None)

    def waiting(self, start_ms: int, stop_ms: int) -> Iterator[tuple[int, int]]:
        """Yield (time, pending messages) of the slots in [start, stop) with a chain."""
        step = start_ms // self.precision_ms
        stop = min(-(-stop_ms // self.precision_ms), step + SLOTS)
        if stop - step > _PAGE_SLOTS:
            self.flush()  # so that the holes of the file are empty
        data_at = -1  # next data in the file, as far as known
        while step < stop:
            number, first = divmod(step % SLOTS, _PAGE_SLOTS)
            count = min(_PAGE_SLOTS - first, stop - step)
            if number not in self._pages and data_at < number * _PAGE:
                found = self.file.next_data(number * _PAGE) if self._exists() else None
                data_at = FILE_SIZE if found is None else found
            if number in self._pages or data_at < (number + 1) * _PAGE:
                slots = memoryview(self._page(number))[first * SLOT_BYTES : (first + count) * SLOT_BYTES]
                for expected, (owner, _, _, messages, _) in enumerate(_SLOT.iter_unpack(slots), step):
                    if owner == expected:
                        yield owner * self.precision_ms, messages
            step += count
            if step % SLOTS == 0:
                data_at = -1

    # The file

    def is_whole(self) -> bool:
        """Return whether the file exists with its full length."""
        return self._disk.exists(self.path) and self._disk.file_size(self.path) == FILE_SIZE

    def reset(self) -> None:
        """Empty every slot."""
        self._pages.clear()
        self._dirty.clear()
        self.file.truncate(0)
        self.file.truncate(FILE_SIZE)

    def flush(self) -> None:
        """Write the changed pages, neighbours together."""
        for number in sorted(self._dirty):
            if number not in self._dirty:
                continue  # written with a previous page
            run = [number]
            while run[-1] + 1 in self._dirty:
                run.append(run[-1] + 1)
            self.file.pwrite(b"".join([self._pages[one] for one in run]), number * _PAGE)
            self._dirty.difference_update(run)

    def sync(self) -> None:
        """Make the flushed pages durable. Any thread."""
        if self._file is not None:
            self._file.fdatasync()

    def _page(self, number: int) -> bytearray:
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= _CACHED_PAGES:
                self.flush()
                self._pages.clear()
            data = self.file.pread(_PAGE, number * _PAGE) if self._exists() else b""
            page = self._pages[number] = bytearray(data.ljust(_PAGE, b"\0"))
        return page

    def _exists(self) -> bool:
        return self._file is not None or self._disk.exists(self.path)

    def _open(self) -> File:
        return self._disk.open(self.path, create=True, size=FILE_SIZE)
