"""A broker's registration, against our own name server and against ones that misbehave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Self

import pytest

from firearrow.broker import registration
from firearrow.broker.registration import Identity, Registration
from firearrow.namesrv.handlers import NamesrvService
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.server import Connection, Listener, serve
from firearrow.wire.bodies.registration import RegisterBrokerBody
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.frame import Command, encode_response
from tests.support.ports import reserve_port
from tests.support.waiting import run

WHO = Identity("DefaultCluster", "broker-a", 0, "127.0.0.1:10911", "127.0.0.1:10912")


class Topics:
    """A broker's topic table, as far as registration sees it."""

    def __init__(self, *names: str) -> None:
        self.version = DataVersion(0, 0, 1)
        self.table = {name: TopicConfig(name, 4, 4) for name in names or ("TBW102", "broker-a")}

    def __call__(self) -> tuple[DataVersion, dict[str, TopicConfig]]:
        return self.version, self.table

    def change(self, registration: Registration, name: str, queues: int = 4) -> None:
        self.version = DataVersion(self.version.counter + 1, 0, self.version.timestamp)
        self.table[name] = TopicConfig(name, queues, queues)
        registration.topic_changed(name, self.table[name])


class Namesrv:
    """Our name server, with everything that was said to it written down."""

    def __init__(self) -> None:
        self.service = NamesrvService(NamesrvSettings(), now_ms=lambda: 0)
        self.said: list[tuple[int, dict[str, Any], RegisterBrokerBody | None]] = []
        self.heard = asyncio.Condition()
        self.listener: Listener | None = None

    async def start(self, port: int = 0) -> Self:
        self.listener = await serve(self, port=port)
        return self

    @property
    def address(self) -> str:
        assert self.listener is not None
        return f"127.0.0.1:{self.listener.port}"

    async def stop(self) -> None:
        if self.listener is not None:
            await self.listener.close()

    def connected(self, conn: Connection) -> None:
        self.service.connected(conn)

    def disconnected(self, conn: Connection) -> None:
        self.service.disconnected(conn)

    def received(self, conn: Connection, commands: list[Command]) -> None:
        for command in commands:
            body = RegisterBrokerBody.decode(command.body) if command.code == 103 else None
            self.said.append((command.code, command.ext, body))
        self.service.received(conn, commands)
        self._wake = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self.heard:
            self.heard.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self.heard:
            await self.heard.wait_for(condition)

    @property
    def registrations(self) -> list[tuple[int, list[str]]]:
        """(counter of the data version, topics) of each."""
        return [(body.data_version.counter, list(body.topic_config_table)) for _, _, body in self.said if body is not None]

    def knows(self, topic: str) -> bool:
        return self.service.routes.route(topic) is not None


def test_registers_and_unregisters_at_all_name_servers() -> None:
    async def story() -> None:
        servers = [await Namesrv().start() for _ in range(2)]
        topics = Topics("TBW102", "broker-a")
        broker = Registration([s.address for s in servers], WHO, topics)
        await broker.start()
        for server in servers:
            assert server.registrations == [(0, ["TBW102", "broker-a"])]
            code, ext, _ = server.said[0]
            crc = ext.pop("bodyCrc32")
            assert int(crc) > 0
            assert (code, ext) == (
                103,
                {
                    "brokerId": "0",
                    "clusterName": "DefaultCluster",
                    "brokerAddr": "127.0.0.1:10911",
                    "enableActingMaster": "false",
                    "haServerAddr": "127.0.0.1:10912",
                    "compressed": "false",
                    "brokerName": "broker-a",
                },
            )
            assert server.knows("TBW102")
        await broker.stop()
        for server in servers:
            code, ext, _ = server.said[-1]
            assert (code, ext["brokerAddr"]) == (104, "127.0.0.1:10911")
            assert not server.knows("TBW102")
            await server.stop()

    run(story())


