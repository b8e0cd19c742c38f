"""A raw peer for tests: a socket that sends bytes as they are and reads frames back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, TypeVar

from firearrow.net.server import Connection, Listener
from firearrow.wire.frame import Command, FrameDecoder, encode_request, encode_response

T = TypeVar("T")
PATIENCE_S = 60


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._frames: list[Command] = []
        self._opaque = 100

    @classmethod
    async def dial(cls, listener: Listener) -> Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", listener.port))

    @property
    def port(self) -> int:
        port: int = self.writer.get_extra_info("sockname")[1]
        return port

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> Command:
        while not self._frames:
            data = await self.reader.read(65536)
            if not data:
                raise EOFError("the server closed the connection")
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    async def ask(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", **kwargs: Any) -> Command:
        self._opaque += 1
        self.send(encode_request(code, ext or {}, body, opaque=self._opaque, **kwargs))
        answer = await self.frame()
        assert answer.is_response
        assert answer.opaque == self._opaque
        return answer

    async def closed_by_server(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Echo:
    """A service that answers with the request body and records events."""

    def __init__(self) -> None:
        self.conns: list[Connection] = []
        self.batches: list[list[int]] = []
        self.gone: list[Connection] = []
        self.met = asyncio.Event()
        self.left = asyncio.Event()

    def connected(self, conn: Connection) -> None:
        self.conns.append(conn)
        self.met.set()

    def received(self, conn: Connection, commands: list[Command]) -> list[Command] | None:
        self.batches.append([c.code for c in commands])
        conn.write(b"".join(encode_response(c, 0, ext={}, body=c.body) for c in commands if not c.is_oneway))
        return None

    def disconnected(self, conn: Connection) -> None:
        self.gone.append(conn)
        self.left.set()
