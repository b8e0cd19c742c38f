"""A name server with access control."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.config.fields import SettingError
from firearrow.config.secret import Secret
from firearrow.namesrv.access import namesrv_rules
from firearrow.namesrv.handlers import HANDLERS
from firearrow.namesrv.server import NameServer
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.channel import Channel
from firearrow.wire.bodies.registration import RegisterBrokerBody
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.codes import RequestCode as Code
from firearrow.wire.frame import Command
from firearrow.wire.headers.namesrv import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from firearrow.wire.signature import RequestSigner

NO_PERMISSION = 16
BROKER = {"brokerName": "broker-a", "brokerAddr": "127.0.0.1:10911", "clusterName": "C", "brokerId": "0"}


@contextlib.asynccontextmanager
async def server(directory: Path, **settings: Any) -> AsyncIterator[NameServer]:
    defaults: dict[str, Any] = {
        "listen_port": 0,
        "authentication_enabled": True,
        "authorization_enabled": True,
        "auth_config_path": str(directory),
        "init_authentication_user": Secret('{"username":"root","password":"12345678"}'),
    }
    running = NameServer(NamesrvSettings(**defaults | settings))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@contextlib.asynccontextmanager
async def peer(running: NameServer, user: str) -> AsyncIterator[Channel]:
    channel = await Channel.connect(running.address, signer=RequestSigner(user, "12345678") if user else None)
    try:
        yield channel
    finally:
        await channel.close()


async def create_user(root: Channel, name: str, resource: str = "", actions: str = "") -> None:
    answer = await root.request(Code.AUTH_CREATE_USER, {"username": name}, b'{"password":"12345678"}')
    assert answer.code == 0, answer.remark
    if resource:
        entry = {"resource": resource, "actions": actions.split(","), "decision": "Allow"}
        body = json.dumps({"policies": [{"entries": [entry]}]}).encode()
        answer = await root.request(Code.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body)
        assert answer.code == 0, answer.remark


async def register(channel: Channel, name: str, address: str, cluster: str = "C", broker_id: int = 0) -> Command:
    topics = {topic: TopicConfig(topic_name=topic) for topic in ("T", "U")}
    header = RegisterBrokerRequestHeader(broker_name=name, broker_addr=address, cluster_name=cluster, broker_id=broker_id)
    body = RegisterBrokerBody(topic_config_table=topics, data_version=DataVersion(counter=1)).encode()
    return await channel.call(header, body)


def test_every_served_code_has_a_rule() -> None:
    assert set(namesrv_rules()) == set(HANDLERS)


def test_unsigned_requests_are_refused_unless_whitelisted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(tmp_path, authentication_whitelist="105") as running, peer(running, "") as nobody:
            for code in Code:
                answer = await nobody.request(code, {"topic": "T"})
                assert answer.code == (17 if code == Code.GET_ROUTEINFO_BY_TOPIC else NO_PERMISSION), code

    asyncio.run(scenario())


def test_routes_need_a_signature_and_changes_a_permission(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(tmp_path) as running, peer(running, "root") as root:
            await create_user(root, "alice")
            await create_user(root, "broker", "Cluster:C", "Update")
            async with peer(running, "alice") as alice, peer(running, "broker") as broker:
                assert (await alice.request(Code.GET_BROKER_CLUSTER_INFO)).code == 0
                assert (await alice.request(Code.GET_NAMESRV_CONFIG)).code == NO_PERMISSION
                assert (await register(alice, "broker-a", "127.0.0.1:10911")).code == NO_PERMISSION
                assert (await register(broker, "broker-a", "127.0.0.1:10911")).code == 0
                assert (await register(broker, "broker-a", "127.0.0.1:10911", cluster="D")).code == NO_PERMISSION
                assert (await broker.request(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})).code == NO_PERMISSION
                assert (await alice.request(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == 0
                config = await root.request(Code.GET_NAMESRV_CONFIG)
                assert b"initAuthenticationUser=******" in config.body
                assert b"12345678" not in config.body

    asyncio.run(scenario())


def test_broker_name_belongs_to_the_user_that_registered_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(tmp_path) as running, peer(running, "root") as root:
            await create_user(root, "one", "Cluster:*", "Update")
            await create_user(root, "two", "Cluster:*", "Update")
            async with peer(running, "one") as one, peer(running, "two") as two:
                assert (await register(one, "broker-a", "127.0.0.1:10911")).code == 0
                for name, address, cluster, broker_id in (
                    ("broker-a", "127.0.0.1:666", "C", 0),
                    ("broker-a", "127.0.0.1:666", "C", 1),
                    ("broker-a", "127.0.0.1:666", "D", 0),
                    ("broker-b", "127.0.0.1:10911", "C", 0),
                ):
                    answer = await register(two, name, address, cluster, broker_id)
                    assert (answer.code, "belongs to another user" in (answer.remark or "")) == (NO_PERMISSION, True)
                leave = UnRegisterBrokerRequestHeader(
                    broker_name="broker-a", broker_addr="127.0.0.1:10911", cluster_name="C", broker_id=0
                )
                assert (await two.call(leave)).code == NO_PERMISSION
                assert (await two.request(Code.QUERY_DATA_VERSION, BROKER, b"{}")).code == NO_PERMISSION
                assert (await register(root, "broker-a", "127.0.0.1:10911")).code == 0
                assert (await one.call(leave)).code == 0
                assert (await root.call(leave)).code == 0
                assert (await register(two, "broker-a", "127.0.0.1:666")).code == 0  # the name is free again

    asyncio.run(scenario())


def test_start_without_a_directory_for_users_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(SettingError, match="authConfigPath"):
            async with server(tmp_path, auth_config_path=None):
                pass

    asyncio.run(scenario())