def test_changed_topic_is_registered_with_its_own_version() -> None:
    async def story() -> None:
        server = await Namesrv().start()
        topics = Topics()
        broker = Registration([server.address], WHO, topics)
        await broker.start()
        topics.change(broker, "New1")
        topics.change(broker, "New2")  # in the same breath
        topics.change(broker, "New1", queues=8)
        broker.topic_changed("Gone", None)
        await server.until(lambda: len(server.registrations) == 4)
        assert server.registrations[1:] == [(1, ["New1"]), (2, ["New2"]), (3, ["New1"])]
        route = server.service.routes.route("New1")
        assert route is not None
        assert route.queue_datas[0].read_queue_nums == 8
        await broker.stop()
        await server.stop()

    run(story())


def test_many_changes_are_registered_together() -> None:
    async def story() -> None:
        server = await Namesrv().start()
        topics = Topics()
        broker = Registration([server.address], WHO, topics)
        await broker.start()
        for n in range(500):
            topics.change(broker, f"T{n}")
        await server.until(lambda: server.knows("T499"))
        assert all(server.knows(f"T{n}") for n in range(500))
        assert len(server.registrations) < 60
        assert max(counter for counter, _ in server.registrations) == 500
        await broker.stop()
        await server.stop()

    run(story())


def test_name_server_that_is_down_does_not_delay_others(caplog: pytest.LogCaptureFixture) -> None:
    class Mute:
        """Accepts, and never answers."""

        def connected(self, conn: Connection) -> None: ...

        def received(self, conn: Connection, commands: list[Command]) -> None: ...

        def disconnected(self, conn: Connection) -> None: ...

    async def story() -> None:
        mute = await serve(Mute())
        down = f"127.0.0.1:{reserve_port()}"
        server = await Namesrv().start()
        topics = Topics()
        broker = Registration([f"127.0.0.1:{mute.port}", down, server.address], WHO, topics)
        started = asyncio.ensure_future(broker.start())
        await server.until(lambda: server.knows("TBW102"))
        await started
        topics.change(broker, "New")
        await server.until(lambda: server.knows("New"))
        async with asyncio.timeout(broker.timeout_ms / 2000):  # it does not wait for the mute one until the request times out
            await broker.stop()
        await server.stop()
        await mute.close()

    with caplog.at_level(logging.WARNING):
        run(story())
    assert len([r for r in caplog.records if "not registered at name server" in r.getMessage()]) == 1  # the one that is down


def test_all_topics_are_registered_after_a_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "FIRST_RETRY_MS", 20)

    async def story() -> None:
        port = reserve_port()
        first = await Namesrv().start(port)
        topics = Topics()
        broker = Registration([first.address], WHO, topics)
        await broker.start()
        await first.stop()
        topics.change(broker, "MeanwhileMade")
        second = await Namesrv().start(port)
        await second.until(lambda: second.knows("MeanwhileMade"))
        assert second.registrations[0] == (1, ["TBW102", "broker-a", "MeanwhileMade"])
        await broker.stop()
        await second.stop()

    run(story())


def test_rejected_registration_is_retried_with_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "FIRST_RETRY_MS", 20)

    class Moody(Namesrv):
        def received(self, conn: Connection, commands: list[Command]) -> None:
            if len(self.said) < 2:
                self.said += [(c.code, c.ext, RegisterBrokerBody.decode(c.body)) for c in commands]
                conn.write(b"".join(encode_response(c, 1, "not in the mood") for c in commands))
            else:
                super().received(conn, commands)

    async def story() -> None:
        server = await Moody().start()
        broker = Registration([server.address], WHO, Topics())
        await broker.start()
        await server.until(lambda: server.knows("TBW102"))
        assert server.registrations == [(0, ["TBW102", "broker-a"])] * 3
        await broker.stop()
        await server.stop()

    run(story())


def test_all_topics_are_registered_every_period_and_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MIN_PERIOD_MS", 50)

    async def story() -> None:
        server = await Namesrv().start()
        broker = Registration([server.address], WHO, Topics(), period_ms=50)
        await broker.start()
        await server.until(lambda: len(server.registrations) >= 4)
        slow = Registration([server.address], WHO, Topics(), period_ms=60_000)
        await broker.stop()
        await slow.start()
        before = len(server.registrations)
        slow.register_all()
        await server.until(lambda: len(server.registrations) == before + 1)
        await slow.stop()
        await server.stop()

    run(story())


