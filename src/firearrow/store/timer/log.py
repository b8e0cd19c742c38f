"""The timer log: one entry of 52 bytes for each timer message; the entries of one wheel slot are chained.

An entry, big-endian:

    0   4  size, 52
    4   8  position of the slot's previous entry, -1 for the first
    12  4  magic: 1, | 2 the message is due later than the slot (roll), | 4 it recalls another message (delete)
    16  8  time of writing, rounded down to the wheel's precision
    24  4  the slot's time - time of writing, ms
    28  8  physical offset of the message in the commit log
    36  4  size of its record
    40  4  Java's hash code of its real topic
    44  8  0

Positions are bytes of an unbounded log, divided into files of `segment_size` that are named after their first byte (20 digits).
An entry is written where 68 bytes are left. Otherwise the rest of the file is blank: its length (4), 0 (8), 0xCBD43194 (4),
zeros.

Appended entries are in memory until `write_out`. They never change; `truncate` removes the end when the store is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from firearrow.store.commitlog.segment import Segment, create_segment, parse_segment_name
from firearrow.store.filesystem import Disk

UNIT = 52
NONE = -1
MAGIC = 1
ROLL = 2
DELETE = 4

_FIELDS = Struct(">iqiqiqiiq")
assert _FIELDS.size == UNIT
_BLANK = Struct(">iqI")
_BLANK_MAGIC = 0xCBD43194
_HIGHEST_MAGIC = 0xF
_BLOCK = 4096  # neighbours in a chain are often neighbours in the log
_SCAN_UNITS = 20_000


class TimerEntry(NamedTuple):
    """One entry of the timer log."""

    position: int
    previous: int
    magic: int
    written_ms: int
    delayed_ms: int
    physical_offset: int
    record_size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        return self.written_ms + self.delayed_ms


_INT32 = 1 << 31
_MAX_POSITION = 1 << 60


def delay_field(slot_ms: int, written_ms: int) -> int:
    """Return the delay, limited to 32 bits (24 days): a broker may have been down, or a clock wrong, for longer."""
    return max(min(slot_ms - written_ms, _INT32 - 1), -_INT32)


class TimerLog:
    """The files of the timer log. `problems` collects damage found; the owner reports and clears it."""

    def __init__(self, disk: Disk, directory: str, segment_size: int) -> None:
        assert segment_size >= UNIT + _BLANK.size
        self.segment_size = segment_size
        self.end = 0  # position of the next entry, or of the blank before it
        self.problems: list[str] = []
        self.resets = 0  # number of calls of `reset`
        self._usable = (segment_size - _BLANK.size) // UNIT * UNIT  # bytes of a file that can hold entries
        self._disk = disk
        self._directory = directory
        self._segments: dict[int, Segment] = {}  # by file number, contiguous, oldest first
        self._pending = bytearray()  # unwritten bytes, up to `end`
        self._unsynced: set[Segment] = set()
        self._block = b""
        self._block_at = 0

    @property
    def start(self) -> int:
        """First position that is still stored."""
        return next(iter(self._segments)) * self.segment_size if self._segments else self.end

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    # Opening

    def load(self) -> None:
        """Find the files. Only those behind the last gap count."""
        self._segments = {}
        for name in self._disk.listdir(self._directory):
            base = parse_segment_name(name)
            path = os.path.join(self._directory, name)
            if base is None or base % self.segment_size or self._disk.file_size(path) != self.segment_size:
                self.problems.append(f"{path}: not a timer-log file of {self.segment_size} bytes, ignored")
                continue
            number = base // self.segment_size
            if self._segments and number - 1 not in self._segments:
                self.problems.append(f"{path}: the file before it is missing")
                self._segments = {}
            self._segments[number] = Segment(self._disk, self._directory, base, self.segment_size)
        self.end = (max(self._segments) + 1) * self.segment_size if self._segments else 0

    def begin(self, end: int) -> bool:
        """Continue at `end`. Return False if the files end before it."""
        reached = end == 0 or (end - 1) // self.segment_size in self._segments
        if reached:
            self.end = end
        return reached

    def truncate(self, end: int) -> None:
        """Remove everything from `end`. Durable on return."""
        for number in [number for number in self._segments if number * self.segment_size >= end]:
            self._segments.pop(number).delete()
        last = self._segments.get(end // self.segment_size)
        if last is not None:
            last.file.truncate(end - last.base)
            last.file.truncate(self.segment_size)
            last.file.fdatasync()
        if self._disk.is_dir(self._directory):
            self._disk.fsync_dir(self._directory)
        self.end = end
        self._block = b""

    def reset(self, behind: int = 0) -> None:
        """Delete every file, valid or not. The next file begins behind the given position, so that `begin` does not find it.

        The newest file is deleted first, so that the files left by a power cut do not look complete.
        """
        self.close()
        self.resets += 1
        self._segments = {}
        self._unsynced.clear()
        self._pending.clear()
        for name in sorted(self._disk.listdir(self._directory), reverse=True):
            if parse_segment_name(name) is not None:
                self._disk.unlink(os.path.join(self._directory, name))
        self.truncate(0)
        self.end = -(-behind // self.segment_size) * self.segment_size if 0 < behind < _MAX_POSITION else 0

    # Appending

    def append(
        self, previous: int, magic: int, written_ms: int, delayed_ms: int, physical_offset: int, record_size: int, topic_hash: int
    ) -> int:
        """Append an entry and return its position. Nothing is written before `write_out`."""
        assert previous < self.end
        rest = self.segment_size - self.end % self.segment_size
        if rest <= self.segment_size - self._usable:
            self._pending += _BLANK.pack(rest, 0, _BLANK_MAGIC).ljust(rest, b"\0")
            self.end += rest
        position = self.end
        self._pending += _FIELDS.pack(UNIT, previous, magic, written_ms, delayed_ms, physical_offset, record_size, topic_hash, 0)
        self.end += UNIT
        return position

    def write_out(self) -> None:
        """Write the appended entries. After an OSError the rest stays pending for the next call."""
        while self._pending:
            at = self.end - len(self._pending)
            segment = self._segments.get(at // self.segment_size)
            if segment is None:
                segment = self._create(at - at % self.segment_size)
            piece = self._pending[: segment.end - at]
            segment.write(piece, at)
            self._unsynced.add(segment)
            del self._pending[: len(piece)]
        self._block = b""

    def _create(self, base: int) -> Segment:
        if not self._segments:
            self._disk.mkdirs(self._directory)
        segment = create_segment(self._disk, self._directory, base, self.segment_size)
        self._segments[base // self.segment_size] = segment
        return segment

    def take_unsynced(self) -> list[Segment]:
        """Return the files written since the last call, for the caller to sync."""
        taken = list(self._unsynced)
        self._unsynced.clear()
        return taken

    # Reading

    def walk(self, last: int, limit: int) -> tuple[list[TimerEntry], int]:
        """Return at most `limit` entries of a slot, from `last` backwards, and the position to continue at, -1 at the end.

        The chain also ends where a file was deleted, because the messages of its entries are deleted too.
        """
        found: list[TimerEntry] = []
        position = last
        while position != NONE and position >= self.start and len(found) < limit:
            entry = self._entry(position, max(position + UNIT - _BLOCK, position - position % self.segment_size))
            if entry is None or entry.previous >= position:
                self.problems.append(f"timer log: no valid entry at {position}; the earlier entries of its chain are lost")
                return found, NONE
            found.append(entry)
            position = entry.previous
        return found, position if position >= self.start else NONE

    def entry(self, position: int) -> TimerEntry | None:
        """Return one entry. Fast for ascending positions."""
        return self._entry(position, position)

    def _entry(self, position: int, read_from: int) -> TimerEntry | None:
        assert not self._pending
        if not self._block_at <= position <= self._block_at + len(self._block) - UNIT:
            segment = self._segments.get(position // self.segment_size)
            if segment is None or not 0 <= position <= self.end - UNIT:
                return None
            self._block = segment.read(min(_BLOCK, segment.end - read_from), read_from)
            self._block_at = read_from
        return _parse(self._block, position - self._block_at, position)

    def has_entry_at(self, position: int) -> bool:
        """Return whether a valid entry was written at a position, even behind the end."""
        segment = self._segments.get(position // self.segment_size)
        return segment is not None and _parse(segment.read(UNIT, position), 0, position) is not None

    def last_entry(self) -> TimerEntry | None:
        """Return the newest entry."""
        at = self.end
        if at % self.segment_size == 0 and at > 0:
            at -= self.segment_size - self._usable
        return self.entry(at - UNIT) if at - UNIT >= self.start else None

    def runs(self) -> Iterator[tuple[int, bytes]]:
        """Yield all entries, oldest first, as (position of the first, bytes of consecutive entries)."""
        for number, segment in list(self._segments.items()):
            base = number * self.segment_size
            stop = min(base + self._usable, self.end)
            for at in range(base, stop, _SCAN_UNITS * UNIT):
                yield at, segment.read(min(_SCAN_UNITS * UNIT, stop - at), at)

    # Retention and closing

    def remove_before(self, log_min: int) -> list[str]:
        """Detach the files whose messages are all below `log_min` in the commit log, never the newest. Return their paths."""
        paths: list[str] = []
        while len(self._segments) > 1:
            number, segment = next(iter(self._segments.items()))
            last = self.entry(segment.base + self._usable - UNIT)
            if last is not None and last.physical_offset >= log_min:
                break
            del self._segments[number]
            self._unsynced.discard(segment)
            segment.close()
            paths.append(segment.path)
        return paths

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()


def _parse(block: bytes, at: int, position: int) -> TimerEntry | None:
    if len(block) - at < UNIT:
        return None
    size, previous, magic, written, delayed, offset, record_size, topic_hash, _ = _FIELDS.unpack_from(block, at)
    if size != UNIT or not MAGIC <= magic <= _HIGHEST_MAGIC:
        return None
    return TimerEntry(position, previous, magic, written, delayed, offset, record_size, topic_hash)
