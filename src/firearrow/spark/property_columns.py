"""Property blocks of many messages as Arrow columns: the whole as a map, or the values of single names.

The rules for one block are those of `wire/properties.py`: split at 0x02; a segment counts when its first 0x01 is neither its
first nor its last byte; of segments with one name the last counts. The closing 0x02 may be missing. Bytes that are not UTF-8 are
replaced, as Java does.

Blocks are joined with a 0x02 behind each, so none needs to be looked at on its own. Names are few and repeat: they become
numbers once, and everything after that compares numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from firearrow.spark.records import Ints, Records

_SEPARATOR = pa.scalar("\x02")
_NOTHING = pa.scalar("")


def slices(buffer: Any, starts: Ints, ends: Ints, kind: Any) -> Any:
    """Pieces of a buffer as one compact Arrow array; they must not overlap and must be in order."""
    count = len(starts)
    if not count:
        return pa.array([], kind)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0 : 2 * count : 2] = starts
    offsets[1 : 2 * count : 2] = ends
    offsets[2 * count] = ends[-1]
    both = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def text_slices(buffer: Any, starts: Ints, ends: Ints) -> Any:
    """The same as text; what is not UTF-8 is replaced."""
    return valid_text(slices(buffer, starts, ends, pa.string()))


def valid_text(column: Any) -> Any:
    """Strings whose bytes come from others, made good where they are not UTF-8."""
    if len(column) == 0:
        return column
    data = content(column)
    if data.isascii():
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.view(pa.binary()).to_pylist()
        return pa.array([None if value is None else value.decode("utf-8", "replace") for value in raw], pa.string())
    return column


def content(column: Any) -> bytes:
    """All bytes of a binary column, side by side."""
    data = column.buffers()[2]
    return b"" if data is None else data.to_pybytes()


class PropertyColumns:
    def __init__(self, records: Records) -> None:
        self.count = len(records)
        self.raw = text_slices(records.buffer, records.property_start, records.end)
        self._segments: _Segments | None = None

    def map(self) -> Any:
        found = self._found()
        return pa.MapArray.from_arrays(pa.array(found.offsets, pa.int32()), found.names(), found.values)

    def value(self, name: str) -> Any:
        """One property as a string column, null where a message has none."""
        return self._found().value(name)

    def _found(self) -> _Segments:
        if self._segments is None:
            self._segments = _Segments(self.raw)
        return self._segments


class _Segments:
    """`offsets[i]` to `offsets[i + 1]` are the segments of message i: parallel arrays of names (as numbers) and values."""

    def __init__(self, raw: Any) -> None:
        self._count = len(raw)
        joined = pc.binary_join_element_wise(raw, _SEPARATOR, _NOTHING)  # the last one is the separator
        offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + self._count + 1].astype(np.int64)
        data = joined.buffers()[2]
        codes = np.frombuffer(data, np.uint8)[: int(offsets[-1])]
        ends = np.flatnonzero(codes == 2)
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
        splits = _first_in(np.flatnonzero(codes == 1), starts, ends)
        kept = np.flatnonzero((splits > starts) & (splits < ends - 1))
        starts, splits, ends = starts[kept], splits[kept], ends[kept]
        encoded = slices(data, starts, splits, pa.string()).dictionary_encode()
        self._dictionary = encoded.dictionary
        self._codes: npt.NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
        self.values = slices(data, splits + 1, ends, pa.string())
        self.offsets = np.searchsorted(starts, offsets)
        self._drop_repeated()

    def names(self) -> Any:
        return self._dictionary.take(pa.array(self._codes))

    def value(self, name: str) -> Any:
        number = self._dictionary.index(name).as_py() if len(self._dictionary) else -1
        if number < 0:
            return pa.nulls(self._count, pa.string())
        at = np.flatnonzero(self._codes == number)
        if len(at) == self._count:  # one each: repeated ones are gone
            return self.values.take(pa.array(at))
        indices = np.zeros(self._count, np.int64)
        missing = np.ones(self._count, np.bool_)
        owners = np.searchsorted(self.offsets, at, "right") - 1
        indices[owners] = at
        missing[owners] = False
        return self.values.take(pa.array(indices, mask=missing))

    def _drop_repeated(self) -> None:
        """A later segment of a name replaces an earlier one of the same message."""
        total = len(self._codes)
        if total < 2:
            return
        if len(self._dictionary) <= 62:
            filled = np.flatnonzero(np.diff(self.offsets))
            bits = np.left_shift(np.int64(1), self._codes.astype(np.int64))
            at = self.offsets[:-1][filled]
            if (np.add.reduceat(bits, at) == np.bitwise_or.reduceat(bits, at)).all():
                return
        owners = np.repeat(np.arange(self._count), np.diff(self.offsets))
        keys = owners * len(self._dictionary) + self._codes
        _, last = np.unique(keys[::-1], return_index=True)
        if len(last) == total:
            return
        kept = np.sort(total - 1 - last)
        self._codes = self._codes[kept]
        self.values = self.values.take(pa.array(kept))
        self.offsets = np.searchsorted(kept, self.offsets)


def _first_in(marks: Ints, starts: Ints, ends: Ints) -> Ints:
    """The first mark of each segment; its end where there is none."""
    if len(marks) == len(starts) and (marks >= starts).all() and (marks < ends).all():
        return marks  # the usual case: one each
    at = np.searchsorted(marks, starts)
    found = np.append(marks, 0)[at]
    return np.where((at < len(marks)) & (found < ends), found, ends)
