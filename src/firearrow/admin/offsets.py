"""Reset of a group's offsets to a position, and copies of offsets between groups.

`plan_reset` determines the changes queue by queue, so that a dry run shows exactly what a reset does. The execution depends on
the broker:

- With `useServerSideResetOffset` (Firearrow, Apache 5), the broker resets each queue and consumers follow at their next pull.
- Otherwise, with connected members, the broker sends them a time. It cannot send a single offset.
- Otherwise, the offsets are committed on behalf of the group.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from firearrow.admin.brokers import broker_config
from firearrow.admin.cluster import masters_of_group, none_if_rejected, readable_queues
from firearrow.admin.errors import AdminError
from firearrow.admin.groups import group_configs
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer import queue_offsets
from firearrow.client.consumer.queue_offsets import master_address, milliseconds
from firearrow.client.errors import BrokerError
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

Target = int | datetime | Literal["earliest", "latest"]

_BEGIN_MS: Final = 0
_END_MS: Final = -1


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The change of an offset. `before`: None if the group has no offset. `skipped` is negative if messages are redelivered."""

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
    """Return the changes that `reset_offset` would make."""
    queues = await readable_queues(client, topic, broker, queue_id)
    await group_configs(client, group)
    if isinstance(to, int) and len(queues) > 1:
        raise AdminError(f"an offset belongs to one queue, but topic {topic!r} has {len(queues)}; name the broker and the queue")
    return list(await asyncio.gather(*(_change(client, group, queue, to) for queue in queues)))


async def reset_offset(
    client: ClientInstance, group: str, topic: str, to: Target, *, broker: str | None = None, queue_id: int | None = None
) -> list[OffsetChange]:
    """Move a group to another position of a topic, in all queues or one. Returns the changes."""
    plan = await plan_reset(client, group, topic, to, broker=broker, queue_id=queue_id)
    for name in sorted({change.queue.broker_name for change in plan}):
        await _reset_at(client, group, topic, to, [change for change in plan if change.queue.broker_name == name])
    return plan


async def clone_offsets(client: ClientInstance, source: str, target: str, topic: str, *, offline: bool = True) -> None:
    """Give a group the offsets of another one in a topic. With `offline`, no member of the target may be connected."""
    header = CloneGroupOffsetRequestHeader(src_group=source, dest_group=target, topic=topic, offline=offline)
    for broker in await masters_of_group(client, source):
        await client.check(broker.address, header)


async def committed_offset(client: ClientInstance, group: str, queue: MessageQueue) -> int | None:
    """Return the committed offset of a group in a queue; None if it has not committed any."""
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
    )
    request = client.check(await master_address(client, queue), header)
    answer = await none_if_rejected(ResponseCode.QUERY_NOT_FOUND, request)
    return None if answer is None else QueryConsumerOffsetResponseHeader.decode(answer.ext).offset


async def _change(client: ClientInstance, group: str, queue: MessageQueue, to: Target) -> OffsetChange:
    before, low, high = await asyncio.gather(
        committed_offset(client, group, queue), queue_offsets.min_offset(client, queue), queue_offsets.max_offset(client, queue)
    )
    if to == "earliest":
        after = low
    elif to == "latest":
        after = high
    elif isinstance(to, datetime):
        after = await queue_offsets.offset_at(client, queue, milliseconds(to))
    else:
        after = int(to)
        if not low <= after <= high:
            raise AdminError(
                f"offset {after} is outside queue {queue.queue_id} of topic {queue.topic!r} on {queue.broker_name}; "
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
        timestamp_ms = _BEGIN_MS if to == "earliest" else milliseconds(to) if isinstance(to, datetime) else _END_MS
        reset = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=timestamp_ms, is_force=True)
        answer = await client.call(address, reset)
        if answer.code == ResponseCode.SUCCESS:
            return
        if answer.code != ResponseCode.CONSUMER_NOT_ONLINE and not _never_consumed(changes):
            raise BrokerError(answer.code, answer.remark, address)
    elif await _online(client, address, group):
        raise AdminError(
            f"the broker at {address} cannot reset group {group!r} to an offset while members are connected; stop them, or "
            "use a time"
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
