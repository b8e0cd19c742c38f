"""Request and reply (324, 325, 326): the reply to a message is delivered to the client that sent the request.

A requester sends an ordinary message with CORRELATION_ID, REPLY_TO_CLIENT (its client id) and TTL. The consumer sends its reply
to the topic `<cluster>_REPLY_TOPIC` with a request code of its own. The broker pushes it over the requester's connection:

    replier --325--> broker --326--> requester          REPLY_TO_CLIENT must be a producer connected to this broker
                     broker <---0--- requester
    replier <---0--- broker                             1 if the requester is gone, refuses or does not answer in 10 s

With `storeReplyMessageEnable` (on by default) the reply is also stored in the reply topic, whether it could be pushed or not. The
response to the replier says where; it is sent when the record is durable and the requester has answered. The stored reply is for
operators only.
"""

from __future__ import annotations

import logging
import os

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.message import BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.broker.tables.topics import PERM_WRITE
from firearrow.net.server import Connection
from firearrow.wire import properties
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers.client import ReplyMessageRequestHeader, SendMessageRequestHeader
from firearrow.wire.message_ids import UniqueKeys, host_bytes, host_text, offset_msg_id

PUSH_TIMEOUT_MS = 10_000
COMPRESSION_FLAGS = 0x703  # compressed, algorithm, multiple tags; a reply is never part of a transaction

log = logging.getLogger("firearrow.broker")


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    ip, _, port = broker.address.rpartition(":")
    host = host_bytes(ip, int(port))
    unique_keys = UniqueKeys(ip, os.getpid(), seed=1)
    stamps = {"MSG_REGION": broker.settings.region_id, "TRACE_ON": "true" if broker.settings.trace_on else "false"}

    def send_reply_message(conn: Connection, request: Command, now_ms: int) -> None:
        header = SendMessageRequestHeader.decode(request.ext)
        header.queue_id = _check(broker, header, request.body, now_ms)
        known = properties.parse(header.properties)
        known.setdefault("UNIQ_KEY", unique_keys.next(now_ms))
        known |= stamps
        kept = _store(broker, conn, request, header, known, now_ms)
        queue_offset, msg_id = (0, "0") if kept is None else (kept.queue_offset, offset_msg_id(host, kept.physical_offset))
        where = {"queueId": str(header.queue_id), "queueOffset": str(queue_offset), "msgId": msg_id} | stamps

        def finished(problem: str) -> None:
            code = ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS
            broker.answer_when_stored(conn, request, encode_response(request, code, problem or None, where))

        client_id = known.get("REPLY_TO_CLIENT")
        if client_id is None:
            finished("reply message properties[REPLY_TO_CLIENT] is null: the reply does not name its requester")
            return
        requester = broker.clients.find_producer(client_id)
        if requester is None:
            finished(f"push reply message fail, channel of <{client_id}> not found.")
            return

        def answered(answer: Command | None, why: str) -> None:
            if answer is None:
                finished(f"push reply message to <{client_id}> fail: {why}")
            elif answer.code != ResponseCode.SUCCESS:
                finished(f"push reply message to <{client_id}> fail: it answered {answer.code} {answer.remark or ''}".rstrip())
            else:
                finished("")

        known["PUSH_REPLY_TIME"] = str(now_ms)
        pushed = _pushed_header(header, known, conn.peer_host, host, now_ms)
        broker.call_client(requester.conn, pushed, request.body, PUSH_TIMEOUT_MS, answered)

    return {RequestCode.SEND_REPLY_MESSAGE: send_reply_message, RequestCode.SEND_REPLY_MESSAGE_V2: send_reply_message}


def _check(broker: BrokerContext, header: SendMessageRequestHeader, body: bytes, now_ms: int) -> int:
    """Validate a reply like any send. Return its queue, which is chosen here if the client leaves that to the broker."""
    topic = broker.topics.for_send(header, now_ms)
    if not topic.perm & PERM_WRITE:
        raise Refused(
            ResponseCode.NO_PERMISSION, f"the topic {topic.topic_name} has permission {topic.perm} and takes no messages"
        )
    queues = max(topic.read_queue_nums, topic.write_queue_nums)
    queue_id = header.queue_id
    if queue_id < 0 and topic.write_queue_nums > 0:
        queue_id = broker.rng.randrange(topic.write_queue_nums)
    if not 0 <= queue_id < queues:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal: topic {topic.topic_name} has the queues 0..{queues - 1}",
        )
    limit = broker.store_settings.max_message_size
    if not body or len(body) > limit:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL, f"the reply is illegal: its body has {len(body)} bytes; it may have 1 to {limit}"
        )
    return queue_id


def _store(
    broker: BrokerContext,
    conn: Connection,
    request: Command,
    header: SendMessageRequestHeader,
    known: dict[str, str],
    now_ms: int,
) -> BrokerMessage | None:
    """Store the reply. Return the stored message, or None if replies are not kept."""
    raw = properties.encode(known)
    if len(raw) > properties.MAX_BYTES:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the reply is illegal: its properties take {len(raw)} bytes, the limit is {properties.MAX_BYTES}",
        )
    if not broker.settings.store_reply_message_enable:
        return None
    if not broker.store.writable:
        log.warning("a reply to %s is pushed but not stored: %s", known.get("REPLY_TO_CLIENT"), broker.store.refusal)
        return None
    message = BrokerMessage(
        topic=header.topic,
        queue_id=header.queue_id,
        body=request.body,
        properties=raw,
        flag=header.flag,
        sys_flag=header.sys_flag & COMPRESSION_FLAGS,
        born_ms=header.born_timestamp,
        born_host=conn.peer_host,
        reconsume_times=header.reconsume_times,
    )
    broker.writer.deliver(message, now_ms)
    return message


def _pushed_header(
    header: SendMessageRequestHeader, known: dict[str, str], born_host: bytes, store_host: bytes, now_ms: int
) -> ReplyMessageRequestHeader:
    return ReplyMessageRequestHeader(
        producer_group=header.producer_group,
        topic=header.topic,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        queue_id=header.queue_id,
        sys_flag=header.sys_flag & COMPRESSION_FLAGS,
        born_timestamp=header.born_timestamp,
        flag=header.flag,
        properties=properties.encode(known).decode(),
        reconsume_times=header.reconsume_times,
        unit_mode=header.unit_mode,
        born_host=host_text(born_host),
        store_host=host_text(store_host),
        store_timestamp=now_ms,
    )
