"""Java's `String.hashCode` of many UTF-8 keys at once.

The hash of a string of UTF-16 units `c[0..n)` is `sum(c[i] * 31**(n-1-i))` modulo 2**32. Three facts make it fast to compute for
thousands of keys in a few numpy calls:

- Units may be summed in any grouping. Eight ASCII characters are one 64-bit word, folded to one 32-bit number in three
  steps: pairs of bytes to 16-bit lanes (weight 31), pairs of lanes to 32-bit lanes (31**2), and those to one number
  (31**4). The largest lane values, 127*32 and 127*32*962, fit, so no step overflows before the last, where the wrap is
  the wanted modulus.
- Zeros in front do not change a hash, and z zeros behind multiply it by 31**z. So a key is read as the aligned words
  that it touches, with the bytes that are not its own masked away. (Unaligned reads are what numpy is slow at.)
- 31 is odd, so 31**z has an inverse modulo 2**32, which takes the zeros behind a key out again.

Keys with a byte above 0x7F go through `wire.javahash`, one by one: their characters are not their bytes.

`hash(a + b) == hash(a) * 31**len(b) + hash(b)`: the factor `31**len` comes with the hashes, so that a prefix shared by many
keys (`topic#`) is hashed once.
"""

from __future__ import annotations

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
# By the position in its word of a key's first byte: keeps that byte and those after it, the higher ones in a little-endian word.
_FROM = np.array([(_ALL << 8 * n) & _ALL for n in range(8)], np.uint64)
# By the position in its word of the byte after a key: keeps the bytes before it; position 0 is that of the next word.
_UP_TO = np.array([_ALL] + [_ALL >> (64 - 8 * n) for n in range(1, 8)], np.uint64)
_WITHOUT_ZEROS = np.array([1] + [pow(31, n - 8, 1 << 32) for n in range(1, 8)], np.uint32)


def hash_spans(data: bytes, starts: IntArray, lengths: IntArray) -> tuple[HashArray, HashArray]:
    """Hashes (unsigned) of the keys `data[start:start+length]`, and 31**(length in UTF-16 units) of each.

    Costs about 40 numpy calls, then some 15 ns for 8 bytes of key. Data with 8 bytes or more behind its last key is not copied.
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
    hashes *= _WITHOUT_ZEROS[places]
    factors = powers[lengths]
    if int(lengths.min()) == 0:
        hashes[lengths == 0] = 0
    if np.bitwise_or.reduce(words) & _HIGH_BITS:
        for i in np.flatnonzero(np.bitwise_or.reduceat(words, begins) & _HIGH_BITS).tolist():
            hashes[i], factors[i] = hash_text(data[int(starts[i]) : int(ends[i])])
    return hashes, factors


def hash_key(prefix: int, key: bytes) -> int:
    """The hash (unsigned) of one key behind a text of hash `prefix`, in plain Python: cheaper for up to a few dozen keys.

    A number written in base 31 is such a sum, and `int` reads it in C. Characters are no digits of that base, but each is
    31*q + r with two that are.
    """
    length = len(key)
    if 0 < length <= _LONGEST_QUICK and key.isascii():
        tail = 31 * int(key.translate(_QUOTIENTS), 31) + int(key.translate(_REMAINDERS), 31)
        return (prefix * _FACTORS[length] + tail) & MASK_32
    tail, factor = hash_text(key)
    return (prefix * factor + tail) & MASK_32


def hash_text(key: bytes) -> tuple[int, int]:
    """Hash and factor of one key of any characters. Broken UTF-8 is read as Java reads it, as U+FFFD."""
    text = key.decode("utf-8", "replace")
    units = len(text) + sum(c > "\uffff" for c in text)
    return hash_code(text) & MASK_32, pow(31, units, 1 << 32)


def powers_of_31(count: int) -> HashArray:
    """31**n modulo 2**32 for n in 0..count-1, or more."""
    return _powers_for(count)[0]


def _powers_for(count: int) -> tuple[HashArray, HashArray]:
    """The powers of 31 and those of 31**8, as many as keys of `count` bytes need, or more."""
    global _powers
    if len(_powers[0]) < count:
        _powers = _make_powers(max(count, 2 * len(_powers[0])))
    return _powers


def _fold(words: npt.NDArray[np.uint64]) -> HashArray:
    """The hash of each word's 8 bytes."""
    folded = (words & _EVERY_2ND_BYTE) * _31
    folded += (words >> _8) & _EVERY_2ND_BYTE
    wider = (folded & _EVERY_2ND_PAIR) * _31_2
    wider += (folded >> _16) & _EVERY_2ND_PAIR
    folded = (wider & _LOW_HALF) * _31_4
    folded += wider >> _32
    return folded.astype(np.uint32)


def _sums(values: HashArray, begins: IntArray, lasts: IntArray) -> HashArray:
    """The sum of each group of neighbours, modulo 2**32: differences of the running sum are faster than add.reduceat."""
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

_LONGEST_QUICK = 512  # `int` takes quadratic time, and refuses some thousands of digits
_DIGITS = b"0123456789abcdefghijklmnopqrstu"
_QUOTIENTS = bytes(_DIGITS[code // 31] for code in range(256))
_REMAINDERS = bytes(_DIGITS[code % 31] for code in range(256))
_FACTORS = [pow(31, n, 1 << 32) for n in range(_LONGEST_QUICK + 1)]
