"""Reads: messages of a queue, records by log offset, queue offsets by time.

Nothing at or above `confirm_offset` is read; queues limit themselves by their `max_offset`, which follows it.

A pull reads its queue entries with one pread (or from memory) and its records with as few as possible: records that are near each
other in the log are read together and separated in memory. Contiguous records need not be read at all: a caller that can copy
from the log file to a socket gets their position.

Records are verified before they leave the broker (verification.py), except for those that this process has written and that are
within the last GiB of the log. Those come from the page cache as they were written. Verifying them too would make a pull of
32 messages of 1 KB more expensive by a half (0.4 us more for each message, which takes 0.83 us). Old records are never passed as
a position, because the kernel does not verify what it copies. A record that is not intact is skipped and reported (damage.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from firearrow.store.commitlog.log import CommitLog
from firearrow.store.commitlog.verification import count_intact, is_intact
from firearrow.store.consume_queue import ABSENT_SIZE, ENTRY, UNIT, ConsumeQueue
from firearrow.store.damage import DamageRegistry, Unreadable
from firearrow.store.settings import StoreSettings
from firearrow.wire.record import (
    FIXED_BYTES_V1,
    RECORD_MAGICS,
    SIZE_AND_MAGIC,
    STORE_TIMESTAMP_END,
    physical_offset_at,
    store_timestamp_at,
)

_I64 = Struct(">q")
_OFFSET_AND_SIZE = Struct(">qi")
_MERGE_GAP = 8192  # reading this much unnecessarily costs less than another system call
_MERGE_LIMIT = 1024 * 1024
_SLACK = 32 * 1024  # records with at most this much between them are read at once
_PROBE = 4096
_RECENT = 1024 * 1024 * 1024  # bytes of log
_PART_MIN = 16 * 1024  # reading less costs no more than the second system call of a LogPart


class GetStatus(StrEnum):
    """Result of `get_messages`, in RocketMQ's terms."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


_FOUND = GetStatus.FOUND  # before Python 3.12 each lookup is a call


class LogPart(NamedTuple):
    """Position of contiguous records in a file of the log."""

    descriptor: int
    position: int
    size: int


