"""Access to messages without consuming them: by id, key, offset or time; their consumption; resending.

Reads use the group for tools and commit no offset. A message has two ids: the producer's id (unique key) and the offset id, which
contains the address of the broker and the commit log offset. They look alike; `find_message` takes either.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from firearrow.admin.clients import consumer_connection
from firearrow.admin.cluster import (
    BrokerAddress,
    ask_broker,
    find_route,
    for_each,
    list_brokers,
    masters_of_topic,
    none_if_rejected,
    readable_queues,
)
from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.groups import group_progress
from firearrow.admin.topics import topic_groups
from firearrow.client.compression import DecompressionBudget
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer import queue_offsets
from firearrow.client.consumer.pull import decode_messages
from firearrow.client.consumer.queue_offsets import master_address, milliseconds
from firearrow.client.errors import BrokerError, ClientError
from firearrow.client.message import MessageQueue, ReceivedMessage, received
from firearrow.clock import wall_ms
from firearrow.wire import properties
from firearrow.wire.bodies.client import ConsumeMessageDirectlyResult
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.headers.admin import ConsumeMessageDirectlyResultRequestHeader
from firearrow.wire.headers.client import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryMessageRequestHeader,
    SendMessageRequestHeaderV2,
    ViewMessageRequestHeader,
)
from firearrow.wire.message_ids import host_text, parse_offset_msg_id
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC, CLIENT_INNER_PRODUCER_GROUP, RETRY_PREFIX, TOOLS_CONSUMER_GROUP
from firearrow.wire.record import decode, decode_all

PULL_BATCH: Final = 32
MAX_BY_KEY: Final = 64
_FOREVER_MS: Final = 2**63 - 1
_WITH_SUBSCRIPTION: Final = 0x4
_PULL_TIMEOUT_MS: Final = 10_000
_DIRECTLY_TIMEOUT_MS: Final = 15_000
_STORED: Final = frozenset((
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
))  # fmt: skip
# Properties that a broker or an earlier delivery set and that must not be sent again.
_NOT_RESENT: Final = frozenset((
    "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TIMER_DEL_MS", "TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID",
    "MIN_OFFSET", "MAX_OFFSET",
    "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK", "1ST_POP_TIME", "CLUSTER", "MSG_REGION", "TRACE_ON",
    "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "TRAN_PREPARED_QUEUE_OFFSET", "__transactionId__", "TRANSACTION_CHECK_TIMES",
    "INNER_NUM", "INNER_BASE",
))  # fmt: skip

Progress = Callable[[int, int], None]  # done, total


@dataclass(frozen=True, slots=True)
class Track:
    """The consumption of a message by a group, in mqadmin's terms: CONSUMED, CONSUMED_BUT_FILTERED, NOT_CONSUME_YET, NOT_ONLINE,
    PULL, CONSUME_BROADCASTING, UNKNOWN."""

    group: str
    status: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a queue: offsets from `begin` up to but not including `end`."""

    queue: MessageQueue
    begin: int
    end: int


# ---- one message


async def find_message(client: ClientInstance, topic: str, msg_id: str) -> ReceivedMessage:
    """Return a message by either of its ids. Raises NotFoundError if it does not exist."""
    found = await messages_by_key(client, topic, msg_id, unique=True)
    if found:
        return found[0]
    try:
        return await message_by_offset_id(client, msg_id)
    except (ClientError, AdminError, BrokerError):
        raise NotFoundError(f"no message of topic {topic!r} has the id {msg_id!r}") from None


async def message_by_offset_id(client: ClientInstance, msg_id: str) -> ReceivedMessage:
    """Return a message by its offset id. Only brokers of the cluster are asked, whatever address the id contains."""
    try:
        host, offset = parse_offset_msg_id(msg_id)
    except ValueError as error:
        raise AdminError(f"{msg_id!r} is not an offset id: {error}") from None
    address = host_text(host)
    brokers = {one.address: one.name for one in await list_brokers(client)}
    if address not in brokers:
        raise NotFoundError(f"the id {msg_id} refers to {address}, which is not a broker of this cluster")
    answer = await client.call(address, ViewMessageRequestHeader(offset=offset))
    if answer.code != ResponseCode.SUCCESS:
        raise NotFoundError(f"{address} has no message with the id {msg_id}: {answer.remark}")
    return received(decode(answer.body, check_crc=False), brokers[address])


async def message_at(client: ClientInstance, queue: MessageQueue, offset: int) -> ReceivedMessage:
    """Return the message at an offset of a queue. Raises NotFoundError if it does not exist."""
    await find_route(client, queue.topic)
    messages, _ = await _pull(client, queue, offset, 1)
    if not messages or messages[0].queue_offset != offset:
        low, high = await queue_offsets.min_offset(client, queue), await queue_offsets.max_offset(client, queue)
        raise NotFoundError(
            f"queue {queue.queue_id} of topic {queue.topic!r} on {queue.broker_name} has no message at offset {offset}; "
            + (f"it has {low} to {high - 1}" if high > low else "it is empty")
        )
    return messages[0]


