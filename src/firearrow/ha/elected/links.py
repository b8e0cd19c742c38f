"""The connections between the members of an elected group.

Each member listens at its address in `dLegerPeers` and dials every other. What it has to say to another goes over the connection
that it dialled; what the other says comes in over the one that the other dialled.

A frame is a uint32 length and a message (raft_messages.py). The length is checked before anything is allocated. Bytes that are no
message of this group end their connection and no other, with one line for each kind of trouble.

Messages to a member that is not connected, or whose connection does not keep up, are dropped: raft sends again what matters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from typing import Protocol, cast

from firearrow.ha.raft.messages import MAX_MESSAGE, Codec, Hello, Message
from firearrow.net.address import format_address
from firearrow.net.stream import dial
from firearrow.wire.errors import ProtocolError

CONNECT_TIMEOUT_S = 2.0
FIRST_RETRY_S = 0.05
LAST_RETRY_S = 0.2
BUFFER_BYTES = 64 * 1024 * 1024  # on their way to one member at most
UNKNOWN_S = 10.0  # after which a connection is closed on which nobody said who it is
MOST_UNKNOWN = 1024  # bytes of the first message, which says just that
_LENGTH = Struct(">I")

log = logging.getLogger("firearrow.ha.group")


class OutboundPeer:
    """Speaks to one other member; keeps a connection to it."""

    def __init__(self, member: str, address: str, connected: Callable[[OutboundPeer], None]) -> None:
        self.member = member
        self._address = address
        self._on_connected = connected
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._told = ""

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._keep_connected())

    async def stop(self, *, abruptly: bool = False) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        transport, self._transport = self._transport, None
        if transport is not None:
            if abruptly:
                transport.abort()
            else:
                transport.close()

    def send(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() + len(data) <= BUFFER_BYTES:
            transport.writelines((_LENGTH.pack(len(data)), data))

    async def _keep_connected(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            try:
                transport, ended = await dial(_Ended, self._address, CONNECT_TIMEOUT_S)
            except OSError as error:
                self._tell(f"member {self.member} at {self._address} cannot be reached: {error}; trying again")
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, LAST_RETRY_S)
                continue
            self._transport = transport
            self._on_connected(self)
            if self._told:
                log.info("member %s at %s is reached", self.member, self._address)
                self._told = ""
            retry_s = FIRST_RETRY_S
            await ended.event.wait()
            self._transport = None
            await asyncio.sleep(FIRST_RETRY_S)

    def _tell(self, text: str) -> None:
        if not self._told:
            log.warning("%s", text)
        self._told = text


class _Ended(asyncio.Protocol):
    """Nothing comes in on a dialled connection; that it ended is all there is to know."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.event.set()


class Listener(Protocol):
    """Who wants to hear what the others say."""

    def accepted(self, link: InboundPeer) -> None: ...

    def received(self, sender: str, message: Message | Hello) -> None: ...

    def read(self) -> None:
        """All messages that came at once have been received."""

    def refused(self, peer: str, reason: str) -> None: ...

    def closed(self, link: InboundPeer, member: str | None) -> None: ...


class InboundPeer(asyncio.Protocol):
    """The connection that another member dialled."""

    def __init__(self, codec: Codec, listener: Listener) -> None:
        self._codec = codec
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._wanted = _LENGTH.size
        self.member: str | None = None
        self._peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("?", 0)
        self._peer = format_address(name[0], name[1])
        self._listener.accepted(self)
        asyncio.get_running_loop().call_later(UNKNOWN_S, self._must_be_known)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._wanted:
            return
        at = 0
        try:
            while True:
                self._wanted = _LENGTH.size
                if len(buffer) - at < _LENGTH.size:
                    break
                (size,) = _LENGTH.unpack_from(buffer, at)
                most = MAX_MESSAGE if self.member is not None else MOST_UNKNOWN
                if size > most:
                    raise ProtocolError(f"a message of {size} bytes is announced, at most {most} are possible here")
                end = at + _LENGTH.size + size
                if end > len(buffer):
                    self._wanted = end - at
                    break
                sender, message = self._codec.decode(bytes(memoryview(buffer)[at + _LENGTH.size : end]))
                at = end
                if self.member not in (None, sender):
                    raise ProtocolError(f"messages of {sender} on the connection of {self.member}")
                self.member = sender
                self._listener.received(sender, message)
        except ProtocolError as error:
            self._listener.refused(self._peer, str(error))
            self.end()
            return
        del buffer[:at]
        if at:
            self._listener.read()

    def _must_be_known(self) -> None:
        if self.member is None:
            self.end()

    def end(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
            self._listener.closed(self, self.member)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._listener.closed(self, self.member)
