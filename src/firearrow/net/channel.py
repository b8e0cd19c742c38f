"""Client side of the remoting protocol: a connection to a server.

`Channel.connect` dials once. The owner replaces a closed channel, because only the owner knows whether the address is still
valid. A closed channel fails every pending request with an error that names the peer.

Costs
- A request is a frame in a list, which is written once per event-loop iteration, and a waiter in a table.
- One timer serves all requests. It is set to the earliest known deadline; when it fires, the table is scanned once. Requests that
  are answered in time, nearly all of them, do not touch it.
- `call` creates a future per request. Heavy senders pass their own waiter to `submit` (see `Waiter`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from firearrow.net import in_process
from firearrow.net.address import parse_address
from firearrow.net.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import FLAG_ONEWAY, Command, FrameDecoder, encode_command, encode_response
from firearrow.wire.header_schema import Request, request_code, request_fields

if TYPE_CHECKING:
    from ssl import SSLContext

    from firearrow.wire.signature import RequestSigner

CONNECT_TIMEOUT_MS = 3_000
CALL_TIMEOUT_MS = 3_000
WRITE_HIGH = 4 * 1024 * 1024
WRITE_LOW = 1 * 1024 * 1024

OnRequest = Callable[["Channel", Command], None]
OnClose = Callable[["Channel"], None]

log = logging.getLogger("firearrow.net")

_MAX_OPAQUE: Final = 0x7FFFFFFF
_NEVER: Final = float("inf")


class Waiter(Protocol):
    """The receiver of the response to one request. Exactly one method is called, on the event loop, and must not raise."""

    deadline: float  # in event-loop time

    def answered(self, answer: Command) -> None: ...

    def timed_out(self) -> None: ...

    def lost(self, error: ConnectionLostError) -> None:
        """Handle the end of the connection. The request may or may not have been processed."""


class Channel(asyncio.Protocol):
    """A client connection. Use `await Channel.connect(...)`; a channel from the constructor is closed."""

    def __init__(
        self,
        address: str,
        on_request: OnRequest | None = None,
        on_close: OnClose | None = None,
        language: str = "JAVA",
        cut_when_silent: bool = False,
        signer: RequestSigner | None = None,
    ) -> None:
        self.address = address
        self.closed = True
        self.language = language
        self._cut_when_silent = cut_when_silent
        self._signer = signer
        self._heard = True  # data was received since the last request timeout
        self._on_request = on_request
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._feed = FrameDecoder().feed
        self._pending: dict[int, Waiter] = {}
        self._opaque = 0
        self._out: list[bytes] = []  # frames of this event-loop iteration
        self._soonest = _NEVER  # the earliest deadline
        self._timer: asyncio.TimerHandle | None = None
        self._why = f"channel to {address} was never connected"
        self._ended = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        on_request: OnRequest | None = None,
        on_close: OnClose | None = None,
        tls: SSLContext | None = None,
        language: str = "JAVA",
        cut_when_silent: bool = False,
        signer: RequestSigner | None = None,
    ) -> Channel:
        """Dial `host:port`. `on_request` receives the server's requests; without it they are answered with code 3.

        With `cut_when_silent` the channel is closed when a request times out and nothing was received since the first pending
        request was sent: a network that drops everything looks like this, and only a new connection helps. `signer` signs the
        requests given as header or fields.
        """
        host, port = parse_address(address)
        channel = cls(address, on_request, on_close, language, cut_when_silent, signer)
        loop = asyncio.get_running_loop()
        here = in_process.listener(address)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if here is not None:
                    await here.connect(lambda: channel)
                elif tls is None:
                    await loop.create_connection(lambda: channel, host, port)
                else:
                    name = host if tls.check_hostname else ""
                    await loop.create_connection(lambda: channel, host, port, ssl=tls, server_hostname=name)
        except TimeoutError as error:
            raise ConnectError(f"no connection to {address} within {timeout_ms} ms") from error
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and not getattr(error, "reason", None) else str(error)
            raise ConnectError(f"no connection to {address}: {why}") from error
        return channel

    def __repr__(self) -> str:
        return f"<Channel {self.address}{' closed' if self.closed else ''}>"

    @property
    def in_flight(self) -> int:
        """The number of pending requests."""
        return len(self._pending)

    @property
    def own_ip(self) -> str | None:
        """The local address of the connection, None if it is closed."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return str(name[0]) if name else None

    async def call(self, request: Request, body: bytes = b"", *, timeout_ms: int = CALL_TIMEOUT_MS) -> Command:
        """Return the server's response, whatever its code. Raise RequestTimeoutError or ConnectionLostError without one."""
        return await self.request(request_code(request), request_fields(request), body, timeout_ms=timeout_ms)

    def request(
        self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"", *, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> asyncio.Future[Command]:
        """Send a request given as code and fields. It is queued for sending when this returns."""
        waiter = _Call(self, code, timeout_ms)
        opaque = self.take_opaque()
        self.submit(self._encode(code, ext, body, opaque, 0), opaque, waiter)
        return waiter.future

    def submit(self, frame: bytes, opaque: int, waiter: Waiter) -> None:
        """Send a request that was encoded with an opaque number from `take_opaque`."""
        if self.closed:
            waiter.lost(ConnectionLostError(f"{self._why}; the request was not sent"))
            return
        if not self._pending:
            self._heard = False
        self._pending[opaque] = waiter
        if waiter.deadline < self._soonest:
            self._set_timer(waiter.deadline)
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        out.append(frame)

    def take_opaque(self) -> int:
        opaque = self._opaque + 1 if self._opaque < _MAX_OPAQUE else 1
        self._opaque = opaque
        return opaque

    def oneway(self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"") -> None:
        """Send a one-way request. Does nothing on a closed channel."""
        self.write(self._encode(code, ext, body, self.take_opaque(), FLAG_ONEWAY))

    def answer(self, frame: bytes) -> None:
        """Send a response (from `encode_response`) to a request of the server."""
        self.write(frame)

    def write(self, frame: bytes) -> None:
        """Send a frame without awaiting a response."""
        if not self.closed:
            if not self._out:
                self._loop.call_soon(self._flush)
            self._out.append(frame)

    async def wait_for_capacity(self) -> None:
        """Wait until the write buffer has drained below its limit."""
        await self._drained.wait()

    def abandon(self, reason: str) -> None:
        """Close the channel without waiting for it."""
        if not self.closed:
            self._flush()
            self._end(f"connection to {self.address} was closed: {reason}")
            if self._transport is not None:
                self._transport.close()

    def cut(self, reason: str) -> None:
        """Abort the connection without sending what was written."""
        self._end(f"connection to {self.address} was cut: {reason}")
        if self._transport is not None:
            self._transport.abort()

    async def close(self, reason: str = "closed by its owner") -> None:
        self.abandon(reason)
        if self._transport is not None:
            await self._ended.wait()

    def detach_after_fork(self) -> None:
        """Abandon the socket in a forked process, because it belongs to the parent.

        The descriptor is redirected to /dev/null and stays open: the copy of the parent's transport knows its number and would
        otherwise close an unrelated file that reuses it.
        """
        self.closed = True
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is not None and sock.fileno() >= 0:
            devnull = os.open(os.devnull, os.O_RDWR)
            os.dup2(devnull, sock.fileno())
            os.close(devnull)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(WRITE_HIGH, WRITE_LOW)
        self._transport = stream
        self.closed = False

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            commands = self._feed(data)
        except ProtocolError as error:
            log.warning("closing connection to %s: %s", self.address, error)
            self._take(error.commands)
            self.cut(f"it sent an invalid frame: {error}")
            return
        self._take(commands)

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"connection to {self.address} was lost" + (f": {exc}" if exc else ""))
        self._ended.set()
        if self._on_close is not None:
            self._on_close(self)

    # Internals

    def _take(self, commands: list[Command]) -> None:
        pending = self._pending
        for command in commands:
            if command.flag & 1:
                waiter = pending.pop(command.opaque, None)
                if waiter is not None:
                    waiter.answered(command)
                else:
                    log.debug("%s sent a response with opaque %d, for which no request is pending", self.address, command.opaque)
            elif self._on_request is not None:
                try:
                    self._on_request(self, command)
                except Exception:
                    log.exception("handling request %d of %s failed", command.code, self.address)
            elif not command.is_oneway:
                remark = f"request type {command.code} not supported"
                self.write(encode_response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))

    def _encode(self, code: int, ext: Mapping[str, Any] | None, body: bytes, opaque: int, flag: int) -> bytes:
        if self._signer is not None:
            ext = self._signer.signed(ext or {}, body)
        return encode_command(Command(code, opaque, flag, self.language, ext=dict(ext) if ext else None, body=body))

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None:
            self._out = []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._soonest = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._soonest = _NEVER
        now = self._loop.time()
        due = [opaque for opaque, waiter in self._pending.items() if waiter.deadline <= now]
        waiters = [self._pending.pop(opaque) for opaque in due]
        if self._pending:
            self._set_timer(min(waiter.deadline for waiter in self._pending.values()))
        for waiter in waiters:
            waiter.timed_out()
        if waiters and not self._heard and self._cut_when_silent:
            self.cut("it neither answered nor sent anything else")
        self._heard = False

    def _end(self, why: str) -> None:
        """Mark the channel closed and fail the pending requests."""
        if self.closed:
            return
        self.closed = True
        self._why = why
        self._out = []
        self._drained.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        for waiter in pending.values():
            waiter.lost(ConnectionLostError(why))


class _Call:
    """The waiter of `request`."""

    __slots__ = ("_address", "_code", "_timeout_ms", "deadline", "future")

    def __init__(self, channel: Channel, code: int, timeout_ms: int) -> None:
        loop = channel._loop
        self.future: asyncio.Future[Command] = loop.create_future()
        self.deadline = loop.time() + timeout_ms / 1000
        self._address = channel.address
        self._code = code
        self._timeout_ms = timeout_ms

    def answered(self, answer: Command) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def timed_out(self) -> None:
        if not self.future.done():
            why = f"{self._address} did not answer request {self._code} within {self._timeout_ms} ms"
            self.future.set_exception(RequestTimeoutError(why))

    def lost(self, error: ConnectionLostError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
