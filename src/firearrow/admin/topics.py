"""Topics: listing, creation, change, deletion and queue statistics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from firearrow.admin.cluster import (
    BrokerAddress,
    ask_broker,
    ask_name_server,
    find_route,
    for_each,
    masters,
    masters_in,
    masters_of_topic,
    none_if_rejected,
    tell_name_servers,
)
from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.connection.routes import TopicRoute
from firearrow.client.errors import BrokerError, NoRouteError
from firearrow.wire.bodies.admin import GroupList, TopicStatsTable
from firearrow.wire.bodies.route import TopicList
from firearrow.wire.bodies.topic import TopicConfig
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.fastjson import loads
from firearrow.wire.headers.admin import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from firearrow.wire.headers.namesrv import DeleteTopicFromNamesrvRequestHeader, GetTopicsByClusterRequestHeader
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC, DLQ_PREFIX, RETRY_PREFIX, check_topic, is_system_topic

DEFAULT_QUEUES: Final = 8
REPLY_TOPIC_POSTFIX: Final = "REPLY_TOPIC"
_ROUTE_TIMEOUT_S: Final = 3.0
_POLL_S: Final = 0.02
PERMISSIONS: Final = {"r": 4, "w": 2, "rw": 6, "none": 0}


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic over all its brokers; numbers of queues are sums."""

    topic: str
    kind: str  # normal, retry, dlq, system
    read_queues: int
    write_queues: int
    perm: str
    order: bool
    message_type: str
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The offsets of a queue."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_stored_ms: int | None

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


async def topic_names(client: ClientInstance, *, cluster: str | None = None) -> list[str]:
    """Return every topic that the name server knows, or those of a cluster, sorted."""
    everything = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    answer = await ask_name_server(client, everything if cluster is None else GetTopicsByClusterRequestHeader(cluster=cluster))
    return sorted(TopicList.from_json(loads(answer.body)).topic_list)


async def list_topics(client: ClientInstance, *, cluster: str | None = None) -> list[TopicSummary]:
    """Return every topic, with one request to each master for any number of topics."""
    brokers = await masters(client, cluster)
    tables = await for_each(brokers, lambda broker: _all_configs(client, broker))
    own = {name for one in brokers for name in (one.name, one.cluster, f"{one.cluster}_{REPLY_TOPIC_POSTFIX}")}
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for broker, table in tables:
        for topic, config in table.items():
            found.setdefault(topic, []).append((broker, config))
    return [_summary(topic, found[topic], own) for topic in sorted(found)]


async def topic_configs(client: ClientInstance, topic: str) -> dict[str, TopicConfig]:
    """Return broker name -> configuration of a topic. Raises NotFoundError if no broker has it."""
    brokers = await masters_of_topic(client, topic)
    configs = dict(await for_each(brokers, lambda broker: _config(client, broker, topic)))
    found = {name: config for name, config in configs.items() if config is not None}
    if not found:
        raise NotFoundError(f"topic {topic!r} does not exist")
    return found


async def create_topic(
    client: ClientInstance,
    topic: str,
    *,
    queues: int = DEFAULT_QUEUES,
    read_queues: int | None = None,
    write_queues: int | None = None,
    perm: int = 6,
    order: bool = False,
    attributes: Mapping[str, str] | None = None,
    cluster: str | None = None,
    broker: str | None = None,
) -> list[str]:
    """Create a topic on all masters, those of a cluster, or one. Returns their names when name servers know the topic.

    Raises AdminError if it exists on one of them.
    """
    _check_name(topic)
    targets = await masters(client, cluster, broker)
    try:
        existing = await topic_configs(client, topic)
    except NotFoundError:
        existing = {}
    taken = [one.name for one in targets if one.name in existing]
    if taken:
        raise AdminError(f"topic {topic!r} already exists on {', '.join(taken)}; change it with `firearrow topic alter`")
    config = TopicConfig(topic, read_queues or queues, write_queues or queues, perm, order=order)
    config.attributes = {f"+{name}": value for name, value in (attributes or {}).items()}
    await for_each(targets, lambda target: _put(client, target, config))
    await _routed(client, topic, {one.name for one in targets})
    return [one.name for one in targets]


async def alter_topic(
    client: ClientInstance,
    topic: str,
    *,
    read_queues: int | None = None,
    write_queues: int | None = None,
    perm: int | None = None,
    order: bool | None = None,
    attributes: Mapping[str, str | None] | None = None,
    broker: str | None = None,
) -> list[str]:
    """Change a topic on all its brokers, or one; None keeps a value. An attribute with the value `None` is removed.

    To reduce queues without losing messages, reduce write queues first, and read queues when the others are empty. Returns the
    names of the brokers.
    """
    configs = await topic_configs(client, topic)
    targets = [
        one for one in await masters_of_topic(client, topic) if one.name in configs and broker in (None, one.name, one.address)
    ]
    if not targets:
        raise NotFoundError(f"topic {topic!r} does not exist on {broker!r}; it exists on {', '.join(sorted(configs))}")
    values = {"read_queue_nums": read_queues, "write_queue_nums": write_queues, "perm": perm, "order": order}
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    changes = {("-" if value is None else "+") + name: value or "" for name, value in (attributes or {}).items()}
    await for_each(targets, lambda one: _put(client, one, replace(configs[one.name], **given, attributes=changes)))
    return [one.name for one in targets]


