"""Recall of pending timer messages (370).

The reply to a send contains a `recallHandle`, the URL-safe Base64 of

    v1 <topic> <broker name> <TIMER_OUT_MS + 1> <UNIQ_KEY>

A recall stores a marker: a timer message for the same slot of the wheel that names the recalled one (service.py). Neither is
delivered. A recall before the delivery time takes effect. The broker does not check that the message exists.

Every response, also a rejection, has the region of the broker in MSG_REGION: Java clients trace only recalls that have it.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.message import BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.net.server import Connection
from firearrow.wire import properties
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers.client import RecallMessageRequestHeader
from firearrow.wire.properties import parse_long

RECALL_TAG = "_RECALL_TAG_"
MAX_HANDLE_CHARS = 4_096

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """The decoded handle of a timer message."""

    topic: str
    broker_name: str
    time_ms: int
    unique_key: str

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Parse a handle. Raises ValueError with a message for the client."""
        if len(text) > MAX_HANDLE_CHARS:
            raise ValueError(f"the handle has {len(text)} characters, the limit is {MAX_HANDLE_CHARS}")
        try:
            words = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode().split(" ")
        except (binascii.Error, ValueError):
            raise ValueError(f"the handle {text[:64]!r} is not URL-safe Base64 text") from None
        time_ms = parse_long(words[3].encode()) if len(words) == 5 else None
        if len(words) != 5 or words[0] != _VERSION or not all(words) or time_ms is None:
            raise ValueError(f"the handle {text[:64]!r} does not hold '{_VERSION} topic broker time key'")
        if "\x01" in words[4] or "\x02" in words[4]:
            raise ValueError(f"the handle {text[:64]!r} contains an invalid key")
        return cls(words[1], words[2], time_ms, words[4])


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    region = {"MSG_REGION": broker.settings.region_id}

    def recall_message(conn: Connection, request: Command, now_ms: int) -> bytes | None:
        header = RecallMessageRequestHeader.decode(request.ext)
        try:
            handle = _validated_handle(broker, header, now_ms)
            broker.deferral.put(_marker(handle, header.producer_group, conn.peer_host, now_ms), now_ms)
        except Refused as refused:
            raise Refused(refused.code, refused.remark, region) from None
        response = encode_response(request, ResponseCode.SUCCESS, None, {"msgId": handle.unique_key} | region)
        broker.answer_when_stored(conn, request, response)
        return None

    return {RequestCode.RECALL_MESSAGE: recall_message}


def _check_allowed(broker: BrokerContext) -> None:
    if not broker.settings.recall_message_enable:
        raise Refused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden: recallMessageEnable is false")
    if not broker.store.writable:
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, broker.store.refusal or "the store does not accept messages")


def _validated_handle(broker: BrokerContext, header: RecallMessageRequestHeader, now_ms: int) -> RecallHandle:
    _check_allowed(broker)
    if broker.topics.find(header.topic) is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
    try:
        handle = RecallHandle.parse(header.recall_handle)
    except ValueError as error:
        raise _illegal(str(error)) from None
    if handle.topic != header.topic:
        raise _illegal(f"topic not match: the handle is for topic {handle.topic}, the request for {header.topic}")
    if handle.broker_name != broker.name:
        raise _illegal(f"broker not match: the message is on broker {handle.broker_name}, this is {broker.name}")
    left_ms = handle.time_ms - now_ms
    if left_ms <= 0:
        raise _illegal(f"timestamp invalid: the message was due at {handle.time_ms}, it is {now_ms} now")
    if left_ms >= broker.settings.timer_max_delay_sec * 1000:
        raise _illegal(f"timestamp invalid: {handle.time_ms} is further ahead than timerMaxDelaySec allows")
    return handle


def _illegal(why: str) -> Refused:
    return Refused(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {why}")


def _marker(handle: RecallHandle, producer_group: str | None, born_host: bytes, now_ms: int) -> BrokerMessage:
    known = {
        "TAGS": RECALL_TAG,
        "UNIQ_KEY": handle.unique_key,
        "TIMER_DEL_UNIQKEY": handle.unique_key,
        "TIMER_DELIVER_MS": str(handle.time_ms),
        "BORN_TIMESTAMP": str(now_ms),
    }
    if producer_group and not {"\x01", "\x02"} & {*producer_group}:
        known["PGROUP"] = producer_group
    return BrokerMessage(handle.topic, 0, b"0", properties.encode(known), 0, 0, now_ms, born_host)
