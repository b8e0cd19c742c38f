"""A proxy registration and its broker are two names of one process, which a name server must keep apart."""

from __future__ import annotations

import asyncio

from firearrow.broker.registration import Identity
from firearrow.broker.roles.proxy_registration import ProxyRegistration
from firearrow.namesrv.route_table import BrokerRegistration, RouteTable
from firearrow.wire.bodies.topic import DataVersion


class _Registering:
    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    async def start(self) -> None:
        pass


def test_unregistered_proxy_leaves_the_leader_registered() -> None:
    async def identity_of_proxy() -> Identity:
        made: list[_Registering] = []

        def make(identity: Identity, topics: object) -> _Registering:
            made.append(_Registering(identity))
            return made[-1]

        proxy = ProxyRegistration(Identity("C", "broker-a", 2, "127.0.0.1:10911", ""), "n1", lambda: (DataVersion(), {}), make)  # type: ignore[arg-type]
        proxy.set(True)
        while not made:
            await asyncio.sleep(0)
        return made[0].identity

    proxy_identity = asyncio.run(identity_of_proxy())
    table = RouteTable()

    def register(name: str, broker_id: int, address: str) -> None:
        table.register(BrokerRegistration("C", name, broker_id, address, "", DataVersion(), {}), name, 1_000)

    register("broker-a", 2, "127.0.0.1:10911")
    register(proxy_identity.name, proxy_identity.broker_id, proxy_identity.address)
    register("broker-a", 0, "127.0.0.1:10911")  # it is elected
    table.unregister("C", proxy_identity.name, proxy_identity.address)
    assert list(table.cluster_info().broker_addr_table) == ["broker-a"]
