"""Message properties: `name 0x01 value 0x02`, repeated, UTF-8.

5.x ends the text with 0x02, 4.9.x leaves the last one out; both are read, we write it. A segment counts only if it has a 0x01
with something before and something after it; of a name that occurs twice the last value holds. At most 32767 bytes fit in a
record. `KEYS` holds several keys separated by one space.

The send path looks up two or three names in text that it stores unchanged, so `find` works on the bytes without a map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from firearrow.wire.errors import ProtocolError

MAX_BYTES: Final = 32767
NAME_END: Final = b"\x01"
VALUE_END: Final = b"\x02"

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_DELAY_TIME_LEVEL: Final = "DELAY"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_SWITCH: Final = "TRACE_ON"
PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: Final = "UNIQ_KEY"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_MESSAGE_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PROPERTY_MESSAGE_TTL: Final = "TTL"
PROPERTY_REPLY_MESSAGE_ARRIVE_TIME: Final = "ARRIVE_TIME"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_MESSAGE_TYPE: Final = "MSG_TYPE"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_TRACE_CONTEXT: Final = "TRACE_CONTEXT"
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"


def parse(raw: bytes | str) -> dict[str, str]:
    """Return all properties in order."""
    if isinstance(raw, str):
        text = raw
    else:
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"properties that are not UTF-8: {error.reason} at byte {error.start}") from None
    properties: dict[str, str] = {}
    for segment in text.split("\x02"):
        name, _, value = segment.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def encode(properties: Mapping[str, str]) -> bytes:
    """Return the encoded properties. Raise ValueError for a name or value that would not decode to itself."""
    for name, value in properties.items():
        if "\x01" in name or "\x02" in name or "\x02" in value:
            raise ValueError(f"the property {name!r} = {value!r} contains a separator (0x01 or 0x02)")
        if not name or not value:
            raise ValueError(f"the property {name!r} = {value!r}: neither the name nor the value may be empty")
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]).encode()


def find(raw: bytes, name: bytes) -> bytes | None:
    """Return the value of one property or None, as `parse` would, without building the map."""
    wanted = name + NAME_END
    before, found, rest = raw.rpartition(wanted)  # the fastest way for the usual properties
    if not found:
        return None
    if not before or before[-1] == 2:
        value = rest.partition(VALUE_END)[0]
        if value:
            return value
    return _find_before(raw, wanted, len(before))


def _find_before(raw: bytes, wanted: bytes, at: int) -> bytes | None:
    """Return the value at an occurrence of `wanted` before `at`, which is part of another name or value, or has no value.

    Copies nothing but the value, so that many such occurrences take linear time.
    """
    while (at := raw.rfind(wanted, 0, at + len(wanted) - 1)) >= 0:
        if not at or raw[at - 1] == 2:
            start = at + len(wanted)
            end = raw.find(VALUE_END, start)
            value = raw[start:end] if end >= 0 else raw[start:]
            if value:
                return value
    return None


def with_terminator(raw: bytes) -> bytes:
    """Return the properties with the closing 0x02, so that more can be appended."""
    return raw if not raw or raw.endswith(VALUE_END) else raw + VALUE_END


def parse_long(text: bytes | None) -> int | None:
    """Parse a number like Java's Long.parseLong; None for anything else."""
    if text is None:
        return None
    if text.isdigit() and len(text) < 19:  # bytes.isdigit accepts 0 to 9 only
        return int(text)
    digits = text[1:] if text[:1] in (b"-", b"+") else text
    if not digits.isdigit() or len(digits.lstrip(b"0")) > 19:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def with_properties(raw: bytes, changes: dict[str, str]) -> bytes:
    """Return the properties with these set."""
    added = "".join([f"{name}\x01{value}\x02" for name, value in changes.items()]).encode()
    for name in changes:
        if name.encode() in raw:
            return encode(parse(raw) | changes)
    return raw + added
