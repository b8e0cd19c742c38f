"""A run of stored records in one buffer, and where their parts are: what pulls answer and what commit-log files hold.

`find` follows TOTALSIZE from record to record, the only step that is a Python loop; everything else is done for all records at
once. It stops at the first byte that is not part of a good record and says why; it never raises for what the bytes say and never
reads outside of the buffer. Layout: `wire/record.py`. Hosts may be IPv4 or IPv6 and topics of version 1 or 2, mixed.

A buffer must be smaller than 2 GiB: positions become 32-bit offsets of Arrow arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from firearrow.wire import record

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_size_and_magic = Struct(">ii").unpack_from
_HEAD: Final = np.dtype(
    [
        ("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"), ("queue_offset", ">i8"),
        ("physical_offset", ">i8"), ("sys_flag", ">i4"), ("born_ms", ">i8"), ("born_host", "V8"), ("store_ms", ">i8"),
        ("store_host", "V8"), ("reconsume_times", ">i4"), ("prepared_offset", ">i8"), ("body_length", ">i4"),
    ]
)  # fmt: skip
_MOVED: Final = {
    "store_ms": (">i8", 56, 1), "reconsume_times": (">i4", 72, 2), "prepared_offset": (">i8", 76, 2),
    "body_length": (">i4", 84, 2),
}  # fmt: skip
"""What lies behind the hosts: type, place if both are IPv4, how many hosts come before."""


class Stop(Enum):
    END = "the buffer ends here, perhaps inside a record"
    BLANK = "end-of-segment filler"
    ZERO = "nothing was written here"
    BAD = "no record begins here"


@dataclass(slots=True)
class Records:
    """Parallel arrays, one element per record; positions count from the start of the buffer."""

    buffer: bytes
    start: Ints
    end: Ints
    head: npt.NDArray[Any]  # fields of _HEAD, those behind IPv6 hosts included; the hosts themselves are IPv4's
    body_start: Ints
    body_end: Ints
    topic_start: Ints
    topic_end: Ints
    property_start: Ints

    def __len__(self) -> int:
        return len(self.start)

    def field(self, name: str) -> Ints:
        return self.head[name].astype(np.int64)

    def only(self, wanted: Bools) -> Records:
        if wanted.all():
            return self
        kept = np.flatnonzero(wanted)
        parts = (
            self.start,
            self.end,
            self.head,
            self.body_start,
            self.body_end,
            self.topic_start,
            self.topic_end,
            self.property_start,
        )
        return Records(self.buffer, *(part[kept] for part in parts))


@dataclass(slots=True)
class Found:
    records: Records
    end: int  # position of the first byte that is not part of a good record
    stop: Stop
    needed: int  # size of the record at `end` as far as known; with Stop.END, have so many bytes from there and go on


def find(buffer: bytes, base_offset: int | None = None, begin: int = 0, limit: int | None = None) -> Found:
    """The good records from `begin` on, of those that begin before `limit`.

    With `base_offset`, the physical offset of the buffer's first byte, PHYSICALOFFSET must be where the record lies.
    """
    positions, end, stop, needed = walk(buffer, begin, len(buffer) if limit is None else min(limit, len(buffer)))
    start = np.array(positions, np.int64)
    head = _heads(buffer, start)
    size = head["size"].astype(np.int64)
    body_start = start + record.HEAD_BYTES
    flags = head["sys_flag"].astype(np.int64) & (record.BORN_HOST_V6 | record.STORE_HOST_V6)
    if flags.any():
        _move_behind_hosts(buffer, start, flags, head, body_start)
    records, fits = _parts(buffer, start, size, head, body_start)
    if base_offset is not None:
        fits &= head["physical_offset"].astype(np.int64) == start + base_offset
    if not fits.all():
        bad = int(np.argmin(fits))
        end, stop, needed = int(start[bad]), Stop.BAD, 8
        wanted = np.zeros(len(start), np.bool_)
        wanted[:bad] = True
        records = records.only(wanted)
    return Found(records, end, stop, needed)


def walk(buffer: bytes, position: int, limit: int) -> tuple[list[int], int, Stop, int]:
    """Start positions of what look like records by magic and size alone."""
    positions: list[int] = []
    found = positions.append
    version_1, version_2, least = record.MAGIC_V1, record.MAGIC_V2, record.FIXED_BYTES_V1
    size_and_magic = _size_and_magic
    length = len(buffer)
    last = min(limit, length - 7)
    while position < last:
        size, magic = size_and_magic(buffer, position)
        if magic != version_1 and magic != version_2:
            return positions, position, _stop_at(size, magic), 8
        following = position + size
        if following > length or size < least:
            return positions, position, *((Stop.BAD, 8) if size < least else (Stop.END, size))
        found(position)
        position = following
    return positions, position, Stop.END, 8


def _stop_at(size: int, magic: int) -> Stop:
    if magic == record.MAGIC_BLANK:
        return Stop.BLANK
    return Stop.ZERO if size == magic == 0 else Stop.BAD


def _heads(buffer: bytes, start: Ints) -> npt.NDArray[Any]:
    if not len(start):
        return np.zeros(0, _HEAD)
    view: npt.NDArray[Any] = np.ndarray((len(buffer) - record.HEAD_BYTES + 1,), f"V{record.HEAD_BYTES}", buffer, strides=(1,))
    return view[start].view(_HEAD)


def _move_behind_hosts(buffer: bytes, start: Ints, flags: Ints, head: npt.NDArray[Any], body_start: Ints) -> None:
    """Reads what lies behind IPv6 hosts where it really is."""
    rows = np.flatnonzero(flags)
    born = np.where(flags[rows] & record.BORN_HOST_V6, 12, 0)
    both = born + np.where(flags[rows] & record.STORE_HOST_V6, 12, 0)
    for name, (dtype, place, hosts) in _MOVED.items():
        width = np.dtype(dtype).itemsize
        # A record too short for its hosts may end the buffer: look no further than that. It does not fit, as is seen later.
        head[name][rows] = read(
            buffer, dtype, np.minimum(start[rows] + place + (born if hosts == 1 else both), len(buffer) - width)
        )
    body_start[rows] += both


def _parts(buffer: bytes, start: Ints, size: Ints, head: npt.NDArray[Any], body_start: Ints) -> tuple[Records, Bools]:
    """The parts of all records, and which of them make up their record exactly."""
    version_2 = head["magic"] == record.MAGIC_V2
    end = start + size
    body_length = head["body_length"].astype(np.int64)
    body_end = body_start + body_length
    least = np.where(version_2, 4, 3)
    fits = (body_length >= 0) & (body_end + least <= end)
    at = np.where(fits, body_end, start)
    topic_length = read(buffer, "i1", at)
    if version_2.any():
        topic_length = np.where(version_2, read(buffer, ">i2", at), topic_length)
    topic_start = body_end + least - 2
    topic_end = topic_start + topic_length
    fits &= (topic_length >= 0) & (topic_end + 2 <= end)
    property_length = read(buffer, ">i2", np.where(fits, topic_end, start))
    property_start = topic_end + 2
    fits &= (property_length >= 0) & (property_start + property_length == end)
    return Records(buffer, start, end, head, body_start, body_end, topic_start, topic_end, property_start), fits


def read(buffer: bytes, dtype: str, at: Ints) -> Ints:
    """Integers at any positions, aligned or not."""
    if not len(at):
        return np.zeros(0, np.int64)
    values: npt.NDArray[Any] = np.ndarray((len(buffer) - np.dtype(dtype).itemsize + 1,), dtype, buffer, strides=(1,))[at]
    return values.astype(np.int64)
