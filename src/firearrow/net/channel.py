"""The asking side: a connection to a server.

`Channel.connect` dials once; making a new channel after this one has closed is the caller's business, because only the caller
knows whether the address is still the right one. A closed channel fails every waiting call with an error that names the peer.

Costs
- A request is one frame in a list, which is written as one at the end of the loop's turn, and one waiter in a table.
- There is one timer for all requests: it is set to the earliest deadline known, and when it comes the table is looked through
  once. Requests that are answered in time, which is nearly all, never touch it.
- `call` makes a future for each request. Whoever sends very many gives a waiter of its own to `submit` (see `Waiter`).
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
    """Waits for the answer to one request. Exactly one of the three is called, on the loop, and none may raise."""

    deadline: float  # in the loop's time

    def answered(self, answer: Command) -> None: ...

    def timed_out(self) -> None: ...

    def lost(self, error: ConnectionLostError) -> None:
        """The connection ended. Whether the request was acted on is unknown."""


class Channel(asyncio.Protocol):
    """Use `await Channel.connect(...)`; the constructor alone gives a channel that was never open."""

    def __init__(
        self,
        address: str,
        on_request: OnRequest | None = None,
        on_close: OnClose | None = None,
        language: str = "JAVA",
        cut_when_silent: bool = False,
    ) -> None:
        self.address = address
        self.closed = True
        self.language = language
        self._cut_when_silent = cut_when_silent
        self._heard = True  # something was received since the last time a request was given up
        self._on_request = on_request
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._feed = FrameDecoder().feed
        self._pending: dict[int, Waiter] = {}
        self._opaque = 0
        self._out: list[bytes] = []  # frames of this turn of the loop
        self._soonest = _NEVER  # no waiter has an earlier deadline
        self._timer: asyncio.TimerHandle | None = None
        self._why = f"channel to {address} was never connected"
        self._ended = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

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
    ) -> Channel:
        """Dials `host:port`. `on_request` gets what the server asks of us (without it, code 3 is the answer).

        With `cut_when_silent` a channel is closed when a request is not answered in time and nothing else was heard since the
        first of those that wait was sent: a network that swallows everything looks like that, and only a new connection helps.
        """
        host, port = parse_address(address)
        channel = cls(address, on_request, on_close, language, cut_when_silent)
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
        """How many requests have not been answered."""
        return len(self._pending)

    @property
    def own_ip(self) -> str | None:
        """The address that the server sees, unless something in between changes it."""
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
        """Sends a request that was encoded with an opaque number taken from `take_opaque`."""
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
        """Tells the server. Nothing happens on a closed channel."""
        self.write(self._encode(code, ext, body, self.take_opaque(), FLAG_ONEWAY))

    def answer(self, frame: bytes) -> None:
        """Sends a response (encoded by wire's `encode_response`) to a request that came from the server."""
        self.write(frame)

    def write(self, frame: bytes) -> None:
        """Sends a frame to which no answer is awaited."""
        if not self.closed:
            if not self._out:
                self._loop.call_soon(self._flush)
            self._out.append(frame)

    async def room(self) -> None:
        """Returns when the server has taken enough of what was written to write more."""
        await self._room.wait()

    def abandon(self, reason: str) -> None:
        """Closes the channel and does not wait until it is closed."""
        if not self.closed:
            self._flush()
            self._end(f"connection to {self.address} was closed: {reason}")
            if self._transport is not None:
                self._transport.close()

    def cut(self, reason: str) -> None:
        """Closes the channel without waiting for what was written to be sent."""
        self._end(f"connection to {self.address} was cut: {reason}")
        if self._transport is not None:
            self._transport.abort()

    async def close(self, reason: str = "closed by its owner") -> None:
        self.abandon(reason)
        if self._transport is not None:
            await self._ended.wait()

    def detach_after_fork(self) -> None:
        """In a process that was forked: lets go of the socket without a word, since it is the parent's.

        The descriptor is made one of nothing and stays taken: the parent's transport, of which there is a copy here, knows its
        number, and whatever got that number next would be closed with it.
        """
        self.closed = True
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is not None and sock.fileno() >= 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, sock.fileno())
            os.close(nothing)

    # What the event loop calls.

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
            self.cut(f"it sent what is no frame: {error}")
            return
        self._take(commands)

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"connection to {self.address} was lost" + (f": {exc}" if exc else ""))
        self._ended.set()
        if self._on_close is not None:
            self._on_close(self)

    # Inside.

    def _take(self, commands: list[Command]) -> None:
        pending = self._pending
        for command in commands:
            if command.flag & 1:
                waiter = pending.pop(command.opaque, None)
                if waiter is not None:
                    waiter.answered(command)
                else:
                    log.debug("%s answered opaque %d, for which nobody waits any more", self.address, command.opaque)
            elif self._on_request is not None:
                try:
                    self._on_request(self, command)
                except Exception:
                    log.exception("request %d of %s could not be dealt with", command.code, self.address)
            elif not command.is_oneway:
                remark = f"request type {command.code} not supported"
                self.write(encode_response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))

    def _encode(self, code: int, ext: Mapping[str, Any] | None, body: bytes, opaque: int, flag: int) -> bytes:
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
            self.cut("it did not answer, nor say anything else")
        self._heard = False

    def _end(self, why: str) -> None:
        """Marks the channel closed; whoever waits for an answer is told why there is none."""
        if self.closed:
            return
        self.closed = True
        self._why = why
        self._out = []
        self._room.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        for waiter in pending.values():
            waiter.lost(ConnectionLostError(why))


class _Call:
    """The waiter of `call`."""

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
