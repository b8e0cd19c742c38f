"""The numbers of a batch of an idempotent producer, found in one pass, if the batch is as our clients make them.

Properties of each message end with `__PRODUCER_ID`, the same for all, and `__PRODUCER_SEQ`. Any other batch is legal as well;
its messages are looked at one by one, which takes ten times as long (`Sends._append_once`).
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Final

from firearrow.broker.send.validation import MAX_PRODUCER_ID_BYTES, MAX_SEQUENCE, SUSPICIOUS
from firearrow.wire import batch

_PRODUCER: Final = b"\x02__PRODUCER_ID\x01"
_NUMBER: Final = b"\x02__PRODUCER_SEQ\x01"
_MOST_DIGITS: Final = len(str(MAX_SEQUENCE))
_head_at = struct.Struct(">i12xi").unpack_from  # total, body length


def rising_numbers(body: bytes) -> tuple[str, list[int], list[bytes]] | None:
    """Producer, numbers and properties of a batch whose messages all end with both of them, in numbers that rise.

    None for any other batch, and for one with names in it that `property_rules.check` has to look at. Lengths that do not fit
    are found by whoever appends it.
    """
    numbers: list[int] = []
    blocks: list[bytes] = []
    mark = b""
    pos, end = 0, len(body)
    try:
        while pos < end:
            total, text_length = _head_at(body, pos)
            if total < batch.FIXED_BYTES or text_length < 0:
                return None
            raw = body[pos + batch.FIXED_BYTES + text_length : pos + total]
            mark = mark or _producer_mark(raw)
            block, _, number = raw.partition(mark)
            digits = number[:-1]
            if not digits.isdigit() or len(digits) > _MOST_DIGITS or number[-1] != 2 or SUSPICIOUS in block:
                return None
            numbers.append(int(digits))
            blocks.append(block)
            pos += total
    except (struct.error, ValueError):  # too short; no mark
        return None
    if not numbers or numbers[-1] > MAX_SEQUENCE or any(later <= number for number, later in pairwise(numbers)):
        return None
    return mark[len(_PRODUCER) : -len(_NUMBER)].decode("utf-8", "replace"), numbers, blocks


def _producer_mark(raw: bytes) -> bytes:
    """What stands before the number in the properties of a message; ValueError if that is not how they end."""
    at = raw.index(_PRODUCER)
    producer, found, _ = raw[at + len(_PRODUCER) :].partition(_NUMBER)
    if not producer or not found or b"\x02" in producer or len(producer) > MAX_PRODUCER_ID_BYTES:
        raise ValueError("no producer")
    return _PRODUCER + producer + _NUMBER
