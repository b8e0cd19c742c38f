"""Clusters and their brokers, and how the other modules find the ones to ask.

Changes go to masters, which hand them to their slaves. A question about a group goes to the brokers that have its retry topic;
where none has (the group never consumed there), to every master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.connection.routes import MASTER, TopicRoute
from firearrow.client.errors import BrokerError, FirearrowError, NoRouteError
from firearrow.wire.bodies.route import ClusterInfo
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.fastjson import loads
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request
from firearrow.wire.names import proxied_broker, retry_topic

MOST_AT_ONCE: Final = 16  # questions under way at the same time

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, order=True)
class BrokerAddress:
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
    """All brokers, those of a cluster, or those called `broker`, which may be an address too. NotFoundError if there is none."""
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
        what = f"the cluster {cluster!r}" if broker is None else f"the broker {broker!r}"
        names = sorted({one.cluster if broker is None else one.name for one in known})
        if cluster is None and broker is None:
            raise NotFoundError("no broker is registered with the name server: is one running, with this name server's address?")
        raise NotFoundError(f"the name server does not know {what}; it knows {', '.join(names) or 'none'}")
    return found


async def masters(client: ClientInstance, cluster: str | None = None, broker: str | None = None) -> list[BrokerAddress]:
    return await list_brokers(client, cluster=cluster, broker=broker, masters_only=broker is None or ":" not in broker)


async def masters_of_topic(client: ClientInstance, topic: str) -> list[BrokerAddress]:
    """NoRouteError if nobody has the topic."""
    return masters_in(await client.route(topic, refresh=True))


async def masters_of_group(client: ClientInstance, group: str) -> list[BrokerAddress]:
    try:
        return await masters_of_topic(client, retry_topic(group))
    except (NoRouteError, NotFoundError):
        return await masters(client)


def masters_in(route: TopicRoute) -> list[BrokerAddress]:
    found = [
        BrokerAddress(route.clusters.get(name, ""), name, MASTER, addresses[MASTER])
        for name, addresses in sorted(route.brokers.items())
        if MASTER in addresses and proxied_broker(name) is None
    ]
    if not found:
        raise NotFoundError(f"none of the brokers that have {route.topic!r} has a master: {', '.join(route.brokers)}")
    return found


async def ask_name_server(client: ClientInstance, request: Request, body: bytes = b"") -> Command:
    """The answer of the first name server that gives one, if it is a yes."""
    answer = await client.ask_name_server(request, body)
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, "the name server")
    return answer


async def tell_name_servers(client: ClientInstance, request: Request, body: bytes = b"") -> list[Command]:
    """The answers of all of them: they know nothing of each other, so what changes one must change all."""
    return list(await asyncio.gather(*(client.check(address, request, body) for address in client.options.name_servers)))


async def for_each(items: Iterable[T], ask: Callable[[T], Awaitable[R]]) -> list[R]:
    """What `ask` says of each, in their order; a few are asked at a time. The first error ends it."""
    places = asyncio.Semaphore(MOST_AT_ONCE)

    async def one(item: T) -> R:
        async with places:
            return await ask(item)

    return list(await asyncio.gather(*(one(item) for item in items)))


async def of_any(
    brokers: Iterable[BrokerAddress], ask: Callable[[BrokerAddress], Awaitable[R]], refusals: Iterable[int]
) -> list[R]:
    """What those brokers say that have something to say; the last refusal if none has. Only `refusals` count as such."""
    said: list[R] = []
    problem: FirearrowError | None = None
    expected = frozenset(refusals)

    async def one(broker: BrokerAddress) -> R | BrokerError:
        try:
            return await ask(broker)
        except BrokerError as error:
            if error.code not in expected:
                raise
            return error

    for answer in await for_each(brokers, one):
        if isinstance(answer, BrokerError):
            problem = answer
        else:
            said.append(answer)
    if not said:
        raise problem if problem is not None else AdminError("there is no broker to ask")
    return said
