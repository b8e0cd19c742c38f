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

from firearrow.net.address import BACKLOG, format_address
from firearrow.net.tls import ServerTls

CLIENT_HELLO = b"\x16"
MAX_ARRIVING = 64  # connections that have not completed the handshake; the oldest is closed for a new one
_PAUSE_S = 1.0  # before accepting again when the process has run out of descriptors

log = logging.getLogger("firearrow.net")


class TlsDetector:
    """Accepts connections on `sock` until `close`.

    `accept` creates the protocol of a connection. `refused` gets the peer and the reason of a connection without one.
    """

    def __init__(
        self,
        sock: socket.socket,
        tls: ServerTls,
        accept: Callable[[], asyncio.BaseProtocol],
        refused: Callable[[str, str], None],
        timeout_ms: int,
    ) -> None:
        self._sock = sock
        self._tls = tls
        self._accept = accept
        self._refused = refused
        self._timeout_s = timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._arriving: dict[asyncio.Task[None], None] = {}
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
        for _ in range(MAX_ARRIVING):
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
            self._start(peer, format_address(*address[:2]))

    def _start(self, peer: socket.socket, name: str) -> None:
        """Admit a connection. If many are in the handshake, close the oldest of them."""
        if len(self._arriving) >= MAX_ARRIVING:
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            oldest.cancel()
            self._refused(name, f"more than {MAX_ARRIVING} connections are in the TLS handshake")
        task = self._loop.create_task(self._admit(peer, name))
        self._arriving[task] = None
        task.add_done_callback(lambda done: self._arriving.pop(done, None))

    async def _admit(self, peer: socket.socket, name: str) -> None:
        try:
            encrypted = await first_byte(peer, self._timeout_s) == CLIENT_HELLO
            if not encrypted and self._tls.enforced:
                raise ConnectionAbortedError("it is not encrypted, and tls.server.mode is enforcing")
            connect = self._loop.connect_accepted_socket
            if encrypted:
                await connect(self._accept, peer, ssl=self._tls.context(), ssl_handshake_timeout=self._timeout_s)
            else:
                await connect(self._accept, peer)
        except asyncio.CancelledError:
            peer.close()
            raise
        except OSError as error:  # ssl.SSLError and TimeoutError are OSErrors
            peer.close()
            self._refused(name, str(error) or f"no TLS handshake within {self._timeout_s:g} s")


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
