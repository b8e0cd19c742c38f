"""Offsets of positions in a queue, as reported by its master.

Positions have the same names everywhere: `earliest`, `latest`, a time, an offset.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer.pull import Puller
from firearrow.client.consumer.subscription import EVERYTHING, subscription
from firearrow.client.errors import ClientError
from firearrow.client.message import MessageQueue
from firearrow.wire.codes import VERSION_5_0_0
from firearrow.wire.headers.client import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from firearrow.wire.names import TOOLS_CONSUMER_GROUP

StartFrom = Literal["earliest", "latest"] | datetime
Position = int | datetime | Literal["earliest", "latest"]


def check_start_from(value: object) -> None:
    """ValueError unless `value` is a position from which a group without offsets can start."""
    if value not in ("earliest", "latest") and not isinstance(value, datetime):
        raise ValueError(f"start_from is {value!r}, expected 'earliest', 'latest' or a datetime")


def consume_from_where(start_from: StartFrom) -> str:
    """Return Apache's name of the starting position, for heartbeats."""
    if isinstance(start_from, datetime):
        return "CONSUME_FROM_TIMESTAMP"
    return "CONSUME_FROM_FIRST_OFFSET" if start_from == "earliest" else "CONSUME_FROM_LAST_OFFSET"


async def resolve(instance: ClientInstance, queue: MessageQueue, position: Position) -> int:
    """Return the offset of a position. ValueError if it is not a position."""
    if isinstance(position, datetime):
        return await offset_at(instance, queue, milliseconds(position))
    if position == "earliest":
        return max(await min_offset(instance, queue), 0)
    if position == "latest":
        return await max_offset(instance, queue)
    if isinstance(position, bool) or not isinstance(position, int) or position < 0:
        raise ValueError(f"position is {position!r}, expected an offset, a datetime, 'earliest' or 'latest'")
    return position


async def max_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """Return the offset of the next message to arrive."""
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    answer = await instance.check(await master_address(instance, queue), header)
    return GetMaxOffsetResponseHeader.decode(answer.ext).offset


async def min_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """Return the offset of the oldest message."""
    header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    answer = await instance.check(await master_address(instance, queue), header)
    return GetMinOffsetResponseHeader.decode(answer.ext).offset


async def offset_at(instance: ClientInstance, queue: MessageQueue, timestamp_ms: int) -> int:
    """Return the offset of the first message stored at or after a time; the end of the queue if no message is that recent."""
    header = SearchOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms)
    address = await master_address(instance, queue)
    answer = await instance.check(address, header)
    offset = SearchOffsetResponseHeader.decode(answer.ext).offset
    if instance.broker_version(address) >= VERSION_5_0_0:
        return offset
    # Older brokers return the message nearest to the time, which may be the last one before it.
    everything = subscription(queue.topic, EVERYTHING, timestamp_ms)
    nearest = await Puller(instance, TOOLS_CONSUMER_GROUP, lite=True).pull(queue, offset, everything, suspend_ms=0, batch=1)
    return offset + 1 if nearest.messages and nearest.messages[0].store_ms < timestamp_ms else offset


async def master_address(instance: ClientInstance, queue: MessageQueue) -> str:
    """Return the master's address, or a replica's without master. Refreshes the route once if no address is known."""
    found = instance.broker_address(queue.broker_name)
    if found is None:
        await instance.route(queue.topic, refresh=True)
        found = instance.broker_address(queue.broker_name)
    if found is None:
        raise ClientError(f"the broker {queue.broker_name!r} of {queue} has no address; is it down, or has it left the cluster?")
    return found[0]


def milliseconds(time: datetime) -> int:
    """Convert a datetime to milliseconds since 1970; without a time zone it is local time."""
    return int(time.timestamp() * 1000)
