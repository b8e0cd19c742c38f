"""Listening side of the remoting protocol: accepts connections and passes their requests to a service.

`serve` returns a Listener; `Listener.close` stops it and closes its connections. A sweep over the connections every few seconds
closes those that were idle for too long, and aborts those that missed a deadline: an incomplete request, responses that are not
read, closed connections whose peer does not read the remaining bytes. There is no timer per connection and no work per read.

The ports of a server share one budget (budget.py).

A broker listens on two ports at once (`Ports`): `SocketPair` here, `MemoryPair` in in_process.py.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from firearrow.net.acceptor import Acceptor
from firearrow.net.address import bind, bind_pair
from firearrow.net.budget import ConnectionBudget
from firearrow.net.connection import Connection, Service
from firearrow.net.limits import Limits
from firearrow.net.tls import ServerTls

__all__ = ["Connection", "Listener", "Ports", "Service", "SocketPair", "bind", "bind_pair", "serve"]

IDLE_TIMEOUT_MS = 120_000
LINGER_MS = 10_000  # time for a closed connection to send its remaining bytes
_CLOSE_GRACE_S = 0.5

log = logging.getLogger("firearrow.net")


async def serve(
    service: Service,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    sock: socket.socket | None = None,
    idle_timeout_ms: int = IDLE_TIMEOUT_MS,
    tls: ServerTls | None = None,
    limits: Limits | None = None,
) -> Listener:
    """Listen on host:port (0: any free port), or on an already bound socket (`bind`, `bind_pair`)."""
    listener = Listener(service, ConnectionBudget(limits or Limits()), idle_timeout_ms, tls)
    await listener.open(sock if sock is not None else bind(host, port))
    return listener


class Ports(Protocol):
    """A broker's listen port and fast port, reserved but not yet served."""

    port: int  # the listen port

    @property
    def connections(self) -> set[Connection]: ...

    @property
    def budget(self) -> ConnectionBudget:
        """The budget of both ports, while they are served."""
        ...

    async def serve(
        self, service: Service, *, idle_timeout_ms: int, tls: ServerTls | None = None, limits: Limits | None = None
    ) -> None: ...

    async def close(self, *, abruptly: bool = False) -> None:
        """Release the ports. `abruptly`: abort connections without sending remaining bytes."""
        ...


class SocketPair:
    """TCP ports of this machine; port 0 finds a free pair."""

    def __init__(self, host: str, port: int) -> None:
        self._sockets: Sequence[socket.socket] = bind_pair(host, port)
        self._listeners: list[Listener] = []
        self._budget: ConnectionBudget | None = None
        self.port: int = self._sockets[0].getsockname()[1]

    @property
    def connections(self) -> set[Connection]:
        return {conn for listener in self._listeners for conn in listener.connections}

    @property
    def budget(self) -> ConnectionBudget:
        assert self._budget is not None, "the ports are not served"
        return self._budget

    async def serve(
        self, service: Service, *, idle_timeout_ms: int, tls: ServerTls | None = None, limits: Limits | None = None
    ) -> None:
        self._budget = ConnectionBudget(limits or Limits())
        for sock in self._sockets:
            listener = Listener(service, self._budget, idle_timeout_ms, tls)
            await listener.open(sock)
            self._listeners.append(listener)

    async def close(self, *, abruptly: bool = False) -> None:
        for listener in self._listeners:
            await listener.close(abruptly=abruptly)
        for sock in self._sockets:
            sock.close()


class OpenConnections:
    """The open connections of a listener."""

    def __init__(self) -> None:
        self.all: set[Connection] = set()
        self._drained = asyncio.Event()

    def lost(self, conn: Connection) -> None:
        self.all.discard(conn)
        if not self.all:
            self._drained.set()

    def abort(self) -> int:
        """Abort all connections. Return their number."""
        open_now = list(self.all)
        for conn in open_now:
            conn.abort()
        return len(open_now)

    async def close(self, *, abruptly: bool) -> None:
        """Close all connections and wait for their end.

        Written bytes are sent first; connections that do not finish within half a second are aborted.
        """
        if abruptly:
            self.abort()
        for conn in list(self.all):
            conn.close("the server is stopping")
        try:
            await asyncio.wait_for(self._wait_drained(), _CLOSE_GRACE_S)
        except TimeoutError:
            self.abort()
            await self._wait_drained()

    async def _wait_drained(self) -> None:
        while self.all:
            self._drained.clear()
            await self._drained.wait()


class Listener:
    """A TCP listener and its connections."""

    host: str
    port: int

    def __init__(self, service: Service, budget: ConnectionBudget, idle_timeout_ms: int, tls: ServerTls | None = None) -> None:
        self._open = OpenConnections()
        self.connections = self._open.all
        self.budget = budget
        self._tls = tls
        self._service = service
        self._idle_timeout_ms = idle_timeout_ms
        shortest_ms = min(idle_timeout_ms, budget.limits.frame_timeout_ms, budget.limits.write_timeout_ms)
        self._sweep_every_s = max(0.02, min(5.0, shortest_ms / 4000))
        self._acceptor: Acceptor | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def open(self, sock: socket.socket) -> None:
        self.host, self.port = sock.getsockname()[:2]
        self._acceptor = Acceptor(sock, self.budget, self._tls, self._accept, self._open.lost)
        self._sweeper = asyncio.get_running_loop().call_later(self._sweep_every_s, self._sweep)

    async def close(self, *, abruptly: bool = False) -> None:
        """Stop accepting and close every connection after its written bytes are sent, within half a second.

        `abruptly`: abort all connections at once.
        """
        if self._acceptor is None:
            return
        acceptor, self._acceptor = self._acceptor, None
        acceptor.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._open.close(abruptly=abruptly)
        self.budget.close()

    def _accept(self, lost: Callable[[Connection], None]) -> Connection:
        conn = Connection(self._service, lost, self.budget, self._now_ms())
        self.connections.add(conn)
        return conn

    def _sweep(self) -> None:
        now_ms = self._now_ms()
        for conn in list(self.connections):
            if conn.active:
                conn.active = False
                conn.idle_since_ms = now_ms
            idle_ms = now_ms - conn.idle_since_ms
            if conn.closed:
                if idle_ms >= LINGER_MS:
                    conn.abort()
                continue
            overdue = conn.overdue(now_ms)
            if overdue is not None:
                self.budget.closed["deadline"] += 1
                self.budget.notices.warn("deadline", f"closing {conn.peer}: {overdue}")
                conn.abort()
            elif idle_ms >= self._idle_timeout_ms and not conn.sent_within_ms(self._idle_timeout_ms):
                conn.close(f"idle for {self._idle_timeout_ms} ms")
        self._sweeper = asyncio.get_running_loop().call_later(self._sweep_every_s, self._sweep)

    @staticmethod
    def _now_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)
