"""Retries and dead letters of messages that a consumer failed to process.

A concurrent consumer sends the message back (36). The broker stores it again with a delay for `%RETRY%group`, to which every
consumer of the group subscribes. After the last retry the message goes to `%DLQ%group` for manual handling.

    failed --36--> DELAY = 3 + times --delay_levels.py--> %RETRY%group --> consumed again, reconsumeTimes + 1
             |     (10 s, 30 s, 1 m ... 2 h; or the level the consumer asks for)
             +---> %DLQ%group     reconsumeTimes >= the limit, or the consumer asks for level -1

The limit is the group's `retryMaxTimes`, or the client's own (since version 3.4.9). Both topics are created on first use with
permission 6: the retry topic with the group's `retryQueueNums`, the dead-letter topic with one queue. A group with
`retryQueueNums` 0 has no retries: messages it sends back are dropped.

The message keeps its body, flags, born time and host, and its properties, with these set:

    RETRY_TOPIC              original topic; consumers restore it
    ORIGIN_MESSAGE_ID        offset message id of the first record
    WAIT                     false
    DELAY                    the level; 0 in a dead letter
    DLQ_ORIGIN_TOPIC         dead letters only: as RETRY_TOPIC
    DLQ_ORIGIN_MESSAGE_ID    dead letters only: UNIQ_KEY, the id its producer knows

An orderly consumer retries locally and finally sends the message to `%RETRY%group` like a producer. A concurrent consumer does
the same if request 36 failed. Such a send goes to the dead letters (`redirect`) if its retries exceed the limit, or while a
member of the group holds a queue lock, since retries would break the order.
"""

from __future__ import annotations

import logging

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.message import TRANSACTION_BITS, BrokerMessage, read_message
from firearrow.broker.requests.responses import Refused
from firearrow.broker.tables.topics import PERM_READ_WRITE, PERM_WRITE, UNIT_SUBSCRIPTION
from firearrow.net.server import Connection
from firearrow.wire import properties
from firearrow.wire.bodies.topic import SubscriptionGroupConfig
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers.client import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader
from firearrow.wire.message_ids import offset_msg_id
from firearrow.wire.names import (
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    dlq_topic,
    retry_topic,
)
from firearrow.wire.record import Record

log = logging.getLogger("firearrow.broker")

FIRST_LEVEL = 3  # delay level of the first retry
DLQ_QUEUES = 1
CLIENT_LIMIT_VERSION = 121  # V3_4_9, the first version whose clients send a retry limit

_DELAY_BYTES = 32  # REAL_TOPIC, REAL_QID and separators of a delayed message, without the topic name
_TIMER_NAMES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
_NOT_CONSUMABLE = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC))


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    def consumer_send_msg_back(conn: Connection, request: Command, now_ms: int) -> bytes | None:
        header = ConsumerSendMsgBackRequestHeader.decode(request.ext)
        group = broker.groups.must_find(header.group, now_ms)
        _check_writable(broker)
        response = encode_response(request, ResponseCode.SUCCESS)
        if group.retry_queue_nums <= 0:
            return response
        record = _consumed_record(broker, header.offset)
        limit = _limit(group, header.max_reconsume_times, request.version)
        if record.reconsume_times >= limit or header.delay_level < 0:
            message = _dead_letter(broker, group, record, now_ms)
        else:
            message = _retry(broker, group, record, header, now_ms)
        broker.deferral.put(message, now_ms)
        broker.stats.sent_back(_first_topic(record), header.group)
        broker.answer_when_stored(conn, request, response)
        return None

    return {RequestCode.CONSUMER_SEND_MSG_BACK: consumer_send_msg_back}


def redirect(broker: BrokerContext, header: SendMessageRequestHeader, version: int, now_ms: int) -> bool:
    """Redirect a client's send to a retry topic to the dead letters if needed. Return True if `header` was redirected."""
    group = broker.groups.must_find(header.topic.removeprefix(RETRY_PREFIX), now_ms)
    if "TRAN_MSG\x01" in header.properties:  # a committed transactional message; its retry is not a half message
        kept = properties.parse(header.properties)
        kept.pop("TRAN_MSG", None)
        header.properties = properties.encode(kept).decode()
        header.sys_flag &= ~TRANSACTION_BITS
    limit = _limit(group, header.max_reconsume_times, version)
    if header.reconsume_times <= limit and not broker.locks.any_held(group.group_name, now_ms):
        return False
    _ensure_dlq(broker, group, now_ms)
    known = _dead_letter_properties(properties.parse(header.properties), header.topic)
    _log_dead_letter(known, group.group_name, header.reconsume_times or 0)
    header.properties = properties.encode(known).decode()
    header.topic, header.queue_id = dlq_topic(group.group_name), 0
    return True