@pytest.mark.parametrize(("asked", "in_force"), [(1, 10_000), (10_000, 10_000), (30_000, 30_000), (90_000, 60_000)])
def test_period_is_limited(asked: int, in_force: int) -> None:
    assert Registration([], WHO, Topics(), period_ms=asked).period_ms == in_force


def test_broker_permission_restricts_registered_topics() -> None:
    table = {"Both": TopicConfig("Both", 1, 1, 6), "Template": TopicConfig("Template", 1, 1, 7)}

    def perms(permission: int) -> list[int]:
        broker = Registration([], WHO, Topics(), permission=lambda: permission)
        said = RegisterBrokerBody.decode(broker.body(DataVersion(), table))
        return [config.perm for config in said.topic_config_table.values()]

    assert perms(6) == [6, 7]
    assert perms(4) == [4, 4]
    assert table["Both"].perm == 6


def test_order_configuration_is_reported() -> None:
    async def story() -> None:
        server = await Namesrv().start()
        server.service.kv_config.put("ORDER_TOPIC_CONFIG", "Ordered", "broker-a:4")
        heard: list[dict[str, str]] = []
        broker = Registration([server.address], WHO, Topics(), on_order_config=heard.append)
        await broker.start()
        assert heard == [{"Ordered": "broker-a:4"}]
        await broker.stop()
        await server.stop()

    run(story())


class HesitantNamesrv(Namesrv):
    """Answers registrations only while `willing`."""

    def __init__(self) -> None:
        super().__init__()
        self.willing = True
        self._postponed: list[tuple[Connection, list[Command]]] = []

    def received(self, conn: Connection, commands: list[Command]) -> None:
        if self.willing:
            super().received(conn, commands)
        else:
            self._postponed.append((conn, commands))

    def hesitate(self) -> None:
        self.willing = False

    def go_on(self) -> None:
        self.willing = True
        for conn, commands in self._postponed:
            super().received(conn, commands)
        self._postponed.clear()


def registered(broker: Registration) -> asyncio.Event:
    """An event that is set when everything requested so far is registered."""
    event = asyncio.Event()
    broker.when_registered(event.set)
    return event


def test_when_registered_waits_for_every_connected_name_server() -> None:
    async def story() -> None:
        prompt, hesitant = await Namesrv().start(), await HesitantNamesrv().start()
        topics = Topics()
        broker = Registration([prompt.address, hesitant.address, f"127.0.0.1:{reserve_port()}"], WHO, topics)
        await broker.start()
        assert registered(broker).is_set()  # nothing is pending, and the one that is down does not count
        hesitant.hesitate()
        topics.change(broker, "New")
        event = registered(broker)
        await prompt.until(lambda: prompt.knows("New"))
        assert not event.is_set()
        hesitant.go_on()
        await event.wait()
        assert hesitant.knows("New")
        await broker.stop()
        await prompt.stop()
        await hesitant.stop()

    run(story())


def test_when_registered_does_not_wait_for_a_lost_name_server() -> None:
    async def story() -> None:
        server = await HesitantNamesrv().start()
        topics = Topics()
        broker = Registration([server.address], WHO, topics)
        await broker.start()
        server.hesitate()
        topics.change(broker, "New")
        event = registered(broker)
        assert not event.is_set()
        await server.stop()
        await event.wait()
        topics.change(broker, "Another")
        assert registered(broker).is_set()
        await broker.stop()

    run(story())


def test_when_registered_waits_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "REGISTER_WAIT_MS", 20)

    async def story() -> None:
        server = await HesitantNamesrv().start()
        topics = Topics()
        broker = Registration([server.address], WHO, topics)
        await broker.start()
        server.hesitate()
        topics.change(broker, "New")
        await registered(broker).wait()
        assert not server.knows("New")
        server.go_on()  # the answer comes too late and disturbs nothing
        await server.until(lambda: server.knows("New"))
        await broker.stop()
        await server.stop()

    run(story())


def test_registration_without_name_servers_does_nothing() -> None:
    async def story() -> None:
        broker = Registration([], WHO, Topics())
        await broker.start()
        broker.register_all()
        assert registered(broker).is_set()
        await broker.stop()

    run(story())
