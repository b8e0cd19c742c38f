"""Messages of an elected group: round trips and rejected bytes."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from firearrow.ha.raft.epochs import Epoch, EpochTable
from firearrow.ha.raft.messages import (
    MAX_MESSAGE,
    AppendEntries,
    AppendResponse,
    AppendStatus,
    Codec,
    Message,
    Probe,
    RequestVote,
    Resignation,
    TimeoutNow,
    VoteResponse,
)
from firearrow.wire.errors import ProtocolError

MEMBERS = ["n2", "n0", "n1"]
ONE, OTHER = Codec("g", MEMBERS, "n0"), Codec("g", sorted(MEMBERS), "n1")

MESSAGES: list[Message] = [
    RequestVote(7, 6, 123456789012, pre=True),
    RequestVote(7, 6, 123456789012, transfer=True),
    RequestVote(7, 0, 0, seed=True),
    VoteResponse(7, True),
    VoteResponse(7, False, pre=True),
    Probe(7, 1 << 30, 1 << 40, 1 << 39, EpochTable([Epoch(3, 1 << 29), Epoch(7, 1 << 38)]), 1 << 37),
    AppendEntries(7, 100, 200, 90, 1 << 61, b"records"),
    AppendEntries(7, 200, 200, 200),
    AppendResponse(7, 100, 120, 6, AppendStatus.GAP, 99),
    AppendResponse(7, 100, 120, 6, log_id=2**63),
    TimeoutNow(7),
    Resignation(7),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_round_trip(message: Message) -> None:
    assert OTHER.decode(ONE.encode("n1", message)) == ("n0", message)


def test_message_carries_the_group_id_of_its_sender() -> None:
    _, message = OTHER.decode(ONE.encode("n1", TimeoutNow(7), 2**63))
    assert message == TimeoutNow(7, 2**63)


def test_encoding_is_exact() -> None:
    head = bytes.fromhex("fa520201") + zlib.crc32(b"g\nn0\nn1\nn2").to_bytes(4, "big") + bytes.fromhex("0001000100000007")
    head += bytes.fromhex("00000000000000ab")
    fields = bytes.fromhex("00000006 0000000000000064")
    crc = zlib.crc32(head + fields).to_bytes(4, "big")
    assert ONE.encode("n1", RequestVote(7, 6, 100, pre=True), 0xAB) == head + fields + crc


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_flipped_bit_or_missing_end_is_rejected(message: Message) -> None:
    data = ONE.encode("n1", message)
    for at in range(len(data)):
        with pytest.raises(ProtocolError):
            OTHER.decode(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(ProtocolError):
            OTHER.decode(data[:at])


def test_rejected_messages_name_the_reason() -> None:
    data = ONE.encode("n1", TimeoutNow(1))
    with pytest.raises(ProtocolError, match="compare dLegerGroup and dLegerPeers"):
        Codec("other", MEMBERS, "n1").decode(data)
    with pytest.raises(ProtocolError, match="members are not n0, n1, n2, n3"):
        Codec("g", [*MEMBERS, "n3"], "n1").decode(data)
    with pytest.raises(ProtocolError, match="duplicate member ids"):
        Codec("g", MEMBERS, "n2").decode(data)
    with pytest.raises(ProtocolError, match="not a member of an elected group"):
        OTHER.decode(b"GET / HTTP/1.1\r\nHost: n1\r\n\r\n")
    with pytest.raises(ProtocolError, match="format version 1, expected 2"):
        OTHER.decode(data[:2] + b"\x01" + data[3:])
    with pytest.raises(ProtocolError, match="bytes, expected"):
        OTHER.decode(bytes(MAX_MESSAGE + 1))


def sealed(kind: int, fields: bytes, term: int = 7) -> bytes:
    whole = ONE.encode("n1", TimeoutNow(term))[:-4]
    whole = whole[:3] + bytes([kind]) + whole[4:] + fields
    return whole + zlib.crc32(whole).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (0, b""),
        (9, b""),
        (8, b"x"),
        (7, b""),
        (7, b"nowhere"),
        (6, b"x"),
        (2, b"x"),
        (1, bytes(11)),
        (1, struct.pack(">iq", 1, -1)),
        (1, struct.pack(">iq", -1, 1)),
        (3, bytes(32)),  # a leader's table ends with its term
        (3, bytes(32) + struct.pack(">iqiq", 8, 0, 7, 5)),
        (3, bytes(32) + struct.pack(">iqiq", 6, 5, 7, 5)),
        (4, bytes(31)),
        (5, bytes(28) + b"\x09" + bytes(8)),
    ],
)
def test_invalid_fields_are_rejected(kind: int, fields: bytes) -> None:
    with pytest.raises(ProtocolError):
        OTHER.decode(sealed(kind, fields))


def test_random_bytes_are_rejected() -> None:
    rng = random.Random(5)
    for _ in range(2000):
        with pytest.raises(ProtocolError):
            OTHER.decode(b"\xfa\x52\x01" + rng.randbytes(rng.randint(0, 80)))


@pytest.mark.parametrize(("members", "me"), [(["n0", "n1"], "n2"), (["n0", "n0", "n1"], "n0")])
def test_invalid_groups_are_rejected(members: list[str], me: str) -> None:
    with pytest.raises(ValueError, match="group g"):
        Codec("g", members, me)
