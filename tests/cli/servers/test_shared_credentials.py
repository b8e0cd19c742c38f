"""Settings shared by the servers of `firearrow up`: credentials, and the certificate that they trust."""

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


@pytest.mark.parametrize("directory", ["config", "namesrv"])
def test_keys_that_servers_already_use_are_not_replaced(tmp_path: Path, directory: str) -> None:
    (tmp_path / directory).mkdir()
    (tmp_path / directory / "auth.json").write_text("{}")
    with pytest.raises(SettingError, match=r"admin_credentials.json was deleted"):
        up_settings(tmp_path, "127.0.0.1", 0, 0, ON)


def test_servers_in_other_processes_get_the_keys(tmp_path: Path) -> None:
    shared = up_settings(tmp_path, "127.0.0.1", 0, 0, ON).shared_values()
    assert shared == {"innerClientAuthenticationCredentials": (tmp_path / "admin_credentials.json").read_text()}
    assert up_settings(tmp_path, "127.0.0.1", 0, 0, []).shared_values() == {}


def test_servers_in_other_processes_trust_the_certificate_of_the_name_server(tmp_path: Path) -> None:
    files = [("tls.server.certPath", "cert.pem"), ("tls.server.keyPath", "key.pem")]
    enforcing = up_settings(tmp_path, "127.0.0.1", 0, 0, [("tls.server.mode", "enforcing"), *files])
    assert enforcing.shared_values() == {"useTLS": "true", "tls.client.trustCertPath": "cert.pem"}
    assert up_settings(tmp_path, "127.0.0.1", 0, 0, files).shared_values() == {}


def test_without_access_control_nothing_is_created(tmp_path: Path) -> None:
    assert up_settings(tmp_path, "127.0.0.1", 0, 0, []).broker.inner_client_authentication_credentials is None
    assert list(tmp_path.iterdir()) == []
