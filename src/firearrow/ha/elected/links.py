"""Connections between the members of an elected group.

Each member listens at its address in `dLegerPeers` and dials every other member. It sends over the connection that it dialled and
receives over those that the others dialled.

A frame is a uint32 length and a message (raft/messages.py). The length is checked before memory is allocated. Invalid bytes end
their connection only, with one log line per kind of error. With authentication (peers/), the frames are in sealed records or in
TLS, and a connection carries only messages of the member that has authenticated.

Messages to a member that is not connected, or whose connection is congested, are dropped: Raft repeats what matters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from typing import Protocol, cast

from firearrow.ha.peers.handshake import PREAMBLE
from firearrow.ha.peers.links import PeerLinks
from firearrow.ha.raft.messages import MAX_MESSAGE, Codec, Hello, Message
from firearrow.net.address import format_address
from firearrow.wire.errors import ProtocolError

CONNECT_TIMEOUT_S = 2.0
FIRST_RETRY_S = 0.05
LAST_RETRY_S = 0.2
BUFFER_BYTES = 64 * 1024 * 1024  # maximum of unsent bytes to one member
IDENTIFY_TIMEOUT_S = 10.0  # for the first message, which identifies the sender
MAX_FIRST_MESSAGE = 1024
PURPOSE = "raft"  # of the port, in the handshake
_LENGTH = Struct(">I")
(_PREAMBLE,) = _LENGTH.unpack_from(PREAMBLE)  # of a member that authenticates, read as a length

log = logging.getLogger("firearrow.ha.group")


class OutboundPeer:
    """The sending side to one other member; keeps a connection to it."""

    def __init__(self, member: str, address: str, peers: PeerLinks, connected: Callable[[OutboundPeer], None]) -> None:
        self.member = member
        self._address = address
        self._peers = peers
        self._on_connected = connected
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure_logged = False

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
        """Send a message, or drop it. Never raises: the caller is in the middle of a group commit.

        A transport that is closing is still known here until `_keep_connected` runs. uvloop's raises RuntimeError when used.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() + len(data) <= BUFFER_BYTES:
            transport.writelines((_LENGTH.pack(len(data)), data))

    async def _keep_connected(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            try:
                transport, ended = await self._peers.dial(_EndDetector, self._address, CONNECT_TIMEOUT_S, self.member)
            except OSError as error:
                self._log_failure(f"member {self.member} at {self._address} is unreachable: {error}; trying again")
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, LAST_RETRY_S)
                continue
            self._transport = transport
            self._on_connected(self)
            if self._failure_logged:
                log.info("connected to member %s at %s", self.member, self._address)
                self._failure_logged = False
            retry_s = FIRST_RETRY_S
            await ended.event.wait()
            self._transport = None
            await asyncio.sleep(FIRST_RETRY_S)

    def _log_failure(self, text: str) -> None:
        if not self._failure_logged:
            log.warning("%s", text)
        self._failure_logged = True


class _EndDetector(asyncio.Protocol):
    """The protocol of a dialled connection, which receives nothing. It reports the end of the connection."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.event.set()


class PeerEvents(Protocol):
    """The receiver of messages and connection events."""

    def accepted(self, link: InboundPeer) -> None: ...

    def received(self, sender: str, message: Message | Hello) -> None: ...

    def read(self) -> None:
        """Handle the end of a batch of messages that were read together."""

    def refused(self, peer: str, reason: str) -> None: ...

    def closed(self, link: InboundPeer, member: str | None) -> None: ...


class InboundPeer(asyncio.Protocol):
    """A connection that another member dialled. `authenticated` is this member, None if it did not authenticate."""

    def __init__(self, codec: Codec, events: PeerEvents, authenticated: str | None = None) -> None:
        self._codec = codec
        self._authenticated = authenticated
        self._events = events
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._needed = _LENGTH.size
        self.member: str | None = None
        self._peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("?", 0)
        self._peer = format_address(name[0], name[1])
        self._events.accepted(self)
        asyncio.get_running_loop().call_later(IDENTIFY_TIMEOUT_S, self._close_if_unidentified)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._needed:
            return
        at = 0
        try:
            while True:
                self._needed = _LENGTH.size
                if len(buffer) - at < _LENGTH.size:
                    break
                (size,) = _LENGTH.unpack_from(buffer, at)
                limit = MAX_MESSAGE if self.member is not None else MAX_FIRST_MESSAGE
                if size == _PREAMBLE:
                    raise ProtocolError("it authenticates, but this member does not: configure peerSecretFile here too")
                if size > limit:
                    raise ProtocolError(f"a message of {size} bytes is announced, the maximum is {limit}")
                end = at + _LENGTH.size + size
                if end > len(buffer):
                    self._needed = end - at
                    break
                sender, message = self._codec.decode(bytes(memoryview(buffer)[at + _LENGTH.size : end]))
                at = end
                expected = self.member or self._authenticated
                if expected not in (None, sender):
                    raise ProtocolError(f"message from {sender} on the connection of {expected}")
                self.member = sender
                self._events.received(sender, message)
        except ProtocolError as error:
            self._events.refused(self._peer, str(error))
            self.end()
            return
        del buffer[:at]
        if at:
            self._events.read()

    def _close_if_unidentified(self) -> None:
        if self.member is None:
            self.end()

    def end(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
            self._events.closed(self, self.member)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._events.closed(self, self.member)
