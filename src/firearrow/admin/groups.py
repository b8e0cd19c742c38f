"""Consumer groups: listing, creation, change, deletion and progress."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from firearrow.admin.clients import consumer_connection, running_info
from firearrow.admin.cluster import BrokerAddress, ask_broker, for_each, masters, masters_of_group, none_if_rejected
from firearrow.admin.errors import AdminError, NotFoundError, not_found
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.errors import FirearrowError
from firearrow.wire import fastjson
from firearrow.wire.bodies.admin import ConsumerConnection, ConsumeStats, ConsumeStatsList
from firearrow.wire.bodies.topic import SubscriptionGroupConfig, SubscriptionGroupWrapper
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from firearrow.wire.names import RETRY_PREFIX, check_group, is_system_group


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group over all brokers."""

    group: str
    members: int
    consume_type: str | None
    message_model: str | None
    lag: int
    topics: tuple[str, ...]
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """The progress of a group in a queue. `lag`: stored, not consumed. `in_flight`: pulled, not yet consumed."""

    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_consumed_ms: int | None
    client_id: str | None = None

    @property
    def lag(self) -> int:
        return self.broker_offset - self.consumer_offset

    @property
    def in_flight(self) -> int:
        return max(self.pull_offset - self.consumer_offset, 0)


async def group_names(client: ClientInstance, *, system: bool = False) -> list[str]:
    """Return the names of all groups, sorted."""
    tables = await for_each(await masters(client), lambda broker: _all_groups(client, broker))
    return sorted({name for _, table in tables for name in table if system or not is_system_group(name)})


async def list_groups(client: ClientInstance, *, system: bool = False) -> list[GroupSummary]:
    """Return every group with its members and its lag."""
    brokers = await masters(client)
    brokers_of: dict[str, list[str]] = {}
    for name, table in await for_each(brokers, lambda broker: _all_groups(client, broker)):
        for group in table:
            if system or not is_system_group(group):
                brokers_of.setdefault(group, []).append(name)
    lags: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for stats in await for_each(brokers, lambda broker: _all_stats(client, broker)):
        for by_group in stats.consume_stats_list:
            for group, parts in by_group.items():
                for part in parts:
                    for queue, offsets in part.offset_table.items():
                        lags[group][queue.topic] += offsets.broker_offset - offsets.consumer_offset
    online = dict(await for_each(brokers_of, lambda group: _connection_or_none(client, group)))
    return [_summary(group, brokers_of[group], online[group], lags[group]) for group in sorted(brokers_of)]


async def group_configs(client: ClientInstance, group: str) -> dict[str, SubscriptionGroupConfig]:
    """Return broker name -> configuration of a group. Raises NotFoundError, which names a similar group, if no broker has it."""
    tables = await for_each(await masters(client), lambda broker: _all_groups(client, broker))
    found = {name: table[group] for name, table in tables if group in table}
    if not found:
        raise not_found("group", group, {name for _, table in tables for name in table})
    return found


async def create_group(
    client: ClientInstance,
    group: str,
    settings: Mapping[str, Any] | None = None,
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> list[str]:
    """Create a group on all masters, those of a cluster, or one. `settings` are fields of SubscriptionGroupConfig.

    Returns the names of the brokers. Raises AdminError if the group exists on one of them.
    """
    check_group(group)
    config = _changed(SubscriptionGroupConfig(group_name=group), settings or {})
    targets = await masters(client, cluster, broker)
    try:
        existing = await group_configs(client, group)
    except NotFoundError:
        existing = {}
    taken = [one.name for one in targets if one.name in existing]
    if taken:
        raise AdminError(f"group {group!r} already exists on {', '.join(taken)}; change it with `firearrow group alter`")
    await for_each(targets, lambda target: _put(client, target.address, config))
    return [one.name for one in targets]


async def alter_group(client: ClientInstance, group: str, settings: Mapping[str, Any], *, broker: str | None = None) -> list[str]:
    """Change settings of a group on all brokers that have it, or one. Returns the names of the brokers."""
    configs = await group_configs(client, group)
    targets = [one for one in await masters(client, broker=broker) if one.name in configs]
    if not targets:
        raise NotFoundError(f"group {group!r} does not exist on {broker!r}; it exists on {', '.join(sorted(configs))}")
    await for_each(targets, lambda one: _put(client, one.address, _changed(configs[one.name], settings)))
    return [one.name for one in targets]


async def delete_group(client: ClientInstance, group: str, *, keep_offsets: bool = False, broker: str | None = None) -> list[str]:
    """Delete a group and, unless `keep_offsets`, its offsets. Its retry and dead letter topics remain with their messages."""
    configs = await group_configs(client, group)
    targets = [one for one in await masters(client, broker=broker) if one.name in configs]
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=not keep_offsets)
    await for_each(targets, lambda one: client.check(one.address, header))
    return [one.name for one in targets]


