"""Listening and dialling for raw byte protocols, such as the replication protocols of `ha/`.

Both event loops (asyncio's and uvloop) set TCP_NODELAY on every TCP connection, so small writes are sent at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from firearrow.net.address import BACKLOG, bind, parse_address

P = TypeVar("P", bound=asyncio.BaseProtocol)


class StreamListener:
    """A port that is bound when constructed and accepts connections after `serve`. Port 0 lets the system choose."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = bind(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | None = None

    async def serve(self, protocol_factory: Callable[[], asyncio.BaseProtocol]) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(protocol_factory, sock=self._socket, backlog=BACKLOG)

    def close(self) -> None:
        """Release the port. Accepted connections stay open: their protocols close them."""
        if self._server is not None:
            self._server.close()
        self._socket.close()


async def dial(protocol_factory: Callable[[], P], address: str, timeout_s: float) -> tuple[asyncio.Transport, P]:
    """Connect a protocol to `host:port`, always over a socket: replication uses real ports in in-process clusters, too.

    Raises OSError; a timeout is reported as one.
    """
    host, port = parse_address(address)
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.get_running_loop().create_connection(protocol_factory, host, port)
    except TimeoutError:
        raise TimeoutError(f"no connection within {timeout_s:g} s") from None
