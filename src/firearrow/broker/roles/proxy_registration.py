"""Proxy registrations of an elected group: broker names `<brokerName>-standin-<id>` under which followers accept sends.

Clients ask for routes every 30 s. When the leader of a group dies, a producer that knows no other broker would try a dead address
for as long. With proxies in its route it has other names to try, which clients do by themselves when a send fails. The follower
forwards the message to the leader, or waits until one is elected (ha/elected/forwarding.py). A follower that is elected keeps its
proxy name for a while, because a client may know no other.

A proxy is registered with the fast port of its broker, because name servers tell brokers apart by their addresses.

Every writable topic has one queue there, for writing only, so that consumers ignore it. It is queue 0 of the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from firearrow.broker.registration import Identity, Registration, Topics
from firearrow.net.address import FAST_PORT_GAP, format_address, parse_address
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.names import PROXY_BROKER_INFIX

_WRITE = 2

log = logging.getLogger("firearrow.broker.registration")


class ProxyRegistration:
    """`member` is the id of this broker in its group. `make` creates a registration for an identity and its topics."""

    def __init__(
        self,
        identity: Identity,
        member: str,
        topics: Topics,
        make: Callable[[Identity, Topics], Registration],
    ) -> None:
        host, port = parse_address(identity.address)
        fast = format_address(host, port - FAST_PORT_GAP)
        self._identity = replace(identity, name=identity.name + PROXY_BROKER_INFIX + member, broker_id=0, address=fast)
        self._topics = topics
        self._make = make
        self._wanted = False
        self._registration: Registration | None = None
        self._task: asyncio.Task[None] | None = None

    def set(self, wanted: bool) -> None:
        """Register as a proxy, or unregister."""
        if wanted != self._wanted:
            self._wanted = wanted
            if self._task is None or self._task.done():
                self._task = asyncio.ensure_future(self._apply())

    def topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        if self._registration is not None and config is not None and config.perm & _WRITE:
            self._registration.topic_changed(topic, _write_only(config))

    async def stop(self) -> None:
        self.set(False)
        if self._task is not None:
            await asyncio.wait([self._task])

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._registration is not None:
            self._registration.abandon()

    async def _apply(self) -> None:
        while self._wanted != (self._registration is not None):
            if self._wanted:
                self._registration = self._make(self._identity, self._writable_topics)
                await self._registration.start()
            elif self._registration is not None:
                registration, self._registration = self._registration, None
                await registration.stop()

    def _writable_topics(self) -> tuple[DataVersion, Mapping[str, TopicConfig]]:
        version, topics = self._topics()
        return version, {name: _write_only(config) for name, config in topics.items() if config.perm & _WRITE}


def _write_only(config: TopicConfig) -> TopicConfig:
    return replace(config, read_queue_nums=1, write_queue_nums=1, perm=_WRITE)
