from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.config.fields import SettingError
from firearrow.net.channel import Channel
from firearrow.net.errors import ConnectError, ConnectionLostError
from firearrow.net.limits import Limits
from firearrow.net.server import Listener, serve
from firearrow.net.tls import ClientTls, TlsSettings, client_context, server_tls
from tests.net.peer import Echo
from tests.support.certificates import CERTIFICATE, KEY
from tests.support.waiting import run


def certified(directory: Path, **more: Any) -> TlsSettings:
    (directory / "cert.pem").write_text(CERTIFICATE)
    (directory / "key.pem").write_text(KEY)
    return TlsSettings(tls_server_cert_path=str(directory / "cert.pem"), tls_server_key_path=str(directory / "key.pem"), **more)


@contextlib.asynccontextmanager
async def listening(settings: TlsSettings, **more: Any) -> AsyncIterator[Listener]:
    listener = await serve(Echo(), tls=server_tls(settings), **more)
    try:
        yield listener
    finally:
        await listener.close()


async def echo(listener: Listener, body: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    channel = await Channel.connect(f"127.0.0.1:{listener.port}", tls=tls, timeout_ms=60_000)
    try:
        return (await channel.request(34, body=body, timeout_ms=60_000)).body
    finally:
        await channel.close()


def test_port_accepts_plain_and_encrypted_connections(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listening(certified(tmp_path)) as listener:
            body = bytes(range(256)) * 4000
            results = await asyncio.gather(
                *(echo(listener, body, client_context(ClientTls(insecure=True) if n % 2 == 0 else None)) for n in range(20))
            )
            assert results == [body] * 20

    run(scenario())


def test_enforcing_accepts_only_encrypted_connections(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listening(certified(tmp_path, tls_server_mode="enforcing")) as listener:
            assert await echo(listener, b"x", client_context(ClientTls(insecure=True))) == b"x"
            with pytest.raises(ConnectionLostError):
                await echo(listener, b"x")

    run(scenario())


def test_disabled_accepts_only_plain_connections(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listening(certified(tmp_path, tls_server_mode="disabled")) as listener:
            assert await echo(listener, b"x") == b"x"
            with pytest.raises(ConnectError):
                await echo(listener, b"x", client_context(ClientTls(insecure=True)))

    run(scenario())


def test_client_without_the_required_certificate_is_rejected(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = certified(tmp_path, tls_server_need_client_auth="require")
        settings.tls_server_trust_cert_path = settings.tls_server_cert_path
        async with listening(settings) as listener:
            with pytest.raises((ConnectError, ConnectionLostError)):
                await echo(listener, b"x", client_context(ClientTls(insecure=True)))
            known = ssl.create_default_context(cadata=CERTIFICATE)
            known.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
            assert await echo(listener, b"x", known) == b"x"
            assert len(listener.connections) <= 1  # the failed connection is forgotten

    run(scenario())


def test_silent_peer_is_disconnected_after_the_handshake_timeout(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listening(certified(tmp_path), limits=Limits(handshake_timeout_ms=100)) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            assert await reader.read() == b""
            writer.close()
            _, gone = await asyncio.open_connection("127.0.0.1", listener.port)
            gone.close()
            assert await echo(listener, b"x") == b"x"

    run(scenario())


def test_invalid_handshake_ends_its_connection_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listening(certified(tmp_path)) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"\x16" + bytes(500))
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            assert await echo(listener, b"x", client_context(ClientTls(insecure=True))) == b"x"

    run(scenario())


def test_close_disconnects_silent_peers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listening(certified(tmp_path)) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            assert await echo(listener, b"x") == b"x"  # by now the other connection was accepted too
        assert await reader.read() == b""
        writer.close()

    run(scenario())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a second certificate with openssl")
def test_replaced_certificate_is_used_for_new_connections(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listening(certified(tmp_path)) as listener:
            believing = ssl.create_default_context(cadata=CERTIFICATE)
            assert await echo(listener, b"x", believing) == b"x"
            (tmp_path / "half").write_text("half of a certificate")
            os.replace(tmp_path / "half", tmp_path / "cert.pem")
            assert await echo(listener, b"x", believing) == b"x"  # it does not match the key: the previous one stays in use
            _new_certificate(tmp_path)
            with pytest.raises(ConnectError, match="certificate"):
                await echo(listener, b"x", believing)
            assert await echo(listener, b"x", ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))) == b"x"

    run(scenario())


def _new_certificate(directory: Path) -> None:
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem"),
        ],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip


def test_port_without_certificate_is_plain() -> None:
    assert server_tls(TlsSettings()) is None
    assert server_tls(TlsSettings(tls_server_mode="disabled")) is None


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"tls_server_cert_path": None}, "tls.server.certPath"),
        ({"tls_server_key_path": None}, "tls.server.keyPath"),
        ({"tls_server_cert_path": None, "tls_server_key_path": None, "tls_server_mode": "enforcing"}, "tls.server.certPath"),
        ({"tls_server_cert_path": "/nowhere.pem"}, "tls.server.certPath=/nowhere.pem"),
        ({"tls_server_need_client_auth": "require"}, "tls.server.trustCertPath"),
    ],
)
def test_unusable_file_is_named_in_the_error(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    settings = certified(tmp_path)
    for name, value in change.items():
        setattr(settings, name, value)
    with pytest.raises(SettingError, match=key):
        server_tls(settings)
