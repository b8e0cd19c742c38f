"""Connections between brokers: accepting and dialling, with authentication and TLS as the settings require.

The protocols of the replication ports are used unchanged. Without authentication they get the transport of the connection. With
it, a protocol is created when the peer has authenticated. On a plain connection it gets a transport that seals what it writes
(sealing.py), and receives the data of verified records.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from firearrow.clock import monotonic_ms
from firearrow.ha.peers.handshake import (
    NONCE_BYTES,
    PREAMBLE,
    ClientHandshake,
    Established,
    HandshakeError,
    LinkIdentity,
    ServerHandshake,
    encode_refusal,
)
from firearrow.ha.peers.refusals import RefusalLog
from firearrow.ha.peers.sealing import Opener, Sealer, SealError
from firearrow.ha.peers.security import LinkSecurity
from firearrow.net.address import format_address
from firearrow.net.stream import StreamListener, dial

HANDSHAKE_S = 5.0
MAX_UNAUTHENTICATED = 64  # connections that have not completed the handshake; the oldest is closed for a new one

P = TypeVar("P", bound=asyncio.Protocol)
Make = Callable[[str | None], P]  # (authenticated peer, None without authentication): creates a protocol


class PeerRefusedError(ConnectionError):
    """The peer could not be authenticated, or did not accept this broker."""


@dataclass(frozen=True, slots=True)
class LinkEndpoint:
    """This broker on a port. `accepts` returns whether a peer of this name may connect."""

    purpose: str
    cluster: str
    group: str
    name: str
    accepts: Callable[[str], bool]

    def expects(self, identity: LinkIdentity) -> bool:
        own = (self.purpose, self.cluster, self.group, self.name)
        return own == (identity.purpose, identity.cluster, identity.group, identity.receiver) and self.accepts(identity.sender)


class PeerLinks:
    """The connections of one replication port, in both directions."""

    def __init__(self, endpoint: LinkEndpoint, security: LinkSecurity, log: logging.Logger) -> None:
        self.endpoint = endpoint
        self.security = security
        self.refusals = RefusalLog(log, monotonic_ms)
        self.log = log
        self._unauthenticated: dict[AcceptedPeer, None] = {}
        self._warned: set[str] = set()

    async def serve(self, listener: StreamListener, make: Make[asyncio.Protocol]) -> None:
        """Accept connections on `listener`. `make` creates the protocol of a peer that has authenticated."""

        def accept() -> asyncio.Protocol:
            return AcceptedPeer(self, make) if self.security.required else make(None)

        await listener.serve(accept, self.security.server_tls, self.refusals.add)

    async def dial(self, make: Callable[[], P], address: str, timeout_s: float, peer: str) -> tuple[asyncio.Transport, P]:
        """Connect to the broker `peer` at `address`, and authenticate. Raises OSError."""
        security, tls = self.security, self.security.client_tls()
        if not security.required or security.secrets is None:
            return await dial(make, address, timeout_s, tls)
        identity = LinkIdentity(self.endpoint.purpose, self.endpoint.cluster, self.endpoint.group, self.endpoint.name, peer)
        sealed = tls is None or tls.verify_mode != ssl.CERT_REQUIRED
        handshake = ClientHandshake(identity, security.secrets.current()[0], sealed=sealed, nonce=os.urandom(NONCE_BYTES))
        _, dialled = await dial(lambda: DialledPeer(handshake, make), address, timeout_s, tls)
        # A connection needs only the kernel of the peer, the handshake its process, which may be busy. A peer that does not know
        # the handshake is silent.
        wait_s = timeout_s if security.allow_unauthenticated else max(timeout_s, HANDSHAKE_S)
        try:
            async with asyncio.timeout(wait_s):
                return await dialled.opened
        except asyncio.CancelledError:
            dialled.end()
            raise
        except (OSError, TimeoutError) as error:  # the peer may be one that does not know the handshake
            dialled.end()
            reason = f"no answer within {wait_s:g} s" if isinstance(error, TimeoutError) else str(error)
            if handshake.challenged or not security.allow_unauthenticated:
                raise PeerRefusedError(f"authentication failed: {reason}") from None
        self.warn_unauthenticated(address)
        return await dial(make, address, timeout_s, tls)

    def close(self) -> None:
        """End the connections that have not completed the handshake. The others belong to their protocols."""
        for pending in list(self._unauthenticated):
            pending.end()

    # For accepted connections

    def begun(self, peer: AcceptedPeer) -> None:
        if len(self._unauthenticated) >= MAX_UNAUTHENTICATED:
            next(iter(self._unauthenticated)).refuse(f"more than {MAX_UNAUTHENTICATED} connections do not authenticate")
        self._unauthenticated[peer] = None

    def ended(self, peer: AcceptedPeer) -> None:
        self._unauthenticated.pop(peer, None)

    def warn_unauthenticated(self, peer: str) -> None:
        """Log once per host that it is admitted without authentication."""
        host = peer.rpartition(":")[0]
        if host not in self._warned and len(self._warned) < MAX_UNAUTHENTICATED:
            self._warned.add(host)
            self.log.warning("the peer at %s does not authenticate and is accepted because haAllowUnauthenticated=true", peer)


class AcceptedPeer(asyncio.Protocol):
    """An accepted connection: the handshake, then the protocol of the port."""

    def __init__(self, links: PeerLinks, make: Make[asyncio.Protocol]) -> None:
        self._links = links
        self._make = make
        self._transport: asyncio.Transport | None = None
        self._handshake: ServerHandshake | None = None
        self._first = True
        self._inner: _Established[asyncio.Protocol] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("?", 0)
        self._peer = format_address(name[0], name[1])
        security, encrypted = self._links.security, transport.get_extra_info("ssl_object")
        self._links.begun(self)
        if security.secrets is not None:
            nonce = os.urandom(NONCE_BYTES)
            self._handshake = ServerHandshake(
                self._links.endpoint.expects, security.secrets.current(), plain=encrypted is None, nonce=nonce
            )
            self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._expire)
        elif encrypted is not None and encrypted.getpeercert():
            self._open_plain(b"", None)
        elif not security.allow_unauthenticated:
            self.refuse("it has no certificate, and neither peerSecretFile nor innerClientAuthenticationCredentials is set here")
        else:
            self._links.warn_unauthenticated(self._peer)
            self._open_plain(b"", None)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            try:
                self._inner.received(data)
            except SealError as error:
                self.refuse(str(error))
        elif self._handshake is not None and self._transport is not None:
            if self._first and data[:1] != PREAMBLE[:1] and self._links.security.allow_unauthenticated:
                self._links.warn_unauthenticated(self._peer)
                self._open_plain(data, None)
                return
            self._first = False
            self._continue(self._handshake, self._transport, data)

    def _continue(self, handshake: ServerHandshake, transport: asyncio.Transport, data: bytes) -> None:
        try:
            answer = handshake.feed(data)
        except HandshakeError as error:
            if error.refusal is not None:
                transport.write(encode_refusal(error.refusal))
                transport.close()  # sends the refusal first
            self.refuse(str(error))
            return
        if answer:
            transport.write(answer)
        if handshake.established is not None:
            self._open(handshake.established)

    def _open(self, established: Established) -> None:
        if established.send_key is None:
            self._open_plain(established.rest, established.peer)
            return
        self._settle()
        assert self._transport is not None
        self._inner = _Established(self._transport, established, self._make(established.peer))
        self._inner.begin()

    def _open_plain(self, rest: bytes, peer: str | None) -> None:
        """Let the protocol of the port use the connection directly."""
        self._settle()
        transport, self._transport = self._transport, None
        assert transport is not None
        inner = self._make(peer)
        transport.set_protocol(inner)
        inner.connection_made(transport)
        if rest:
            inner.data_received(rest)

    def _settle(self) -> None:
        self._links.ended(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def _expire(self) -> None:
        self.refuse(f"it did not authenticate within {HANDSHAKE_S:g} s")

    def refuse(self, reason: str) -> None:
        """Log the reason and close the connection."""
        self._links.refusals.add(self._peer, reason)
        self.end()

    def end(self) -> None:
        self._settle()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        self._transport = None
        if self._inner is not None:
            self._inner.protocol.connection_lost(exc)


class DialledPeer(asyncio.Protocol, Generic[P]):
    """A dialled connection: the handshake, then the protocol of the port. `opened` gets its transport and the protocol."""

    def __init__(self, handshake: ClientHandshake, make: Callable[[], P]) -> None:
        self.opened: asyncio.Future[tuple[asyncio.Transport, P]] = asyncio.get_running_loop().create_future()
        self._handshake = handshake
        self._make = make
        self._transport: asyncio.Transport | None = None
        self._inner: _Established[P] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(PREAMBLE)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self.opened.cancelled():
            return
        try:
            if self._inner is not None:
                self._inner.received(data)
                return
            transport.write(self._handshake.feed(data))
        except (HandshakeError, SealError) as error:
            self._fail(str(error))
            self.end()
            return
        if self._handshake.established is not None:
            self._open(transport, self._handshake.established)

    def _open(self, transport: asyncio.Transport, established: Established) -> None:
        inner = self._make()
        if established.send_key is None:
            transport.set_protocol(inner)
            inner.connection_made(transport)
            self.opened.set_result((transport, inner))
            if established.rest:
                inner.data_received(established.rest)
            return
        self._inner = _Established(transport, established, inner)
        self.opened.set_result((self._inner.transport, inner))
        self._inner.begin()

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(PeerRefusedError(reason))

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail("the peer closed the connection")
        if self._inner is not None:
            self._inner.protocol.connection_lost(exc)


class _Established(Generic[P]):
    """The protocol of the port on a connection with sealed records."""

    def __init__(self, transport: asyncio.Transport, established: Established, protocol: P) -> None:
        assert established.send_key is not None
        assert established.receive_key is not None
        self.protocol = protocol
        self.transport = SealedTransport(transport, established.send_key)
        self._opener = Opener(established.receive_key)
        self._rest = established.rest

    def begin(self) -> None:
        self.protocol.connection_made(self.transport)
        if self._rest:
            self.received(self._rest)

    def received(self, data: bytes) -> None:
        """Pass the data of complete records on. Raises SealError."""
        plain = self._opener.feed(data)
        if plain:
            self.protocol.data_received(plain)


class SealedTransport(asyncio.Transport):
    """A transport that sends what is written as sealed records."""

    def __init__(self, transport: asyncio.Transport, key: bytes) -> None:
        super().__init__()
        self._below = transport
        self._sealer = Sealer(key)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._below.writelines(self._sealer.seal([bytes(data)]))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self._below.writelines(self._sealer.seal([bytes(data) for data in list_of_data]))

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)
