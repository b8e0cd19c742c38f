"""TLS detection on ports that accept plain and encrypted connections: the first byte decides.

A TLS ClientHello begins with 0x16, a frame with the high byte of its length, which is 0. The byte is read with MSG_PEEK, so the
event loop receives the complete connection. `TlsDetector` serves the replication ports. Those of clients use `first_byte` within
a budget of connections (acceptor.py).

Until its first byte arrives, a connection costs a socket and a task, for at most the idle timeout.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Generic, TypeVar

from firearrow.net.address import BACKLOG, format_address
from firearrow.net.tls import ServerTls

CLIENT_HELLO = b"\x16"
HANDSHAKE_S = 10
_PAUSE_S = 1.0  # before accepting again when the process has run out of descriptors

log = logging.getLogger("firearrow.net")

P = TypeVar("P", bound=asyncio.BaseProtocol)


class TlsDetector(Generic[P]):
    """Accepts connections on `sock` until `close`.

    `accept` creates the protocol; `lost` removes it if the handshake fails. `refused` gets the peer and the reason, which are
    logged here without it.
    """

    def __init__(
        self,
        sock: socket.socket,
        tls: ServerTls,
        accept: Callable[[], P],
        lost: Callable[[P], None],
        idle_timeout_ms: int,
        refused: Callable[[str, str], None] | None = None,
    ) -> None:
        self._sock = sock
        self._tls = tls
        self._accept = accept
        self._lost = lost
        self._refused = refused
        self._idle_timeout_s = idle_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._arriving: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        sock.listen(BACKLOG)
        self._loop.add_reader(sock.fileno(), self._ready)

    def close(self) -> None:
        """Stop accepting. Established connections stay open."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        for task in self._arriving:
            task.cancel()

    def _ready(self) -> None:
        for _ in range(BACKLOG):
            try:
                peer, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept connections at the moment: %s", error)
                self._loop.remove_reader(self._sock.fileno())
                self._pause = self._loop.call_later(_PAUSE_S, self._loop.add_reader, self._sock.fileno(), self._ready)
                return
            peer.setblocking(False)
            task = self._loop.create_task(self._admit(peer, format_address(*address[:2])))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _admit(self, peer: socket.socket, name: str) -> None:
        conn: P | None = None
        try:
            encrypted = await first_byte(peer, self._idle_timeout_s) == CLIENT_HELLO
            if not encrypted and self._tls.enforced:
                self._report(logging.WARNING, name, "it is not encrypted, and tls.server.mode is enforcing")
                peer.close()
                return
            conn = self._accept()
            await self._establish(peer, conn, encrypted)
        except (OSError, asyncio.CancelledError) as error:  # ssl.SSLError and TimeoutError are OSErrors
            if conn is not None:
                self._lost(conn)
            peer.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            self._report(logging.DEBUG, name, str(error))

    def _report(self, level: int, peer: str, reason: str) -> None:
        if self._refused is not None:
            self._refused(peer, reason)
        else:
            log.log(level, "closing connection to %s: %s", peer, reason)

    async def _establish(self, peer: socket.socket, conn: P, encrypted: bool) -> None:
        connect = self._loop.connect_accepted_socket
        if encrypted:
            await connect(lambda: conn, peer, ssl=self._tls.context(), ssl_handshake_timeout=HANDSHAKE_S)
        else:
            await connect(lambda: conn, peer)


async def first_byte(peer: socket.socket, timeout_s: float) -> bytes:
    """Return the first byte that the peer sends, and leave it in the socket. OSError, also for a timeout."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(peer.fileno(), _once, readable)
    try:
        async with asyncio.timeout(timeout_s):
            await readable
    finally:
        loop.remove_reader(peer.fileno())
    first = peer.recv(1, socket.MSG_PEEK)
    if not first:
        raise ConnectionResetError("the peer disconnected before its first byte")
    return first


def _once(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
