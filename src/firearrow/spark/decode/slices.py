"""Slices of a buffer as Arrow columns, processed together rather than one by one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

WORD: Final = 8  # bytes compared together
_TAKE: Final = pc.get_function("array_take")
_UNCHECKED: Final = pc.TakeOptions(boundscheck=False)
MASKS: Final = np.array([(1 << 8 * length) - 1 for length in range(WORD + 1)], np.uint64)


def numbers(values: npt.NDArray[Any], kind: Any) -> Any:
    """Wrap an array of numbers as an Arrow column without copying."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def repeated_text(text: str | None, count: int) -> Any:
    """Return a string column with the same value in every row."""
    return pa.repeat(pa.scalar(text, pa.string()), count)


def slices(buffer: Any, starts: Ints, ends: Ints, kind: Any) -> Any:
    """Copy slices of a buffer into one compact Arrow array. They must be in order and not overlap."""
    count = len(starts)
    if not count:
        return pa.array([], kind)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0 : 2 * count : 2] = starts
    offsets[1 : 2 * count : 2] = ends
    offsets[2 * count] = ends[-1]
    both = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    return take(both, np.arange(0, 2 * count, 2, dtype=np.int32))


def take(column: Any, indexes: npt.NDArray[np.integer[Any]]) -> Any:
    """Take elements by index, without bounds checks."""
    return _TAKE.call([column, pa.array(indexes)], _UNCHECKED)


def text_slices(buffer: Any, starts: Ints, ends: Ints) -> Any:
    """Like `slices`, as text; invalid UTF-8 is replaced."""
    return valid_text(slices(buffer, starts, ends, pa.string()))


def common_slice(buffer: bytes, starts: Ints, ends: Ints) -> bytes | None:
    """Return the content of the slices if a cheap comparison shows that all are equal. They must be in order."""
    length = int(ends[0] - starts[0]) if len(starts) else 0
    if not length or int(starts[-1]) + WORD > len(buffer) or (ends - starts != length).any():
        return None
    words = words_of(buffer)
    mask = MASKS[min(length, WORD)]
    for position in range(0, length, WORD):
        found = words[starts + min(position, max(0, length - WORD))]
        if ((found ^ found[0]) & mask).any():
            return None
    return buffer[int(starts[0]) : int(ends[0])]


def words_of(data: Any) -> npt.NDArray[np.uint64]:
    """Return a view of the 8-byte words at every position of the data."""
    return np.ndarray((len(data) - WORD + 1,), "<u8", data, strides=(1,))


def valid_text(column: Any) -> Any:
    """Replace invalid UTF-8 in a string column."""
    if len(column) == 0 or _content(column).isascii():
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.view(pa.binary()).to_pylist()
        return pa.array([None if value is None else value.decode("utf-8", "replace") for value in raw], pa.string())
    return column


def _content(column: Any) -> bytes:
    """Return the data buffer of a binary column."""
    data = column.buffers()[2]
    return b"" if data is None else data.to_pybytes()
