"""Where UNIQ_KEY, KEYS and TAGS are in the property blocks of many messages, found without a Python step per message.

A property block is `name 0x01 value 0x02` repeated; the final 0x02 may be missing (4.x brokers strip it). The rules for
one block: split it at 0x02; a segment counts only when its first 0x01 is neither its first nor its last byte; a later
segment of the same name replaces an earlier one. KEYS holds tokens between single spaces; empty tokens do not count.

The blocks are joined with 0x02 between them. A block that ends with 0x02 itself thereby gets an empty segment, which
does not count, so no block needs to be looked at on its own. Names are recognised by the 8 bytes at the start of a
segment, read as one 64-bit number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from firearrow.store.key_index.hashing import IntArray

_SEPARATOR = b"\x02"
_MARGIN = _SEPARATOR * 9  # lets 9 bytes be read at the start of every segment, and hash_spans read whole words

_UNIQ_KEY = np.uint64(int.from_bytes(b"UNIQ_KEY", "little"))
_KEYS = np.uint64(int.from_bytes(b"KEYS\x01", "little"))
_TAGS = np.uint64(int.from_bytes(b"TAGS\x01", "little"))
_FIVE_BYTES = np.uint64(0xFFFFFFFFFF)


@dataclass(slots=True)
class Spans:
    """Values found: number of the message, start and length in `PropertySpans.data`; by message, then position."""

    message: IntArray
    start: IntArray
    length: IntArray
    one_each: bool = False  # known that `message` counts 0, 1, 2 ... through all messages

    def __len__(self) -> int:
        return len(self.message)

    def only(self, wanted: npt.NDArray[np.bool_]) -> Spans:
        """Those of the messages marked as wanted."""
        kept = np.flatnonzero(wanted[self.message])
        return Spans(self.message[kept], self.start[kept], self.length[kept])


@dataclass(slots=True)
class PropertySpans:
    count: int  # of messages
    data: bytes
    unique_keys: Spans  # at most one a message
    keys: Spans  # one for each token
    tags: Spans  # at most one a message

    def only(self, wanted: npt.NDArray[np.bool_]) -> PropertySpans:
        """Without the messages that are not marked as wanted; the others keep their numbers."""
        if wanted.all():
            return self
        kinds = (kind.only(wanted) for kind in (self.unique_keys, self.keys, self.tags))
        return PropertySpans(self.count, self.data, *kinds)


def find_spans(blocks: Sequence[bytes]) -> PropertySpans:
    data = b"".join((_MARGIN, _SEPARATOR.join(blocks), _MARGIN))
    block_ends = np.cumsum(np.fromiter(map(len, blocks), np.int64, len(blocks)) + 1) + (len(_MARGIN) - 1)
    codes = np.frombuffer(data, np.uint8)
    separators = np.flatnonzero(codes == 2)
    starts = separators[:-1] + 1
    ends = separators[1:]
    # The last segments begin inside the closing margin, too near to the end to read 8 bytes there; all of them are empty.
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
    """Drops empty values and all but the last value of each block."""
    lengths = ends - starts
    if len(lengths) and int(lengths.min()) <= 0:
        kept = np.flatnonzero(lengths > 0)
        starts, lengths = starts[kept], lengths[kept]
    count = len(starts)
    if count == len(block_ends) and (starts < block_ends).all() and (starts[1:] > block_ends[:-1]).all():
        return Spans(np.arange(count), starts, lengths, one_each=True)  # the usual case
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
    # A token begins at the start of a value or after a space, and ends at a space or at the end of the value: both
    # lists sorted pair up.
    starts = np.sort(np.concatenate((values.start, spaces + 1)))
    lengths = np.sort(np.concatenate((value_ends, spaces))) - starts
    messages = np.sort(np.concatenate((values.message, values.message[owner])))
    kept = np.flatnonzero(lengths > 0)
    return Spans(messages[kept], starts[kept], lengths[kept])
