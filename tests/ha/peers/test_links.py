"""Connections between brokers over loopback sockets: who is accepted, and that nobody in between can change anything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.ha.peers import links as links_module
from firearrow.ha.peers.handshake import PREAMBLE
from firearrow.ha.peers.links import MAX_UNAUTHENTICATED, LinkEndpoint, PeerLinks, PeerRefusedError
from firearrow.ha.peers.security import LinkSecurity
from firearrow.net.stream import StreamListener
from firearrow.net.tls import ServerTls, TlsSettings
from firearrow.net.tls_detection import MAX_ARRIVING
from tests.support.certificates import CERTIFICATE, KEY
from tests.support.waiting import run, until

SECRET, OTHER = b"the secret of the group", b"the secret of another group"
log = logging.getLogger("t")


class Fixed:
    def __init__(self, *secrets: bytes) -> None:
        self._secrets = list(secrets)

    def current(self) -> list[bytes]:
        return self._secrets


class Received(asyncio.Protocol):
    """Records what it receives."""

    def __init__(self, peer: str | None = None) -> None:
        self.peer = peer
        self.data = b""
        self.ended = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


def required(*secrets: bytes, **more: Any) -> LinkSecurity:
    return LinkSecurity(required=True, secrets=Fixed(*secrets) if secrets else None, **more)


def make_links(security: LinkSecurity, name: str = "n1", group: str = "G") -> PeerLinks:
    return PeerLinks(LinkEndpoint("raft", "C", group, name, lambda peer: peer != "n0"), security, log)


class Server:
    def __init__(self, security: LinkSecurity) -> None:
        self.links = make_links(security, "n0")
        self.accepted: list[Received] = []
        self.listener = StreamListener("127.0.0.1", 0)
        self.address = f"127.0.0.1:{self.listener.port}"

    def make(self, peer: str | None) -> Received:
        self.accepted.append(Received(peer))
        return self.accepted[-1]


@contextlib.asynccontextmanager
async def serving(security: LinkSecurity) -> AsyncIterator[Server]:
    server = Server(security)
    await server.links.serve(server.listener, server.make)
    try:
        yield server
    finally:
        server.listener.close()
        server.links.close()
        for accepted in server.accepted:
            accepted.transport.abort()


async def exchange(server: Server, client: PeerLinks, size: int = 300_000) -> Received:
    """Connect, send in both directions and return the accepted side."""
    transport, protocol = await client.dial(Received, server.address, 10.0, "n0")
    transport.writelines((b"to the ", b"server"))
    transport.write(bytes(size))
    await until(lambda: server.accepted and not server.accepted[-1].ended.is_set())
    accepted = server.accepted[-1]
    accepted.transport.write(b"to the client")
    await until(lambda: accepted.data == b"to the server" + bytes(size) and protocol.data == b"to the client")
    transport.close()
    await accepted.ended.wait()
    return accepted


def test_brokers_with_the_same_secret_exchange_data() -> None:
    async def scenario() -> None:
        async with serving(required(SECRET)) as server:
            assert (await exchange(server, make_links(required(SECRET)))).peer == "n1"

    run(scenario())


def test_nothing_changes_on_the_wire_without_authentication() -> None:
    async def scenario() -> None:
        async with serving(LinkSecurity()) as server:
            assert (await exchange(server, make_links(LinkSecurity()))).peer is None
            reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
            writer.write(b"plain")
            await until(lambda: len(server.accepted) == 2 and server.accepted[1].data == b"plain")
            server.accepted[1].transport.write(b"bytes")
            assert await reader.readexactly(5) == b"bytes"
            writer.close()

    run(scenario())


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (make_links(required(OTHER)), "it has another secret"),
        (make_links(required(SECRET), group="H"), "does not accept this group or member"),
        (make_links(required(SECRET), name="n0"), "does not accept this group or member"),
    ],
)
def test_wrong_peer_is_refused_and_told_why(client: PeerLinks, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(required(SECRET)) as server:
            with pytest.raises(PeerRefusedError, match=reason):
                await client.dial(Received, server.address, 10.0, "n0")
            assert server.accepted == []

    run(scenario())
    assert "rejected a connection from 127.0.0.1:" in caplog.text


@pytest.mark.parametrize("data", [bytes(8), b"\x00\x00\x00\x20" + bytes(32), b"GET / HTTP/1.1\r\n\r\n"])
def test_peer_that_does_not_authenticate_is_refused(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(required(SECRET)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
            writer.write(data)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            assert server.accepted == []

    run(scenario())
    assert "it does not authenticate" in caplog.text


def test_silent_peer_is_refused_after_the_deadline(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(links_module, "HANDSHAKE_S", 0.05)

    async def scenario() -> None:
        async with serving(required(SECRET)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
            writer.write(PREAMBLE)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()

    run(scenario())
    assert "did not authenticate within 0.05 s" in caplog.text


def test_strangers_do_not_keep_members_out(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(required(SECRET)) as server:
            strangers = [await asyncio.open_connection("127.0.0.1", server.listener.port) for _ in range(2 * MAX_UNAUTHENTICATED)]
            await exchange(server, make_links(required(SECRET)))
            for _, writer in strangers:
                writer.close()

    run(scenario())
    assert f"more than {MAX_UNAUTHENTICATED} connections do not authenticate" in caplog.text
    assert len(caplog.records) == 1


def test_unauthenticated_peers_can_be_allowed_in_both_directions(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        tolerant = required(SECRET, allow_unauthenticated=True)
        async with serving(tolerant) as server:
            assert (await exchange(server, make_links(LinkSecurity()))).peer is None
            assert (await exchange(server, make_links(required(SECRET)))).peer == "n1"
        async with serving(LinkSecurity()) as server:
            client = make_links(tolerant)
            dialling = asyncio.ensure_future(client.dial(Received, server.address, 0.2, "n0"))
            await until(lambda: len(server.accepted) == 2)
            transport, _ = await dialling
            assert server.accepted[0].data == PREAMBLE
            transport.write(b"plain")
            await until(lambda: server.accepted[1].data == b"plain")

    run(scenario())
    assert caplog.text.count("does not authenticate and is accepted because haAllowUnauthenticated=true") == 2


class Interceptor:
    """A stranger between two brokers who forwards what they send, after `change`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.change = False
        self.writer: asyncio.StreamWriter | None = None

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        below, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pump(reader, self.writer, changes=True), self._pump(below, writer, changes=False))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, changes: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if changes and self.change:
                    data = data[:6] + bytes((data[6] ^ 1,)) + data[7:]
                writer.write(data)
        writer.close()


