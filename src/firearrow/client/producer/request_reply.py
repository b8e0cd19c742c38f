"""Request and reply over messages.

A request carries CORRELATION_ID, REPLY_TO_CLIENT (our client id) and TTL (ms). The consumer sends its reply (`reply_message`) to
the topic `<cluster>_REPLY_TOPIC` with a request code of its own. The broker pushes the reply (326) over the connection of this
client's heartbeats, so a heartbeat must precede the request.
"""

from __future__ import annotations

import asyncio
from typing import Final

from firearrow.client.errors import InvalidMessageError
from firearrow.client.message import Message, MessageQueue, ReceivedMessage
from firearrow.client.namespaces import without_namespace
from firearrow.clock import wall_ms
from firearrow.net.address import parse_address
from firearrow.wire import properties
from firearrow.wire.frame import Command
from firearrow.wire.headers.client import ReplyMessageRequestHeader
from firearrow.wire.message_ids import host_bytes
from firearrow.wire.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
    PROPERTY_MESSAGE_TTL,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_REPLY_MESSAGE_ARRIVE_TIME,
)
from firearrow.wire.record import Record

REPLY: Final = "reply"
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"


class ReplyRegistry:
    """Requests of one client that wait for a reply."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def arrived(self, request: Command, broker_name: str) -> None:
        """Handle a pushed reply (326); without a waiting request it is dropped. ProtocolError if it is malformed."""
        header = ReplyMessageRequestHeader.decode(request.ext)
        names = properties.parse(header.properties)
        waiting = self._waiting.pop(names.get(PROPERTY_CORRELATION_ID, ""), None)
        if waiting is not None and not waiting.done():
            names[PROPERTY_REPLY_MESSAGE_ARRIVE_TIME] = str(wall_ms())
            waiting.set_result(self._message(header, names, request.body, broker_name))

    def _message(
        self, header: ReplyMessageRequestHeader, names: dict[str, str], body: bytes, broker_name: str
    ) -> ReceivedMessage:
        record = Record(
            topic=header.topic,
            body=body,
            properties=properties.encode(names),
            queue_id=header.queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=_host(header.born_host),
            store_timestamp=header.store_timestamp,
            store_host=_host(header.store_host),
            reconsume_times=header.reconsume_times or 0,
        )
        queue = MessageQueue(header.topic, broker_name, header.queue_id)
        return ReceivedMessage(record, queue, without_namespace(header.topic, self._namespace))


def request_properties(correlation_id: str, client_id: str, timeout_ms: int) -> dict[str, str]:
    """Return the properties of a request."""
    return {
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_MESSAGE_REPLY_TO_CLIENT: client_id,
        PROPERTY_MESSAGE_TTL: str(timeout_ms),
    }


def reply_message(request: ReceivedMessage, body: bytes) -> tuple[Message, dict[str, str]]:
    """Return the reply to a consumed request and the properties that route it. InvalidMessageError if it is not a request."""
    cluster = request.get(PROPERTY_CLUSTER)
    asker = request.get(PROPERTY_MESSAGE_REPLY_TO_CLIENT)
    correlation_id = request.get(PROPERTY_CORRELATION_ID)
    if not cluster or not asker or not correlation_id:
        raise InvalidMessageError(
            f"message {request.msg_id} of {request.topic!r} is not a request and cannot be replied to "
            f"(CLUSTER={cluster!r}, REPLY_TO_CLIENT={asker!r}, CORRELATION_ID={correlation_id!r})"
        )
    names = {
        PROPERTY_MESSAGE_TYPE: REPLY,
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_MESSAGE_REPLY_TO_CLIENT: asker,
        PROPERTY_MESSAGE_TTL: request.get(PROPERTY_MESSAGE_TTL) or "3000",
    }
    return Message(cluster + REPLY_TOPIC_SUFFIX, body), names


def _host(text: str) -> bytes:
    """Parse `/10.0.0.1:10911`, Java's form, or the same without slash; an unreadable address becomes zeros."""
    try:
        return host_bytes(*parse_address(text.rpartition("/")[2]))
    except ValueError:
        return bytes(8)
