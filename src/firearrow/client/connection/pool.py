"""Connection pool of a client: one connection per address, opened on demand; requests are signed if there are credentials.

A server that is about to stop responds with GO_AWAY (1500): its connection gets no more requests and is closed when those in
flight are answered; the request with that response is repeated on a new connection.

`when_open` serves senders without a task of their own: callbacks that wait for a connection run in order, before any other use
of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from firearrow.client.connection.signing import Signer
from firearrow.client.errors import BrokerError, ClosedError, ConnectionLost, RequestTimeout
from firearrow.client.lifecycle import BackgroundTasks
from firearrow.client.options import ClientOptions
from firearrow.net.channel import Channel, OnRequest
from firearrow.net.errors import RequestTimeoutError
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request, request_code, request_fields

WhenOpen = Callable[[Channel | None, ConnectionLost | None], None]

log = logging.getLogger("firearrow.client")

_LEAVE_GRACE_S: Final = 3.0


class Connections:
    """The connections of one instance. `on_open` is called with every new channel before anything is sent on it."""

    def __init__(self, options: ClientOptions, on_request: OnRequest, on_open: Callable[[Channel], None]) -> None:
        self.open: dict[str, Channel] = {}
        self.signer = Signer(options.credentials) if options.credentials is not None else None
        self._options = options
        self._on_request = on_request
        self._on_open = on_open
        self._dialling: dict[str, list[WhenOpen]] = {}
        self._tasks = BackgroundTasks()
        self._retired: set[Channel] = set()
        self._closed = False

    async def call(self, address: str, request: Request, body: bytes, timeout_ms: int) -> Command:
        """Return the response, whatever its code. RequestTimeout or ConnectionLost without a response."""
        code, fields = request_code(request), request_fields(request)
        if self.signer is not None:
            fields = self.signer.signed(fields, body)
        for last in (False, True):
            channel = await self.get(address)
            try:
                answer = await channel.request(code, fields, body, timeout_ms=timeout_ms)
            except RequestTimeoutError as error:
                raise RequestTimeout(str(error)) from None
            except ConnectionError as error:
                raise ConnectionLost(str(error)) from None
            if answer.code != ResponseCode.GO_AWAY or last:
                break
            self.retire(channel)
        return answer

    async def check(self, address: str, request: Request, body: bytes, timeout_ms: int) -> Command:
        """Return the response. BrokerError unless its code is SUCCESS."""
        answer = await self.call(address, request, body, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return answer

    async def oneway(self, address: str, request: Request, body: bytes) -> None:
        channel = await self.get(address)
        fields = request_fields(request)
        channel.oneway(request_code(request), fields if self.signer is None else self.signer.signed(fields, body), body)
        await channel.wait_for_capacity()

    async def get(self, address: str) -> Channel:
        """Return an open channel. ConnectionLost if the connection cannot be opened."""
        channel = self.open.get(address)
        if channel is not None and not channel.closed:
            return channel
        opened: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()

        def done(channel: Channel | None, error: ConnectionLost | None) -> None:
            if opened.done():
                return
            if channel is not None:
                opened.set_result(channel)
            elif error is not None:
                opened.set_exception(ConnectionLost(str(error)))

        self.when_open(address, done)
        return await opened

    def when_open(self, address: str, done: WhenOpen) -> None:
        """Call `done` with the channel to an address once it is open, or with the error."""
        channel = self.open.get(address)
        if channel is not None and not channel.closed:
            done(channel, None)
        elif self._closed:
            done(None, ConnectionLost(f"no connection to {address}: this client has been closed"))
        elif address in self._dialling:
            self._dialling[address].append(done)
        else:
            self._dialling[address] = [done]
            self._tasks.start(self._dial(address))

    def retire(self, channel: Channel) -> None:
        """Retire a channel: close it when the requests in flight are answered."""
        if self.open.get(channel.address) is channel:
            del self.open[channel.address]
        if channel not in self._retired and not channel.closed:
            self._retired.add(channel)
            self._tasks.start(self._close_when_done(channel))

    def drop(self, address: str, reason: str) -> None:
        """Close the connection to an address that is no longer in use."""
        channel = self.open.pop(address, None)
        if channel is not None:
            channel.abandon(reason)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._tasks.cancel()
        channels = [*self.open.values(), *self._retired]
        self.open.clear()
        await asyncio.gather(*self._tasks, *(_close(channel) for channel in channels), return_exceptions=True)

    def detach_after_fork(self) -> None:
        """Disable the pool in a forked process, without touching the parent's connections."""
        self._closed = True
        for channel in (*self.open.values(), *self._retired):
            channel.detach_after_fork()

    async def _dial(self, address: str) -> None:
        channel, error = None, None
        try:
            channel = await Channel.connect(
                address,
                timeout_ms=self._options.connect_timeout_ms,
                on_request=self._on_request,
                on_close=self._lost,
                tls=self._options.tls_context(),
                language=self._options.language,
                cut_when_silent=True,
            )
        except (OSError, ValueError) as problem:
            error = ConnectionLost(str(problem))
        except asyncio.CancelledError:
            error = ConnectionLost(f"no connection to {address}: this client was closed")
            raise
        finally:
            waiting = self._dialling.pop(address)
            if channel is not None:
                self.open[address] = channel
                log.debug("connected to %s", address)
                self._on_open(channel)
            for done in waiting:
                done(channel, error)

    async def _close_when_done(self, channel: Channel) -> None:
        log.info("%s is about to stop; its connection is retired", channel.address)
        try:
            async with asyncio.timeout(_LEAVE_GRACE_S):
                while channel.in_flight:  # noqa: ASYNC110 (rare; an event would cost time per request)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pass
        finally:
            self._retired.discard(channel)
            channel.abandon("the server is about to stop")

    def _lost(self, channel: Channel) -> None:
        if self.open.get(channel.address) is channel:
            del self.open[channel.address]
            log.info("connection to %s closed", channel.address)


def closed_error(what: str) -> ClosedError:
    """Return the error for the use of a client outside start and close."""
    return ClosedError(f"the {what} is not running: it was not started or has been closed; use `with` or call start() first")


async def _close(channel: Channel) -> None:
    """Close a channel, even if the server has stopped reading."""
    try:
        async with asyncio.timeout(_LEAVE_GRACE_S):
            await channel.close()
    except TimeoutError:
        channel.cut("the server did not read the data written")
