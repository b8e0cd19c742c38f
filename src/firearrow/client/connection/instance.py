"""Client instances: connections, routes and heartbeats shared by the producers and consumers of an event loop.

Brokers identify a client by its id, `ip@instance[@unit]`; the default instance is the process id and a number. An id contains a
group once, so a second member of a group in a process gets another instance.

Periodic work
- routes: of all topics in use, every 30 s. A route that cannot be refreshed is kept, so clients survive an outage of the name
  servers.
- heartbeats: to every broker of the routes, every 30 s, at once when a group joins, and first on every new connection, because a
  restarted broker knows no clients. Without consumers, to masters only.
- addresses: a broker that disappears from its routes is forgotten and its connection closed. If the topics are only no longer in
  use, the connection is kept: requests may be in flight, and servers close idle connections themselves.

After a fork the child starts without instances: the connections belong to the parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from typing import Final

from firearrow.client.connection.members import ConsumerMember, ProducerMember
from firearrow.client.connection.pool import Connections
from firearrow.client.connection.routes import MASTER, TopicRoute, decode_route
from firearrow.client.connection.server_requests import ServerRequests
from firearrow.client.errors import BrokerError, ClientError, FirearrowError, NoRouteError
from firearrow.client.lifecycle import repeat
from firearrow.client.options import ClientOptions
from firearrow.client.producer import message_ids
from firearrow.client.producer.request_reply import ReplyRegistry
from firearrow.net.channel import Channel
from firearrow.wire.bodies.client import HeartbeatData, ProducerData
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.fastjson import dumps
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request
from firearrow.wire.headers.client import UnregisterClientRequestHeader
from firearrow.wire.headers.namesrv import GetRouteInfoRequestHeader
from firearrow.wire.names import CLIENT_INNER_PRODUCER_GROUP

__all__ = ["ClientInstance", "ConsumerMember", "ProducerMember", "acquire"]

log = logging.getLogger("firearrow.client")

_UNREGISTER_TIMEOUT_MS: Final = 1_000
_instances: list[ClientInstance] = []
_inherited: list[ClientInstance] = []  # the parent's, in a forked process: neither used nor collected
_numbers = itertools.count(time.monotonic_ns())


async def acquire(
    options: ClientOptions, *, producer_group: str | None = None, consumer_group: str | None = None
) -> ClientInstance:
    """Return the instance for these options on this event loop, creating it if necessary. Pair it with `release`.

    An instance contains a group once, because brokers identify members by client id; if the group is taken, another instance is
    created. Group names include the namespace.
    """
    loop = asyncio.get_running_loop()
    taken = {("producer", producer_group), ("consumer", consumer_group)} - {("producer", None), ("consumer", None)}
    for instance in _instances:
        if instance.loop is loop and instance.options == options:
            if not taken & instance.groups:
                break
            if options.instance_name is not None:
                kind, group = sorted(taken & instance.groups, key=str)[0]
                raise ClientError(
                    f"the client {instance.client_id} already has the {kind} group {group!r}; "
                    "omit instance_name, or use a different one for each member"
                )
    else:
        instance = ClientInstance(options)
        _instances.append(instance)
    instance.groups |= taken
    instance.users += 1
    return instance


class ClientInstance:
    """One client of a cluster; created by `acquire`."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.users = 0
        self.groups: set[tuple[str, str | None]] = set()  # ("producer" or "consumer", group)
        self.ip = options.client_ip or message_ids.own_ip()
        name = options.instance_name or f"{os.getpid()}#{next(_numbers)}"
        self.client_id = f"{self.ip}@{name}" + (f"@{options.unit_name}" if options.unit_name else "")
        self.brokers: dict[str, dict[int, str]] = {}  # broker name -> broker id -> address, of all routes
        self.replies = ReplyRegistry(options.namespace)
        self._producers: dict[str, ProducerMember] = {}
        self._consumers: dict[str, ConsumerMember] = {}
        self._server_requests = ServerRequests(
            self._producers, self._consumers, self.replies, options.namespace, self.broker_name
        )
        self.connections = Connections(options, self._server_requests.handle, self._opened)
        self._routes: dict[str, TopicRoute] = {}
        self._lookups: dict[str, asyncio.Task[TopicRoute]] = {}
        self._name_server = os.getpid() % len(options.name_servers)  # index of the one in use, until it fails
        self._versions: dict[str, int] = {}
        self._first_beats: dict[Channel, tuple[bytes, asyncio.Future[Command]]] = {}  # in flight
        self._closed = False
        self._tasks = {
            self.loop.create_task(repeat(options.heartbeat_interval_ms, self.heartbeat_now)),
            self.loop.create_task(repeat(options.route_interval_ms, self.refresh_routes)),
        }

    def __repr__(self) -> str:
        return f"<ClientInstance {self.client_id} {len(self.connections.open)} connections>"

    async def release(self) -> None:
        """Release the instance; the last user closes its connections. Unregister groups first."""
        self.users -= 1
        if self.users > 0 or self._closed:
            return
        self._closed = True
        if self in _instances:
            _instances.remove(self)
        tasks = [*self._tasks, *self._lookups.values()]
        for task in tasks:
            task.cancel()
        self._server_requests.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.connections.close()

    # ---- routes

    async def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        """Return the route of a topic (name with namespace). NoRouteError if it does not exist."""
        known = None if refresh else self._routes.get(topic)
        if known is not None:
            return known
        asking = self._lookups.get(topic)
        if asking is None:
            asking = self._lookups[topic] = self.loop.create_task(self._look_up_route(topic))
            asking.add_done_callback(lambda task: self._lookup_done(topic, task))
        return await asyncio.shield(asking)

    def known_route(self, topic: str) -> TopicRoute | None:
        """Return the route if it is cached."""
        return self._routes.get(topic)

    async def refresh_routes(self) -> None:
        """Refresh the routes of all topics in use, and forget those of other topics."""
        topics: set[str] = set()
        for producer in list(self._producers.values()):
            topics |= producer.topics()
        for consumer in list(self._consumers.values()):
            topics |= {subscription.topic for subscription in consumer.subscriptions()}
        for topic in self._routes.keys() - topics:
            del self._routes[topic]
        self.brokers = self._brokers_in_routes()
        for topic in topics:
            try:
                await self.route(topic, refresh=True)
            except FirearrowError as error:
                log.debug("the route of %s cannot be refreshed: %s", topic, error)
        self._update_brokers()

    def broker_address(self, broker_name: str, broker_id: int = MASTER, *, only_this: bool = False) -> tuple[str, bool] | None:
        """Return (address, is it a slave) of a broker, or of another broker of the name unless `only_this`."""
        addresses = self.brokers.get(broker_name)
        if not addresses:
            return None
        address = addresses.get(broker_id)
        if address is not None:
            return address, broker_id != MASTER
        if only_this:
            return None
        other = min(addresses)
        return addresses[other], other != MASTER

    def broker_name(self, address: str) -> str:
        """Return the name of the broker at an address, or the address if it is unknown."""
        for name, addresses in self.brokers.items():
            if address in addresses.values():
                return name
        return address

    # ---- requests

    async def call(self, address: str, request: Request, body: bytes = b"", *, timeout_ms: int | None = None) -> Command:
        """Send a request and return the response, whatever its code. ClientError without a response."""
        return await self.connections.call(address, request, body, timeout_ms or self.options.request_timeout_ms)

    async def check(self, address: str, request: Request, body: bytes = b"", *, timeout_ms: int | None = None) -> Command:
        """Send a request and return the response. BrokerError unless its code is SUCCESS."""
        return await self.connections.check(address, request, body, timeout_ms or self.options.request_timeout_ms)

    async def oneway(self, address: str, request: Request, body: bytes = b"") -> None:
        """Send a one-way request. ConnectionLost if the server cannot be reached."""
        await self.connections.oneway(address, request, body)

    async def ask_name_server(self, request: Request, body: bytes = b"") -> Command:
        """Return the response of the first name server that answers; it is asked first from then on."""
        servers = self.options.name_servers
        problem: ClientError | None = None
        for turn in range(len(servers)):
            index = (self._name_server + turn) % len(servers)
            try:
                answer = await self.call(servers[index], request, body)
            except ClientError as error:
                log.debug("name server %s: %s", servers[index], error)
                problem = error
            else:
                self._name_server = index
                return answer
        raise problem if problem is not None else ClientError("no name server is configured")

    # ---- groups

    async def register_producer(self, group: str, member: ProducerMember) -> None:
        """Add a producer and announce it to the known brokers."""
        self._producers[group] = member
        self.groups.add(("producer", group))
        await self.heartbeat_now()

    async def register_consumer(self, group: str, member: ConsumerMember) -> None:
        """Add a consumer and announce it to every broker of its topics before returning."""
        self._consumers[group] = member
        self.groups.add(("consumer", group))
        for subscription in member.subscriptions():
            with contextlib.suppress(FirearrowError):  # the topic may be created later
                await self.route(subscription.topic)
        await self.heartbeat_now()

    async def unregister_producer(self, group: str) -> None:
        """Remove a producer and notify the brokers (35)."""
        self.groups.discard(("producer", group))
        if self._producers.pop(group, None) is not None:
            await self._unregister(UnregisterClientRequestHeader(client_id=self.client_id, producer_group=group))

    async def unregister_consumer(self, group: str) -> None:
        """Remove a consumer and notify the brokers (35)."""
        self.groups.discard(("consumer", group))
        if self._consumers.pop(group, None) is not None:
            await self._unregister(UnregisterClientRequestHeader(client_id=self.client_id, consumer_group=group))

    async def heartbeat_now(self) -> None:
        """Send heartbeats to all brokers now, for example after a change of subscriptions."""
        if self._producers or self._consumers:
            await asyncio.gather(*(self._heartbeat(address) for address in self._heartbeat_addresses()))

    async def ensure_known_to_brokers(self) -> None:
        """Wait until every broker of the routes has received a heartbeat on an open connection."""
        missing = [a for a in self._heartbeat_addresses() if a not in self.connections.open or a not in self._versions]
        await asyncio.gather(*(self._heartbeat(address) for address in missing))

    def broker_version(self, address: str) -> int:
        """Return the version of a broker from its last heartbeat response; 0 if unknown."""
        return self._versions.get(address, 0)

    def detach_after_fork(self) -> None:
        """Disable the instance in a forked process, without touching the parent's connections."""
        self._closed = True
        self.connections.detach_after_fork()

    # ---- internals

    async def _look_up_route(self, topic: str) -> TopicRoute:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            answer = await self.ask_name_server(header)
        except ClientError as error:
            servers = "; ".join(self.options.name_servers)
            raise NoRouteError(topic, f"no name server of {servers} answers: {error}", asked=False) from None
        server = self.options.name_servers[self._name_server]
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRouteError(topic, f"the name server {server} has no such topic")
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, server)
        try:
            return decode_route(topic, answer.body, dict(self.options.broker_addresses))
        except ProtocolError as error:
            raise ClientError(f"the name server {server} returned a malformed route for {topic!r}: {error}") from None

    def _lookup_done(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        del self._lookups[topic]
        if task.cancelled() or task.exception() is not None:
            return
        route = task.result()
        before = self._routes.get(topic)
        if before == route:
            return
        self._routes[topic] = route
        if before is not None or any(self.brokers.get(name) != addresses for name, addresses in route.brokers.items()):
            self._update_brokers()
        log.info("route of %s: %s", topic, {name: sorted(found.values()) for name, found in route.brokers.items()})
        members: list[ProducerMember | ConsumerMember] = [*self._producers.values(), *self._consumers.values()]
        for member in members:
            member.route_changed(topic)

    def _update_brokers(self) -> None:
        """Rebuild the table of brokers from the routes, and disconnect addresses that are not in it."""
        before = {address for addresses in self.brokers.values() for address in addresses.values()}
        self.brokers = self._brokers_in_routes()
        now = {address for addresses in self.brokers.values() for address in addresses.values()}
        for address in before - now:
            self._versions.pop(address, None)
            self.connections.drop(address, "it is in no route")
        for address in now - before:
            channel = self.connections.open.get(address)
            if channel is not None:  # connected before it was known to be a broker
                self._opened(channel)

    def _brokers_in_routes(self) -> dict[str, dict[int, str]]:
        brokers: dict[str, dict[int, str]] = {}
        for route in self._routes.values():
            for name, addresses in route.brokers.items():
                brokers.setdefault(name, {}).update(addresses)
        return brokers

    def _heartbeat_addresses(self) -> list[str]:
        return [
            address
            for addresses in self.brokers.values()
            for broker_id, address in addresses.items()
            if broker_id == MASTER or self._consumers
        ]

    async def _heartbeat(self, address: str) -> None:
        try:
            channel = await self.connections.get(address)
            body = self._heartbeat_body()
            first = self._first_beats.get(channel)
            if first is not None and first[0] == body:
                await asyncio.wait([first[1]])
            else:
                self._beat(await self.call(address, RequestCode.HEART_BEAT, body), address)
        except ClientError as error:
            log.warning("heartbeat to %s: %s", address, error)

    def _beat(self, answer: Command, address: str) -> None:
        if answer.code == ResponseCode.SUCCESS:
            self._versions[address] = answer.version
        else:
            log.warning("%s refused a heartbeat with %d: %s", address, answer.code, answer.remark)

    def _heartbeat_body(self) -> bytes:
        """Encode a heartbeat (34), by which brokers know the members of a group and how to reach them.

        The group of the client's own sends is always included: brokers answer requests through it.
        """
        producers = [ProducerData(group) for group in sorted({CLIENT_INNER_PRODUCER_GROUP, *self._producers})]
        data = HeartbeatData(self.client_id, producers, [consumer.heartbeat() for consumer in self._consumers.values()])
        return dumps(data.to_json())

    def _opened(self, channel: Channel) -> None:
        """Send a heartbeat first on a new connection, so that the broker knows the sender of what follows."""
        is_broker = any(channel.address in addresses.values() for addresses in self.brokers.values())
        if not is_broker or not (self._producers or self._consumers):
            return
        body = self._heartbeat_body()
        ext = {} if self.connections.signer is None else self.connections.signer.signed({}, body)
        beat = channel.request(RequestCode.HEART_BEAT, ext, body, timeout_ms=self.options.request_timeout_ms)
        self._first_beats[channel] = (body, beat)
        beat.add_done_callback(lambda beat: self._first_beat(channel, beat))

    def _first_beat(self, channel: Channel, beat: asyncio.Future[Command]) -> None:
        del self._first_beats[channel]
        if beat.cancelled():
            return
        error = beat.exception()
        if error is None:
            self._beat(beat.result(), channel.address)
        elif not self._closed:
            log.warning("heartbeat to %s: %s", channel.address, error)

    async def _unregister(self, header: UnregisterClientRequestHeader) -> None:
        addresses = [address for address in self._heartbeat_addresses() if address in self.connections.open]
        calls = [self.call(address, header, timeout_ms=_UNREGISTER_TIMEOUT_MS) for address in addresses]
        await asyncio.gather(*calls, return_exceptions=True)


def _after_fork() -> None:
    for instance in _instances:
        instance.detach_after_fork()
    _inherited.extend(_instances)
    _instances.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
