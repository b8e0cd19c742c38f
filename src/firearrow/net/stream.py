"""Listening and dialling for raw byte protocols, such as the replication protocols of `ha/`.

Both event loops (asyncio's and uvloop) set TCP_NODELAY on every TCP connection, so small writes are sent at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from ssl import SSLContext
from typing import TypeVar

from firearrow.net.address import BACKLOG, bind, parse_address
from firearrow.net.tls import ServerTls
from firearrow.net.tls_detection import TlsDetector

_HANDSHAKE_MS = 10_000  # for a peer to send its first byte, which tells whether it uses TLS, and for the TLS handshake

log = logging.getLogger("firearrow.net")

P = TypeVar("P", bound=asyncio.BaseProtocol)


def _log_refusal(peer: str, reason: str) -> None:
    log.warning("closing connection to %s: %s", peer, reason)


class StreamListener:
    """A port that is bound when constructed and accepts connections after `serve`. Port 0 lets the system choose."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = bind(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | TlsDetector | None = None

    async def serve(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        tls: ServerTls | None = None,
        refused: Callable[[str, str], None] = _log_refusal,
    ) -> None:
        """Accept connections, plain and encrypted ones if `tls` is given. `refused` gets the peer and the reason."""
        if tls is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(protocol_factory, sock=self._socket, backlog=BACKLOG)
        else:
            self._server = TlsDetector(self._socket, tls, protocol_factory, refused, _HANDSHAKE_MS)

    def close(self) -> None:
        """Release the port. Accepted connections stay open: their protocols close them."""
        if self._server is not None:
            self._server.close()
        self._socket.close()


async def dial(
    protocol_factory: Callable[[], P], address: str, timeout_s: float, tls: SSLContext | None = None
) -> tuple[asyncio.Transport, P]:
    """Connect a protocol to `host:port`, always over a socket: replication uses real ports in in-process clusters, too.

    Raises OSError; a timeout is reported as one.
    """
    host, port = parse_address(address)
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.get_running_loop().create_connection(
                protocol_factory, host, port, ssl=tls, server_hostname=host if tls is not None else None
            )
    except TimeoutError:
        raise TimeoutError(f"no connection within {timeout_s:g} s") from None
