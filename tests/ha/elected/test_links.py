"""Connections between group members: framing, identification of the sender, and the end of invalid connections."""

from __future__ import annotations

import asyncio
from struct import pack
from typing import Any, cast

import pytest

from firearrow.ha.elected import links
from firearrow.ha.elected.links import IDENTIFY_TIMEOUT_S, MAX_FIRST_MESSAGE, InboundPeer, OutboundPeer
from firearrow.ha.peers.handshake import PREAMBLE
from firearrow.ha.peers.links import PeerLinks
from firearrow.ha.raft.messages import Codec, Hello, Message, TimeoutNow
from tests.support.waiting import run

MEMBERS = ["n0", "n1", "n2"]
HERE = Codec("G", MEMBERS, "n0")


class Events:
    """Records what a connection reports."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Message | Hello]] = []
        self.reads = 0
        self.refusals: list[str] = []
        self.ends: list[str | None] = []

    def accepted(self, link: InboundPeer) -> None: ...

    def received(self, sender: str, message: Message | Hello) -> None:
        self.messages.append((sender, message))

    def read(self) -> None:
        self.reads += 1

    def refused(self, peer: str, reason: str) -> None:
        self.refusals.append(f"{peer} {reason}")

    def closed(self, link: InboundPeer, member: str | None) -> None:
        self.ends.append(member)


class FakeTransport:
    def __init__(self) -> None:
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.9", 4711)

    def abort(self) -> None:
        self.aborted = True


def frame(sender: str, message: Message | Hello) -> bytes:
    data = Codec("G", MEMBERS, sender).encode("n0", message)
    return pack(">I", len(data)) + data


class Inbound:
    """A connection to n0, in a running loop, that has received `chunks`."""

    def __init__(self, *chunks: bytes, authenticated: str | None = None) -> None:
        self._authenticated = authenticated
        self.events, self.transport = Events(), FakeTransport()
        self.timeouts: list[tuple[float, Any]] = []
        run(self._feed(chunks))

    async def _feed(self, chunks: tuple[bytes, ...]) -> None:
        self.link = InboundPeer(HERE, self.events, self._authenticated)
        with pytest.MonkeyPatch.context() as patched:
            later = lambda delay, callback: self.timeouts.append((delay, callback))  # noqa: E731
            patched.setattr(asyncio.get_running_loop(), "call_later", later)
            self.link.connection_made(cast(asyncio.BaseTransport, self.transport))
        for chunk in chunks:
            self.link.data_received(chunk)


def test_frames_are_decoded_however_they_are_split() -> None:
    data = frame("n1", Hello("10.0.0.1:10911")) + frame("n1", TimeoutNow(3))
    whole, bytewise = Inbound(data), Inbound(*(data[at : at + 1] for at in range(len(data))))
    expected = [("n1", Hello("10.0.0.1:10911")), ("n1", TimeoutNow(3))]
    assert whole.events.messages == bytewise.events.messages == expected
    assert (whole.events.reads, bytewise.events.reads) == (1, 2)
    assert whole.link.member == "n1"


def test_large_first_message_is_rejected_before_it_arrives() -> None:
    inbound = Inbound(pack(">I", MAX_FIRST_MESSAGE + 1))
    assert inbound.transport.aborted
    assert inbound.events.refusals == ["10.0.0.9:4711 a message of 1025 bytes is announced, the maximum is 1024"]
    assert inbound.events.ends == [None]


def test_identified_member_may_announce_a_large_message() -> None:
    inbound = Inbound(frame("n1", TimeoutNow(3)) + pack(">I", MAX_FIRST_MESSAGE + 1))
    assert not inbound.transport.aborted


def test_message_of_another_sender_ends_the_connection() -> None:
    inbound = Inbound(frame("n1", TimeoutNow(3)), frame("n2", TimeoutNow(3)))
    assert inbound.transport.aborted
    assert "message from n2 on the connection of n1" in inbound.events.refusals[0]
    assert inbound.events.messages == [("n1", TimeoutNow(3))]
    assert inbound.events.ends == ["n1"]


def test_authenticated_member_cannot_send_as_another_one() -> None:
    inbound = Inbound(frame("n2", TimeoutNow(3)), authenticated="n1")
    assert inbound.transport.aborted
    assert "message from n2 on the connection of n1" in inbound.events.refusals[0]
    assert inbound.events.messages == []


def test_member_that_authenticates_is_told_apart_from_invalid_bytes() -> None:
    inbound = Inbound(PREAMBLE)
    assert "it authenticates, but this member does not" in inbound.events.refusals[0]


@pytest.mark.parametrize(("chunks", "aborted"), [((), True), ((frame("n1", TimeoutNow(3)),), False)])
def test_connection_is_closed_if_its_sender_stays_unidentified(chunks: tuple[bytes, ...], aborted: bool) -> None:
    inbound = Inbound(*chunks)
    ((delay_s, time_out),) = inbound.timeouts
    time_out()
    assert (delay_s, inbound.transport.aborted) == (IDENTIFY_TIMEOUT_S, aborted)


class FakeConnection:
    """The transport and the network of a member that is reachable at once."""

    def __init__(self) -> None:
        self.sent = b""
        self.unsent = 0
        self.closed = False

    async def dial(self, protocol: Any, address: str, timeout_s: float, peer: str) -> tuple[Any, Any]:
        return self, protocol()

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        self._check_alive()
        return self.unsent

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self._check_alive()
        self.sent += b"".join(parts)

    def close(self) -> None:
        self.closed = True

    def _check_alive(self) -> None:
        """Behave like uvloop's transport."""
        if self.closed:
            raise RuntimeError("unable to perform operation on a closed transport; the handler is closed")


def test_messages_are_sent_with_their_length_while_connected() -> None:
    network = FakeConnection()

    async def story() -> None:
        connected = asyncio.Event()
        peer = OutboundPeer("n1", "10.0.0.1:40911", cast(PeerLinks, network), lambda _: connected.set())
        peer.send(b"dropped: not connected")
        peer.start()
        await connected.wait()
        peer.send(b"hello")
        network.unsent = links.BUFFER_BYTES
        peer.send(b"dropped: congested")
        assert peer.connected
        await peer.stop()
        peer.send(b"dropped: stopped")
        assert not peer.connected

    run(story())
    assert network.sent == b"\0\0\0\x05hello"
    assert network.closed


def test_message_to_a_connection_that_has_just_ended_is_dropped() -> None:
    network = FakeConnection()

    async def story() -> None:
        connected = asyncio.Event()
        peer = OutboundPeer("n1", "10.0.0.1:40911", cast(PeerLinks, network), lambda _: connected.set())
        peer.start()
        await connected.wait()
        network.close()  # the loop closes it before the task that waits for the end runs
        peer.send(b"dropped: closed")
        await peer.stop()

    run(story())
    assert network.sent == b""