@dataclass(slots=True)
class GetResult:
    """Messages of a queue, as stored, either in `body` or at `part` of the log."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    count: int = 0
    suggest_slave: bool = False
    part: LogPart | None = None  # instead of `body`; valid until the next call of the log
    damaged: int = 0  # messages left out because they are damaged here


class StoreReader:
    """`confirm_offset` is set by UnconfirmedGroups."""

    def __init__(self, settings: StoreSettings, log: CommitLog, damage: DamageRegistry, memory_bytes: int | None = None) -> None:
        self.confirm_offset = 0
        self._damage = damage
        self._opened_end = 0
        self._settings = settings
        self._log = log
        self._memory_bytes = memory_bytes if memory_bytes is not None else _physical_memory()

    def begin(self, log_end: int) -> None:
        """Start with a log that other processes have written up to `log_end`."""
        self._opened_end = log_end

    @property
    def recent_from(self) -> int:
        """Records from here were written recently by this process. They need not be verified."""
        return max(self._opened_end, self.confirm_offset - _RECENT)

    def get_messages(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_count: int,
        *,
        max_bytes: int | None = None,
        tag_codes: frozenset[int] | None = None,
        may_be_part: bool = False,
        bulk: bool = False,
    ) -> GetResult:
        """Return the messages of a queue from `offset`. `tag_codes`: only those with one of these tags codes (signed 32 bit).

        `may_be_part`: the caller accepts a LogPart. `bulk`: apply the limits of bulk pulls.
        """
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if not low <= offset < high:
            return _outside(offset, low, high)
        settings = self._settings
        if bulk:
            max_count = min(max_count, settings.max_transfer_count_of_bulk_pull)
        wanted = max_count if tag_codes is None else max(max_count, settings.max_filter_message_size // UNIT)
        entries = queue.entries(offset, max(wanted, 1))
        if not entries:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, self._next_file(queue, offset), low, high)
        memory = self._memory_bytes * settings.access_message_in_memory_max_ratio // 100
        confirmed = self.confirm_offset
        (first,) = _I64.unpack_from(entries)
        recent = first >= self._opened_end and confirmed - first <= _RECENT
        if bulk:
            count_left, bytes_left = max_count, settings.max_transfer_bytes_of_bulk_pull
        elif confirmed - first <= memory:
            count_left = min(max_count, settings.max_transfer_count_on_message_in_memory)
            bytes_left = settings.max_transfer_bytes_on_message_in_memory
        else:
            count_left = min(max_count, settings.max_transfer_count_on_message_in_disk)
            bytes_left = settings.max_transfer_bytes_on_message_in_disk
        if max_bytes is not None:
            bytes_left = min(bytes_left, max_bytes)
        count = len(entries) // UNIT
        if tag_codes is None and count <= count_left:
            body, part, last = self._read_near(entries, count, bytes_left, may_be_part and recent)
            if (body and (recent or count_intact(body, entries, queue, offset) == count)) or part is not None:
                return GetResult(_FOUND, offset + count, low, high, body, count, confirmed - last > memory, part)
        chosen, scanned, removed, last = self._choose(entries, count_left, bytes_left, tag_codes)
        next_offset = offset + scanned
        damaged = 0
        if recent and not removed:
            pieces, count = self._read_all(chosen) if chosen else ([], 0)
        else:
            pieces, unreadable = self._read_intact(queue, offset, entries[: scanned * UNIT], chosen)
            count, damaged = len(pieces), len(unreadable)
            if unreadable and self._damage.examine(queue, unreadable):  # entries were repaired; each is repaired only once
                return self.get_messages(
                    queue, offset, max_count, max_bytes=max_bytes, tag_codes=tag_codes, may_be_part=may_be_part, bulk=bulk
                )
        slow = confirmed - last > memory
        if not chosen:
            status = GetStatus.MESSAGE_WAS_REMOVING if removed == scanned else GetStatus.NO_MATCHED_MESSAGE
            return GetResult(status, next_offset, low, high, suggest_slave=slow, damaged=damaged)
        if not count:
            return GetResult(GetStatus.MESSAGE_WAS_REMOVING, next_offset, low, high, damaged=damaged)
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return GetResult(_FOUND, next_offset, low, high, body, count, slow, damaged=damaged)

    def _read_near(self, entries: bytes, count: int, bytes_left: int, may_be_part: bool) -> tuple[bytes, LogPart | None, int]:
        """Return the records of a common pull (all within the limits, none deleted, near each other) and the last log offset.

        Otherwise return no records. Entries are in log order, so checking the first and the last record is enough, and the
        records are contiguous if their sizes add up to the distance.
        """
        sizes = _sizes(count)(entries)
        (first,) = _I64.unpack_from(entries)
        last, last_size = _OFFSET_AND_SIZE.unpack_from(entries, len(entries) - UNIT)
        end, total = last + last_size, sum(sizes)
        span = end - first
        log = self._log
        if first < log.min_offset or end > self.confirm_offset or total > bytes_left or min(sizes) <= 0:
            return b"", None, last
        if not total <= span <= total + _SLACK:
            return b"", None, last
        if may_be_part and span == total and span >= _PART_MIN:
            position = log.file_position(first, span)
            if position is not None:
                return b"", LogPart(*position, span), last
        data = log.read(first, span)
        if len(data) != span:  # across a segment boundary, or deleted
            return b"", None, last
        if span == total:
            return data, None, last
        offsets = _offsets(count)(entries)
        pieces = [data[at - first : at - first + size] for at, size in zip(offsets, sizes, strict=True)]
        return b"".join(pieces), None, last

    def read(self, offset: int, size: int) -> bytes:
        """Return confirmed bytes of the log, from one segment."""
        return self._log.read(offset, min(size, self.confirm_offset - offset)) if 0 <= offset < self.confirm_offset else b""

    def read_record(self, offset: int) -> bytes | None:
        """Return the record at a log offset, or None if no confirmed record begins there or it is damaged."""
        data = self.read(offset, _PROBE)
        if len(data) < FIXED_BYTES_V1:
            return None
        size, magic = SIZE_AND_MAGIC.unpack_from(data)
        if magic not in RECORD_MAGICS or size < FIXED_BYTES_V1 or physical_offset_at(data) != offset:
            return None
        data = data[:size] if size <= len(data) else self.read(offset, size)
        if len(data) != size or not (offset >= self.recent_from or is_intact(data, offset)):
            return None
        return data

    def store_time(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Return the store time of the message at a queue offset, or None if it cannot be read."""
        entry = queue.entry(offset) if queue.min_offset <= offset < queue.max_offset else None
        if entry is None or entry[1] == ABSENT_SIZE:
            return None
        return self._record_time(entry[0])

    def earliest_store_time(self, queue: ConsumeQueue) -> int | None:
        return self.store_time(queue, queue.min_offset)

    def offset_by_time(self, queue: ConsumeQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """Return the first message stored at or after this time; with `upper` the last one stored at or before it."""
        if upper:
            found = self._first_where(queue, lambda time: time > timestamp_ms) - 1
            return max(found, queue.min_offset)
        return self._first_where(queue, lambda time: time >= timestamp_ms)

    def _first_where(self, queue: ConsumeQueue, holds: Callable[[int], bool]) -> int:
        """Bisect the visible messages. Store times do not decrease along a queue."""
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            probe = middle
            time = self.store_time(queue, probe)
            while time is None and probe + 1 < high:  # a damaged record has the time of the next readable one
                probe += 1
                time = self.store_time(queue, probe)
            if time is not None and holds(time):
                high = middle
            else:
                low = probe + 1
        return low

    def _record_time(self, offset: int) -> int | None:
        data = self.read(offset, STORE_TIMESTAMP_END)
        if len(data) < STORE_TIMESTAMP_END or physical_offset_at(data) != offset:
            return None
        return store_timestamp_at(data)

    def _choose(
        self, entries: bytes, count_left: int, bytes_left: int, tag_codes: frozenset[int] | None
    ) -> tuple[list[tuple[int, int]], int, int, int]:
        """Return (log offset, size) of the records to return, the entries scanned, those deleted, and the last log offset."""
        log_min, log_end = self._log.min_offset, self.confirm_offset
        chosen: list[tuple[int, int]] = []
        scanned = removed = offset = 0
        for offset, size, tags_code in ENTRY.iter_unpack(entries):
            if offset < log_min or size == ABSENT_SIZE or size <= 0 or offset + size > log_end:
                scanned += 1
                removed += 1
                continue
            if tag_codes is not None and tags_code not in tag_codes and _as_int32(tags_code) not in tag_codes:
                scanned += 1
                continue
            if size > bytes_left and chosen:
                break
            scanned += 1
            chosen.append((offset, size))
            bytes_left -= size
            count_left -= 1
            if count_left <= 0:
                break
        return chosen, scanned, removed, offset

    def _read_all(self, chosen: list[tuple[int, int]]) -> tuple[list[bytes], int]:
        """Read records in log order. Return their bytes in pieces and the number of records read."""
        pieces: list[bytes] = []
        count = 0
        segment_size = self._log.segment_size
        window = begin = end = chosen[0][0]
        segment_end = window - window % segment_size + segment_size
        cuts: list[tuple[int, int]] = []  # runs of adjacent records in the window
        in_window = 0
        for offset, size in chosen:
            if offset != end:
                if end < offset < segment_end and offset - end <= _MERGE_GAP and offset + size - window <= _MERGE_LIMIT:
                    cuts.append((begin, end))
                else:
                    cuts.append((begin, end))
                    count += self._read_window(window, cuts, pieces, in_window)
                    cuts.clear()
                    window = offset
                    segment_end = window - window % segment_size + segment_size
                    in_window = 0
                begin = offset
            end = offset + size
            in_window += 1
        cuts.append((begin, end))
        count += self._read_window(window, cuts, pieces, in_window)
        return pieces, count

    def _read_intact(
        self, queue: ConsumeQueue, offset: int, entries: bytes, chosen: list[tuple[int, int]]
    ) -> tuple[list[bytes], list[Unreadable]]:
        """Return the intact ones of the chosen records, and the entries whose record or which themselves are damaged.

        The first entry is at queue offset `offset`.
        """
        numbers: dict[int, int] = {}  # queue offsets by log offset
        unreadable: list[Unreadable] = []
        for number, (at, size, _) in enumerate(ENTRY.iter_unpack(entries), offset):
            if size == ABSENT_SIZE:
                continue
            numbers[at] = number
            if size <= 0 or at + size > self.confirm_offset:
                unreadable.append(Unreadable(number, at, size))
        pieces, count = self._read_all(chosen) if chosen else ([], 0)
        data = b"".join(pieces) if count == len(chosen) else b""
        position, intact = 0, []
        for at, size in chosen:
            piece = data[position : position + size] if data else self._log.read(at, size)
            position += size
            if len(piece) == size and count_intact(piece, ENTRY.pack(at, size, 0), queue, numbers[at]) == 1:
                intact.append(piece)
            else:
                unreadable.append(Unreadable(numbers[at], at, size))
        return intact, sorted(unreadable)

    def _read_window(self, start: int, cuts: list[tuple[int, int]], pieces: list[bytes], count: int) -> int:
        data = self._log.read(start, cuts[-1][1] - start)
        if len(data) != cuts[-1][1] - start:
            return 0
        if len(cuts) == 1:
            pieces.append(data)
        else:
            pieces += [data[begin - start : end - start] for begin, end in cuts]
        return count

    def _next_file(self, queue: ConsumeQueue, offset: int) -> int:
        per_file = queue.files.per_file
        return min(offset - offset % per_file + per_file, queue.max_offset)


@lru_cache(maxsize=256)
def _sizes(count: int) -> Callable[[bytes], tuple[int, ...]]:
    """Return a function that unpacks the sizes of `count` entries with one call."""
    return Struct(">" + count * "8xi8x").unpack


@lru_cache(maxsize=256)
def _offsets(count: int) -> Callable[[bytes], tuple[int, ...]]:
    """Return a function that unpacks the log offsets of `count` entries with one call."""
    return Struct(">" + count * "q12x").unpack


def _outside(offset: int, low: int, high: int) -> GetResult:
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)


def _as_int32(code: int) -> int:
    return ((code + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
