"""The stand-in of an elected group and its broker are two names of one process: a name server must not mix them up."""

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


def test_a_stand_in_that_became_the_leader_is_no_stand_in_any_more() -> None:
    async def identity_of_stand_in() -> Identity:
        made: list[_Registering] = []

        def make(identity: Identity, topics: object) -> _Registering:
            made.append(_Registering(identity))
            return made[-1]

        stand_in = ProxyRegistration(Identity("C", "broker-a", 2, "127.0.0.1:10911", ""), "n1", lambda: (DataVersion(), {}), make)  # type: ignore[arg-type]
        stand_in.set(True)
        while not made:
            await asyncio.sleep(0)
        return made[0].identity

    stands_in = asyncio.run(identity_of_stand_in())
    table = RouteTable()

    def register(name: str, broker_id: int, address: str) -> None:
        table.register(BrokerRegistration("C", name, broker_id, address, "", DataVersion(), {}), name, 1_000)

    register("broker-a", 2, "127.0.0.1:10911")
    register(stands_in.name, stands_in.broker_id, stands_in.address)
    register("broker-a", 0, "127.0.0.1:10911")  # it is elected
    table.unregister("C", stands_in.name, stands_in.address)
    assert list(table.cluster_info().broker_addr_table) == ["broker-a"]
