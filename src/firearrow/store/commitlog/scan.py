"""Where the records of a run of commit-log bytes are, and where their parts are: what every columnar reader does first.

`walk` follows TOTALSIZE from record to record, the only step that needs a Python loop. It looks at sizes and magic numbers alone,
so it may follow a wrong size for a while; `parts` then says for all records at once which of them are what they claim to be.
`starts` finds the same in half the time where many small records lie: it begins at many places at once.
Nothing here raises for what the bytes say or reads outside of the buffer. Layout: `wire/record.py`.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from firearrow.store.key_index.hashing import IntArray
from firearrow.wire import record

_size_and_magic = Struct(">ii").unpack_from

_LANE = 16 * 1024  # bytes that are walked by themselves: fewer make it dear to find their first record, more take more steps
_IN_A_LANE = 8  # records that must be expected in a lane, and lanes in a buffer; else walking costs next to nothing anyway


class Stop(Enum):
    """Why a scan went no further. Only END and BLANK are how a healthy log may end inside a segment that is not the last."""

    END = "the buffer ends here, perhaps inside a record"
    BLANK = "end-of-segment filler"
    ZERO = "nothing was written here"
    BAD_MAGIC = "no record begins here"
    BAD_SIZE = "the parts of the record do not add up to its TOTALSIZE"
    BAD_CRC = "the body does not match its BODYCRC"
    WRONG_OFFSET = "PHYSICALOFFSET is that of another place"


def walk(buffer: bytes, position: int = 0, limit: int | None = None) -> tuple[list[int], int, Stop, int]:
    """Start positions of what look like records, from `position` on, of those that begin before `limit`.

    And the position of the first byte that is not part of one, why, and the size of what is there as far as known.
    """
    positions: list[int] = []
    found = positions.append
    size_and_magic = _size_and_magic
    version_1, version_2, least = record.MAGIC_V1, record.MAGIC_V2, record.FIXED_BYTES_V1
    length = len(buffer)
    last = length - 7 if limit is None else min(limit, length - 7)
    while position < last:
        size, magic = size_and_magic(buffer, position)
        if magic != version_1 and magic != version_2:
            return positions, position, _stop_at(size, magic), 8
        following = position + size
        if following > length or size < least:
            return positions, position, Stop.BAD_SIZE if size < least else Stop.END, size
        found(position)
        position = following
    return positions, position, Stop.END, 8


def starts(buffer: bytes, position: int = 0, limit: int | None = None) -> tuple[IntArray, int, Stop, int]:
    """What `walk` finds, as an array."""
    found, at = _side_by_side(buffer, position, len(buffer) if limit is None else min(limit, len(buffer)))
    rest, at, stop, needed = walk(buffer, at, limit)
    return np.concatenate((found, np.array(rest, np.int64))), at, stop, needed


def _side_by_side(buffer: bytes, position: int, end: int) -> tuple[IntArray, int]:
    """Start positions of records, and where the next one begins: as many as are found easily, perhaps none.

    Every lane begins where a magic number is found, which may be inside of a body. But walks from the beginning of one lane that
    all arrive exactly at the beginning of the next are together the walk from the first one; if any does not, nothing is said.
    """
    nothing = np.zeros(0, np.int64)
    size = int.from_bytes(buffer[position : position + 4], "big")
    if size * _IN_A_LANE > _LANE or end - position < _IN_A_LANE * _LANE:
        return nothing, position
    magic = buffer[position + 4 : position + 8]
    found = [buffer.find(magic, begin, begin + _LANE) - 4 for begin in range(position + _LANE, end - _LANE, _LANE)]
    lanes = np.array([position, *(place for place in found if place > position)], np.int64)
    at, ends = lanes[:-1], lanes[1:]
    words: npt.NDArray[Any] = np.ndarray((len(buffer) - 7,), ">i8", buffer, strides=(1,))
    passed, seen = [nothing], [nothing]
    while len(at):
        size_and_magic = words[at].astype(np.int64)
        passed.append(at)
        seen.append(size_and_magic)
        sizes = size_and_magic >> 32
        at = at + sizes
        if sizes.min() < record.FIXED_BYTES_V1 or (at > ends).any():
            return nothing, position
        going = at < ends
        if not going.all():
            at, ends = at[going], ends[going]
    magics = np.concatenate(seen).astype(np.int32)
    if not ((magics == record.MAGIC_V1) | (magics == record.MAGIC_V2)).all():
        return nothing, position
    return np.sort(np.concatenate(passed)), int(lanes[-1])


def _stop_at(size: int, magic: int) -> Stop:
    if magic == record.MAGIC_BLANK:
        return Stop.BLANK
    return Stop.ZERO if size == magic == 0 else Stop.BAD_MAGIC


def heads(buffer: bytes, start: IntArray, fields: np.dtype[Any]) -> npt.NDArray[Any]:
    """The first 88 bytes of every record, side by side, as fields of a dtype of that size."""
    if not len(start):
        return np.zeros(0, fields)
    found = np.ndarray((len(buffer) - record.HEAD_BYTES + 1,), f"V{record.HEAD_BYTES}", buffer, strides=(1,))[start]
    return found.view(fields)


def parts(
    buffer: bytes, start: IntArray, size: IntArray, body_start: IntArray, body_length: IntArray, version_2: npt.NDArray[np.bool_]
) -> tuple[IntArray, IntArray, IntArray, npt.NDArray[np.bool_]]:
    """End of the body, lengths of topic and properties, and whether all parts together make up exactly the record.

    A length that leads outside its record makes it unfit; what is read in its place does not matter then.
    """
    end = start + size
    least_rest = np.where(version_2, 4, 3)
    body_end = body_start + body_length
    fits = (body_length >= 0) & (body_end + least_rest <= end)
    at = np.where(fits, body_end, start)
    topic_length = read_at(buffer, "i1", at)
    if version_2.any():
        topic_length = np.where(version_2, read_at(buffer, ">i2", at), topic_length)
    topic_end = body_end + least_rest - 2 + topic_length
    fits &= (topic_length >= 0) & (topic_end + 2 <= end)
    property_length = read_at(buffer, ">i2", np.where(fits, topic_end, start))
    fits &= (property_length >= 0) & (topic_end + 2 + property_length == end)
    return body_end, topic_length, property_length, fits


def read_at(buffer: bytes, dtype: str, at: IntArray) -> IntArray:
    """Integers at any positions, aligned or not; `buffer` holds at least one record when there are any."""
    if not len(at):
        return np.zeros(0, np.int64)
    width = np.dtype(dtype).itemsize
    values: npt.NDArray[Any] = np.ndarray((len(buffer) - width + 1,), dtype, buffer, strides=(1,))[at]
    return values.astype(np.int64)
