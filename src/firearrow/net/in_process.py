"""Connections within one process, without sockets.

`listen` binds a service to an address. `listener(address)` finds it, and `MemoryListener.connect` connects a protocol to it
like `create_connection`. Everything above the transport behaves as over sockets: bytes arrive in order in a later event-loop
iteration, `write` is subject to the same limits and calls `pause_writing` and `resume_writing`, and a peer that does not read
delays only itself.

The two ends may run in different event loops and threads.

Generated addresses are in 127.255.0.0/16 and are never dialled over the network: without a listener the connection is refused.
Other addresses can be listened on as well.

For network tests a listener has `delay_s` (delays written bytes, in order, per direction), `tap` (sees and may change what is
written) and `refusing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from firearrow.net.address import FAST_PORT_GAP, format_address, parse_address
from firearrow.net.budget import ConnectionBudget
from firearrow.net.connection import Connection, Service
from firearrow.net.limits import Limits
from firearrow.net.server import OpenConnections

NETWORK = "127.255."
CHUNK = 256 * 1024  # maximum delivered at once, as by a socket
_FIRST_CLIENT_PORT = 32_768
_DEFAULT_HIGH = 64 * 1024

P = TypeVar("P", bound=asyncio.BaseProtocol)
Tap = Callable[["MemoryTransport", bytes], None]

_listeners: dict[str, MemoryListener] = {}
_host_numbers = itertools.count()


def listen(service: Service, address: str, budget: ConnectionBudget | None = None) -> MemoryListener:
    """Listen on an address in the running event loop. Raises OSError if the address is in use."""
    host, port = parse_address(address)
    if address in _listeners:
        raise OSError(errno.EADDRINUSE, f"cannot listen on {address}: the address is in use in this process")
    found = _listeners[address] = MemoryListener(service, host, port, budget or ConnectionBudget(Limits()))
    return found


def listener(address: str) -> MemoryListener | RefusedAddress | None:
    """Return the listener on an address. None: no listener in this process, and the address may be a real one."""
    found = _listeners.get(address)
    if found is None and address.startswith(NETWORK):
        return RefusedAddress(address)
    return found


async def serve(
    service: Service, host: str, port: int, *, idle_timeout_ms: int = 0, tls: object = None, limits: object = None
) -> MemoryListener:
    """Listen like net.server.serve, without idle timeout, TLS and configurable limits."""
    return listen(service, format_address(host, port))


def free_host() -> str:
    """Return a host without listeners that was not returned recently."""
    taken = {address.rpartition(":")[0] for address in _listeners}
    while True:
        number = next(_host_numbers) % 65_534 + 1
        host = f"{NETWORK}{number >> 8}.{number & 255}"
        if host not in taken:
            return host


class RefusedAddress:
    """An address without a listener: connecting fails."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def connect(self, protocol_factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        raise _refused(self.address)


class MemoryPair:
    """A broker's two ports (net.server.Ports)."""

    def __init__(self, host: str, port: int) -> None:
        self.port = port
        self.listeners: list[MemoryListener] = []
        self._host = host

    @property
    def connections(self) -> set[Connection]:
        return {conn for listener in self.listeners for conn in listener.connections}

    @property
    def budget(self) -> ConnectionBudget:
        return self.listeners[0].budget

    async def serve(self, service: Service, *, idle_timeout_ms: int, tls: object = None, limits: object = None) -> None:
        budget = ConnectionBudget(Limits())
        for port in (self.port, self.port - FAST_PORT_GAP):
            self.listeners.append(listen(service, format_address(self._host, port), budget))

    async def close(self, *, abruptly: bool = False) -> None:
        for listener in self.listeners:
            await listener.close(abruptly=abruptly)


