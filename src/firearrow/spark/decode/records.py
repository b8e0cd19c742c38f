"""A run of stored records in one buffer, as pull replies and commit-log files contain them, and the positions of their parts.

`find_records` follows TOTALSIZE from record to record (`store/commitlog/scan.py`); everything else is done for all records at
once. It stops at the first byte that is not part of a valid record and says why. It never raises because of the content and never
reads outside the buffer. Hosts may be IPv4 or IPv6 and topics of version 1 or 2, mixed.

A buffer must be smaller than 2 GiB, because positions become 32-bit offsets of Arrow arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from firearrow.spark.decode.slices import Ints, common_slice
from firearrow.store.commitlog.scan import Stop, heads, parts, read_at, starts
from firearrow.wire import record

Bools = npt.NDArray[np.bool_]

_HEAD: Final = np.dtype(list(record.HEAD_FIELDS))
_MOVED: Final = {
    "store_ms": (">i8", record.AT_STORE_TIMESTAMP_V4, 1), "reconsume_times": (">i4", record.AT_RECONSUME_TIMES_V4, 2),
    "prepared_offset": (">i8", record.AT_PREPARED_OFFSET_V4, 2), "body_length": (">i4", record.AT_BODY_LENGTH_V4, 2),
}  # fmt: skip
"""Fields after the hosts: type, position if both hosts are IPv4, number of hosts before it."""


@dataclass(slots=True)
class Records:
    """Parallel arrays with one element per record; positions are relative to the start of the buffer."""

    buffer: bytes
    start: Ints
    end: Ints
    head: npt.NDArray[Any]  # fields of _HEAD, corrected for IPv6 hosts; the host fields hold IPv4 hosts only
    body_start: Ints
    body_end: Ints
    topic_start: Ints
    topic_end: Ints
    property_start: Ints
    _topic: bytes | None = field(default=None, init=False)  # common to all records, once determined

    def __len__(self) -> int:
        return len(self.start)

    def field(self, name: str) -> Ints:
        return self.head[name].astype(np.int64)

    def common_topic(self) -> bytes | None:
        """Return the topic of all records if a cheap comparison shows that it is the same."""
        if self._topic is None:
            self._topic = common_slice(self.buffer, self.topic_start, self.topic_end)
        return self._topic

    def filter(self, wanted: Bools) -> Records:
        if wanted.all():
            return self
        kept = np.flatnonzero(wanted)
        arrays = {one.name: getattr(self, one.name)[kept] for one in fields(self) if one.init and one.name != "buffer"}
        found = Records(self.buffer, **arrays)
        found._topic = self._topic
        return found


@dataclass(slots=True)
class FoundRecords:
    """Result of `find_records`."""

    records: Records
    end: int  # position of the first byte that is not part of a valid record
    stop: Stop
    needed: int  # size of the record at `end` as far as known; with Stop.END, read this many bytes from there and continue


def find_records(buffer: bytes, base_offset: int | None = None, begin: int = 0, limit: int | None = None) -> FoundRecords:
    """Return the valid records from `begin` on that start before `limit`.

    `base_offset` is the physical offset of the buffer's first byte; if given, each PHYSICALOFFSET is checked against it.
    """
    start, at, stop, needed = starts(buffer, begin, limit)
    head = heads(buffer, start, _HEAD)
    end = start + head["size"].astype(np.int64)
    body_start = start + record.HEAD_BYTES
    flags = head["sys_flag"].astype(np.int64) & (record.BORN_HOST_V6 | record.STORE_HOST_V6)
    if flags.any():
        _correct_for_ipv6(buffer, start, flags, head, body_start)
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
        records = records.filter(np.arange(len(start)) < bad)
    return FoundRecords(records, at, stop, needed)


def _correct_for_ipv6(buffer: bytes, start: Ints, flags: Ints, head: npt.NDArray[Any], body_start: Ints) -> None:
    """Read the fields after IPv6 hosts from their actual positions."""
    rows = np.flatnonzero(flags)
    born = np.where(flags[rows] & record.BORN_HOST_V6, record.IPV6_EXTRA_BYTES, 0)
    both = born + np.where(flags[rows] & record.STORE_HOST_V6, record.IPV6_EXTRA_BYTES, 0)
    for name, (dtype, place, hosts) in _MOVED.items():
        width = np.dtype(dtype).itemsize
        # A record too short for its hosts may end the buffer. Clamp the read; the size check rejects the record later.
        head[name][rows] = read_at(
            buffer, dtype, np.minimum(start[rows] + place + (born if hosts == 1 else both), len(buffer) - width)
        )
    body_start[rows] += both
