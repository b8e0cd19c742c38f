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
from firearrow.wire.codes import ResponseCode
from firearrow.wire.headers.admin import (
    CloneGroupOffsetRequestHeader,
    GetConsumerConnectionListRequestHeader,
    ResetOffsetRequestHeader,
)
from firearrow.wire.headers.client import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

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
    header = CloneGroupOffsetRequestHeader(src_group=source, dest_group=target, topic=topic, offline=offline)
    for broker in await masters_of_group(client, source):
        await client.check(broker.address, header)


async def committed_offset(client: ClientInstance, group: str, queue: MessageQueue) -> int | None:
    """Where a group is in a queue; None if it never committed there."""
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
    )
    address = await master_address(client, queue)
    answer = await client.call(address, header)
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
            reset = ResetOffsetRequestHeader(
                topic=topic, group=group, queue_id=change.queue.queue_id, offset=change.after, timestamp=_END_MS, is_force=True
            )
            await client.check(address, reset)
        return
    if not isinstance(to, int):
        moment_ms = _BEGIN_MS if to == "begin" else milliseconds(to) if isinstance(to, datetime) else _END_MS
        reset = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=moment_ms, is_force=True)
        answer = await client.call(address, reset)
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
        update = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=change.queue.queue_id, commit_offset=change.after
        )
        await client.check(address, update)


def _never_consumed(changes: list[OffsetChange]) -> bool:
    return all(change.before is None for change in changes)


async def _online(client: ClientInstance, address: str, group: str) -> bool:
    answer = await client.call(address, GetConsumerConnectionListRequestHeader(consumer_group=group))
    return answer.code == ResponseCode.SUCCESS
