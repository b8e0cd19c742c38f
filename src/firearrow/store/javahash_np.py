"""Java's `String.hashCode` of many UTF-8 keys at once.

The hash of a string of UTF-16 units `c[0..n)` is `sum(c[i] * 31**(n-1-i))` modulo 2**32. Two facts make it fast to compute for
thousands of keys in a few numpy calls:

- Units may be summed in any grouping. Eight ASCII characters are read as one 64-bit word and folded to one 32-bit number in three
  steps: pairs of bytes to 16-bit lanes (weight 31), pairs of lanes to 32-bit lanes (31**2), and those to one number (31**4). The
  largest lane values, 127*32 and 127*32*962, fit, so no step overflows before the last, where the wrap is the wanted modulus.
- Zeros in front do not change a hash. Words are therefore aligned to the end of a key and the bytes in front of it masked away.

Keys with a byte above 0x7F go through `wire.javahash`, one by one: their characters are not their bytes.

`hash(a + b) == hash(a) * 31**len(b) + hash(b)`: each function returns the factor `31**len` beside the hash, so that a prefix shared by
many keys (`topic#`) is hashed once.
"""

from __future__ import annotations

from operator import mul

import numpy as np
import numpy.typing as npt

from firearrow.wire.javahash import hash_code

IntArray = npt.NDArray[np.int64]
HashArray = npt.NDArray[np.uint32]

MASK_32 = 0xFFFFFFFF

_HIGH_BITS = np.uint64(0x8080808080808080)
_EVERY_2ND_BYTE = np.uint64(0x00FF00FF00FF00FF)
_EVERY_2ND_PAIR = np.uint64(0x0000FFFF0000FFFF)
_LOW_HALF = np.uint64(0x00000000FFFFFFFF)
_8, _16, _32 = np.uint64(8), np.uint64(16), np.uint64(32)
_31, _31_2, _31_4 = np.uint64(31), np.uint64(31**2), np.uint64(31**4)

# Keeps the last 8-n bytes (the high ones: words are little-endian) of a word whose first n bytes lie in front of the key.
_WITHOUT_FIRST = np.array([(0xFFFFFFFFFFFFFFFF << 8 * n) & 0xFFFFFFFFFFFFFFFF for n in range(8)] + [0], dtype=np.uint64)

_MARGIN = b"\0" * 8


def hash_spans(data: bytes, starts: IntArray, lengths: IntArray) -> tuple[HashArray, HashArray]:
    """Hashes (unsigned) of the keys `data[start:start+length]`, and 31**(length in UTF-16 units) of each.

    Costs about 20 numpy calls, then some 10 ns for 8 bytes of key. Reading starts up to 7 bytes in front of a key, so data whose
    keys start at 8 or later is not copied.
    """
    if not len(starts):
        return np.zeros(0, np.uint32), np.zeros(0, np.uint32)
    if int(starts.min()) < len(_MARGIN):
        data, starts = _MARGIN + data, starts + len(_MARGIN)
    word_counts = np.maximum((lengths + 7) >> 3, 1)
    word_ends = np.cumsum(word_counts)
    word_starts = word_ends - word_counts
    numbers = np.arange(int(word_ends[-1]))
    positions = np.repeat(starts + lengths - 8 * word_ends, word_counts) + 8 * numbers
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))[positions]
    words[word_starts] &= _WITHOUT_FIRST[8 * word_counts - lengths]
    powers = powers_of_31(int(lengths.max()) + 8)
    weights = powers[8 * (np.repeat(word_ends, word_counts) - 1 - numbers)]
    hashes = np.add.reduceat(_fold(words) * weights, word_starts, dtype=np.uint32)
    factors = powers[lengths]
    high = words & _HIGH_BITS
    if high.any():
        for i in np.flatnonzero(np.bitwise_or.reduceat(high, word_starts)).tolist():
            start = int(starts[i])
            hashes[i], factors[i] = hash_text(data[start : start + int(lengths[i])])
    return hashes, factors


def hash_key(key: bytes) -> tuple[int, int]:
    """The same for one key, in plain Python: cheaper than numpy for up to a few dozen keys."""
    if not key.isascii():
        return hash_text(key)
    weights = _WEIGHTS.get(len(key))
    if weights is None:
        weights = _weights(len(key))
    return sum(map(mul, key, weights)) & MASK_32, pow(31, len(key), 1 << 32)


def hash_text(key: bytes) -> tuple[int, int]:
    """The same for one key of any characters. Broken UTF-8 is read as Java reads it, as U+FFFD."""
    text = key.decode("utf-8", "replace")
    units = len(text) + sum(c > "\uffff" for c in text)
    return hash_code(text) & MASK_32, pow(31, units, 1 << 32)


def powers_of_31(count: int) -> HashArray:
    """31**n modulo 2**32 for n in 0..count-1, or more."""
    global _powers
    if len(_powers) < count:
        _powers = _make_powers(max(count, 2 * len(_powers)))
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


def _make_powers(count: int) -> HashArray:
    factors = np.full(count, 31, dtype=np.uint32)
    factors[0] = 1
    return np.multiply.accumulate(factors, dtype=np.uint32)


def _weights(length: int) -> list[int]:
    """The weights of the characters of a key of this length, kept for the lengths that keys commonly have."""
    weights: list[int] = powers_of_31(length + 1)[:length][::-1].tolist()
    if length <= 256:
        _WEIGHTS[length] = weights
    return weights


_powers = _make_powers(512)
_WEIGHTS: dict[int, list[int]] = {}
