"""The stand-ins of an elected group: broker names beside its own, `<brokerName>-standin-<id>`, under which followers take sends.

A client asks for routes every 30 s. When a group's leader dies, a producer that knows no other broker would go on trying a dead
address for as long. With stand-ins in its route it has other names to turn to, which clients do by themselves when a send fails:
the follower there passes the message on to the leader, or waits for one to be elected (ha/passing_on.py). A stand-in keeps its
name for a while when it is elected itself: a client may know no other.

It is found at its broker's fast port: name servers tell brokers apart by their addresses.

Every topic that can be written has one queue there, for writing only: no consumer sees it. It is queue 0 of the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from firearrow.broker.registration import Identity, Registration
from firearrow.net.address import FAST_PORT_GAP, format_address, parse_address
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.names import PROXY_BROKER_INFIX

_WRITE = 2

log = logging.getLogger("firearrow.broker.registration")


class ProxyRegistration:
    """`member`: its id in the group. `make` gives the registration under an identity and with its topics."""

    def __init__(
        self,
        identity: Identity,
        member: str,
        topics: Callable[[], tuple[DataVersion, Mapping[str, TopicConfig]]],
        make: Callable[[Identity, Callable[[], tuple[DataVersion, Mapping[str, TopicConfig]]]], Registration],
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
        """Whether this broker is one."""
        if wanted != self._wanted:
            self._wanted = wanted
            if self._task is None or self._task.done():
                self._task = asyncio.ensure_future(self._follow_suit())

    def topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        if self._registration is not None and config is not None and config.perm & _WRITE:
            self._registration.topic_changed(topic, _to_write(config))

    async def stop(self) -> None:
        self.set(False)
        if self._task is not None:
            await asyncio.wait([self._task])

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._registration is not None:
            self._registration.abandon()

    async def _follow_suit(self) -> None:
        while self._wanted != (self._registration is not None):
            if self._wanted:
                self._registration = self._make(self._identity, self._topics_to_write)
                await self._registration.start()
            elif self._registration is not None:
                registration, self._registration = self._registration, None
                await registration.stop()

    def _topics_to_write(self) -> tuple[DataVersion, Mapping[str, TopicConfig]]:
        version, topics = self._topics()
        return version, {name: _to_write(config) for name, config in topics.items() if config.perm & _WRITE}


def _to_write(config: TopicConfig) -> TopicConfig:
    return replace(config, read_queue_nums=1, write_queue_nums=1, perm=_WRITE)