class MemoryListener:
    """A listener with the interface of net.server.Listener. It does not close idle connections, which cost nothing."""

    def __init__(self, service: Service, host: str, port: int, budget: ConnectionBudget) -> None:
        self.host = host
        self.port = port
        self._open = OpenConnections()
        self.connections = self._open.all
        self.transports: set[MemoryTransport] = set()  # both ends of every connection
        self.tap: Tap | None = None  # replaces `deliver`, which it calls for bytes that are to arrive
        self.delay_s = {True: 0.0, False: 0.0}  # between write and arrival, by `to_server`
        self.refusing = False
        self.budget = budget
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._next_client_port = _FIRST_CLIENT_PORT

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)

    async def connect(self, protocol_factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        """Connect a protocol of the running event loop to the service."""
        loop = asyncio.get_running_loop()
        protocol = protocol_factory()
        near = MemoryTransport(self, protocol, loop, to_server=True)
        if loop is self._loop:
            self._accept(near)
        else:
            accepting = asyncio.run_coroutine_threadsafe(self._accept_from_elsewhere(near), self._loop)
            await asyncio.wrap_future(accepting)
        protocol.connection_made(near)
        near.begin()
        return near, protocol

    async def close(self, *, abruptly: bool = False) -> None:
        """Stop listening and close every connection after delivering what was written. `abruptly`: abort all connections."""
        if _listeners.get(self.address) is self:
            del _listeners[self.address]
        await self._open.close(abruptly=abruptly)

    def cut(self) -> int:
        """Abort every connection, like a broken network. Return their number. New connections are possible."""
        return self._open.abort()

    def _accept(self, near: MemoryTransport) -> None:
        if self.refusing or _listeners.get(self.address) is not self:
            raise _refused(self.address)
        conn = Connection(self._service, self._open.lost, self.budget)
        far = MemoryTransport(self, conn, self._loop, to_server=False)
        port = self._next_client_port
        self._next_client_port = port + 1 if port < 65_535 else _FIRST_CLIENT_PORT
        near.join(far, own=(self.host, port), other=(self.host, self.port))
        far.join(near, own=(self.host, self.port), other=(self.host, port))
        self.connections.add(conn)
        self.transports |= {near, far}
        conn.connection_made(far)
        far.begin()

    async def _accept_from_elsewhere(self, near: MemoryTransport) -> None:
        self._accept(near)


class MemoryTransport(asyncio.Transport):
    """One end of a connection. Written bytes wait in the peer's inbox until the peer's event loop delivers them.

    Each counter is written by one side only, so two threads need no lock. An inbox is a deque; the number of waiting bytes is the
    difference between written and taken. A turn is requested after bytes were added and cleared before they are read.
    """

    def __init__(
        self, owner: MemoryListener, protocol: asyncio.BaseProtocol, loop: asyncio.AbstractEventLoop, *, to_server: bool
    ) -> None:
        super().__init__()
        self.listener = owner
        self.to_server = to_server  # direction of the bytes written here
        self._protocol: Any = protocol
        self._loop = loop
        self._peer: MemoryTransport | None = None
        self._names: dict[str, Any] = {}
        self._inbox: deque[tuple[float, bytes | None]] = deque()  # (arrival time, bytes); None is the end
        self._written = 0  # by this end
        self._taken = 0  # by this end's protocol
        self._high, self._low = _DEFAULT_HIGH, _DEFAULT_HIGH // 4
        self._begun = self._turn_requested = self._reading_paused = self._writing_paused = False
        self._closing = self._lost = False

    # For the listener and taps

    def join(self, peer: MemoryTransport, *, own: tuple[str, int], other: tuple[str, int]) -> None:
        self._peer = peer
        self._names = {"sockname": own, "peername": other}

    def begin(self) -> None:
        """Start delivery, after the protocol was told of its connection."""
        self._begun = True
        if self._inbox:
            self._request_turn()

    def deliver(self, data: bytes) -> None:
        """Send bytes to the peer, bypassing the tap."""
        peer = self._peer
        if peer is None or self._lost or not data:
            return
        delay_s = self.listener.delay_s[self.to_server]
        self._written += len(data)
        peer._inbox.append((self._loop.time() + delay_s if delay_s else 0.0, bytes(data)))
        peer._request_turn()
        if not self._writing_paused and self._written - peer._taken > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    # asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing:
            return
        if self.listener.tap is None:
            self.deliver(bytes(data))
        else:
            self.listener.tap(self, bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._closing or self._peer is None:
            return
        self._closing = True
        delay_s = self.listener.delay_s[self.to_server]
        self._peer._inbox.append((self._loop.time() + delay_s if delay_s else 0.0, None))
        self._peer._request_turn()
        self._loop.call_soon(self._end, None)

    def abort(self) -> None:
        self._closing = True
        peer = self._peer
        self._loop.call_soon(self._end, None)
        if peer is not None:
            peer._inbox.clear()
            peer._call(peer._end, ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._names.get(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else _DEFAULT_HIGH if low is None else 4 * low
        self._low = low if low is not None else self._high // 4

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._written - self._peer._taken if self._peer is not None else 0

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        if self._inbox:
            self._request_turn()

    # Internals

    def _request_turn(self) -> None:
        """Schedule delivery after the inbox received bytes. Any thread."""
        if not self._turn_requested:
            self._turn_requested = True
            self._call(self._turn)

    def _turn(self) -> None:
        """Deliver the bytes in the inbox that are due."""
        self._turn_requested = False
        inbox = self._inbox
        if not self._begun or self._lost or self._reading_paused or not inbox:
            return
        wait_s = inbox[0][0] - self._loop.time() if inbox[0][0] else 0.0
        if wait_s > 0:
            self._turn_requested = True
            self._loop.call_later(wait_s, self._turn)
            return
        data = self._take()
        if data is None:
            self._closing = True
            self._end(None)
            return
        self._protocol.data_received(data)
        peer = self._peer
        if peer is not None and peer._writing_paused and peer.get_write_buffer_size() <= peer._low:
            peer._call(peer._resume_writing)
        if inbox:
            self._request_turn()

    def _take(self) -> bytes | None:
        """Return as much as one read would; None at the end."""
        inbox = self._inbox
        due_s, first = inbox.popleft()
        if first is None:
            return None
        pieces, size = [first], len(first)
        while inbox and not due_s and not inbox[0][0] and inbox[0][1] is not None and size + len(inbox[0][1]) <= CHUNK:
            pieces.append(inbox[0][1])
            size += len(inbox[0][1])
            inbox.popleft()
        self._taken += size
        return b"".join(pieces) if len(pieces) > 1 else first

    def _resume_writing(self) -> None:
        if self._writing_paused and not self._lost and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()

    def _end(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._closing = self._lost = True
        self._inbox.clear()
        self.listener.transports.discard(self)
        self._protocol.connection_lost(error)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function soon in this end's event loop, unless the loop is closed."""
        if self._loop is _running_loop():
            self._loop.call_soon(function, *args)
        else:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function, *args)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _refused(address: str) -> ConnectionRefusedError:
    return ConnectionRefusedError(errno.ECONNREFUSED, f"connection refused: no listener on {address} in this process")


# The event loops of these listeners run in threads, which do not survive a fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_listeners.clear)
