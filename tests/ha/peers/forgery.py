"""Forged packets of a stranger who knows the protocols, the members and their addresses, but not the secret of the group."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from struct import pack

from firearrow.ha.peers.handshake import PREAMBLE, ClientHandshake, HandshakeError, LinkIdentity
from firearrow.ha.raft.epochs import MAX_EPOCH, Epoch, EpochTable
from firearrow.ha.raft.messages import (
    AppendEntries,
    AppendResponse,
    Codec,
    Hello,
    Message,
    Probe,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)

GROUP = "broker-a"
MEMBERS = ["n0", "n1", "n2"]
CLOSE_S = 30.0  # for the server to close a connection of a stranger


def write_secret(directory: Path, text: str = "0123456789abcdef0123456789abcdef") -> str:
    path = directory / "secret"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def forged_messages(term: int, end: int) -> list[Message | Hello]:
    """Return one message for each effect that a member's message can have. The group is in `term`, its log ends at `end`."""
    later = term + 1
    return [
        Hello("127.0.0.1:9"),  # diverts forwarded requests
        Probe(later, 10**9, 10**9, 10**9, EpochTable([Epoch(later, 10**9)])),  # replaces the log with an empty one
        Probe(later, 0, end, 0, EpochTable([Epoch(later, 0)])),  # truncates the log
        AppendEntries(term, end, end + 5, end + 5, data=b"wrong"),  # appends records
        AppendResponse(later, end, end, later),  # deposes the leader
        VoteResponse(MAX_EPOCH, False),  # exhausts the terms
        RequestVote(MAX_EPOCH - 1, MAX_EPOCH - 1, 10**9, transfer=True),
        TimeoutNow(term),
    ]


def frame(sender: str, receiver: str, message: Message | Hello) -> bytes:
    data = Codec(GROUP, MEMBERS, sender).encode(receiver, message)
    return pack(">I", len(data)) + data


async def send_raw(address: str, data: bytes) -> bytes:
    """Send bytes and return what the server answers until it closes the connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(CLOSE_S):
                return await reader.read()
        return b""
    finally:
        writer.close()


async def send_after_failed_handshake(address: str, identity: LinkIdentity, secret: bytes, data: bytes) -> None:
    """Answer the challenge with another secret, and send the data nevertheless, until the server closes the connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    handshake = ClientHandshake(identity, secret, sealed=True, nonce=bytes(32))
    try:
        writer.write(PREAMBLE)
        async with asyncio.timeout(CLOSE_S):
            with contextlib.suppress(ConnectionError, HandshakeError):
                writer.write(handshake.feed(await reader.readexactly(35)) + data)
                handshake.feed(await reader.read())
            with contextlib.suppress(ConnectionError):
                await reader.read()
    finally:
        writer.close()