async def messages_by_key(
    client: ClientInstance,
    topic: str,
    key: str,
    *,
    unique: bool = False,
    begin: datetime | None = None,
    end: datetime | None = None,
    max_messages: int = MAX_BY_KEY,
) -> list[ReceivedMessage]:
    """Return the messages with a key, or with `unique` a producer's id, the latest first."""

    async def ask(broker: BrokerAddress) -> list[ReceivedMessage]:
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=max_messages,
            begin_timestamp=0 if begin is None else milliseconds(begin),
            end_timestamp=_FOREVER_MS if end is None else milliseconds(end),
            unique_key_query=unique,
            index_type="U" if unique else None,
        )
        request = client.check(broker.address, header, timeout_ms=_PULL_TIMEOUT_MS)
        answer = await none_if_rejected(ResponseCode.QUERY_NOT_FOUND, request)
        body = b"" if answer is None else answer.body
        budget = DecompressionBudget(len(body))
        found = [received(one, broker.name, budget=budget) for one in decode_all(body, check_crc=False)]
        return [one for one in found if one.topic == topic and (one.msg_id == key if unique else key in one.keys)]

    found = [message for part in await for_each(await masters_of_topic(client, topic), ask) for message in part]
    return sorted(found, key=lambda message: -message.store_ms)[:max_messages]


# ---- many messages


async def spans(
    client: ClientInstance,
    topic: str,
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    broker: str | None = None,
    queue_id: int | None = None,
) -> list[Span]:
    """Return the ranges of a topic's queues that were stored at `begin` or later and before `end`."""

    async def one(queue: MessageQueue) -> Span:
        low, high = await asyncio.gather(queue_offsets.min_offset(client, queue), queue_offsets.max_offset(client, queue))
        if begin is not None:
            low = max(low, await queue_offsets.offset_at(client, queue, milliseconds(begin)))
        if end is not None:
            high = min(high, await queue_offsets.offset_at(client, queue, milliseconds(end)))
        return Span(queue, low, max(low, high))

    return await for_each(await readable_queues(client, topic, broker, queue_id), one)


async def scan(client: ClientInstance, parts: Iterable[Span], progress: Progress | None = None) -> AsyncIterator[ReceivedMessage]:
    """Yield all messages of these ranges, queue by queue."""
    parts = list(parts)
    total, done = sum(part.end - part.begin for part in parts), 0
    for part in parts:
        offset = part.begin
        while offset < part.end:
            messages, following = await _pull(client, part.queue, offset, min(PULL_BATCH, part.end - offset))
            for message in messages:
                if message.queue_offset < part.end:
                    yield message
            done += min(following, part.end) - offset
            if progress is not None:
                progress(done, total)
            if following <= offset:
                break
            offset = following


async def messages_between(
    client: ClientInstance,
    topic: str,
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    tag: str | None = None,
    key: str | None = None,
    contains: bytes | None = None,
    broker: str | None = None,
    queue_id: int | None = None,
    max_messages: int = 100,
    progress: Progress | None = None,
) -> list[ReceivedMessage]:
    """Return the messages of a time range, optionally with a tag, key or content, oldest first."""
    parts = await spans(client, topic, begin=begin, end=end, broker=broker, queue_id=queue_id)
    found = []
    async for message in scan(client, parts, progress):
        if matches(message, tag=tag, key=key, contains=contains):
            found.append(message)
            if len(found) >= max_messages:
                break
    return sorted(found, key=_by_time)


async def peek(
    client: ClientInstance,
    topic: str,
    count: int = 1,
    *,
    oldest: bool = False,
    broker: str | None = None,
    queue_id: int | None = None,
) -> list[ReceivedMessage]:
    """Return the newest messages of a topic, or the oldest."""
    parts = await spans(client, topic, broker=broker, queue_id=queue_id)
    if oldest:
        ends = [Span(part.queue, part.begin, min(part.end, part.begin + count)) for part in parts]
    else:
        ends = [Span(part.queue, max(part.begin, part.end - count), part.end) for part in parts]
    found = sorted([message async for message in scan(client, ends)], key=_by_time)
    return found[:count] if oldest else found[-count:]


def _by_time(message: ReceivedMessage) -> tuple[int, MessageQueue, int]:
    return message.store_ms, message.queue, message.queue_offset


def matches(message: ReceivedMessage, *, tag: str | None = None, key: str | None = None, contains: bytes | None = None) -> bool:
    return (
        (tag is None or message.tags == tag)
        and (key is None or key in message.keys or message.msg_id == key)
        and (contains is None or contains in message.body)
    )


# ---- consumption and resending


async def track(client: ClientInstance, message: ReceivedMessage) -> list[Track]:
    """Return the consumption of a message by each group of its topic."""
    groups = await topic_groups(client, message.queue.topic)
    return await for_each(groups, lambda group: _tracked(client, group, message))


