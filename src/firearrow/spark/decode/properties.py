"""Property blocks of many messages as Arrow columns: a map column, or the values of single properties.

The rules for one block are those of `wire/properties.py`: split at 0x02; a segment counts if its first 0x01 is neither its first
nor its last byte; the last segment of a name wins. The closing 0x02 may be missing. Invalid UTF-8 is replaced, as in Java.

Blocks are contiguous with a 0x02 after each, so all are processed together. Usually all messages have the same names in the same
order: then names are compared as a table of words and written once. Otherwise names are dictionary-encoded, and everything after
that compares indexes.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from firearrow.spark.decode.records import Records
from firearrow.spark.decode.slices import MASKS, WORD, Ints, numbers, slices, take, text_slices, words_of

Bytes = npt.NDArray[np.uint8]

_SEPARATOR = pa.scalar("\x02")
_EMPTY = pa.scalar("")


class PropertyColumns:
    """Properties of a run of records, parsed on first use."""

    def __init__(self, records: Records) -> None:
        self.raw = text_slices(records.buffer, records.property_start, records.end)

    @cached_property
    def _segments(self) -> _Segments:
        return _Segments(self.raw)

    def map(self) -> Any:
        found = self._segments
        return pa.MapArray.from_arrays(numbers(found.offsets.astype(np.int32), pa.int32()), found.names.column(), found.values)

    def value(self, name: str) -> Any:
        """Return one property as a string column, null where a message does not have it."""
        return self._segments.value(name)


class _Segments:
    """Parallel arrays of names (encoded) and values; `offsets[i]` to `offsets[i + 1]` are the segments of message i."""

    def __init__(self, raw: Any) -> None:
        self._count = len(raw)
        terminated, bounds, codes = _with_terminators(raw)
        starts, splits, ends = _split(codes)
        self.values = slices(terminated, splits + 1, ends, pa.string())
        self.names: _UniformNames | _EncodedNames
        table = _UniformNames.detect(codes, starts, splits, bounds) if len(starts) else None
        if table is not None:
            self.names = table
            self.offsets = np.arange(self._count + 1) * table.width
        else:
            self.names = _EncodedNames(slices(terminated, starts, splits, pa.string()))
            self.offsets = np.searchsorted(starts, bounds)
            self._drop_repeated(self.names)

    def value(self, name: str) -> Any:
        at = self.names.indexes(name)
        if len(at) == self._count:  # one each: duplicates were dropped
            return take(self.values, at)
        if not len(at):
            return pa.nulls(self._count, pa.string())
        indices = np.zeros(self._count, np.int64)
        missing = np.ones(self._count, np.bool_)
        owners = np.searchsorted(self.offsets, at, "right") - 1
        indices[owners] = at
        missing[owners] = False
        return self.values.take(pa.array(indices, mask=missing))

    def _drop_repeated(self, names: _EncodedNames) -> None:
        """Keep only the last segment of each name of a message."""
        total = len(names.codes)
        if total < 2:
            return
        if len(names.dictionary) <= 62:
            filled = np.flatnonzero(np.diff(self.offsets))
            bits = np.left_shift(np.int64(1), names.codes.astype(np.int64))
            at = self.offsets[:-1][filled]
            if (np.add.reduceat(bits, at) == np.bitwise_or.reduceat(bits, at)).all():
                return
        owners = np.repeat(np.arange(self._count), np.diff(self.offsets))
        keys = owners * len(names.dictionary) + names.codes
        _, last = np.unique(keys[::-1], return_index=True)
        if len(last) == total:
            return
        kept = np.sort(total - 1 - last)
        names.codes = names.codes[kept]
        self.values = self.values.take(pa.array(kept))
        self.offsets = np.searchsorted(kept, self.offsets)


class _UniformNames:
    """Names of messages that all have the same names in the same order."""

    def __init__(self, names: list[str], count: int) -> None:
        self.width = len(names)
        self._names = names
        self._count = count

    @classmethod
    def detect(cls, codes: Bytes, starts: Ints, splits: Ints, bounds: Ints) -> _UniformNames | None:
        """None if the messages have different names, one has a name twice, or names are too long to be compared at once."""
        count = len(bounds) - 1
        width, rest = divmod(len(starts), count)
        if rest or int(starts[-1]) + WORD > len(codes) or not np.array_equal(starts[::width], bounds[:-1]):
            return None
        lengths = (splits - starts).reshape(count, width)
        first = lengths[0]
        if first.max() > 2 * WORD or (lengths != first).any():
            return None
        words = words_of(codes)
        heads = words[starts].reshape(count, width) & MASKS[np.minimum(first, WORD)]
        if (heads != heads[0]).any():
            return None
        for column in np.flatnonzero(first > WORD).tolist():
            tails = words[splits[column::width] - WORD]
            if (tails != tails[0]).any():
                return None
        names = [codes[begin:end].tobytes().decode() for begin, end in zip(starts[:width], splits[:width], strict=True)]
        return cls(names, count) if len(set(names)) == width else None

    def column(self) -> Any:
        encoded = [name.encode() for name in self._names]
        ends = np.cumsum([len(name) for name in encoded], dtype=np.int32)
        offsets = np.zeros(self._count * len(ends) + 1, np.int32)
        offsets[1:] = (np.arange(self._count, dtype=np.int32)[:, None] * ends[-1] + ends).ravel()
        data = pa.py_buffer(b"".join(encoded) * self._count)
        return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])

    def indexes(self, name: str) -> Ints:
        """Return the indexes of the segments with this name."""
        if name not in self._names:
            return np.zeros(0, np.int64)
        return np.arange(self._names.index(name), self._count * len(self._names), len(self._names))


class _EncodedNames:
    """Arbitrary names, dictionary-encoded."""

    def __init__(self, names: Any) -> None:
        encoded = names.dictionary_encode()
        self.dictionary = encoded.dictionary
        self.codes: npt.NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)

    def column(self) -> Any:
        return self.dictionary.take(pa.array(self.codes))

    def indexes(self, name: str) -> Ints:
        code = self.dictionary.index(name).as_py() if len(self.dictionary) else -1
        return np.flatnonzero(self.codes == code) if code >= 0 else np.zeros(0, np.int64)


def _with_terminators(raw: Any) -> tuple[Any, Ints, Bytes]:
    """Add the closing 0x02 to non-empty blocks that lack it; return the Arrow buffer, the bounds and the bytes."""
    for _ in range(2):
        bounds = np.frombuffer(raw.buffers()[1], np.int32)[raw.offset : raw.offset + len(raw) + 1].astype(np.int64)
        data = raw.buffers()[2]
        codes = np.frombuffer(data, np.uint8)[: int(bounds[-1])] if data is not None and data.size else np.zeros(0, np.uint8)
        last = bounds[1:][np.diff(bounds) > 0] - 1
        if (codes[last] == 2).all():
            break
        raw = pc.binary_join_element_wise(raw, _SEPARATOR, _EMPTY)  # the last argument is the join separator
    return data, bounds, codes


def _split(codes: Bytes) -> tuple[Ints, Ints, Ints]:
    """Return start, first 0x01 and end of each valid segment."""
    marks = np.flatnonzero(codes - np.uint8(1) <= 1)  # 0x01 and 0x02: zero becomes 255
    kinds = codes[marks]
    if len(marks) % 2 == 0 and (kinds[::2] == 1).all() and (kinds[1::2] == 2).all():  # the usual case: they alternate
        splits, ends = marks[::2], marks[1::2]
    else:
        ends = marks[kinds == 2]
        splits = None
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1] + 1
    if splits is None:
        splits = _first_in(marks[kinds == 1], starts, ends)
    good = (splits > starts) & (splits < ends - 1)
    if good.all():
        return starts, splits, ends
    kept = np.flatnonzero(good)
    return starts[kept], splits[kept], ends[kept]


def _first_in(marks: Ints, starts: Ints, ends: Ints) -> Ints:
    """Return the first mark of each segment, or its end."""
    at = np.searchsorted(marks, starts)
    found = np.append(marks, 0)[at]
    return np.where((at < len(marks)) & (found < ends), found, ends)