def _limit(group: SubscriptionGroupConfig, asked: int | None, version: int) -> int:
    return group.retry_max_times if asked is None or asked < 0 or version < CLIENT_LIMIT_VERSION else asked


def _retry(
    broker: BrokerContext, group: SubscriptionGroupConfig, record: Record, header: ConsumerSendMsgBackRequestHeader, now_ms: int
) -> BrokerMessage:
    sys_flag = UNIT_SUBSCRIPTION if header.unit_mode else 0
    topic = broker.topics.ensure(
        retry_topic(group.group_name), group.retry_queue_nums, PERM_READ_WRITE, now_ms, sys_flag=sys_flag
    )
    if not topic.perm & PERM_WRITE:
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"the topic[{topic.topic_name}] sending message is forbidden: its permission is {topic.perm}; "
            f"allow writing with: mqadmin updateTopicPerm -t {topic.topic_name} -p 6",
        )
    # The group may have been configured with more retry queues than its topic has; consumers do not read those.
    queues = min(group.retry_queue_nums, topic.write_queue_nums)
    kept = _retry_properties(record)
    kept["DELAY"] = str(header.delay_level or FIRST_LEVEL + record.reconsume_times)
    return _copy_for(record, topic.topic_name, broker.rng.randrange(max(queues, 1)), kept)


def _dead_letter(broker: BrokerContext, group: SubscriptionGroupConfig, record: Record, now_ms: int) -> BrokerMessage:
    _ensure_dlq(broker, group, now_ms)
    known = _dead_letter_properties(_retry_properties(record), record.topic)
    _log_dead_letter(known, group.group_name, record.reconsume_times + 1)
    return _copy_for(record, dlq_topic(group.group_name), 0, known)


def _log_dead_letter(known: dict[str, str], group: str, attempts: int) -> None:
    message_id, topic = known.get("DLQ_ORIGIN_MESSAGE_ID", "without id"), known["DLQ_ORIGIN_TOPIC"]
    log.info("message %s of %s is a dead letter in %s after %d attempts", message_id, topic, dlq_topic(group), attempts)


def _ensure_dlq(broker: BrokerContext, group: SubscriptionGroupConfig, now_ms: int) -> None:
    broker.topics.ensure(dlq_topic(group.group_name), DLQ_QUEUES, PERM_READ_WRITE, now_ms)


def _retry_properties(record: Record) -> dict[str, str]:
    known = properties.parse(record.properties)
    known.setdefault("RETRY_TOPIC", record.topic)
    known.setdefault("ORIGIN_MESSAGE_ID", offset_msg_id(record.store_host, record.physical_offset))
    known["WAIT"] = "false"
    return known


def _dead_letter_properties(known: dict[str, str], topic: str) -> dict[str, str]:
    """Return the properties of a dead letter: without a delay, with its origin."""
    for name in _TIMER_NAMES:
        known.pop(name, None)
    known["DELAY"] = "0"
    known["DLQ_ORIGIN_TOPIC"] = known.get("RETRY_TOPIC", topic)
    message_id = known.get("UNIQ_KEY") or known.get("ORIGIN_MESSAGE_ID")
    if message_id:
        known["DLQ_ORIGIN_MESSAGE_ID"] = message_id
    return known


def _first_topic(record: Record) -> str:
    return (properties.find(record.properties, b"RETRY_TOPIC") or record.topic.encode()).decode()


def _copy_for(record: Record, topic: str, queue_id: int, known: dict[str, str]) -> BrokerMessage:
    raw = properties.encode(known)
    size = len(raw) + len(topic) + _DELAY_BYTES
    if size > properties.MAX_BYTES:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the message at offset {record.physical_offset} cannot be sent back: the properties of the retry "
            f"would take {size} bytes, the limit is {properties.MAX_BYTES}; send fewer or shorter ones",
        )
    message = BrokerMessage.from_record(record, topic, queue_id)
    message.properties = raw
    message.reconsume_times = record.reconsume_times + 1
    return message


def _check_writable(broker: BrokerContext) -> None:
    if not broker.settings.broker_permission & PERM_WRITE:
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.address}] sending message is forbidden: brokerPermission is {broker.settings.broker_permission}",
        )
    if not broker.store.writable:
        raise Refused(ResponseCode.SYSTEM_ERROR, broker.store.refusal or "the store does not accept messages")


def _consumed_record(broker: BrokerContext, offset: int) -> Record:
    record = read_message(broker.store, offset)
    if record is None or record.topic in _NOT_CONSUMABLE:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed, {offset}: no consumable message begins at this offset",
        )
    return record
