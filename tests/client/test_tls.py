"""The client and both servers with every connection between them encrypted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import firearrow as fa
import firearrow.aio as aio
from firearrow.admin.aio import Admin
from firearrow.admin.errors import NotFoundError
from firearrow.broker.server import Broker
from firearrow.broker.settings import BrokerSettings
from firearrow.config.fields import SettingError
from firearrow.namesrv.server import NameServer
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.store.settings import StoreSettings
from tests.support.certificates import CERTIFICATE, KEY
from tests.support.waiting import run


def test_nothing_plain_is_needed(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "cert.pem").write_text(CERTIFICATE)
        (tmp_path / "key.pem").write_text(KEY)
        only_tls: dict[str, Any] = {
            "tls_server_mode": "enforcing",
            "tls_server_cert_path": str(tmp_path / "cert.pem"),
            "tls_server_key_path": str(tmp_path / "key.pem"),
            "listen_port": 0,
        }
        name_server = NameServer(NamesrvSettings(**only_tls))
        await name_server.start()
        store = StoreSettings(store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=1024 * 1024)
        ca = str(tmp_path / "cert.pem")
        settings = BrokerSettings(use_tls=True, tls_client_trust_cert_path=ca, **only_tls)
        broker = Broker(settings, store, namesrv_addrs=[name_server.address])
        await broker.start()
        try:
            async with aio.Producer(name_server.address, tls_ca=ca) as producer:
                sent = [await producer.send(fa.Message("Encrypted", b"%d" % n)) for n in range(8)]
            assert len({result.msg_id for result in sent}) == 8
            async with aio.PullConsumer(name_server.address, group="readers", topics=["Encrypted"], tls_ca=ca) as consumer:
                received = set()
                async for message in consumer:
                    received.add(message.body)
                    if len(received) == 8:
                        break
            assert received == {b"%d" % n for n in range(8)}
            with pytest.raises(fa.ClientError):
                async with aio.Producer(name_server.address) as plain:
                    await plain.send(fa.Message("Encrypted", b"x"), timeout=2)
            with pytest.raises(fa.ClientError, match="certificate verify failed"):
                async with Admin(name_server.address, tls=True) as distrustful:
                    await distrustful.topic_names()
            async with Admin(name_server.address, tls_insecure=True) as trusting:
                assert "Encrypted" in await trusting.topic_names()
        finally:
            await broker.stop()
            await name_server.stop()

    run(story())


def test_broker_does_not_register_at_a_name_server_that_it_cannot_verify(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        (tmp_path / "cert.pem").write_text(CERTIFICATE)
        (tmp_path / "key.pem").write_text(KEY)
        only_tls: dict[str, Any] = {
            "tls_server_cert_path": str(tmp_path / "cert.pem"),
            "tls_server_key_path": str(tmp_path / "key.pem"),
        }
        name_server = NameServer(NamesrvSettings(listen_port=0, **only_tls))
        await name_server.start()
        store = StoreSettings(store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=1024 * 1024)
        broker = Broker(BrokerSettings(use_tls=True, listen_port=0), store, namesrv_addrs=[name_server.address])
        await broker.start()
        try:
            async with Admin(name_server.address) as admin:
                with pytest.raises(NotFoundError, match="no broker is registered"):
                    await admin.list_brokers()
        finally:
            await broker.stop()
            await name_server.stop()

    run(story())
    assert "not registered at name server" in caplog.text
    assert "certificate verify failed" in caplog.text


def test_unusable_trusted_certificate_prevents_the_start_of_a_broker(tmp_path: Path) -> None:
    async def story() -> None:
        settings = BrokerSettings(use_tls=True, tls_client_trust_cert_path=str(tmp_path / "none.pem"), listen_port=0)
        store = StoreSettings(store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=1024 * 1024)
        with pytest.raises(SettingError, match=r"tls\.client\.trustCertPath"):
            await Broker(settings, store, namesrv_addrs=["127.0.0.1:1"]).start()

    run(story())
