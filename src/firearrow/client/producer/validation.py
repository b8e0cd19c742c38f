"""Validation of messages: invalid messages are rejected before they are sent.

Limits: topics have at most 127 characters (letters, digits, `_ - % |`), bodies 1 byte to 4 MiB, all properties together 32767
bytes. Names and values of properties are not empty and contain neither U+0001 nor U+0002, which separate them on the wire. Names
of the protocol are reserved: a property `DELAY` would delay the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from firearrow.client.errors import InvalidMessageError
from firearrow.client.message import SYSTEM_PROPERTIES, Message
from firearrow.wire import properties
from firearrow.wire.names import NOT_SENDABLE_TOPICS, check_group, check_topic

MAX_DELAY_LEVEL: Final = 18
# Protocol names that users may set: trace spans, sharding keys, the check immunity of half messages.
_FOR_USERS: Final = frozenset((
    properties.PROPERTY_SHARDING_KEY, properties.PROPERTY_TRACE_CONTEXT, properties.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
))  # fmt: skip
RESERVED: Final = SYSTEM_PROPERTIES - _FOR_USERS


def check_sendable_topic(topic: str) -> None:
    try:
        check_topic(topic)
    except ValueError as error:
        raise InvalidMessageError(f"cannot send: {error}") from None
    if topic in NOT_SENDABLE_TOPICS:
        raise InvalidMessageError(f"cannot send to {topic!r}: it belongs to the broker; choose another topic")


def check_group_name(group: str) -> None:
    try:
        check_group(group)
    except ValueError as error:
        raise InvalidMessageError(str(error)) from None


def check_body(message: Message, max_size: int) -> None:
    body = message.body
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise InvalidMessageError(
            f"the body of a message to {message.topic!r} is of type {type(body).__name__}, expected bytes: encode it first"
        )
    if not body:
        raise InvalidMessageError(
            f"the body of a message to {message.topic!r} is empty, which brokers reject; send at least one byte"
        )
    if len(body) > max_size:
        raise InvalidMessageError(
            f"the body of a message to {message.topic!r} has {len(body)} bytes, more than max_message_size {max_size}; "
            "split it, or raise the limit here and on the broker (maxMessageSize)"
        )


def properties_text(message: Message, msg_id: str, extra: Mapping[str, str] | None = None) -> str:
    """Encode all properties of a message: the user's, tags, keys, id, and those added by the send."""
    tags, keys, own = message.tags, message.keys, message.properties
    text = f"UNIQ_KEY\x01{msg_id}\x02WAIT\x01{'true' if message.wait_store else 'false'}\x02"
    if tags is not None:
        text += f"TAGS\x01{_checked('tags', tags)}\x02"
    if keys:
        text += f"KEYS\x01{_checked('keys', keys if isinstance(keys, str) else _joined_keys(keys))}\x02"
    if own:
        for name, value in own.items():
            if name in RESERVED:
                raise InvalidMessageError(
                    f"the property name {name!r} is reserved; use the corresponding argument, or another name"
                )
            if not isinstance(name, str) or not name or "\x01" in name or "\x02" in name:
                raise InvalidMessageError(f"the property name is {name!r}, expected a non-empty string without U+0001 and U+0002")
            text += f"{name}\x01{_checked(name, value)}\x02"
    if extra:
        text += "".join([f"{name}\x01{value}\x02" for name, value in extra.items()])
    if len(text) > properties.MAX_BYTES // 4:
        size = len(text.encode(errors="surrogatepass"))
        if size > properties.MAX_BYTES:
            raise InvalidMessageError(
                f"the properties of a message to {message.topic!r} take {size} bytes, the limit is {properties.MAX_BYTES}; "
                "put large values into the body"
            )
    return text


def _checked(name: str, value: str) -> str:
    if not isinstance(value, str) or not value or "\x02" in value or "\x01" in value:
        raise InvalidMessageError(f"{name} is {value!r}, expected a non-empty string without U+0001 and U+0002")
    return value


def _joined_keys(keys: object) -> str:
    joined = []
    for key in keys:  # type: ignore[attr-defined]  # of any type; checked below
        if not isinstance(key, str) or not key or any(char.isspace() for char in key):
            raise InvalidMessageError(f"the key is {key!r}, expected a non-empty string without spaces, which separate keys")
        joined.append(key)
    return " ".join(joined)
