"""The asking side: a connection to a server.

`Channel.connect` dials once; making a new channel after this one has closed is the caller's business, because only the caller
knows whether the address is still the right one. A closed channel fails every waiting call with an error that names the peer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

from firearrow.net.address import parse_address
from firearrow.net.connection import Connection
from firearrow.net.errors import ConnectError
from firearrow.wire.codes import ResponseCode
from firearrow.wire.command import Command, encode_response

CONNECT_TIMEOUT_MS = 3_000
CALL_TIMEOUT_MS = 3_000

OnRequest = Callable[["Channel", Command], None]
OnClose = Callable[["Channel"], None]


class Channel:
    """Use `await Channel.connect(...)`; the constructor alone gives a channel that was never open."""

    def __init__(self, address: str, on_request: OnRequest | None = None, on_close: OnClose | None = None) -> None:
        self.address = address
        self._on_request = on_request
        self._on_close = on_close
        self._conn: Connection | None = None
        self._ended = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        on_request: OnRequest | None = None,
        on_close: OnClose | None = None,
    ) -> Channel:
        """Dials `host:port`. `on_request` gets what the server asks of us (without it, code 3 is the answer)."""
        host, port = parse_address(address)
        channel = cls(address, on_request, on_close)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await loop.create_connection(lambda: Connection(channel), host, port)
        except TimeoutError as error:
            raise ConnectError(f"no connection to {address} within {timeout_ms} ms") from error
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ConnectError(f"no connection to {address}: {why}") from error
        return channel

    def __repr__(self) -> str:
        return f"<Channel {self.address}{' closed' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        return self._conn is None or self._conn.closed

    async def call(
        self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"", *, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> Command:
        """The server's response, whatever its code; RequestTimeoutError or ConnectionLostError when there is none."""
        return await self._open().request(code, ext, body, timeout_ms=timeout_ms)

    def oneway(self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"") -> None:
        self._open().notify(code, ext, body)

    def answer(self, frame: bytes) -> None:
        """Sends a response (encoded by wire's `encode_response`) to a request that came from the server."""
        self._open().write(frame)

    def abandon(self, reason: str) -> None:
        """Closes the channel and does not wait until it is closed."""
        if self._conn is not None:
            self._conn.close(reason)

    async def close(self, reason: str = "closed by its owner") -> None:
        self.abandon(reason)
        if self._conn is not None:
            await self._ended.wait()

    # The Service side of our own connection.

    def connected(self, conn: Connection) -> None:
        self._conn = conn

    def received(self, conn: Connection, commands: list[Command]) -> None:
        for command in commands:
            if self._on_request is not None:
                self._on_request(self, command)
            elif not command.is_oneway:
                remark = f"request type {command.code} not supported"
                conn.write(encode_response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))

    def disconnected(self, conn: Connection) -> None:
        self._ended.set()
        if self._on_close is not None:
            self._on_close(self)

    def _open(self) -> Connection:
        if self._conn is None:
            raise ConnectError(f"channel to {self.address} was never connected")
        return self._conn