@pytest.mark.parametrize("attack", ["change", "inject"])
def test_interceptor_cannot_change_or_inject_data(attack: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(required(SECRET)) as server:
            between = Interceptor(server.listener.port)
            proxy = await asyncio.start_server(between, "127.0.0.1", 0)
            port = proxy.sockets[0].getsockname()[1]
            transport, _ = await make_links(required(SECRET)).dial(Received, f"127.0.0.1:{port}", 10.0, "n0")
            transport.write(b"genuine")
            await until(lambda: server.accepted and server.accepted[0].data == b"genuine")
            if attack == "change":
                between.change = True
                transport.write(b"genuine")
            else:
                assert between.writer is not None
                between.writer.write(b"\x00\x00\x00\x05wrong" + bytes(16))
            await server.accepted[0].ended.wait()
            assert server.accepted[0].data == b"genuine"
            transport.abort()
            proxy.close()

    run(scenario())
    assert "wrong authentication code" in caplog.text


# TLS


def certificates(directory: Path, client_auth: str = "none", mode: str = "permissive") -> ServerTls:
    (directory / "cert.pem").write_text(CERTIFICATE)
    (directory / "key.pem").write_text(KEY)
    return ServerTls(
        TlsSettings(
            tls_server_mode=mode,
            tls_server_cert_path=str(directory / "cert.pem"),
            tls_server_key_path=str(directory / "key.pem"),
            tls_server_trust_cert_path=str(directory / "cert.pem"),
            tls_server_need_client_auth=client_auth,
        )
    )


def client_tls(directory: Path, *, certificate: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=CERTIFICATE)
    if certificate:
        context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    return context


def test_tls_and_plain_connections_share_the_port(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(required(SECRET, server_tls=certificates(tmp_path))) as server:
            encrypted = required(SECRET, client_tls=lambda: client_tls(tmp_path, certificate=False))
            assert (await exchange(server, make_links(encrypted))).peer == "n1"
            assert server.accepted[0].transport.get_extra_info("ssl_object") is not None
            assert (await exchange(server, make_links(required(SECRET)))).peer == "n1"
            assert server.accepted[1].transport.get_extra_info("ssl_object") is None

    run(scenario())


def test_strangers_do_not_keep_members_out_of_a_port_with_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(required(SECRET, server_tls=certificates(tmp_path))) as server:
            strangers = [await asyncio.open_connection("127.0.0.1", server.listener.port) for _ in range(2 * MAX_ARRIVING)]
            await exchange(server, make_links(required(SECRET, client_tls=lambda: client_tls(tmp_path, certificate=False))))
            for _, writer in strangers:
                writer.close()

    run(scenario())
    assert caplog.text.count("connections are in the TLS handshake") == 1


def test_plain_connection_to_a_port_that_enforces_tls_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(required(SECRET, server_tls=certificates(tmp_path, mode="enforcing"))) as server:
            with pytest.raises(PeerRefusedError, match="closed the connection"):
                await make_links(required(SECRET)).dial(Received, server.address, 10.0, "n0")

    run(scenario())
    assert "it is not encrypted, and tls.server.mode is enforcing" in caplog.text


def test_tls_without_the_secret_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(required(SECRET, server_tls=certificates(tmp_path))) as server:
            client = make_links(required(OTHER, client_tls=lambda: client_tls(tmp_path, certificate=False)))
            with pytest.raises(PeerRefusedError, match="another secret"):
                await client.dial(Received, server.address, 10.0, "n0")
            assert server.accepted == []

    run(scenario())


def test_mutual_tls_authenticates_without_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(required(server_tls=certificates(tmp_path, "require"))) as server:
            await exchange(server, make_links(required(client_tls=lambda: client_tls(tmp_path, certificate=True))))
            stranger = make_links(LinkSecurity(client_tls=lambda: client_tls(tmp_path, certificate=False)))
            with contextlib.suppress(OSError):  # TLS 1.3: the client learns of the refusal after the handshake
                _, protocol = await stranger.dial(Received, server.address, 10.0, "n0")
                await protocol.ended.wait()
            await until(lambda: "certificate" in caplog.text)
            plain = make_links(LinkSecurity())
            _, protocol = await plain.dial(Received, server.address, 10.0, "n0")
            protocol.transport.write(bytes(8))
            await protocol.ended.wait()
            assert len(server.accepted) == 1

    run(scenario())
    assert "it has no certificate" in caplog.text


def test_unverified_tls_still_seals_the_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(required(SECRET, server_tls=certificates(tmp_path))) as server:
            blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            blind.check_hostname = False
            blind.verify_mode = ssl.CERT_NONE
            accepted = await exchange(server, make_links(required(SECRET, client_tls=lambda: blind)))
            assert isinstance(accepted.transport, links_module.SealedTransport)

    run(scenario())
