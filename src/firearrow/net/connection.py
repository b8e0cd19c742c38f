"""One accepted connection of the remoting protocol.

Both peers can send requests. The peer's requests go to the service in order of arrival, all complete frames of a read at once.
Responses to our own requests are matched here by opaque number; the service never sees a response.

Costs and limits
- `write` is the transport's own method, without a layer in between. It is replaced when the connection fills up or ends, so call
  it through the connection each time and do not keep a reference.
- `write_file` makes the system copy from a file to the socket, without a copy in our memory: pulls of large messages cost a
  quarter less. It bypasses the transport and therefore only works while the transport's buffer is empty.
- There is no timer per read. A read sets a flag, and a sweep (net/server.py) checks the flags every few seconds.
- When more than `write_high` bytes wait to be sent, the connection is full: nothing is read and no request is served until fewer
  than `write_low` wait. A peer that sends requests but does not read responses delays only itself. A service that writes large
  responses checks `must_wait` before each and returns the remaining requests. The requests of one read are served SLICE at a
  time, and other connections have their turn in between, because a read can contain thousands of pulls. When more than half of
  the budget waits (responses to parked requests), the connection is aborted.
- A connection reports incomplete requests and unread responses to the budget of all connections (budget.py) once per read and
  only above a few KB, so small messages cost two comparisons per read.

Invalid frames end this connection only; complete frames before them are still served.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from firearrow.net.address import format_address, unmapped
from firearrow.net.budget import SMALL, ConnectionBudget
from firearrow.net.errors import ConnectionLostError, RequestTimeoutError
from firearrow.net.limits import Limits
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import Command, FrameDecoder, encode_request
from firearrow.wire.message_ids import host_bytes

SLICE = 64
LARGE_RESPONSE = SMALL  # bytes from which a service reports a response
_SHORT = 4096  # bytes of an incomplete request that are not worth counting
_SILENT, _WAITING, _SERVED = range(3)  # no request so far; none, or one, since the last sweep

log = logging.getLogger("firearrow.net")

_MAX_OPAQUE = 0x7FFFFFFF
_CAN_SEND_FILES = hasattr(os, "sendfile") and hasattr(socket, "MSG_MORE")
# Linux struct tcp_info: eight single bytes, then 32-bit words; tcpi_last_data_sent (ms ago) is the tenth of those.
_LAST_DATA_SENT = struct.Struct("=44xI")


class Service(Protocol):
    """The handler of a listener's connections. Its methods are called on the event loop and must not block."""

    def connected(self, conn: Connection) -> None: ...

    def received(self, conn: Connection, commands: list[Command]) -> list[Command] | None:
        """Handle requests (never responses) in order of arrival. Responses go to `conn.write`, now or later, in any order.

        Returns the requests that are left if the first ones took long, or if the connection must wait. They are passed again
        after other connections had a turn. An empty list says that the last one took long: nothing is read until then.
        """

    def disconnected(self, conn: Connection) -> None:
        """Handle the end of a connection. Called once for every `connected`."""


