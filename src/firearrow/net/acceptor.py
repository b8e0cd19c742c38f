"""Acceptance of TCP connections within a budget, with TLS where the first byte asks for it.

The sockets are accepted here rather than by the event loop, because the event loops differ when no file descriptor is left:
uvloop closes the new connection without a word. Here it is an error in the log, and the port is tried again a moment later.

Only ports with a certificate wait for the first byte (tls_detection.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine

from firearrow.net.address import BACKLOG, format_address, unmapped
from firearrow.net.budget import ConnectionBudget
from firearrow.net.connection import Connection
from firearrow.net.tls import ServerTls
from firearrow.net.tls_detection import CLIENT_HELLO, first_byte

RETRY_S = 0.5  # before accepting again when the process has run out of descriptors
_AT_ONCE = 64  # connections; others have their turn after that

log = logging.getLogger("firearrow.net")


class Acceptor:
    """Accepts connections on `sock` until `close`.

    `accept` creates the protocol, which calls `lost` when its connection ends; the acceptor calls it if there never was one.
    """

    def __init__(
        self,
        sock: socket.socket,
        budget: ConnectionBudget,
        tls: ServerTls | None,
        accept: Callable[[Callable[[Connection], None]], Connection],
        lost: Callable[[Connection], None],
    ) -> None:
        self._sock = sock
        self._budget = budget
        self._tls = tls
        self._accept = accept
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._arriving: set[Arrival] = set()
        self._retry: asyncio.TimerHandle | None = None
        sock.listen(BACKLOG)
        self._loop.add_reader(sock.fileno(), self._ready)

    def close(self) -> None:
        """Stop accepting. Established connections stay open."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        for arrival in list(self._arriving):
            arrival.abort()

    def _ready(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                peer, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            arrival = Arrival(peer, unmapped(address[0]), address[1])
            if not self._budget.admit(arrival):
                peer.close()
                continue
            peer.setblocking(False)
            self._arriving.add(arrival)
            arrival.start(self._admit(arrival))

    def _pause(self, error: OSError) -> None:
        """Stop listening for a moment: the event loop would otherwise report the same connection without end."""
        text = f"cannot accept connections: {error}; {self._budget.connections} are open, trying again in {RETRY_S:g} s"
        self._budget.notices.warn("accept", text, logging.ERROR)
        self._loop.remove_reader(self._sock.fileno())
        self._retry = self._loop.call_later(RETRY_S, self._loop.add_reader, self._sock.fileno(), self._ready)

    async def _admit(self, arrival: Arrival) -> None:
        peer = arrival.socket
        try:
            encrypted = False
            if self._tls is not None:
                encrypted = await first_byte(peer, self._budget.limits.handshake_timeout_ms / 1000) == CLIENT_HELLO
                if not encrypted and self._tls.enforced:
                    text = f"closing {arrival.peer}: it is not encrypted, and tls.server.mode is enforcing"
                    self._budget.notices.warn("plain", text)
                    raise ConnectionAbortedError("not encrypted")
            conn = arrival.conn = self._accept(lambda conn: self._ended(conn, arrival))
            await self._establish(peer, conn, encrypted)
        except (OSError, asyncio.CancelledError) as error:  # ssl.SSLError and TimeoutError are OSErrors
            self._budget.leave(arrival)
            if arrival.conn is not None:
                self._lost(arrival.conn)
            peer.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            log.debug("closing connection to %s: %s", arrival.peer, error)
        finally:
            self._arriving.discard(arrival)

    def _ended(self, conn: Connection, arrival: Arrival) -> None:
        self._budget.leave(arrival)
        arrival.finish()
        self._lost(conn)

    async def _establish(self, peer: socket.socket, conn: Connection, encrypted: bool) -> None:
        connect = self._loop.connect_accepted_socket
        if encrypted and self._tls is not None:
            timeout_s = self._budget.limits.handshake_timeout_ms / 1000
            await connect(lambda: conn, peer, ssl=self._tls.context(), ssl_handshake_timeout=timeout_s)
        else:
            await connect(lambda: conn, peer)


class Arrival:
    """An accepted socket (budget.Guest). `conn` is its protocol once the first byte is known."""

    def __init__(self, sock: socket.socket, address: str, port: int) -> None:
        self.socket = sock
        self.address = address
        self.peer = format_address(address, port)
        self.conn: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_silent(self) -> bool:
        return self.conn is None or self.conn.is_silent

    def start(self, admission: Coroutine[None, None, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(admission)

    def abort(self) -> None:
        """Close the connection: its handshake, or its protocol."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
        elif self.conn is not None:
            self.conn.abort()

    def finish(self) -> None:
        """Drop the references, which form a cycle: the broker rarely collects garbage."""
        self.conn = self._task = None
