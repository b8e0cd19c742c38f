"""Stand-ins: the name, address and topics under which a follower registers, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from firearrow.broker.registration import Identity, Registration
from firearrow.broker.roles.proxy_registration import ProxyRegistration
from firearrow.namesrv.route_table import BrokerRegistration, RouteTable
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from tests.support.waiting import run, until

Topics = tuple[DataVersion, Mapping[str, TopicConfig]]
BROKER = Identity("C", "broker-a", 2, "127.0.0.1:10911", "")
TABLE = {"Orders": TopicConfig("Orders", 8, 8, perm=6), "ReadOnly": TopicConfig("ReadOnly", 8, 8, perm=4)}


class FakeRegistration:
    def __init__(self, identity: Identity, topics: Callable[[], Topics]) -> None:
        self.identity = identity
        self.topics = topics
        self.started = self.stopped = False
        self.changed: list[TopicConfig] = []

    async def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.stopped = True

    def topic_changed(self, topic: str, config: TopicConfig) -> None:
        self.changed.append(config)


class Story:
    def __init__(self) -> None:
        self.made: list[FakeRegistration] = []
        self.proxy = ProxyRegistration(BROKER, "n1", lambda: (DataVersion(), TABLE), self._make)

    def _make(self, identity: Identity, topics: Callable[[], Topics]) -> Registration:
        self.made.append(FakeRegistration(identity, topics))
        return cast(Registration, self.made[-1])

    async def registered(self) -> FakeRegistration:
        self.proxy.set(True)
        await until(lambda: self.made and self.made[-1].started)
        return self.made[-1]


def test_stand_in_has_its_own_name_and_the_fast_port() -> None:
    async def story() -> None:
        identity = (await Story().registered()).identity
        assert identity == Identity("C", "broker-a-standin-n1", 0, "127.0.0.1:10909", "")

    run(story())


def test_writable_topics_have_one_queue_for_writing() -> None:
    async def story() -> None:
        _, topics = (await Story().registered()).topics()
        assert topics == {"Orders": TopicConfig("Orders", 1, 1, perm=2)}

    run(story())


def test_changed_topic_is_registered_while_it_is_writable() -> None:
    async def story() -> None:
        told = Story()
        told.proxy.topic_changed("Orders", TABLE["Orders"])
        registration = await told.registered()
        told.proxy.topic_changed("ReadOnly", TABLE["ReadOnly"])
        told.proxy.topic_changed("Gone", None)
        told.proxy.topic_changed("Orders", TABLE["Orders"])
        assert registration.changed == [TopicConfig("Orders", 1, 1, perm=2)]

    run(story())


def test_stopped_stand_in_is_unregistered() -> None:
    async def story() -> None:
        told = Story()
        registration = await told.registered()
        await told.proxy.stop()
        assert registration.stopped
        assert len(told.made) == 1

    run(story())


def test_revoked_wish_registers_nothing() -> None:
    async def story() -> None:
        told = Story()
        told.proxy.set(True)
        told.proxy.set(False)
        await told.proxy.stop()
        await asyncio.sleep(0)
        assert told.made == []

    run(story())


def test_unregistered_proxy_leaves_the_leader_registered() -> None:
    async def identity_of_proxy() -> Identity:
        return (await Story().registered()).identity

    proxy_identity = run(identity_of_proxy())
    table = RouteTable()

    def register(name: str, broker_id: int, address: str) -> None:
        table.register(BrokerRegistration("C", name, broker_id, address, "", DataVersion(), {}), name, 1_000)

    register("broker-a", 2, "127.0.0.1:10911")
    register(proxy_identity.name, proxy_identity.broker_id, proxy_identity.address)
    register("broker-a", 0, "127.0.0.1:10911")  # it is elected
    table.unregister("C", proxy_identity.name, proxy_identity.address)
    assert list(table.cluster_info().broker_addr_table) == ["broker-a"]