class Connection(asyncio.Protocol):
    __slots__ = (
        "_budget",
        "_feed",
        "_frame_since_ms",
        "_held",
        "_incoming",
        "_loop",
        "_lowered",
        "_next_opaque",
        "_on_lost",
        "_outgoing",
        "_partial",
        "_pending",
        "_progress",
        "_reading",
        "_received",
        "_service",
        "_socket",
        "_throttled",
        "_transport",
        "_turn_scheduled",
        "_unsent",
        "active",
        "binary",
        "closed",
        "full",
        "idle_since_ms",
        "peer_host",
        "peer_ip",
        "peer_port",
        "state",
        "takes_files",
        "write",
    )

    write: Callable[[bytes], None]

    def __init__(
        self,
        service: Service,
        on_lost: Callable[[Connection], None] | None = None,
        budget: ConnectionBudget | None = None,
        now_ms: int = 0,
    ) -> None:
        self.peer_ip = "0.0.0.0"
        self.peer_port = 0
        self.peer_host = b"\0" * 8
        self.state: Any = None  # belongs to the service
        self.closed = False
        self.binary = False  # header type last seen from the peer; our own requests use it
        self.active = True  # data was received since the last idle sweep
        self.idle_since_ms = now_ms
        self.full = False  # the peer does not read: reading from it and serving its requests is suspended
        self.takes_files = False  # whether `write_file` may be called
        self.write = _discard
        self._service = service
        self._received = service.received
        self._on_lost = on_lost
        self._budget = budget or ConnectionBudget(Limits())
        decoder = FrameDecoder()
        self._feed = decoder.feed
        self._partial = decoder.partial
        self._incoming = self._outgoing = 0  # bytes that the budget knows of
        self._unsent: Callable[[], int] = _nothing
        self._progress = _SILENT
        self._frame_since_ms = now_ms  # when the current request began, or no request was incomplete; to a sweep
        self._pending: dict[int, tuple[asyncio.Future[Command], asyncio.TimerHandle]] = {}
        self._reading = True
        self._throttled = False  # by the budget
        self._lowered = False  # the write limits are those of a budget that is nearly used up
        self._held: list[Command] = []  # requests that were read and wait for their turn
        self._turn_scheduled = False
        self._next_opaque = 1  # some clients take 0 for "unset"
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None  # shares the transport's descriptor; created by the first `write_file`

    def __repr__(self) -> str:
        return f"<Connection {self.peer}{' closed' if self.closed else ''}>"

    @property
    def peer(self) -> str:
        return format_address(self.peer_ip, self.peer_port)

    @property
    def is_silent(self) -> bool:
        """Return whether the peer has not sent a complete request yet."""
        return self._progress == _SILENT

    @property
    def unsent_bytes(self) -> int:
        return self._unsent()

    def request(
        self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"", *, timeout_ms: int = 3_000
    ) -> asyncio.Future[Command]:
        """Send a request to the peer. The future returns the response or raises RequestTimeoutError or ConnectionLostError."""
        future: asyncio.Future[Command] = self._loop.create_future()
        if self.closed:
            future.set_exception(ConnectionLostError(f"connection to {self.peer} is closed; request {code} was not sent"))
            return future
        opaque = self._take_opaque()
        timer = self._loop.call_later(timeout_ms / 1000, self._timed_out, opaque, code, timeout_ms)
        self._pending[opaque] = (future, timer)
        self.active = True
        self.write(encode_request(code, ext or {}, body, opaque=opaque, binary=self.binary))
        return future

    def notify(self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"") -> None:
        """Send a one-way request to the peer. Does nothing on a closed connection."""
        if not self.closed:
            self.active = True
            self.write(encode_request(code, ext or {}, body, opaque=self._take_opaque(), oneway=True, binary=self.binary))

    def write_file(self, head: bytes, descriptor: int, position: int, size: int) -> None:
        """Write `head` and `size` bytes of a file, which must exist, as one frame."""
        transport = self._transport
        if transport is None or self.closed:
            return
        try:
            sent = self._send_file(transport, head, descriptor, position, size) if not transport.get_write_buffer_size() else 0
            if sent < len(head) + size:
                got = max(sent - len(head), 0)
                rest = os.pread(descriptor, size - got, position + got)
                if len(rest) != size - got:
                    raise OSError(errno.EIO, f"the file has {len(rest)} bytes at {position + got}, expected {size - got}")
                self.write(head[sent:] + rest)
            self.note_response(size)
        except ConnectionError:
            self.abort()
        except OSError as error:
            log.warning("aborting connection to %s, whose response cannot be read from the file: %s", self.peer, error)
            self.abort()  # part of the frame may have been sent

    @property
    def must_wait(self) -> bool:
        """Return whether no large response may be written now, because the peer, or many peers, do not read."""
        return self.full or self._budget.is_exhausted

    def serve_later(self, request: Command) -> None:
        """Pass a request to the service again when the connection no longer must wait."""
        self._held.append(request)
        self._update_reading()
        if not self.full:
            self._schedule_turn()

    def serve_held(self) -> None:
        """Serve requests that waited for the budget."""
        if self._held and not self._turn_scheduled:
            self._serve_held()

    def note_response(self, size: int) -> None:
        """Report a response of more than `LARGE_RESPONSE` bytes that was just written."""
        self._budget.note_response(size)
        self._count_unsent()

    def throttle(self, *, on: bool) -> None:
        """Stop or continue reading, at the request of the budget."""
        self._throttled = on
        self._update_reading()

    def overdue(self, now_ms: int) -> str | None:
        """Return why the connection must be aborted, if a deadline has passed. Called by the sweep."""
        limits = self._budget.limits
        if self._progress == _SERVED:
            self._progress = _WAITING
            self._frame_since_ms = now_ms
        elif not self._reading or (self._progress == _WAITING and not self._partial):
            self._frame_since_ms = now_ms
        elif now_ms - self._frame_since_ms >= limits.frame_timeout_ms:
            return f"no complete request arrived within {limits.frame_timeout_ms} ms"
        if self.full or self._outgoing:
            self._count_unsent()
            since_s = self._budget.unread_since_s(self)
            if since_s is not None and (self._loop.time() - since_s) * 1000 >= limits.write_timeout_ms:
                return f"its {self._unsent()} bytes of responses were not read within {limits.write_timeout_ms} ms"
        return None

    def close(self, reason: str) -> None:
        """Close the connection after sending what was written. `disconnected` follows."""
        if self.closed:
            return
        log.debug("closing connection to %s: %s", self.peer, reason)
        self._end(f"connection to {self.peer} was closed: {reason}")
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._end(f"connection to {self.peer} was aborted")
        if self._transport is not None:
            self._transport.abort()

    def sent_within_ms(self, window_ms: int) -> bool:
        """Return whether the system has sent data within the window. Costs a system call: for sweeps only."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None or not hasattr(socket, "TCP_INFO"):
            return False
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_SENT.size)
        except OSError:
            return False
        return len(info) == _LAST_DATA_SENT.size and _LAST_DATA_SENT.unpack(info)[0] < window_ms

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(self._budget.limits.write_high, self._budget.limits.write_low)
        self._transport = stream
        self._unsent = stream.get_write_buffer_size
        self.write = stream.write
        self.takes_files = _CAN_SEND_FILES and _is_plain_socket(stream)
        name = stream.get_extra_info("peername")
        if name:  # None if the peer has already disconnected
            self.peer_ip, self.peer_port = unmapped(name[0]), name[1]
            self.peer_host = host_bytes(self.peer_ip, self.peer_port)
        try:
            self._service.connected(self)
        except Exception:
            log.exception("closing connection to %s: the service rejected it", self.peer)
            self.close("internal error")

    def data_received(self, data: bytes) -> None:
        self.active = True
        try:
            commands = self._feed(data)
        except ProtocolError as error:
            log.warning("closing connection to %s: %s", self.peer, error)
            if error.commands:
                self._dispatch(error.commands, at_once=True)
            self.close("broken frame")
            return
        if (self._partial and len(self._partial) > _SHORT) or self._incoming:
            self._count_incoming(new_request=bool(commands))
        if commands:
            self._dispatch(commands)

    def pause_writing(self) -> None:
        if self._transport is not None and not self.closed:
            log.debug("%s does not read its responses; reading from it is paused", self.peer)
            self.full = True
            self.write = self._write_while_full
            self._update_reading()
            self._count_outgoing(self._unsent())

    def resume_writing(self) -> None:
        if self._transport is not None and not self.closed:
            self.write = self._transport.write
            self.full = False
            if self._lowered:
                self._lowered = False
                self._transport.set_write_buffer_limits(self._budget.limits.write_high, self._budget.limits.write_low)
            self._outgoing = 0
            self._budget.outgoing_complete(self)
            if self._held and not self._turn_scheduled:
                self._serve_held()
            else:
                self._update_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"connection to {self.peer} was lost" + (f": {exc}" if exc else ""))
        self._unsent = _nothing
        self._partial.clear()
        self._budget.forget(self)
        try:
            self._service.disconnected(self)
        finally:
            if self._on_lost is not None:
                self._on_lost(self)

    # Internals

    def _send_file(self, transport: asyncio.Transport, head: bytes, descriptor: int, position: int, size: int) -> int:
        """Send as much of both as the system accepts now. Return the number of bytes."""
        sock = self._socket
        if sock is None:
            sock = self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())
        sent = 0
        try:
            sent = sock.send(head, socket.MSG_MORE)  # sent together with the file bytes
            if sent == len(head):
                sent += os.sendfile(sock.fileno(), descriptor, position, size)
        except BlockingIOError:
            return sent
        return sent

    def _update_reading(self) -> None:
        """Read from the peer unless it does not read its responses, has requests waiting, is throttled, or has had its turn."""
        wanted = not (self.full or self._held or self._throttled or self._turn_scheduled)
        if wanted != self._reading and self._transport is not None and not self.closed:
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _count_incoming(self, *, new_request: bool) -> None:
        size = self._incoming = len(self._partial)
        if size:
            self._budget.note_incoming(self, size, new_request=new_request)
        else:
            self._budget.incoming_complete(self)

    def _count_outgoing(self, size: int) -> None:
        """Report unread responses. If all connections together have too many, this one is full sooner."""
        if size <= SMALL and not self.full:
            self._outgoing = 0
            self._budget.outgoing_complete(self)
            return
        self._outgoing = size
        if self._budget.note_outgoing(self, size) and not self._lowered and self._transport is not None and not self.closed:
            self._lowered = True
            self._transport.set_write_buffer_limits(SMALL, SMALL // 4)  # calls `pause_writing`

    def _dispatch(self, commands: list[Command], *, at_once: bool = False) -> None:
        self._progress = _SERVED
        self.binary = commands[-1].binary
        for command in commands:
            if command.flag & 1:
                commands = self._without_responses(commands)
                if not commands:
                    return
                break
        if at_once or (len(commands) <= SLICE and not self._held):
            left = self._serve(commands)
            while left and at_once:
                left = self._serve(left)
            if left is None or self.closed:
                return
            if left:
                self._hold(left)
                self._schedule_turn()
            else:
                self._end_turn()
            return
        self._hold(commands)
        self._serve_held()

    def _hold(self, commands: list[Command]) -> None:
        """Keep requests for a later turn, and read no more until they are served."""
        self._held += commands
        self._update_reading()

    def _schedule_turn(self) -> None:
        """Serve held requests after other connections had a turn, or when the budget allows it."""
        if self._budget.is_exhausted:
            self._budget.wait(self)
        elif not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _end_turn(self) -> None:
        """Read no more until other connections had a turn. uvloop reads a connection up to 32 times before it turns to others."""
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._next_turn)
        self._update_reading()

    def _serve_held(self) -> None:
        """Serve one slice of the held requests and yield to other connections. Resume reading when none is left."""
        if self.full or self.closed:
            return
        commands = self._held[:SLICE]
        del self._held[:SLICE]
        left = self._serve(commands)
        if left and not self.closed:
            self._held[:0] = left
        if self._held:
            self._schedule_turn()
        else:
            self._update_reading()

    def _next_turn(self) -> None:
        self._turn_scheduled = False
        if self._held:
            self._serve_held()
        else:
            self._update_reading()

    def _serve(self, commands: list[Command]) -> list[Command] | None:
        """Pass requests to the service. Return those that are left for another turn."""
        try:
            left = self._received(self, commands)
        except Exception:
            log.exception("closing connection to %s: serving request codes %s failed", self.peer, [c.code for c in commands[:16]])
            self.close("internal error")
            left = None
        if self._unsent() > SMALL or self._outgoing:  # as in `_count_unsent`, without the call, for every read
            self._count_outgoing(self._unsent())
        return left

    def _count_unsent(self) -> None:
        size = self._unsent()
        if size > SMALL or self._outgoing:
            self._count_outgoing(size)

    def _without_responses(self, commands: list[Command]) -> list[Command]:
        requests = []
        for command in commands:
            if not command.flag & 1:
                requests.append(command)
                continue
            asked = self._pending.pop(command.opaque, None)
            if asked is None:
                log.debug("%s sent a response with opaque %d, for which no request is pending", self.peer, command.opaque)
                continue
            future, timer = asked
            timer.cancel()
            if not future.done():
                future.set_result(command)
        return requests

    def _take_opaque(self) -> int:
        opaque = self._next_opaque
        self._next_opaque = opaque + 1 if opaque < _MAX_OPAQUE else 1
        return opaque

    def _timed_out(self, opaque: int, code: int, timeout_ms: int) -> None:
        future, _ = self._pending.pop(opaque)
        if not future.done():
            future.set_exception(RequestTimeoutError(f"{self.peer} did not answer request {code} within {timeout_ms} ms"))

    def _write_while_full(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        size, limit = transport.get_write_buffer_size() + len(data), self._budget.limits.outgoing_bytes // 2
        if size > limit:
            text = f"aborting connection to {self.peer}: more than {limit} bytes, half of maxOutgoingBytes, wait to be read by it"
            self._budget.notices.warn("unread", text)
            self.abort()
        else:
            transport.write(data)
            self._count_outgoing(size)

    def _end(self, why: str) -> None:
        """Mark the connection closed and fail the pending requests."""
        self.closed = True
        self.takes_files = False
        if self._socket is not None:
            self._socket.detach()  # the transport owns and closes the descriptor
            self._socket = None
        self.write = _discard
        self._held = []
        pending, self._pending = self._pending, {}
        for future, timer in pending.values():
            timer.cancel()
            if not future.done():
                future.set_exception(ConnectionLostError(why))


def _is_plain_socket(transport: asyncio.Transport) -> bool:
    """Return whether written bytes reach a socket unchanged."""
    return transport.get_extra_info("socket") is not None and transport.get_extra_info("ssl_object") is None


def _nothing() -> int:
    return 0


def _discard(data: bytes) -> None:
    """Replace `write` on a closed connection."""
