"""A run of stored records in one buffer, and where their parts are: what pulls answer and what commit-log files hold.

`find` follows TOTALSIZE from record to record (`store/record_walk.py`); everything else is done for all records at once. It stops
at the first byte that is not part of a good record and says why; it never raises for what the bytes say and never reads outside
of the buffer. Hosts may be IPv4 or IPv6 and topics of version 1 or 2, mixed.

A buffer must be smaller than 2 GiB: positions become 32-bit offsets of Arrow arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from firearrow.spark.decode.slices import Ints, common_slice
from firearrow.store.commitlog.scan import Stop, heads, parts, read_at, starts
from firearrow.wire import record

Bools = npt.NDArray[np.bool_]

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
    _topic: bytes | None = field(default=None, init=False)  # of all, once that is known

    def __len__(self) -> int:
        return len(self.start)

    def field(self, name: str) -> Ints:
        return self.head[name].astype(np.int64)

    def common_topic(self) -> bytes | None:
        """The topic of all records, if they are seen to have the same."""
        if self._topic is None:
            self._topic = common_slice(self.buffer, self.topic_start, self.topic_end)
        return self._topic

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
        found = Records(self.buffer, *(part[kept] for part in parts))
        found._topic = self._topic
        return found


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
    start, at, stop, needed = starts(buffer, begin, limit)
    head = heads(buffer, start, _HEAD)
    end = start + head["size"].astype(np.int64)
    body_start = start + record.HEAD_BYTES
    flags = head["sys_flag"].astype(np.int64) & (record.BORN_HOST_V6 | record.STORE_HOST_V6)
    if flags.any():
        _move_behind_hosts(buffer, start, flags, head, body_start)
    body_end, topic_length, property_length, fits = parts(
        buffer, start, end - start, body_start, head["body_length"].astype(np.int64), head["magic"] == record.MAGIC_V2
    )
    property_start = end - property_length
    topic_end = property_start - 2
    records = Records(buffer, start, end, head, body_start, body_end, topic_end - topic_length, topic_end, property_start)
    in_place = fits if base_offset is None else head["physical_offset"].astype(np.int64) == start + base_offset
    if not (fits.all() and in_place.all()):
        bad = int(np.argmin(fits & in_place))
        at, stop, needed = int(start[bad]), Stop.WRONG_OFFSET if fits[bad] else Stop.BAD_SIZE, 8
        records = records.only(np.arange(len(start)) < bad)
    return Found(records, at, stop, needed)


def _move_behind_hosts(buffer: bytes, start: Ints, flags: Ints, head: npt.NDArray[Any], body_start: Ints) -> None:
    """Reads what lies behind IPv6 hosts where it really is."""
    rows = np.flatnonzero(flags)
    born = np.where(flags[rows] & record.BORN_HOST_V6, 12, 0)
    both = born + np.where(flags[rows] & record.STORE_HOST_V6, 12, 0)
    for name, (dtype, place, hosts) in _MOVED.items():
        width = np.dtype(dtype).itemsize
        # A record too short for its hosts may end the buffer: look no further than that. It does not fit, as is seen later.
        head[name][rows] = read_at(
            buffer, dtype, np.minimum(start[rows] + place + (born if hosts == 1 else both), len(buffer) - width)
        )
    body_start[rows] += both
