"""Credentials shared by the servers of `firearrow up`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from firearrow.broker.server import Broker
from firearrow.cli.servers.config import up_settings
from firearrow.config.fields import SettingError
from firearrow.namesrv.server import NameServer
from firearrow.net.channel import Channel
from firearrow.wire.codes import RequestCode
from firearrow.wire.signature import RequestSigner

ON = [("authenticationEnabled", "true"), ("authorizationEnabled", "true")]


def test_broker_registers_at_the_protected_name_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = up_settings(tmp_path, "127.0.0.1", 0, 0, ON)
        namesrv = NameServer(settings.namesrv)
        await namesrv.start()
        broker = Broker(settings.broker, settings.store, namesrv_addrs=[namesrv.address])
        await broker.start()
        try:
            keys = settings.broker.inner_credentials()
            assert keys is not None
            channel = await Channel.connect(namesrv.address, signer=RequestSigner(keys.username, keys.password.reveal()))
            answer = await channel.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            await channel.close()
            assert b"broker-a" in answer.body
        finally:
            await broker.stop()
            await namesrv.stop()

    asyncio.run(scenario())
    file = tmp_path / "admin_credentials.json"
    assert file.stat().st_mode & 0o777 == 0o600
    again = up_settings(tmp_path, "127.0.0.1", 0, 0, ON)
    assert again.broker.inner_client_authentication_credentials is not None
    assert again.broker.inner_client_authentication_credentials == again.namesrv.inner_client_authentication_credentials
    file.unlink()
    with pytest.raises(SettingError, match="innerClientAuthenticationCredentials"):
        up_settings(tmp_path, "127.0.0.1", 0, 0, ON)


def test_without_access_control_nothing_is_created(tmp_path: Path) -> None:
    assert up_settings(tmp_path, "127.0.0.1", 0, 0, []).broker.inner_client_authentication_credentials is None
    assert list(tmp_path.iterdir()) == []
