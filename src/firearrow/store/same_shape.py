"""Key hashes of property blocks that all look the same: same length, same names in the same places.

Most runs of messages are like that: one program sends them, and only the digits of their keys differ. Then the places of
UNIQ_KEY, KEYS and TAGS are found in the first block and are columns of a table whose rows are the blocks: nothing is searched
in the others, they are only checked to be of the same shape. Everything else (several keys in a message, characters that are
not ASCII, a name twice, shapes that differ) is for `property_spans`, which finds the same hashes at some five times the cost.

A row is a block with 0x02 in front. The check, for every segment of the first row: each row has 0x02 in the same column, and
behind it the same name, or the same seven bytes of a longer one, which tell it from those we look for; those are compared to
their end. All rows together have as many 0x02 as the first times their number, so there are no others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firearrow.store.javahash_np import HashArray, powers_of_31

_NAMES = (b"UNIQ_KEY", b"KEYS", b"TAGS")  # in the order of their index entries
_MOST_SHAPES = 4
_WORD = 8
_MARGIN = bytes(_WORD)  # lets a word be read at any column of the last row


class AlikeHashes:
    """The hashes of a run: one row a message, one column a kind of entry."""

    __slots__ = ("factors", "hashes", "tagged")

    def __init__(self, hashes: HashArray, factors: HashArray, tagged: list[bool]) -> None:
        self.hashes = hashes  # of the values alone, without a prefix
        self.factors = factors  # 31**length, for the prefix; one row for all when they are the same
        self.tagged = tagged  # by column: whether it is TAGS


def hash_alike(blocks: Sequence[bytes]) -> AlikeHashes | None:
    """The hashes of the values of UNIQ_KEY, KEYS and TAGS; None when the blocks are not of one simple shape, or of a few."""
    lengths = list(map(len, blocks))
    distinct = set(lengths)
    if len(distinct) == 1:
        return _hash_same(blocks)
    if len(distinct) > _MOST_SHAPES:
        return None
    # The same names with numbers of some other digits: as many tables as there are lengths.
    whole: AlikeHashes | None = None
    for length in distinct:
        rows = [number for number, other in enumerate(lengths) if other == length]
        part = _hash_same([blocks[number] for number in rows])
        if part is None or (whole is not None and whole.tagged != part.tagged):
            return None
        if whole is None:
            shape = (len(blocks), len(part.tagged))
            whole = AlikeHashes(np.empty(shape, np.uint32), np.empty(shape, np.uint32), part.tagged)
        whole.hashes[rows] = part.hashes
        whole.factors[rows] = part.factors
    return whole


def _hash_same(blocks: Sequence[bytes]) -> AlikeHashes | None:
    shape = _shape(b"\x02" + blocks[0])
    if shape is None:
        return None
    words, values, separators = shape
    data = b"".join((b"\x02", b"\x02".join(blocks), _MARGIN))
    rows, width = len(blocks), len(blocks[0]) + 1
    codes = np.frombuffer(data, np.uint8, rows * width)
    if not data.isascii() or np.count_nonzero(codes == 2) != rows * separators:
        return None
    for column, mask, word in words:
        found = np.ndarray((rows,), "<u8", data, column, (width,)) & np.uint64(mask)
        if (found != np.uint64(word)).any():
            return None
    table = codes.reshape(rows, width)
    if b"KEYS" in values and (table[:, slice(*values[b"KEYS"])] == 0x20).any():
        return None
    kinds = [name for name in _NAMES if name in values]
    powers = powers_of_31(width)
    hashes = np.empty((rows, len(kinds)), np.uint32)
    for number, name in enumerate(kinds):
        start, end = values[name]
        np.einsum("ij,j->i", table[:, start:end].astype(np.uint32), powers[end - start - 1 :: -1], out=hashes[:, number])
    factors = powers[[[end - start for start, end in map(values.__getitem__, kinds)]]]
    return AlikeHashes(hashes, factors, [name == b"TAGS" for name in kinds])


_Shape = tuple[list[tuple[int, int, int]], dict[bytes, tuple[int, int]], int]


def _shape(row: bytes) -> _Shape | None:
    """Words to compare (column, mask, value), columns of the values (start, end), number of 0x02; None if it is not simple."""
    words: list[tuple[int, int, int]] = []
    values: dict[bytes, tuple[int, int]] = {}
    column = 1
    for segment in row[1:].split(b"\x02"):
        name, _, value = segment.partition(b"\x01")
        words.append(_word(column - 1, row[column - 1 : column + min(len(name) + 1, _WORD - 1, len(segment))]))
        if name in _NAMES:
            if name in values or not value or b" " in value:
                return None
            start = column + len(name) + 1
            values[name] = (start, start + len(value))
            if len(name) + 2 > _WORD:
                words.append(_word(start - _WORD, row[start - _WORD : start]))
        elif name[: _WORD - 1] == _NAMES[0][: _WORD - 1]:
            return None
        column += len(segment) + 1
    return (words, values, row.count(b"\x02")) if values else None


def _word(column: int, compared: bytes) -> tuple[int, int, int]:
    return column, (1 << 8 * len(compared)) - 1, int.from_bytes(compared, "little")