async def consume_directly(
    client: ClientInstance, group: str, message: ReceivedMessage, *, client_id: str | None = None
) -> ConsumeMessageDirectlyResult:
    """Let a member of a group consume a message again, and return the result."""
    if client_id is None:
        client_id = (await consumer_connection(client, group)).connection_set[0].client_id
    header = ConsumeMessageDirectlyResultRequestHeader(
        consumer_group=group,
        client_id=client_id,
        msg_id=message.offset_msg_id,
        broker_name=message.queue.broker_name,
        topic=message.queue.topic,
    )
    await find_route(client, message.queue.topic)
    address = await master_address(client, message.queue)
    return await ask_broker(client, address, header, ConsumeMessageDirectlyResult, timeout_ms=_DIRECTLY_TIMEOUT_MS)


async def resend(client: ClientInstance, message: ReceivedMessage, *, to: str | None = None) -> str:
    """Append a copy of a message to its topic or another one. Returns the offset id of the copy.

    The copy has the same body, tags, keys, properties and producer's id. Its reconsume count starts at zero.
    """
    return await store_copy(client, to or message.topic, message.body, message.all_properties, message.flag)


async def store_copy(client: ClientInstance, topic: str, body: bytes, known: Mapping[str, str], flag: int = 0) -> str:
    """Send a body with protocol properties, which a producer rejects. Returns the offset id."""
    queues = (await client.route(topic)).write_queues()
    if not queues:
        raise AdminError(f"topic {topic!r} has no writable queue: its permission, or that of its brokers, forbids it")
    queue = queues[time.monotonic_ns() % len(queues)]
    kept = {name: value for name, value in known.items() if name not in _NOT_RESENT}
    if not topic.startswith(RETRY_PREFIX):
        kept.pop(properties.PROPERTY_RETRY_TOPIC, None)
        kept.pop(properties.PROPERTY_ORIGIN_MESSAGE_ID, None)
    header = SendMessageRequestHeaderV2(
        producer_group=CLIENT_INNER_PRODUCER_GROUP,
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue.queue_id,
        sys_flag=0,  # the body is sent uncompressed
        born_timestamp=wall_ms(),
        flag=flag,
        properties=properties.encode(kept).decode(),
        bname=queue.broker_name,
    )
    address = await master_address(client, queue)
    answer = await client.call(address, header, body)
    if answer.code not in _STORED:
        raise BrokerError(answer.code, answer.remark, address)
    return str(answer.ext.get("msgId", ""))


# ---- requests


async def _pull(client: ClientInstance, queue: MessageQueue, offset: int, count: int) -> tuple[list[ReceivedMessage], int]:
    """Return messages from an offset on and the next offset, without long polling and without a commit."""
    address = await master_address(client, queue)
    header = PullMessageRequestHeader(
        consumer_group=TOOLS_CONSUMER_GROUP, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
        max_msg_nums=count, sys_flag=_WITH_SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0, sub_version=0,
        subscription="*", expression_type="TAG",
    )  # fmt: skip
    answer = await client.call(address, header, timeout_ms=_PULL_TIMEOUT_MS)
    if answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED):
        return [], PullMessageResponseHeader.decode(answer.ext).next_begin_offset
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, address)
    try:
        return decode_messages(answer.body, queue), PullMessageResponseHeader.decode(answer.ext).next_begin_offset
    except ProtocolError as error:
        raise ClientError(f"{address} answered a pull of {queue} with malformed records: {error}") from None


async def _tracked(client: ClientInstance, group: str, message: ReceivedMessage) -> Track:
    try:
        connection = await consumer_connection(client, group)
    except NotFoundError:
        done = await _consumed(client, group, message)
        return Track(group, "CONSUMED" if done else "NOT_ONLINE", "no member is connected")
    except BrokerError as error:
        return Track(group, "UNKNOWN", str(error))
    if connection.message_model == "BROADCASTING":
        return Track(group, "CONSUME_BROADCASTING", "each member has offsets of its own")
    if not await _consumed(client, group, message):
        kind = "PULL" if connection.consume_type == "CONSUME_ACTIVELY" else "NOT_CONSUME_YET"
        return Track(group, kind)
    wanted = connection.subscription_table.get(message.queue.topic)
    if wanted is not None and wanted.tags_set and message.tags not in wanted.tags_set:
        return Track(group, "CONSUMED_BUT_FILTERED", f"the group subscribes to {wanted.sub_string}")
    return Track(group, "CONSUMED")


async def _consumed(client: ClientInstance, group: str, message: ReceivedMessage) -> bool:
    """Return whether the group's offset is beyond the message."""
    queue = message.queue
    return any(
        (one.broker, one.queue_id) == (queue.broker_name, queue.queue_id) and one.consumer_offset > message.queue_offset
        for one in await group_progress(client, group, topic=queue.topic)
    )
