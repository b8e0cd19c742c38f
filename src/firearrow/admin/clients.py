"""Connected consumers and producers, and the state that a consumer reports."""

from __future__ import annotations

from dataclasses import dataclass

from firearrow.admin.cluster import (
    BrokerAddress,
    ask_broker,
    collect_answers,
    for_each,
    masters,
    masters_of_group,
    masters_of_topic,
)
from firearrow.admin.errors import NotFoundError
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.errors import BrokerError
from firearrow.wire.bodies.admin import ClientConnection, ConsumerConnection, ProducerConnection, ProducerTableInfo
from firearrow.wire.bodies.client import ConsumerRunningInfo
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.headers.admin import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)

RUNNING_INFO_TIMEOUT_MS = 12_000  # the broker waits ten seconds for the consumer


@dataclass(frozen=True, slots=True)
class ProducerClient:
    """A producer that is connected to a broker."""

    group: str
    client_id: str
    address: str
    language: str | None
    version: int
    last_seen_ms: int
    broker: str


async def consumer_connection(client: ClientInstance, group: str) -> ConsumerConnection:
    """Return the members of a group on all brokers and their subscriptions. Raises NotFoundError if no member is connected."""

    async def ask(broker: BrokerAddress) -> ConsumerConnection:
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        return await ask_broker(client, broker.address, header, ConsumerConnection)

    try:
        offline = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)
        parts = await collect_answers(await masters_of_group(client, group), ask, offline)
    except BrokerError:
        raise NotFoundError(f"no member of group {group!r} is connected") from None
    merged = parts[0]
    members = {member.client_id: member for part in parts for member in part.connection_set}
    for part in parts[1:]:
        merged.subscription_table.update(part.subscription_table)
    merged.connection_set = sorted(members.values(), key=lambda member: member.client_id)
    return merged


async def producer_connection(client: ClientInstance, group: str, topic: str) -> list[ClientConnection]:
    """Return the producers of a group that are connected to the brokers of a topic. Raises NotFoundError if there are none."""

    async def ask(broker: BrokerAddress) -> list[ClientConnection]:
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        return (await ask_broker(client, broker.address, header, ProducerConnection)).connection_set

    try:
        parts = await collect_answers(await masters_of_topic(client, topic), ask, (ResponseCode.SYSTEM_ERROR,))
    except BrokerError:
        raise NotFoundError(f"no producer of group {group!r} is connected to a broker of topic {topic!r}") from None
    members = {member.client_id: member for part in parts for member in part}
    return sorted(members.values(), key=lambda member: member.client_id)


async def list_producers(client: ClientInstance, *, broker: str | None = None) -> list[ProducerClient]:
    """Return every connected producer, once per broker. Brokers before 5.0 reject the request."""

    async def ask(one: BrokerAddress) -> list[ProducerClient]:
        table = await ask_broker(client, one.address, RequestCode.GET_ALL_PRODUCER_INFO, ProducerTableInfo)
        return [
            ProducerClient(
                group, info.client_id, info.remote_ip, info.language, info.version, info.last_update_timestamp, one.name
            )
            for group, infos in table.data.items()
            for info in infos
        ]

    found = [producer for part in await for_each(await masters(client, broker=broker), ask) for producer in part]
    return sorted(found, key=lambda one: (one.group, one.client_id, one.broker))


async def running_info(client: ClientInstance, group: str, client_id: str, *, stack: bool = False) -> ConsumerRunningInfo:
    """Return the state that a consumer reports, with `stack` also the stacks of its threads. Raises NotFoundError."""

    async def ask(broker: BrokerAddress) -> ConsumerRunningInfo:
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id, jstack_enable=stack)
        return await ask_broker(client, broker.address, header, ConsumerRunningInfo, timeout_ms=RUNNING_INFO_TIMEOUT_MS)

    try:
        return (await collect_answers(await masters_of_group(client, group), ask, (ResponseCode.SYSTEM_ERROR,)))[0]
    except BrokerError as error:
        raise NotFoundError(f"consumer {client_id!r} of group {group!r} does not answer: {error.remark}") from None
