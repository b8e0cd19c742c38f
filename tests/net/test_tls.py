from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from firearrow.net.channel import Channel
from firearrow.net.errors import ConnectError
from firearrow.net.server import Connection
from firearrow.net.tls import client_context
from tests.net.peer import Echo
from tests.support.certificates import CERTIFICATE, KEY
from tests.support.waiting import run


@contextlib.asynccontextmanager
async def encrypted(directory: Path) -> AsyncIterator[int]:
    (directory / "cert.pem").write_text(CERTIFICATE)
    (directory / "key.pem").write_text(KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    service = Echo()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(service), "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for conn in service.conns:
            conn.abort()


def test_true_encrypts_without_verification(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with encrypted(tmp_path) as port:
            channel = await Channel.connect(f"127.0.0.1:{port}", tls=client_context(True))
            body = bytes(range(256)) * 1000
            assert (await channel.request(34, body=body)).body == body
            await channel.close()

    run(scenario())


def test_context_verifies_the_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with encrypted(tmp_path) as port:
            believing = ssl.create_default_context(cadata=CERTIFICATE)
            channel = await Channel.connect(f"127.0.0.1:{port}", tls=client_context(believing))
            assert (await channel.request(34, body=b"x")).body == b"x"
            await channel.close()
            with pytest.raises(ConnectError, match=r"no connection to 127.0.0.1:\d+: .*certificate"):
                await Channel.connect(f"127.0.0.1:{port}", tls=ssl.create_default_context())

    run(scenario())


def test_plain_server_is_distinguished_from_an_encrypted_one() -> None:
    async def scenario() -> None:
        from firearrow.net.server import serve

        listener = await serve(Echo())
        with pytest.raises(ConnectError):
            await Channel.connect(f"127.0.0.1:{listener.port}", tls=client_context(True), timeout_ms=1000)
        await listener.close()

    run(scenario())


def test_false_is_plain() -> None:
    assert client_context(False) is None
    assert client_context(True) is client_context(True)
