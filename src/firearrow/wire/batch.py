"""The body of a batch send: consecutive sub-messages, all for the topic and queue of the request header.

    4  total size, this field included      4  magic, 0       4  body CRC, 0      4  flag
    4  n, n  body                           2  p, p  properties

Magic and CRC are ignored; the broker computes the CRC when it stores the message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from firearrow.wire.errors import ProtocolError

_HEAD: Final = struct.Struct(">iiiii")
_head_at = _HEAD.unpack_from
FIXED_BYTES: Final = 22
BODY_AT: Final = 20

# For code that takes a batch apart in one pass of its own.
head_at = struct.Struct(">i8xii").unpack_from  # total size, flag, body length
length_at = struct.Struct(">h").unpack_from  # length of the properties


def split(body: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the sub-messages as (flag, body, properties). Raise ProtocolError unless they fill the body exactly."""
    messages: list[tuple[int, bytes, bytes]] = []
    append = messages.append
    pos = 0
    end = len(body)
    try:
        while pos < end:
            total, _, _, flag, body_length = _head_at(body, pos)
            if body_length < 0 or body_length > end - pos - FIXED_BYTES:
                break
            body_at = pos + BODY_AT
            properties_at = body_at + body_length
            (properties_length,) = length_at(body, properties_at)
            if properties_length < 0 or total != FIXED_BYTES + body_length + properties_length or total > end - pos:
                break
            append((flag, body[body_at:properties_at], body[properties_at + 2 : pos + total]))
            pos += total
        else:
            return messages
    except struct.error:
        pass
    raise ProtocolError(f"batch of {len(body)} bytes whose message {len(messages)} at byte {pos} has lengths that do not fit")


def split_error(body: bytes) -> ProtocolError:
    """Return the error that `split` raises for an invalid body."""
    try:
        split(body)
    except ProtocolError as error:
        return error
    raise AssertionError("the batch is valid")


def join(messages: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the body of a batch send from (flag, body, properties)."""
    parts: list[bytes] = []
    for flag, body, properties in messages:
        if len(properties) > 32767:
            raise ValueError(f"properties of {len(properties)} bytes, a message takes at most 32767")
        total = FIXED_BYTES + len(body) + len(properties)
        parts += (_HEAD.pack(total, 0, 0, flag, len(body)), body, struct.pack(">h", len(properties)), properties)
    return b"".join(parts)
