"""One client of a cluster, shared by the producers and consumers of an event loop: connections, routes, heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firearrow.client.options import ClientOptions
from firearrow.client.routes import TopicRoute
from firearrow.client.sides import ConsumerSide, ProducerSide
from firearrow.wire.command import Command

__all__ = ["ClientInstance", "ConsumerSide", "ProducerSide", "acquire"]


async def acquire(
    options: ClientOptions, *, producer_group: str | None = None, consumer_group: str | None = None
) -> ClientInstance:
    """The running instance for these options on this event loop, made if there is none. `release` gives it back.

    A group can be in an instance once (a broker knows its members by client id): if it is taken, another instance is made.
    Group names are given with the namespace.
    """
    raise NotImplementedError


class ClientInstance:
    client_id: str
    options: ClientOptions

    async def release(self) -> None:
        """Gives the instance back; the last one to do so ends its connections."""
        raise NotImplementedError

    async def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        """Where the topic is (name with the namespace). NoRouteError if it does not exist."""
        raise NotImplementedError

    def known_route(self, topic: str) -> TopicRoute | None:
        """The route if it is known already."""
        raise NotImplementedError

    def broker_address(self, broker_name: str, broker_id: int = 0, *, only_this: bool = False) -> tuple[str, bool] | None:
        """(address, is it a slave?) of a broker; another one of the same name if there is none with this id, unless `only_this`."""
        raise NotImplementedError

    async def call(
        self, address: str, code: int, ext: Mapping[str, Any], body: bytes = b"", *, timeout_ms: int | None = None
    ) -> Command:
        """Asks a server and returns its answer, whatever its code. ClientError if there is none."""
        raise NotImplementedError

    async def check(
        self, address: str, code: int, ext: Mapping[str, Any], body: bytes = b"", *, timeout_ms: int | None = None
    ) -> Command:
        """The same, and BrokerError unless the answer's code is SUCCESS."""
        raise NotImplementedError

    async def oneway(self, address: str, code: int, ext: Mapping[str, Any], body: bytes = b"") -> None:
        """Tells a server; there is no answer. ConnectionLost if it cannot be reached."""
        raise NotImplementedError

    async def ask_name_server(self, code: int, ext: Mapping[str, Any], body: bytes = b"") -> Command:
        """The answer of the first name server that gives one."""
        raise NotImplementedError

    async def register_producer(self, group: str, side: ProducerSide) -> None:
        """Takes a producer in; brokers that are known hear of it at once."""
        raise NotImplementedError

    async def register_consumer(self, group: str, side: ConsumerSide) -> None:
        """Takes a consumer in; every broker of its topics hears of it before this returns."""
        raise NotImplementedError

    async def unregister_producer(self, group: str) -> None:
        """Takes a producer out and tells the brokers (35)."""
        raise NotImplementedError

    async def unregister_consumer(self, group: str) -> None:
        """Takes a consumer out and tells the brokers (35)."""
        raise NotImplementedError

    async def heartbeat_now(self) -> None:
        """Tells all brokers about this client's groups now: after subscriptions have changed."""
        raise NotImplementedError

    def broker_version(self, address: str) -> int:
        """What the broker at this address said in its last answer to a heartbeat; 0 if it has not answered any."""
        raise NotImplementedError
