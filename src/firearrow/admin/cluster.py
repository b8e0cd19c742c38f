"""Clusters and their brokers, and the choice of the brokers that a request goes to.

Changes go to masters, which replicate them to their slaves. A request about a group goes to the brokers that have its retry
topic, or to every master if none has it because the group has never consumed.

A follower of an elected group is registered twice: as a slave of its group, and as a proxy under a name of its own, which
forwards messages to the leader. Proxies are left out everywhere here, so that each queue is counted once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from firearrow.admin.errors import AdminError, NotFoundError, not_found
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.connection.routes import MASTER, TopicRoute
from firearrow.client.errors import BrokerError, FirearrowError, NoRouteError
from firearrow.client.message import MessageQueue
from firearrow.wire.bodies.route import ClusterInfo, TopicList
from firearrow.wire.body_schema import Body
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.fastjson import loads
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request
from firearrow.wire.names import proxied_broker, retry_topic

MAX_CONCURRENT: Final = 16  # requests in flight

T = TypeVar("T")
R = TypeVar("R")
B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True, order=True)
class BrokerAddress:
    """A broker as the name server knows it."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER


async def list_brokers(
    client: ClientInstance, *, cluster: str | None = None, broker: str | None = None, masters_only: bool = False
) -> list[BrokerAddress]:
    """Return all brokers, those of a cluster, or those of a broker name or address, sorted.

    Raises NotFoundError if no broker matches.
    """
    info = ClusterInfo.from_json(loads((await ask_name_server(client, RequestCode.GET_BROKER_CLUSTER_INFO)).body))
    known = sorted(
        BrokerAddress(data.cluster, name, broker_id, address)
        for name, data in info.broker_addr_table.items()
        if proxied_broker(name) is None
        for broker_id, address in data.broker_addrs.items()
    )
    found = [
        one
        for one in known
        if (cluster is None or one.cluster == cluster)
        and (broker is None or broker in (one.name, one.address))
        and (not masters_only or one.is_master)
    ]
    if not found:
        if cluster is None and broker is None:
            raise NotFoundError("no broker is registered with the name server; start one with this name server's address")
        what = f"cluster {cluster!r}" if broker is None else f"broker {broker!r}"
        names = sorted({one.cluster if broker is None else one.name for one in known})
        raise NotFoundError(f"{what} does not exist; the name server knows {', '.join(names) or 'none'}")
    return found


async def masters(client: ClientInstance, cluster: str | None = None, broker: str | None = None) -> list[BrokerAddress]:
    """Return the masters of all brokers, of a cluster or of a broker name; for an address, the broker there."""
    return await list_brokers(client, cluster=cluster, broker=broker, masters_only=broker is None or ":" not in broker)


async def masters_of_topic(client: ClientInstance, topic: str) -> list[BrokerAddress]:
    """Return the masters that have a topic. Raises NotFoundError if no broker has it."""
    return masters_in(await find_route(client, topic))


async def masters_of_group(client: ClientInstance, group: str) -> list[BrokerAddress]:
    """Return the masters that have the retry topic of a group, or all masters."""
    try:
        return masters_in(await client.route(retry_topic(group), refresh=True))
    except (NoRouteError, NotFoundError):
        return await masters(client)


def masters_in(route: TopicRoute) -> list[BrokerAddress]:
    """Return the masters of a route. Raises NotFoundError if it has none."""
    found = [
        BrokerAddress(route.clusters.get(name, ""), name, MASTER, addresses[MASTER])
        for name, addresses in sorted(route.brokers.items())
        if MASTER in addresses and proxied_broker(name) is None
    ]
    if not found:
        raise NotFoundError(f"no broker of topic {route.topic!r} has a master: {', '.join(route.brokers)}")
    return found


async def find_route(client: ClientInstance, topic: str) -> TopicRoute:
    """Return the current route of a topic. Raises NotFoundError, which names a similar topic, if it has no route."""
    try:
        return await client.route(topic, refresh=True)
    except NoRouteError as error:
        if not error.asked:
            raise
    answer = await ask_name_server(client, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    raise not_found("topic", topic, TopicList.from_json(loads(answer.body)).topic_list)


async def readable_queues(
    client: ClientInstance, topic: str, broker: str | None = None, queue_id: int | None = None
) -> list[MessageQueue]:
    """Return the readable queues of a topic, optionally those of a broker or with an id. Raises NotFoundError without any."""
    route = await find_route(client, topic)
    queues = [q for q in route.read_queues() if broker in (None, q.broker_name) and queue_id in (None, q.queue_id)]
    if not queues:
        queue = "" if queue_id is None else queue_id
        raise NotFoundError(f"the topic {topic!r} has no queue {queue} on {broker or 'any broker'}")
    return queues


async def ask_name_server(client: ClientInstance, request: Request, body: bytes = b"") -> Command:
    """Return the response of the first name server that answers. Raises BrokerError unless it is a success."""
    response = await client.ask_name_server(request, body)
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError(response.code, response.remark, ";".join(client.options.name_servers))
    return response


async def tell_name_servers(client: ClientInstance, request: Request, body: bytes = b"") -> list[Command]:
    """Return the responses of all name servers. They do not replicate, so a change must be made on each of them."""
    return list(await asyncio.gather(*(client.check(address, request, body) for address in client.options.name_servers)))


async def ask_broker(
    client: ClientInstance, address: str, request: Request, body: type[B], *, timeout_ms: int | None = None
) -> B:
    """Return the body of a broker's response. Raises BrokerError unless it is a success."""
    return body.from_json(loads((await client.check(address, request, timeout_ms=timeout_ms)).body))


async def none_if_rejected(code: int, request: Awaitable[R]) -> R | None:
    """Return the result of a request; None if the server rejects it with this code."""
    try:
        return await request
    except BrokerError as error:
        if error.code != code:
            raise
        return None


async def for_each(items: Iterable[T], ask: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return the results of `ask` for all items, in their order, with limited concurrency. The first error ends it."""
    slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def one(item: T) -> R:
        async with slots:
            return await ask(item)

    return list(await asyncio.gather(*(one(item) for item in items)))


async def collect_answers(
    brokers: Iterable[BrokerAddress], ask: Callable[[BrokerAddress], Awaitable[R]], refusals: Collection[int]
) -> list[R]:
    """Return the results of the brokers that do not reject the request with one of the codes `refusals`.

    Raises a rejection if all brokers reject it.
    """
    problem: FirearrowError = AdminError("no broker to ask")

    async def one(broker: BrokerAddress) -> list[R]:
        nonlocal problem
        try:
            return [await ask(broker)]
        except BrokerError as error:
            if error.code not in refusals:
                raise
            problem = error
            return []

    answers = [answer for part in await for_each(brokers, one) for answer in part]
    if not answers:
        raise problem
    return answers