async def delete_topic(client: ClientInstance, topic: str, *, cluster: str | None = None) -> list[str]:
    """Delete a topic with its messages and offsets from all masters, or those of a cluster. Returns the brokers that had it."""
    _check_name(topic)
    existing = set(await topic_configs(client, topic))
    targets = [one for one in await masters(client, cluster) if one.name in existing]
    if not targets:
        raise NotFoundError(f"topic {topic!r} does not exist in cluster {cluster!r}")
    await for_each(targets, lambda one: client.check(one.address, DeleteTopicRequestHeader(topic=topic)))
    await tell_name_servers(client, DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster))
    return [one.name for one in targets]


async def topic_status(client: ClientInstance, topic: str) -> list[QueueStatus]:
    """Return the offsets of each queue of a topic, and when its last message was stored."""

    async def ask(broker: BrokerAddress) -> list[QueueStatus]:
        request = ask_broker(client, broker.address, GetTopicStatsInfoRequestHeader(topic=topic), TopicStatsTable)
        table = await none_if_rejected(ResponseCode.TOPIC_NOT_EXIST, request) or TopicStatsTable()
        return [
            QueueStatus(queue.broker_name, queue.queue_id, one.min_offset, one.max_offset, one.last_update_timestamp or None)
            for queue, one in table.offset_table.items()
        ]

    found = [queue for part in await for_each(await masters_of_topic(client, topic), ask) for queue in part]
    return sorted(found, key=lambda queue: (queue.broker, queue.queue_id))


async def topic_route(client: ClientInstance, topic: str) -> TopicRoute:
    """Return the current route of a topic."""
    return await find_route(client, topic)


async def topic_groups(client: ClientInstance, topic: str) -> list[str]:
    """Return the groups that consume a topic or have an offset in it."""
    header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
    brokers = await masters_of_topic(client, topic)
    answers = await for_each(brokers, lambda broker: ask_broker(client, broker.address, header, GroupList))
    return sorted({group for answer in answers for group in answer.group_list})


def kind_of(topic: str) -> str:
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dlq"
    return "system" if is_system_topic(topic) else "normal"


def perm_text(perm: int) -> str:
    return ("r" if perm & 4 else "") + ("w" if perm & 2 else "") or "none"


async def _all_configs(client: ClientInstance, broker: BrokerAddress) -> tuple[str, dict[str, dict[str, Any]]]:
    answer = await client.check(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_ms=10_000)
    table = loads(answer.body).get("topicConfigTable")
    if not isinstance(table, dict):
        raise AdminError(f"{broker.address} sent no topic table")
    return broker.name, table


def _summary(topic: str, configs: list[tuple[str, dict[str, Any]]], own: set[str]) -> TopicSummary:
    """Summarise a topic from the JSON values; with ten thousand topics, decoding each into an object is slow."""
    perms = {perm_text(int(config.get("perm", 6))) for _, config in configs}
    first = configs[0][1]
    return TopicSummary(
        topic,
        "system" if topic in own else kind_of(topic),
        sum(int(config.get("readQueueNums", 0)) for _, config in configs),
        sum(int(config.get("writeQueueNums", 0)) for _, config in configs),
        "/".join(sorted(perms)),
        any(bool(config.get("order")) for _, config in configs),
        (first.get("attributes") or {}).get("message.type", ""),
        tuple(sorted(name for name, _ in configs)),
    )


async def _config(client: ClientInstance, broker: BrokerAddress, topic: str) -> tuple[str, TopicConfig | None]:
    request = ask_broker(client, broker.address, GetTopicConfigRequestHeader(topic=topic), TopicConfig)
    try:
        return broker.name, await none_if_rejected(ResponseCode.TOPIC_NOT_EXIST, request)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
    _, table = await _all_configs(client, broker)  # 4.9 has no request for a single topic
    return broker.name, TopicConfig.from_json(table[topic]) if topic in table else None


async def _put(client: ClientInstance, broker: BrokerAddress, config: TopicConfig) -> None:
    """Create or change a topic. `attributes` of the config are changes here: +name sets, -name removes."""
    changes = ",".join(name if name[0] == "-" else f"{name}={value}" for name, value in config.attributes.items())
    header = CreateTopicRequestHeader(
        topic=config.topic_name,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=changes or None,
    )
    await client.check(broker.address, header)


async def _routed(client: ClientInstance, topic: str, wanted: set[str]) -> None:
    """Wait until the name server knows the topic on these brokers, which register in the background, or a timeout."""
    end = time.monotonic() + _ROUTE_TIMEOUT_S
    while time.monotonic() < end:
        try:
            if wanted <= {one.name for one in masters_in(await client.route(topic, refresh=True))}:
                return
        except (NoRouteError, NotFoundError):
            pass
        await asyncio.sleep(_POLL_S)


def _check_name(topic: str) -> None:
    check_topic(topic)
    if is_system_topic(topic):
        raise AdminError(f"{topic!r} is a system topic, which can be neither created nor deleted")
