"""Messages out of the body of a pull: records in a run, each taken apart only as far as somebody looks.

Walking a run costs a fraction of decoding it. What the consumer needs of every message (its offset and its size) is read while
walking; the body and single properties are cut out of the run when asked for; anything else decodes the record, once.

A run ends with its last whole record: a broker sends no other, and what follows a broken one could not be found.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from firearrow.client.compression import inflated
from firearrow.client.message import MessageQueue, ReceivedMessage, received
from firearrow.client.namespaces import without_namespace
from firearrow.wire.errors import ProtocolError
from firearrow.wire.names import RETRY_PREFIX
from firearrow.wire.properties import find
from firearrow.wire.record import (
    AT_BORN_TIMESTAMP,
    AT_STORE_TIMESTAMP_V4,
    BORN_HOST_V6,
    COMPRESSED,
    FIXED_BYTES_V1,
    HEAD_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    STORE_HOST_V6,
    decode,
)

_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
# TOTALSIZE, MAGICCODE, QUEUEOFFSET, SYSFLAG and, if both hosts are IPv4, BODYLEN
_scan = struct.Struct(">ii12xq8xi44xi").unpack_from
_i16 = struct.Struct(">h").unpack_from
_i64 = struct.Struct(">q").unpack_from


class PulledMessage(ReceivedMessage):
    """The empty slots of the base are filled at the first look, as `__getattr__` is called for those only."""

    __slots__ = ("_at", "_run", "_short", "queue_offset", "store_size")

    _at: int
    _run: bytes
    _short: int  # bytes of the body, if it can be cut out as it is; -1: the record must be decoded
    queue_offset: int
    store_size: int

    @property
    def body(self) -> bytes:
        body = self._body
        if body is None:
            short = self._short
            if short >= 0:
                at = self._at + HEAD_BYTES
                body = self._body = self._run[at : at + short]
            else:
                record = self._record
                body = self._body = inflated(record.body, record.sys_flag) if record.sys_flag & COMPRESSED else record.body
        return body

    @property
    def born_ms(self) -> int:
        return int(_i64(self._run, self._at + AT_BORN_TIMESTAMP)[0])

    @property
    def store_ms(self) -> int:
        if self._short < 0:
            return super().store_ms
        return int(_i64(self._run, self._at + AT_STORE_TIMESTAMP_V4)[0])

    if not TYPE_CHECKING:  # or a type checker would believe that a message has every attribute there is

        def __getattr__(self, name: str) -> Any:
            if name == "_record":
                self._record = decode(self._run, self._at, check_crc=False)
            elif name == "reconsume_times":
                self.reconsume_times = self._record.reconsume_times
            else:
                raise AttributeError(f"a message has no {name}")
            return getattr(self, name)

    def _text(self, name: bytes) -> str | None:
        short = self._short
        if short < 0:
            return super()._text(name)
        run = self._run
        at = self._at + HEAD_BYTES + short
        at += 1 + run[at]
        (length,) = _i16(run, at)
        found = find(run[at + 2 : at + 2 + length], name)
        return None if found is None else found.decode(errors="replace")


def messages_of(run: bytes, queue: MessageQueue, namespace: str = "") -> list[ReceivedMessage]:
    """The messages of a pull of `queue`. ProtocolError if the run is broken; nothing of it is taken then."""
    if queue.topic.startswith(RETRY_PREFIX):
        return _retried(run, queue, namespace)
    messages: list[ReceivedMessage] = []
    topic = without_namespace(queue.topic, namespace)
    new, append, end, at = PulledMessage.__new__, messages.append, len(run), 0
    try:
        while at < end:
            total, magic, queue_offset, sys_flag, length = _scan(run, at)
            if total < FIXED_BYTES_V1 or total > end - at or (magic != MAGIC_V1 and magic != MAGIC_V2):
                raise ProtocolError(f"a record at {at} of {end} bytes of a pull of {queue} is broken")
            message = new(PulledMessage)
            message._run = run
            message._at = at
            message._body = None
            message._properties = None
            message.queue = queue
            message.topic = topic
            message.queue_offset = queue_offset
            message.store_size = total
            if sys_flag & (_V6 | COMPRESSED) or magic == MAGIC_V2:
                message._short = -1
            elif 0 <= length <= total - FIXED_BYTES_V1:
                message._short = length
            else:
                raise ProtocolError(f"a record at {at} with a body of {length} bytes in {total}")
            append(message)
            at += total
    except struct.error:
        raise ProtocolError(f"a pull of {queue} ends in the middle of a record, at {at} of {end} bytes") from None
    return messages


def _retried(run: bytes, queue: MessageQueue, namespace: str) -> list[ReceivedMessage]:
    """Messages that are delivered again show the topic they were sent to at first."""
    messages: list[ReceivedMessage] = []
    at = 0
    while at < len(run):
        record = decode(run, at, check_crc=False)
        messages.append(received(record, queue.broker_name, namespace, restore_topic=True))
        at += record.total_size
    return messages
