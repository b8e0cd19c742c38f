"""A single page over plain HTTP, for metrics scrapers.

The server has one path and small limits: requests of at most 8 KiB that arrive within 5 s, 16 connections at once, one request
per connection, and 30 s until the client has read the response. Other requests are answered with an error, and the connection is
closed. One connection more replaces the oldest, so clients that neither write nor read do not keep a scraper out. The owner
renders the page; concurrent requests share one rendering.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

MAX_REQUEST = 8_192
MAX_CONNECTIONS = 16
REQUEST_TIMEOUT_S = 5.0
EXCHANGE_TIMEOUT_S = 30.0

log = logging.getLogger("firearrow.net")


class HttpPage:
    """A server for one page. After `start`, `port` is the actual port."""

    def __init__(self, path: str, content_type: str, make: Callable[[], Awaitable[list[bytes]]]) -> None:
        self.port = 0
        self._path = path
        self._content_type = content_type
        self._make = make
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self._page: asyncio.Future[list[bytes]] | None = None  # being rendered

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and abort open connections."""
        if self._page is not None:
            self._page.cancel()
        if self._server is not None:
            server, self._server = self._server, None
            server.close()
            for writer in list(self._open):
                writer.transport.abort()
            await server.wait_closed()

    async def _blocks(self) -> list[bytes]:
        if self._page is None:
            self._page = asyncio.ensure_future(self._make())
            self._page.add_done_callback(self._made)
        return await asyncio.shield(self._page)

    def _made(self, page: asyncio.Future[list[bytes]]) -> None:
        self._page = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            log.info("%s: closing the oldest of %d connections, which is not finished", self._path, MAX_CONNECTIONS)
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()  # the client disconnected, or the server is stopping
        except Exception:
            log.exception("%s could not be served", self._path)
            writer.transport.abort()
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_TIMEOUT_S)
        except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            request = b""
        method, _, rest = request.split(b"\r\n", 1)[0].partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0].decode("latin-1")
        if not path:
            await self._respond(writer, "400 Bad Request", [b"malformed request\n"])
        elif method not in (b"GET", b"HEAD"):
            await self._respond(writer, "405 Method Not Allowed", [f"method not allowed; use GET {self._path}\n".encode()])
        elif path not in (self._path, "/"):
            await self._respond(writer, "404 Not Found", [f"not found; the page is {self._path}\n".encode()])
        else:
            await self._respond(writer, "200 OK", await self._blocks(), body=method == b"GET")

    async def _respond(self, writer: asyncio.StreamWriter, status: str, blocks: list[bytes], *, body: bool = True) -> None:
        lines = (
            f"HTTP/1.1 {status}",
            f"Content-Type: {self._content_type}",
            f"Content-Length: {sum(map(len, blocks))}",
            "Connection: close",
            "\r\n",
        )
        writer.write("\r\n".join(lines).encode())
        for block in blocks if body else []:
            writer.write(block)
            await writer.drain()
        await writer.drain()
