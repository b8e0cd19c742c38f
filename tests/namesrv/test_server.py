"""The name server as a whole: over a real socket, with its file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from firearrow.namesrv.server import NameServer
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.channel import Channel
from firearrow.wire.bodies.registration import RegisterBrokerBody
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from tests.support.waiting import run

WHO = {"brokerName": "b", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "haServerAddr": "h:1", "brokerId": "0"}
BODY = RegisterBrokerBody({t: TopicConfig(t, 4, 4) for t in ("T", "U")}, DataVersion(1, 0, 1)).encode()


def settings(**more: Any) -> NamesrvSettings:
    return NamesrvSettings(listen_port=0, **more)


def test_client_finds_a_broker_until_its_connection_closes() -> None:
    async def story() -> None:
        server = NameServer(settings())
        await server.start()
        assert server.port > 0
        assert server.address == f"127.0.0.1:{server.port}"
        assert server.settings == settings()
        broker, client = await Channel.connect(server.address), await Channel.connect(server.address)
        assert (await broker.request(103, WHO, BODY)).code == 0
        assert (await client.request(105, {"topic": "T"})).code == 0
        await broker.close()
        while (await client.request(105, {"topic": "T"})).code == 0:
            await asyncio.sleep(0.01)
        assert (await client.request(105, {"topic": "T"})).code == 17
        assert f"listenPort={server.port}\n" in (await client.request(319)).body.decode()
        await client.close()
        await server.stop()

    run(story())


def test_silent_broker_is_removed_after_its_timeout() -> None:
    async def story() -> None:
        server = NameServer(settings(scan_not_active_broker_interval=20))
        await server.start()
        closed = asyncio.Event()
        broker = await Channel.connect(server.address, on_close=lambda channel: closed.set())
        client = await Channel.connect(server.address)
        await broker.request(103, {**WHO, "heartbeatTimeoutMillis": "50"}, BODY)
        await closed.wait()
        assert (await client.request(105, {"topic": "T"})).code == 17
        await client.close()
        await server.stop()

    run(story())


def test_key_value_configuration_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kvConfig.json"

    async def story() -> None:
        for turn in range(3):
            server = NameServer(settings(kv_config_path=str(path)))
            await server.start()
            client = await Channel.connect(server.address)
            for earlier in range(turn):
                item = {"namespace": "ORDER_TOPIC_CONFIG", "key": f"T{earlier}"}
                assert (await client.request(101, item)).ext == {"value": f"broker-a:{earlier}"}
            put = {"namespace": "ORDER_TOPIC_CONFIG", "key": f"T{turn}", "value": f"broker-a:{turn}"}
            assert (await client.request(100, put)).code == 0
            await client.close()
            await server.stop()

    run(story())
    assert '"configTable"' in path.read_text()


def test_kv_config_file_of_apache_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{\n\t"configTable":{\n\t\t"ORDER_TOPIC_CONFIG":{\n\t\t\t"T":"broker-a:4"\n\t\t}\n\t}\n}')

    async def story() -> None:
        server = NameServer(settings(kv_config_path=str(path)))
        await server.start()
        client = await Channel.connect(server.address)
        assert (await client.request(101, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"})).ext == {"value": "broker-a:4"}
        await client.close()
        await server.stop()

    run(story())


def test_invalid_kv_config_file_prevents_the_start_and_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":[1,2]}')

    async def story() -> None:
        with pytest.raises(ValueError, match=r"kvConfig\.json cannot be read"):
            await NameServer(settings(kv_config_path=str(path))).start()

    run(story())
    assert path.read_text() == '{"configTable":[1,2]}'


def test_random_bytes_do_not_disturb_other_connections() -> None:
    async def story() -> None:
        server = NameServer(settings())
        await server.start()
        client = await Channel.connect(server.address)
        for garbage in (b"\xff" * 64, b"GET / HTTP/1.0\r\n\r\n", b"\x00\x00\x00\x05\x00\x00\x00\x01{"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(garbage)
            assert await reader.read() == b""
            writer.close()
            assert (await client.request(206)).code == 0
        await client.close()
        await server.stop()

    run(story())


def test_stopping_twice_is_stopping_once() -> None:
    async def story() -> None:
        server = NameServer(settings())
        await server.start()
        await server.stop()
        await server.stop()
        await NameServer(settings()).stop()

    run(story())
