"""Requests that only a consumer can answer. The broker forwards them on the consumer's connection and relays the response.

307 returns the running info of a consumer, 309 consumes one message directly, 223 returns its offsets. Responses are relayed as
bytes: clients of different languages write them differently, and only the requesting tool has to parse them.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.requests.responses import Refused
from firearrow.broker.tables.clients import Client
from firearrow.net.server import Connection
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.header_schema import Header
from firearrow.wire.headers import admin as headers
from firearrow.wire.message_ids import parse_offset_msg_id

CALL_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000
MAX_STATUS_BYTES = 128 * 1024  # of offsets with queues as keys, which are slow to read
STATUS_VERSION = 28  # V3_0_7_SNAPSHOT: the first client that answers 221
RUNNING_INFO_VERSION = 62  # V3_1_8_SNAPSHOT: the first that answers 307 and 309


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    def get_consumer_running_info(conn: Connection, request: Command, now_ms: int) -> None:
        header = headers.GetConsumerRunningInfoRequestHeader.decode(request.ext)
        client = _must_find(broker, header.consumer_group, header.client_id)
        _relay(broker, conn, request, client, header.consumer_group, header, b"")

    def consume_message_directly(conn: Connection, request: Command, now_ms: int) -> None:
        header = headers.ConsumeMessageDirectlyResultRequestHeader.decode(request.ext)
        client = _must_find(broker, header.consumer_group, header.client_id)
        record = _record(broker, header.msg_id or "")
        topic = broker.topics.find(header.topic) if header.topic else None
        group = broker.groups.find(header.consumer_group)
        forwarded = headers.ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=header.consumer_group,
            client_id=header.client_id,
            msg_id=header.msg_id or "",
            broker_name=broker.name,
            topic=header.topic,
            topic_sys_flag=None if topic is None else topic.topic_sys_flag,
            group_sys_flag=None if group is None else group.group_sys_flag,
        )
        _relay(broker, conn, request, client, header.consumer_group, forwarded, record)

    def get_consumer_status(conn: Connection, request: Command, now_ms: int) -> None:
        header = headers.GetConsumerStatusRequestHeader.decode(request.ext)
        consumers = broker.clients.consumer_group(header.group)
        if consumers is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]")
        asked = [m for m in consumers.members.values() if not header.client_addr or m.client_id == header.client_addr]
        for client in asked:
            if client.version < STATUS_VERSION:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"the client does not support this feature. version={client.version}")
        forwarded = headers.GetConsumerStatusFromClientRequestHeader(topic=header.topic, group=header.group)
        _collect_status(broker, conn, request, asked, forwarded)

    return {
        RequestCode.GET_CONSUMER_RUNNING_INFO: get_consumer_running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: consume_message_directly,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: get_consumer_status,
    }


def _collect_status(broker: BrokerContext, conn: Connection, request: Command, asked: list[Client], header: Header) -> None:
    """Forward 221 to several consumers and respond once all have answered or failed."""
    table: dict[str, Any] = {}
    left = len(asked)

    def finish() -> None:
        body = fastjson.dumps({"consumerTable": table, "messageQueueTable": {}})
        _answer(conn, request, encode_response(request, ResponseCode.SUCCESS, body=body))

    def answered(client_id: str, answer: Command | None, why: str) -> None:
        nonlocal left
        if answer is not None and answer.code == ResponseCode.SUCCESS and answer.body:
            with contextlib.suppress(ValueError):
                body = fastjson.loads(answer.body, max_tolerant_bytes=MAX_STATUS_BYTES)
                if isinstance(body, dict):
                    table[client_id] = body.get("messageQueueTable") or {}
        left -= 1
        if left == 0:
            finish()

    if not asked:
        finish()
    for client in asked:
        broker.call_client(client.conn, header, b"", STATUS_TIMEOUT_MS, partial(answered, client.client_id))


def _must_find(broker: BrokerContext, group: str, client_id: str | None) -> Client:
    consumers = broker.clients.consumer_group(group)
    if consumers is None:
        client = None
    elif client_id:
        client = consumers.find(client_id)
    else:
        client = next(iter(consumers.members.values()), None)
    if client is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id or ''}> not online")
    if client.version < RUNNING_INFO_VERSION:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{client.client_id}> Version <{client.version}> too low to finish, please upgrade it",
        )
    return client


def _record(broker: BrokerContext, msg_id: str) -> bytes:
    try:
        _, offset = parse_offset_msg_id(msg_id)
    except ValueError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId {msg_id[:64]!r} is not an id of a stored message: {error}") from None
    record = broker.store.read_record(offset) if offset >= 0 else None
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the id {msg_id}: nothing is stored at offset {offset}")
    return record


def _relay(
    broker: BrokerContext, conn: Connection, request: Command, client: Client, group: str, header: Header, body: bytes
) -> None:
    def done(answer: Command | None, why: str) -> None:
        if answer is None:
            remark = f"consumer <{group}> <{client.client_id}> Timeout: {why}"
            _answer(conn, request, encode_response(request, ResponseCode.CONSUME_MSG_TIMEOUT, remark))
        else:
            _answer(conn, request, encode_response(request, answer.code, answer.remark, body=answer.body))

    broker.call_client(client.conn, header, body, CALL_TIMEOUT_MS, done)


def _answer(conn: Connection, request: Command, response: bytes) -> None:
    if not request.is_oneway and not conn.closed:
        conn.write(response)
