"""Responses that the system copies from a file to a socket."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.net.server import Connection, serve
from firearrow.net.tls import ClientTls, TlsSettings, client_context, server_tls
from firearrow.wire.frame import Command, encode_request, encode_response
from tests.net.peer import Echo, Peer
from tests.support.certificates import CERTIFICATE, KEY
from tests.support.waiting import run

SIZE = 3_000_000


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def head(request: Command, size: int) -> bytes:
    """The frame of an answer up to its body of so many bytes."""
    return encode_response(request, 0, ext={}, body=bytes(size))[:-size]


def encode(body: bytes) -> bytes:
    return encode_request(11, {}, body, opaque=7)


class Files(Echo):
    """A service that answers with the part of the file named in the body, or with the body itself."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def received(self, conn: Connection, commands: list[Command]) -> None:
        for command in commands:
            position, _, size = command.body.partition(b"+")
            if size:
                conn.write_file(head(command, int(size)), self._descriptor, int(position), int(size))
            else:
                conn.write(encode_response(command, 0, ext={}, body=command.body))


def test_file_parts_and_other_responses_reach_a_slow_reader_in_order(file: int) -> None:
    async def scenario() -> None:
        listener = await serve(Files(file))
        peer = await Peer.dial(listener)
        rng = random.Random(2)
        asked = [b"%d+%d" % (rng.randrange(SIZE // 2), rng.randrange(1, 700_000)) for _ in range(60)]
        asked[1::3] = [b"short %d" % number for number in range(len(asked[1::3]))]
        for body in asked:  # 14 MB of responses, more than the buffers hold
            peer.send(encode(body))
        await asyncio.sleep(0.05)
        for body in asked:
            position, _, size = body.partition(b"+")
            assert (await peer.frame()).body == (os.pread(file, int(size), int(position)) if size else body)
        await peer.close()
        await listener.close()

    run(scenario())


def test_response_longer_than_the_file_closes_the_connection(file: int) -> None:
    async def scenario() -> None:
        service = Files(file)
        listener = await serve(service)
        peer = await Peer.dial(listener)
        peer.send(encode(b"%d+%d" % (SIZE - 1000, 2000)))
        await service.left.wait()
        assert len(await peer.reader.read(1 << 20)) < 2000
        await listener.close()

    run(scenario())


def test_disconnected_peer_ends_only_its_connection(file: int) -> None:
    async def scenario() -> None:
        service = Files(file)
        listener = await serve(service)
        gone, peer = await Peer.dial(listener), await Peer.dial(listener)
        for _ in range(20):
            gone.send(encode(b"0+%d" % SIZE))
        gone.writer.transport.abort()
        await service.left.wait()
        peer.send(encode(b"5+10"))
        assert (await peer.frame()).body == os.pread(file, 10, 5)
        await peer.close()
        await listener.close()

    run(scenario())


def test_encrypted_connections_do_not_send_files(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    settings = TlsSettings(tls_server_cert_path=str(tmp_path / "cert.pem"), tls_server_key_path=str(tmp_path / "key.pem"))

    async def scenario() -> None:
        service = Echo()
        listener = await serve(service, tls=server_tls(settings))
        plain = await Peer.dial(listener)
        await plain.ask(34)
        encrypted = Peer(*await asyncio.open_connection("127.0.0.1", listener.port, ssl=client_context(ClientTls(insecure=True))))
        await encrypted.ask(34)
        assert [conn.takes_files for conn in service.conns] == [True, False]
        await plain.close()
        await encrypted.close()
        await listener.close()

    run(scenario())