async def group_progress(
    client: ClientInstance, group: str, *, topic: str | None = None, members: bool = False
) -> list[QueueProgress]:
    """Return the progress of a group in every queue it has an offset in; with `members`, also the consuming client."""
    owners = await _owners(client, group) if members else {}

    async def ask(broker: BrokerAddress) -> list[QueueProgress]:
        stats = await _stats(client, broker, group, topic)
        return [
            QueueProgress(
                queue.topic, queue.broker_name, queue.queue_id, one.broker_offset, one.consumer_offset, one.pull_offset,
                one.last_timestamp or None, owners.get((queue.topic, queue.broker_name, queue.queue_id)),
            )
            for queue, one in stats.offset_table.items()
        ]  # fmt: skip

    found = [queue for part in await for_each(await masters_of_group(client, group), ask) for queue in part]
    return sorted(found, key=lambda one: (one.topic, one.broker, one.queue_id))


async def group_rate(client: ClientInstance, group: str) -> float:
    """Return the number of messages per second that a group consumes on all brokers."""
    found = await for_each(await masters_of_group(client, group), lambda broker: _stats(client, broker, group))
    return sum(stats.consume_tps for stats in found)


async def _stats(client: ClientInstance, broker: BrokerAddress, group: str, topic: str | None = None) -> ConsumeStats:
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
    return await ask_broker(client, broker.address, header, ConsumeStats)


async def _owners(client: ClientInstance, group: str) -> dict[tuple[str, str, int], str]:
    """Return queue -> client id, as the members report. Members that do not answer are left out."""
    _, connection = await _connection_or_none(client, group)
    owners: dict[tuple[str, str, int], str] = {}
    for member in [] if connection is None else connection.connection_set:
        try:
            info = await running_info(client, group, member.client_id)
        except FirearrowError:
            continue
        for queue in info.mq_table:
            owners[queue.topic, queue.broker_name, queue.queue_id] = member.client_id
    return owners


async def _connection_or_none(client: ClientInstance, group: str) -> tuple[str, ConsumerConnection | None]:
    try:
        return group, await consumer_connection(client, group)
    except NotFoundError:
        return group, None


async def _all_groups(client: ClientInstance, broker: BrokerAddress) -> tuple[str, dict[str, SubscriptionGroupConfig]]:
    request = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    groups = await ask_broker(client, broker.address, request, SubscriptionGroupWrapper, timeout_ms=10_000)
    return broker.name, groups.subscription_group_table


async def _all_stats(client: ClientInstance, broker: BrokerAddress) -> ConsumeStatsList:
    header = GetConsumeStatsInBrokerHeader(is_order=False)
    stats = ask_broker(client, broker.address, header, ConsumeStatsList, timeout_ms=10_000)
    return await none_if_rejected(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, stats) or ConsumeStatsList()


async def _put(client: ClientInstance, address: str, config: SubscriptionGroupConfig) -> None:
    await client.check(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, fastjson.dumps(config.to_json()))


def _changed(config: SubscriptionGroupConfig, settings: Mapping[str, Any]) -> SubscriptionGroupConfig:
    known = {one.name for one in fields(SubscriptionGroupConfig)} - {"group_name"}
    unknown = settings.keys() - known
    if unknown:
        raise AdminError(f"unknown group setting {sorted(unknown)[0]!r}; expected one of {', '.join(sorted(known))}")
    return replace(config, **settings)


def _summary(group: str, brokers: list[str], connection: ConsumerConnection | None, lags: Mapping[str, int]) -> GroupSummary:
    return GroupSummary(
        group,
        0 if connection is None else len(connection.connection_set),
        None if connection is None else connection.consume_type,
        None if connection is None else connection.message_model,
        sum(lags.values()),
        tuple(sorted(topic for topic in lags if not topic.startswith(RETRY_PREFIX))),
        tuple(sorted(brokers)),
    )
