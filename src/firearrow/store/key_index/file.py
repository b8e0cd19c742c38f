"""One file of the key index: a hash table on disk, whose slots head chains of entries.

    0    8 beginTimestamp   store time of the first entry
    8    8 endTimestamp     store time of the last entry
    16   8 beginPhyOffset   physical offset of the first entry
    24   8 endPhyOffset     physical offset of the last entry
    32   4 hashSlotCount    slots in use
    36   4 indexCount       number of the next entry; starts at 1, since entry 0 means "none"
    40   4 * slot_count     slots: number of the newest entry of the chain, 0 when empty
    then 20 * entry_limit   entries: keyHash 4 | physical offset 8 | timeDiff 4 | number of the previous entry in the chain 4

keyHash is the absolute value of the key's Java hash (0 for -2**31), its slot is keyHash modulo slot_count. timeDiff is in whole
seconds since beginTimestamp, at least 0. For the first entry of a file it is relative to the end of the previous file, which is
what beginTimestamp holds until then; 0 in the very first file. Entry 0 is never used, so a file holds entry_limit - 1 entries.
The file always has its full length.

Durability: entries are written as they come. The slots of the file being filled are in memory (4 bytes each); `write_slots`
writes the pages that changed, so that the file stays sparse. The header is written after the entries it counts are synced. After
a crash the header's count is therefore valid, and `rebuild` recreates the slots from the entries.

Physical offsets never decrease from entry to entry: `truncate` and `rebuild` rely on it and check it.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from firearrow.store.accelerated import native
from firearrow.store.filesystem import Disk, LazyFile
from firearrow.store.key_index.hashing import IntArray

HEADER_SIZE = 40
ENTRY_SIZE = 20
MAX_TIME_DIFF = 0x7FFFFFFF

_HEADER = Struct(">qqqqii")
_ENTRY = Struct(">iqii")
_ENTRY_TYPE = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("time_diff", ">i4"), ("previous", ">i4")])
_PAGE_SHIFT = 10
_SLOTS_PER_PAGE = 1 << _PAGE_SHIFT
_SLOTS_PER_READ = 1 << 15

# Chains are followed entry by entry up to this length. For longer ones (a tag shared by all messages of a topic) reading all
# older entries in bulk is cheaper, at some nanoseconds each.
_CHAIN_LIMIT = 512
_ENTRIES_PER_READ = 1 << 17
_LINKED_ENTRIES = 16  # that `is_linked` inspects
_WRITE_BEHIND = 256 * 1024  # bytes of entries to write at once

EntryArray = npt.NDArray[Any]
SlotArray = npt.NDArray[np.int32]


class IndexFile(LazyFile):
    """One index file. Not thread-safe: `KeyIndex` serialises the calls."""

    def __init__(self, disk: Disk, path: str, slot_count: int, entry_limit: int) -> None:
        super().__init__(disk, path)
        self.slot_count = slot_count
        self.entry_limit = entry_limit
        self.begin_ms = self.end_ms = 0
        self.begin_offset = self.end_offset = 0
        self.slots_in_use = 0
        self.count = 1  # number of the next entry
        self._write_behind_from = 1  # number of the first entry not passed to `write_behind`
        self.slots: SlotArray | None = None  # None: on disk only
        self._dirty_pages: npt.NDArray[np.bool_] | None = None

    @property
    def full(self) -> bool:
        return self.count >= self.entry_limit

    @property
    def empty(self) -> bool:
        return self.count <= 1

    @property
    def length(self) -> int:
        return HEADER_SIZE + 4 * self.slot_count + ENTRY_SIZE * self.entry_limit

    # -- file ----------------------------------------------------------------------------------------------------------

    def create(self, before: IndexFile | None) -> None:
        """Create the file. Until the first entry its times and offsets are the end of the previous file."""
        self._file = self._disk.open(self.path, create=True, size=self.length)
        if before is not None:
            self.begin_ms = self.end_ms = before.end_ms
            self.begin_offset = self.end_offset = before.end_offset
        self.slots = np.zeros(self.slot_count, np.int32)  # uses memory only for slots in use
        self._dirty_pages = self._clean_pages()
        self._file.pwrite(self.header(), 0)

    def load_header(self) -> bool:
        """Read the header. Return False if the file has another size or invalid values."""
        if self._disk.file_size(self.path) != self.length:
            return False
        header = self.file.pread(HEADER_SIZE, 0)
        if len(header) < HEADER_SIZE:
            return False
        self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.slots_in_use, count = _HEADER.unpack(header)
        self.count = self._write_behind_from = max(count, 1)
        return self.count <= self.entry_limit and 0 <= self.begin_offset <= self.end_offset

    def header(self) -> bytes:
        return _HEADER.pack(self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.slots_in_use, self.count)

    def write_header(self, header: bytes) -> None:
        self.file.pwrite(header, 0)

    def sync(self) -> None:
        self.file.fdatasync()

    @property
    def should_write_behind(self) -> bool:
        """True if enough entries are only in the page cache."""
        return (self.count - self._write_behind_from) * ENTRY_SIZE >= _WRITE_BEHIND

    def write_behind(self) -> None:
        """Start writing the new entries to disk."""
        first, end = min(self._write_behind_from, self.count), self.count
        self.file.write_behind(self._position(first), ENTRY_SIZE * (end - first))
        self._write_behind_from = end

    def write_slots(self) -> None:
        """Write the pages of slots that changed since they were read or last written."""
        if self.slots is None or self._dirty_pages is None:
            return
        dirty = np.flatnonzero(self._dirty_pages)
        if not len(dirty):
            return
        breaks = np.flatnonzero(np.diff(dirty) > 1) + 1
        for pages in np.split(dirty, breaks):
            first, last = int(pages[0]) * _SLOTS_PER_PAGE, (int(pages[-1]) + 1) * _SLOTS_PER_PAGE
            self.file.pwrite(self.slots[first:last].astype(">i4").tobytes(), HEADER_SIZE + 4 * first)
        self._dirty_pages[:] = False

    def release_slots(self) -> None:
        self.slots = self._dirty_pages = None

    # -- adding entries ------------------------------------------------------------------------------------------------

    def put(self, hashes: IntArray, offsets: IntArray, store_ms: IntArray) -> None:
        """Add entries, no more than fit, with one write. OSError leaves the file unchanged."""
        slots, added = self._writable_slots(), len(hashes)
        first_ms = int(store_ms[0])
        begin_ms = first_ms if self.empty else self.begin_ms
        if native is None:
            entries, fresh = self._link_entries(slots, hashes, offsets, store_ms, begin_ms)
        else:
            entries, fresh = native.put_entries(
                slots, self._dirty_pages, hashes, offsets, store_ms, 0, added, self.count, self.begin_ms, begin_ms
            )
        try:
            self.file.pwrite(entries, self._position(self.count))
        except OSError:
            self._unlink(slots, np.frombuffer(entries, _ENTRY_TYPE))
            raise
        if self.empty:
            self.begin_ms, self.begin_offset = first_ms, int(offsets[0])
        self.end_ms, self.end_offset = int(store_ms[-1]), int(offsets[-1])
        self.slots_in_use += fresh
        self.count += added
        assert self.count <= self.entry_limit, "more entries than the file holds"

    def _link_entries(
        self, slots: SlotArray, hashes: IntArray, offsets: IntArray, store_ms: IntArray, begin_ms: int
    ) -> tuple[bytes, int]:
        """Link new entries into the slots, as `native.put_entries` does. Return their bytes and how many slots were empty."""
        at = hashes % self.slot_count
        previous = _link(slots, at, self.count)
        entries = np.empty(len(hashes), _ENTRY_TYPE)
        entries["hash"] = hashes
        entries["offset"] = offsets
        entries["time_diff"] = _time_diffs(store_ms, begin_ms)
        entries["previous"] = previous
        if self.empty:
            entries["time_diff"][0] = _time_diff(begin_ms, self.begin_ms)
        slots[at] = np.arange(self.count, self.count + len(hashes))  # the newest of several in one slot is assigned last and wins
        self._mark_dirty(at)
        return entries.tobytes(), int(np.count_nonzero(previous == 0))

    # -- lookup -------------------------------------------------------------------------------------------------------

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return not self.empty and begin_ms <= self.end_ms and self.begin_ms <= end_ms

    def find(self, key_hash: int, begin_ms: int, end_ms: int, max_count: int) -> list[int]:
        """Return the physical offsets of the entries with this hash and a time within [begin_ms, end_ms], newest first."""
        found: list[int] = []
        number = self._slot(key_hash % self.slot_count)
        for _ in range(_CHAIN_LIMIT):
            if not 0 < number < self.count or len(found) >= max_count:
                return found
            entry_hash, offset, time_diff, previous = _ENTRY.unpack(self._read(ENTRY_SIZE, self._position(number)))
            if time_diff < 0:
                return found
            time_ms = self.begin_ms + 1000 * time_diff
            if entry_hash == key_hash and begin_ms <= time_ms <= end_ms:
                found.append(offset)
            if time_ms < begin_ms or previous >= number:
                return found
            number = previous
        return found + self._find_below(number, key_hash, begin_ms, end_ms, max_count - len(found))

    def _find_below(self, number: int, key_hash: int, begin_ms: int, end_ms: int, max_count: int) -> list[int]:
        found: list[int] = []
        last = number + 1 if 0 < number < self.count else 1
        while last > 1 and len(found) < max_count:
            first = max(1, last - _ENTRIES_PER_READ)
            entries = self.entries(first, last)
            hits = entries[entries["hash"] == key_hash]
            times_ms = self.begin_ms + 1000 * hits["time_diff"].astype(np.int64)
            hits = hits[(times_ms >= begin_ms) & (times_ms <= end_ms)]
            found += hits["offset"][::-1].tolist()
            if len(entries) and self.begin_ms + 1000 * int(entries["time_diff"][0]) < begin_ms:
                break
            last = first
        return found[:max_count]

    def entries(self, first: int, last: int) -> EntryArray:
        """Read the entries numbered first..last-1."""
        data = self._read(ENTRY_SIZE * (last - first), self._position(first))
        return np.frombuffer(data, _ENTRY_TYPE)

    # -- truncation and rebuilding -------------------------------------------------------------------------------------

    def count_below(self, offset: int) -> int:
        """Return the number of the first entry whose physical offset is `offset` or more."""
        numbers = range(self.count)
        return bisect_left(numbers, offset, lo=1, key=lambda number: int(self.entries(number, number + 1)["offset"][0]))

    def truncate(self, count: int) -> None:
        """Drop the entries from number `count`. At least one must stay. The end time becomes that of the last, in seconds."""
        assert 1 < count <= self.count, "an index file without entries must be deleted"
        slots = self._writable_slots()
        last = self.count
        while last > count:
            first = max(count, last - _ENTRIES_PER_READ)
            entries = self.entries(first, last)
            self._unlink(slots, entries)
            last = first
        self.slots_in_use = int(np.count_nonzero(slots))
        self.count = count
        self._end_at_last_entry()

    def _unlink(self, slots: SlotArray, entries: EntryArray) -> None:
        """Remove the newest entries from their chains."""
        at = entries["hash"].astype(np.int64) % self.slot_count
        slots[at[::-1]] = entries["previous"][::-1]  # the oldest of several in one slot is assigned last and wins
        self._mark_dirty(at)

    def is_linked(self) -> bool:
        """Return whether the newest entries can be reached from their slots. After a crash the slots on disk may be older."""
        first = max(1, self.count - _LINKED_ENTRIES)
        entries = self.entries(first, self.count) if not self.empty else ()
        return all(self._slot(int(one["hash"]) % self.slot_count) >= first + i for i, one in enumerate(entries))

    def rebuild(self) -> bool:
        """Rebuild the slots from the entries, up to the first invalid one. Return whether all are valid."""
        counted = self.count
        slots = np.zeros(self.slot_count, np.int32)
        number, offset = 1, self.begin_offset
        while number < counted:
            entries = self.entries(number, min(counted, number + _ENTRIES_PER_READ))
            good = _count_plausible(entries, offset)
            at = entries["hash"][:good].astype(np.int64) % self.slot_count
            wrong = np.flatnonzero(_link(slots, at, number) != entries["previous"][:good])
            if len(wrong):
                good = int(wrong[0])
            slots[at[:good]] = np.arange(number, number + good)
            number += good
            if good < len(entries):
                break
            offset = int(entries["offset"][-1])
        self._use_slots(slots)
        self.slots_in_use = int(np.count_nonzero(slots))
        self.count = number
        if number < counted:
            self._end_at_last_entry()
        return number == counted

    def _end_at_last_entry(self) -> None:
        if not self.empty:
            last = self.entries(self.count - 1, self.count)[0]
            self.end_offset = int(last["offset"])
            # The time of the first entry is the begin of the file.
            self.end_ms = self.begin_ms + (1000 * int(last["time_diff"]) if self.count > 2 else 0)

    # -- slots ---------------------------------------------------------------------------------------------------------

    def _slot(self, slot: int) -> int:
        if self.slots is not None:
            return int(self.slots[slot])
        return int.from_bytes(self._read(4, HEADER_SIZE + 4 * slot), "big", signed=True)

    def _writable_slots(self) -> SlotArray:
        if self.slots is not None:
            return self.slots
        slots = self._slots_on_disk()
        self.slots, self._dirty_pages = slots, self._clean_pages()
        if int(slots.min()) < 0 or int(slots.max()) >= self.count:
            invalid = np.flatnonzero((slots < 0) | (slots >= self.count))
            slots[invalid] = 0
            self._mark_dirty(invalid)
        return slots

    def _slots_on_disk(self) -> SlotArray:
        slots = np.zeros(self.slot_count, np.int32)  # uses memory only where values are stored
        for first in range(0, self.slot_count, _SLOTS_PER_READ):
            count = min(_SLOTS_PER_READ, self.slot_count - first)
            values = np.frombuffer(self._read(4 * count, HEADER_SIZE + 4 * first), ">i4")
            if values.any():
                slots[first : first + count] = values
        return slots

    def _use_slots(self, slots: SlotArray) -> None:
        """Replace the slots. Those that differ from the disk become dirty."""
        self.slots, self._dirty_pages = slots, self._clean_pages()
        self._mark_dirty(np.flatnonzero(self._slots_on_disk() != slots))

    def _clean_pages(self) -> npt.NDArray[np.bool_]:
        return np.zeros(-(-self.slot_count // _SLOTS_PER_PAGE), np.bool_)

    def _mark_dirty(self, slots: IntArray) -> None:
        assert self._dirty_pages is not None, "slots in memory have dirty-page flags"
        self._dirty_pages[slots >> _PAGE_SHIFT] = True

    def _position(self, number: int) -> int:
        return HEADER_SIZE + 4 * self.slot_count + ENTRY_SIZE * number

    def _read(self, size: int, offset: int) -> bytes:
        data = self.file.pread(size, offset)
        if len(data) < size:
            raise OSError(errno.EIO, f"index file ends at {offset + len(data)}, expected {size} bytes at {offset}")
        return data


def _link(slots: SlotArray, at: IntArray, first: int) -> IntArray:
    """Return the previous entry of each new entry. They are numbered from `first` and go into the slots `at`.

    Sorting (slot, position) as one number groups the entries of a slot in order, faster than a stable argsort.
    """
    ordered = np.sort((at << 32) | np.arange(len(at)))
    positions = ordered & 0xFFFFFFFF
    ordered >>= 32
    follows = np.flatnonzero(ordered[1:] == ordered[:-1])
    previous = slots[at].astype(np.int64)
    previous[positions[follows + 1]] = positions[follows] + first
    return previous


def _time_diffs(store_ms: IntArray, begin_ms: int) -> IntArray | int:
    first, last = _time_diff(int(store_ms.min()), begin_ms), _time_diff(int(store_ms.max()), begin_ms)
    if first == last:
        return first  # a run is rarely longer than a second
    return np.clip((store_ms - begin_ms) // 1000, 0, MAX_TIME_DIFF)


def _time_diff(store_ms: int, begin_ms: int) -> int:
    return min(max((store_ms - begin_ms) // 1000, 0), MAX_TIME_DIFF) if begin_ms > 0 else 0


def _count_plausible(entries: EntryArray, offset: int) -> int:
    """Count the leading entries that are plausible: no negative fields, offsets that do not decrease, not blank."""
    offsets = entries["offset"].astype(np.int64)
    before = np.concatenate((np.array([offset]), offsets[:-1]))
    good = (offsets >= before) & (entries["hash"] >= 0) & (entries["time_diff"] >= 0)
    good &= (offsets > 0) | (entries["hash"] != 0) | (entries["previous"] != 0)
    return len(entries) if good.all() else int(np.argmin(good))
