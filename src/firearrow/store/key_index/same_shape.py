"""Key hashes of property blocks that all look the same: same length, same names in the same places.

Most runs of messages are like that: one program sends them, and only the digits of their keys differ. Then the places of
UNIQ_KEY, KEYS and TAGS are found in the first block and are columns of a table whose rows are the blocks: nothing is searched
in the others, they are only checked to be of the same shape. Everything else (several keys in a message, characters that are
not ASCII, a name twice, shapes that are rare) is for `property_spans`, which finds the same hashes at some five times the cost.
A run may hold several shapes, such as halves of transactions, what they become, and now and then a message of the broker's own.

A row is a block with 0x02 in front. The check, for every segment of the first row: each row has 0x02 in the same column, and
behind it the same name, or the same seven bytes of a longer one, which tell it from those we look for; those are compared to
their end. All rows together have as many 0x02 as the first times their number, so there are no others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firearrow.store.key_index.hashing import HashArray, IntArray, powers_of_31

_NAMES = (b"UNIQ_KEY", b"KEYS", b"TAGS")  # in the order of their index entries
_WORTH_A_TABLE = 24  # fewer blocks of a length cost less with all the others
_WORD = 8
_MARGIN = bytes(_WORD)  # lets a word be read at any column of the last row


class UniformRunHashes:
    """The hashes of messages of one shape: one row a message, one column a kind of entry."""

    __slots__ = ("factors", "hashes", "numbers", "tagged")

    def __init__(self, numbers: IntArray, hashes: HashArray, factors: HashArray, tagged: list[bool]) -> None:
        self.numbers = numbers  # by row: which of the blocks it is
        self.hashes = hashes  # of the values alone, without a prefix
        self.factors = factors  # by column: 31**length, for the prefix
        self.tagged = tagged  # by column: whether it is TAGS


def hash_alike(blocks: Sequence[bytes]) -> tuple[list[UniformRunHashes], list[int]]:
    """The hashes of the values of UNIQ_KEY, KEYS and TAGS, a table for each shape; and the blocks that are in none of them.

    Blocks of one shape have one length. Lengths whose blocks are not all alike, and those that are rare, are left over.
    """
    lengths = list(map(len, blocks))
    if lengths.count(lengths[0]) == len(lengths):  # the usual case, and the cheapest
        alike = _hash_same(np.arange(len(blocks)), blocks)
        return ([], list(range(len(blocks)))) if alike is None else ([alike], [])
    by_length: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        by_length.setdefault(length, []).append(number)
    tables: list[UniformRunHashes] = []
    rest: list[int] = []
    for numbers in by_length.values():
        alike = None
        if len(numbers) >= _WORTH_A_TABLE:
            alike = _hash_same(np.array(numbers), [blocks[number] for number in numbers])
        if alike is None:
            rest += numbers
        else:
            tables.append(alike)
    rest.sort()
    return tables, rest


def _hash_same(numbers: IntArray, blocks: Sequence[bytes]) -> UniformRunHashes | None:
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
    return UniformRunHashes(numbers, hashes, factors, [name == b"TAGS" for name in kinds])


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
