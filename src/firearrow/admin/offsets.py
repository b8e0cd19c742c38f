"""Moving a group in a topic: to the beginning, the end, a moment, an offset; copying offsets from another group.

What will happen is worked out first, queue by queue (`plan_reset`): a dry run shows exactly what is done then. How it is done
depends on the broker:

- with `useServerSideResetOffset` (Firearrow, Apache 5): each queue is told its offset; consumers follow at their next pull.
- otherwise, with members connected: the broker tells them, and they go to a moment; a single offset cannot be given.
- otherwise: the offsets are committed in the group's name.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from firearrow.admin.brokers import broker_config
from firearrow.admin.cluster import masters_of_group
from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.groups import group_configs
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer import queue_offsets
from firearrow.client.consumer.queue_offsets import master_address, milliseconds
from firearrow.client.errors import BrokerError, NoRouteError
from firearrow.client.message import MessageQueue
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.headers.client import QueryConsumerOffsetResponseHeader

Target = int | datetime | Literal["begin", "end"]

_BEGIN_MS: Final = 0
_END_MS: Final = -1


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """`before` is None where the group has no offset yet; `skipped` is negative when messages come again."""

    queue: MessageQueue
    before: int | None
    after: int
    min_offset: int
    max_offset: int

    @property
    def skipped(self) -> int:
        return self.after - (self.before if self.before is not None else self.min_offset)


async def plan_reset(
    client: ClientInstance, group: str, topic: str, to: Target, *, broker: str | None = None, queue_id: int | None = None
) -> list[OffsetChange]:
    """What `reset_offset` would do."""
    try:
        route = await client.route(topic, refresh=True)
    except NoRouteError as error:
        if not error.asked:
            raise
        raise NotFoundError(f"there is no topic {topic!r}") from None
    await group_configs(client, group)
    queues = [q for q in route.read_queues() if broker in (None, q.broker_name) and queue_id in (None, q.queue_id)]
    if not queues:
        raise NotFoundError(
            f"the topic {topic!r} has no queue {'' if queue_id is None else queue_id} on {broker or 'any broker'}"
        )
    if isinstance(to, int) and len(queues) > 1:
        raise AdminError(f"an offset is of one queue, but {topic!r} has {len(queues)}: name the broker and the queue")
    return list(await asyncio.gather(*(_change(client, group, queue, to) for queue in queues)))


async def reset_offset(
    client: ClientInstance, group: str, topic: str, to: Target, *, broker: str | None = None, queue_id: int | None = None
) -> list[OffsetChange]:
    """Moves a group to another place of a topic, in all queues or one. Returns what was changed."""
    plan = await plan_reset(client, group, topic, to, broker=broker, queue_id=queue_id)
    for name in sorted({change.queue.broker_name for change in plan}):
        await _reset_at(client, group, topic, to, [change for change in plan if change.queue.broker_name == name])
    return plan


async def clone_offsets(client: ClientInstance, source: str, target: str, topic: str, *, offline: bool = True) -> None:
    """Gives a group the offsets of another one in a topic. With `offline` the target may have no member connected."""
    ext = {"srcGroup": source, "destGroup": target, "topic": topic, "offline": offline}
    for broker in await masters_of_group(client, source):
        await client.check(broker.address, RequestCode.CLONE_GROUP_OFFSET, ext)


async def committed_offset(client: ClientInstance, group: str, queue: MessageQueue) -> int | None:
    """Where a group is in a queue; None if it never committed there."""
    ext = {"consumerGroup": group, "topic": queue.topic, "queueId": queue.queue_id, "setZeroIfNotFound": False}
    address = await master_address(client, queue)
    answer = await client.call(address, RequestCode.QUERY_CONSUMER_OFFSET, ext)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, address)
    return QueryConsumerOffsetResponseHeader.decode(answer.ext).offset


async def _change(client: ClientInstance, group: str, queue: MessageQueue, to: Target) -> OffsetChange:
    before, low, high = await asyncio.gather(
        committed_offset(client, group, queue), queue_offsets.min_offset(client, queue), queue_offsets.max_offset(client, queue)
    )
    if to == "begin":
        after = low
    elif to == "end":
        after = high
    elif isinstance(to, datetime):
        after = await queue_offsets.offset_at(client, queue, milliseconds(to))
    else:
        after = int(to)
        if not low <= after <= high:
            raise AdminError(
                f"the offset {after} is not in the queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name}: "
                f"expected {low} to {high}"
            )
    return OffsetChange(queue, before, after, low, high)


async def _reset_at(client: ClientInstance, group: str, topic: str, to: Target, changes: list[OffsetChange]) -> None:
    address = await master_address(client, changes[0].queue)
    config = await broker_config(client, address)
    if config.get("useServerSideResetOffset", "false") == "true":
        for change in changes:
            ext = {
                "topic": topic, "group": group, "queueId": change.queue.queue_id, "offset": change.after, "timestamp": _END_MS,
                "isForce": True,
            }  # fmt: skip
            await client.check(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        return
    if not isinstance(to, int):
        moment_ms = _BEGIN_MS if to == "begin" else milliseconds(to) if isinstance(to, datetime) else _END_MS
        ext = {"topic": topic, "group": group, "timestamp": moment_ms, "isForce": True}
        answer = await client.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        if answer.code == ResponseCode.SUCCESS:
            return
        if answer.code != ResponseCode.CONSUMER_NOT_ONLINE and not _never_consumed(changes):
            raise BrokerError(answer.code, answer.remark, address)
    elif await _online(client, address, group):
        raise AdminError(
            f"the broker at {address} cannot move the group {group!r} to an offset while members are connected: stop them, or "
            "give a time"
        )
    for change in changes:
        ext = {"consumerGroup": group, "topic": topic, "queueId": change.queue.queue_id, "commitOffset": change.after}
        await client.check(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)


def _never_consumed(changes: list[OffsetChange]) -> bool:
    return all(change.before is None for change in changes)


async def _online(client: ClientInstance, address: str, group: str) -> bool:
    answer = await client.call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    return answer.code == ResponseCode.SUCCESS
