"""Keys of many messages at once: Java's `String.hashCode`, and finding keys and tags in property blocks.

Hashing. The hash of a string of UTF-16 units `c[0..n)` is `sum(c[i] * 31**(n-1-i))` modulo 2**32. Three facts make it fast to
compute for thousands of keys with a few numpy calls:

- Units may be summed in any grouping. Eight ASCII characters are one 64-bit word, folded to one 32-bit number in three steps:
  pairs of bytes to 16-bit lanes (weight 31), pairs of lanes to 32-bit lanes (31**2), and those to one number (31**4). The largest
  lane values, 127*32 and 127*32*962, fit, so no step overflows before the last, where the wrap is the wanted modulus.
- Leading zeros do not change a hash, and z trailing zeros multiply it by 31**z. So a key is read as the aligned words that it
  touches, with all other bytes masked. (numpy is slow at unaligned reads.)
- 31 is odd, so 31**z has an inverse modulo 2**32, which removes the trailing zeros again.

Keys with a byte above 0x7F are hashed one by one with `wire.java_hash`, because their characters are not their bytes.

`hash(a + b) == hash(a) * 31**len(b) + hash(b)`: the factor `31**len` is returned with the hashes, so that a prefix shared by many
keys (`topic#`) is hashed once.

Property blocks. A block is `name 0x01 value 0x02` repeated; the final 0x02 may be missing (4.x brokers strip it). Rules for one
block: split it at 0x02; a segment counts only if its first 0x01 is neither its first nor its last byte; a later segment of the
same name replaces an earlier one. KEYS holds tokens between single spaces; empty tokens do not count.

`find_spans` finds UNIQ_KEY, KEYS and TAGS in any blocks. `hash_uniform_runs` is about five times as fast for blocks of one shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from firearrow.wire.java_hash import hash_code

IntArray = npt.NDArray[np.int64]
HashArray = npt.NDArray[np.uint32]

MASK_32 = 0xFFFFFFFF

_HIGH_BITS = np.uint64(0x8080808080808080)
_EVERY_2ND_BYTE = np.uint64(0x00FF00FF00FF00FF)
_EVERY_2ND_PAIR = np.uint64(0x0000FFFF0000FFFF)
_LOW_HALF = np.uint64(0x00000000FFFFFFFF)
_8, _16, _32 = np.uint64(8), np.uint64(16), np.uint64(32)
_31, _31_2, _31_4 = np.uint64(31), np.uint64(31**2), np.uint64(31**4)

_ALL = 0xFFFFFFFFFFFFFFFF
# Indexed by the position of a key's first byte in its word: masks the bytes before it.
_FROM = np.array([(_ALL << 8 * n) & _ALL for n in range(8)], np.uint64)
# Indexed by the position of the byte after a key in its word: masks that byte and those behind. Position 0 is in the next word.
_UP_TO = np.array([_ALL] + [_ALL >> (64 - 8 * n) for n in range(1, 8)], np.uint64)
_REMOVE_ZEROS = np.array([1] + [pow(31, n - 8, 1 << 32) for n in range(1, 8)], np.uint32)


def hash_spans(data: bytes, starts: IntArray, lengths: IntArray) -> tuple[HashArray, HashArray]:
    """Return the unsigned hashes of the keys `data[start:start+length]`, and 31**(length in UTF-16 units) of each.

    Costs about 40 numpy calls and 15 ns per 8 bytes of key. Data with 8 bytes or more behind its last key is not copied.
    """
    if not len(starts):
        return np.zeros(0, np.uint32), np.zeros(0, np.uint32)
    ends = starts + lengths
    if int(ends.max()) >= len(data) & -8:
        data += bytes(8)
    first_words = starts >> 3
    word_counts = np.maximum(((ends + 7) >> 3) - first_words, 1)
    stops = np.cumsum(word_counts)
    begins = stops - word_counts
    numbers = np.arange(int(stops[-1]))
    words = np.frombuffer(data, "<u8", len(data) >> 3)[np.repeat(first_words - begins, word_counts) + numbers]
    lasts = stops - 1
    places = ends & 7
    words[begins] &= _FROM[starts & 7]
    words[lasts] &= _UP_TO[places]
    powers, word_powers = _powers_for(int(lengths.max()) + 16)
    folded = _fold(words)
    folded *= word_powers[np.repeat(lasts, word_counts) - numbers]
    hashes = _sums(folded, begins, lasts)
    hashes *= _REMOVE_ZEROS[places]
    factors = powers[lengths]
    if int(lengths.min()) == 0:
        hashes[lengths == 0] = 0
    if np.bitwise_or.reduce(words) & _HIGH_BITS:
        for i in np.flatnonzero(np.bitwise_or.reduceat(words, begins) & _HIGH_BITS).tolist():
            hashes[i], factors[i] = hash_text(data[int(starts[i]) : int(ends[i])])
    return hashes, factors


def hash_text(key: bytes) -> tuple[int, int]:
    """Return hash and factor of one key. Invalid UTF-8 is read as U+FFFD, as Java does."""
    text = key.decode("utf-8", "replace")
    units = len(text) + sum(c > "\uffff" for c in text)
    return hash_code(text) & MASK_32, pow(31, units, 1 << 32)


def powers_of_31(count: int) -> HashArray:
    """Return 31**n modulo 2**32 for n in 0..count-1, or more."""
    return _powers_for(count)[0]


def _powers_for(count: int) -> tuple[HashArray, HashArray]:
    """Return the powers of 31 and of 31**8 that keys of `count` bytes need, or more."""
    global _powers  # noqa: PLW0603 (a cache that grows)
    if len(_powers[0]) < count:
        _powers = _make_powers(max(count, 2 * len(_powers[0])))
    return _powers


def _fold(words: npt.NDArray[np.uint64]) -> HashArray:
    """Return the hash of the 8 bytes of each word."""
    folded = (words & _EVERY_2ND_BYTE) * _31
    folded += (words >> _8) & _EVERY_2ND_BYTE
    wider = (folded & _EVERY_2ND_PAIR) * _31_2
    wider += (folded >> _16) & _EVERY_2ND_PAIR
    folded = (wider & _LOW_HALF) * _31_4
    folded += wider >> _32
    return folded.astype(np.uint32)


def _sums(values: HashArray, begins: IntArray, lasts: IntArray) -> HashArray:
    """Return the sum of each group of neighbours, modulo 2**32. Differences of a running sum are faster than add.reduceat."""
    running = np.cumsum(values, dtype=np.uint32)
    sums = running[lasts]
    sums[1:] -= running[begins[1:] - 1]
    return sums


def _make_powers(count: int) -> tuple[HashArray, HashArray]:
    factors = np.full(count, 31, dtype=np.uint32)
    factors[0] = 1
    powers = np.multiply.accumulate(factors, dtype=np.uint32)
    return powers, powers[::8].copy()


_powers = _make_powers(512)


_SEPARATOR = b"\x02"
_MARGIN = _SEPARATOR * 9  # allows reading 9 bytes at the start of every segment, and whole words in hash_spans

_UNIQ_KEY = np.uint64(int.from_bytes(b"UNIQ_KEY", "little"))
_KEYS = np.uint64(int.from_bytes(b"KEYS\x01", "little"))
_TAGS = np.uint64(int.from_bytes(b"TAGS\x01", "little"))
_FIVE_BYTES = np.uint64(0xFFFFFFFFFF)


@dataclass(slots=True)
class Spans:
    """Values found: message number, start and length in `PropertySpans.data`, by message, then position.

    `one_each`: `message` is known to count 0, 1, 2 ... through all messages.
    """

    message: IntArray
    start: IntArray
    length: IntArray
    one_each: bool = False

    def __len__(self) -> int:
        return len(self.message)

    def only(self, wanted: npt.NDArray[np.bool_]) -> Spans:
        """Return the values of the wanted messages."""
        kept = np.flatnonzero(wanted[self.message])
        return Spans(self.message[kept], self.start[kept], self.length[kept])


@dataclass(slots=True)
class PropertySpans:
    """Unique keys, key tokens and tags of a group of messages."""

    count: int  # of messages
    data: bytes
    unique_keys: Spans  # at most one per message
    keys: Spans  # one for each token
    tags: Spans  # at most one per message

    def only(self, wanted: npt.NDArray[np.bool_]) -> PropertySpans:
        """Return the values of the wanted messages, which keep their numbers."""
        if wanted.all():
            return self
        kinds = (kind.only(wanted) for kind in (self.unique_keys, self.keys, self.tags))
        return PropertySpans(self.count, self.data, *kinds)


def find_spans(blocks: Sequence[bytes]) -> PropertySpans:
    """Find UNIQ_KEY, KEYS and TAGS in property blocks, without a Python step per block.

    The blocks are joined with 0x02. A block that ends with 0x02 itself gets an empty segment, which does not count. Names
    are recognised by the 8 bytes at the start of a segment, read as one 64-bit number.
    """
    data = b"".join((_MARGIN, _SEPARATOR.join(blocks), _MARGIN))
    block_ends = np.cumsum(np.fromiter(map(len, blocks), np.int64, len(blocks)) + 1) + (len(_MARGIN) - 1)
    codes = np.frombuffer(data, np.uint8)
    separators = np.flatnonzero(codes == 2)
    starts = separators[:-1] + 1
    ends = separators[1:]
    # The last segments begin inside the closing margin, where 8 bytes cannot be read. All of them are empty.
    starts, ends = starts[: 1 - len(_MARGIN)], ends[: 1 - len(_MARGIN)]
    names = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))[starts]
    names_of_4 = names & _FIVE_BYTES
    found = np.flatnonzero(names == _UNIQ_KEY)
    found = found[codes[starts[found] + 8] == 1]
    unique_keys = _last_values(block_ends, starts[found] + 9, ends[found])
    found = np.flatnonzero(names_of_4 == _KEYS)
    keys = _split_at_spaces(data, codes, _last_values(block_ends, starts[found] + 5, ends[found]))
    found = np.flatnonzero(names_of_4 == _TAGS)
    tags = _last_values(block_ends, starts[found] + 5, ends[found])
    return PropertySpans(len(blocks), data, unique_keys, keys, tags)


def _last_values(block_ends: IntArray, starts: IntArray, ends: IntArray) -> Spans:
    """Drop empty values and all but the last value of each block."""
    lengths = ends - starts
    if len(lengths) and int(lengths.min()) <= 0:
        kept = np.flatnonzero(lengths > 0)
        starts, lengths = starts[kept], lengths[kept]
    count = len(starts)
    if count == len(block_ends) and (starts < block_ends).all() and (starts[1:] > block_ends[:-1]).all():
        return Spans(np.arange(count), starts, lengths, one_each=True)  # the common case
    messages = np.searchsorted(block_ends, starts)
    if count > 1:
        last = np.flatnonzero(np.append(messages[1:] != messages[:-1], True))
        if len(last) < count:
            return Spans(messages[last], starts[last], lengths[last])
    return Spans(messages, starts, lengths)


def _split_at_spaces(data: bytes, codes: npt.NDArray[np.uint8], values: Spans) -> Spans:
    if not len(values) or b" " not in data:
        return values
    spaces = np.flatnonzero(codes == 0x20)
    value_ends = values.start + values.length
    owner = np.searchsorted(value_ends, spaces, "right")
    inside = np.flatnonzero(owner < len(values))
    inside = inside[spaces[inside] >= values.start[owner[inside]]]
    if not len(inside):
        return values
    spaces, owner = spaces[inside], owner[inside]
    # A token begins at the start of a value or after a space, and ends at a space or at the end of the value. Sorted, both lists
    # pair up.
    starts = np.sort(np.concatenate((values.start, spaces + 1)))
    lengths = np.sort(np.concatenate((value_ends, spaces))) - starts
    messages = np.sort(np.concatenate((values.message, values.message[owner])))
    kept = np.flatnonzero(lengths > 0)
    return Spans(messages[kept], starts[kept], lengths[kept])


_NAMES = (b"UNIQ_KEY", b"KEYS", b"TAGS")  # in the order of their index entries
_TABLE_MIN = 24  # blocks of one length; fewer are cheaper with `find_spans`
_WORD = 8
_ROW_MARGIN = bytes(_WORD)  # allows reading a word at any column of the last row


@dataclass(slots=True)
class UniformRunHashes:
    """Hashes of messages of one shape: one row per message, one column per kind of entry."""

    numbers: IntArray  # by row: the number of the block
    hashes: HashArray  # of the values, without a prefix
    factors: HashArray  # by column: 31**length, for the prefix
    tagged: list[bool]  # by column: whether it is TAGS


def hash_uniform_runs(blocks: Sequence[bytes]) -> tuple[list[UniformRunHashes], list[int]]:
    """Hash UNIQ_KEY, KEYS and TAGS of blocks of the same shape: same length, same names at the same positions.

    Return a table for each shape and the numbers of the blocks in no table. Lengths with blocks of different shapes, and rare
    lengths, are left over, for `find_spans`.

    Most runs of messages are uniform: one program sends them, and only the digits of their keys differ. The positions of the
    names are found in the first block and are columns of a table whose rows are the blocks. The other blocks are only checked to
    have the same shape. A row is a block with 0x02 in front. The check, for every segment of the first row: each row has 0x02 in
    the same column, followed by the same name, or by the same seven bytes of a longer one that is not ours; ours are compared
    completely. All rows together have as many 0x02 as the first times their number, so there are no others.
    """
    lengths = list(map(len, blocks))
    if lengths.count(lengths[0]) == len(lengths):  # the common and cheapest case
        uniform = _hash_uniform(np.arange(len(blocks)), blocks)
        return ([], list(range(len(blocks)))) if uniform is None else ([uniform], [])
    by_length: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        by_length.setdefault(length, []).append(number)
    tables: list[UniformRunHashes] = []
    rest: list[int] = []
    for numbers in by_length.values():
        uniform = None
        if len(numbers) >= _TABLE_MIN:
            uniform = _hash_uniform(np.array(numbers), [blocks[number] for number in numbers])
        if uniform is None:
            rest += numbers
        else:
            tables.append(uniform)
    rest.sort()
    return tables, rest


def _hash_uniform(numbers: IntArray, blocks: Sequence[bytes]) -> UniformRunHashes | None:
    shape = _shape(b"\x02" + blocks[0])
    if shape is None:
        return None
    words, values, separators = shape
    data = b"".join((b"\x02", b"\x02".join(blocks), _ROW_MARGIN))
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
    """Return words to compare (column, mask, value), columns of the values (start, end) and the number of 0x02.

    None if the block has several keys or an ambiguous name.
    """
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
