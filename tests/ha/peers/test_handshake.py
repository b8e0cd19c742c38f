"""The handshake of two brokers: both prove the secret, and nothing else is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from firearrow.ha.peers.handshake import (
    MAX_BODY,
    PREAMBLE,
    ClientHandshake,
    HandshakeError,
    LinkIdentity,
    RefusalReason,
    ServerHandshake,
    encode_refusal,
)

SECRET, OTHER = b"a secret of the group", b"the secret of another group"
IDENTITY = LinkIdentity("raft", "DefaultCluster", "G", "n1", "n0")
CLIENT_NONCE, SERVER_NONCE = bytes(range(32)), bytes(range(32, 64))


def client(secret: bytes = SECRET, identity: LinkIdentity = IDENTITY, *, sealed: bool = True) -> ClientHandshake:
    return ClientHandshake(identity, secret, sealed=sealed, nonce=CLIENT_NONCE)


def server(
    *secrets: bytes, accepts: Callable[[LinkIdentity], bool] = lambda identity: identity == IDENTITY, plain: bool = True
) -> ServerHandshake:
    return ServerHandshake(accepts, secrets or (SECRET,), plain=plain, nonce=SERVER_NONCE)


def connect(one: ClientHandshake, other: ServerHandshake) -> None:
    one.feed(other.feed(one.feed(other.feed(PREAMBLE))))


def test_both_sides_agree_on_the_keys_of_both_directions() -> None:
    one, other = client(), server()
    connect(one, other)
    assert one.established is not None
    assert other.established is not None
    assert (one.established.peer, other.established.peer) == ("n0", "n1")
    assert one.established.send_key == other.established.receive_key
    assert one.established.receive_key == other.established.send_key
    assert one.established.send_key != one.established.receive_key


def test_messages_may_be_split_at_every_byte() -> None:
    one, other = client(), server()
    to_server, to_client = PREAMBLE, b""
    for _ in range(4):
        to_client = b"".join(other.feed(to_server[at : at + 1]) for at in range(len(to_server)))
        to_server = b"".join(one.feed(to_client[at : at + 1]) for at in range(len(to_client)))
    assert one.established is not None
    assert other.established is not None


def test_bytes_after_the_handshake_are_kept() -> None:
    one, other = client(), server()
    answer = one.feed(other.feed(PREAMBLE))
    one.feed(other.feed(answer + b"early") + b"data")
    assert one.established is not None
    assert other.established is not None
    assert (other.established.rest, one.established.rest) == (b"early", b"data")


def test_client_without_the_secret_is_refused() -> None:
    other = server()
    answer = client(OTHER).feed(other.feed(PREAMBLE))
    with pytest.raises(HandshakeError, match="does not know the secret") as raised:
        other.feed(answer)
    assert raised.value.refusal is RefusalReason.SECRET
    assert other.established is None


def test_server_without_the_secret_is_refused() -> None:
    one, other = client(), server(OTHER, SECRET)
    forged = server(OTHER)
    challenge = other.feed(PREAMBLE)
    forged.feed(PREAMBLE)
    answer = one.feed(challenge)
    proof = other.feed(answer)
    with pytest.raises(HandshakeError, match="the server does not know the secret"):
        one.feed(proof[:3] + bytes(byte ^ 1 for byte in proof[3:]))
    assert one.established is None


def test_all_accepted_secrets_are_valid_while_one_is_replaced() -> None:
    one, other = client(OTHER), server(SECRET, OTHER)
    connect(one, other)
    assert one.established is not None


def test_answer_cannot_be_replayed() -> None:
    one, first = client(), server()
    answer = one.feed(first.feed(PREAMBLE))
    first.feed(answer)
    second = ServerHandshake(lambda _: True, [SECRET], plain=True, nonce=bytes(32))
    second.feed(PREAMBLE)
    with pytest.raises(HandshakeError, match="does not know the secret"):
        second.feed(answer)


def test_proof_of_a_client_cannot_be_reflected_to_it() -> None:
    one, other = client(), server()
    answer = one.feed(other.feed(PREAMBLE))
    with pytest.raises(HandshakeError, match="does not know the secret"):
        one.feed(other.feed(answer)[:3] + answer[-32:])


@pytest.mark.parametrize(
    "identity",
    [
        replace(IDENTITY, purpose="ha"),
        replace(IDENTITY, cluster="Other"),
        replace(IDENTITY, group="H"),
        replace(IDENTITY, sender="n0"),
        replace(IDENTITY, receiver="n2"),
    ],
)
def test_proof_for_another_link_is_refused(identity: LinkIdentity) -> None:
    other = server()
    answer = client(identity=identity).feed(other.feed(PREAMBLE))
    with pytest.raises(HandshakeError, match="not expected here") as raised:
        other.feed(answer)
    assert raised.value.refusal is RefusalReason.IDENTITY


def test_changed_identity_invalidates_the_proof() -> None:
    other = server(accepts=lambda _: True)
    answer = client().feed(other.feed(PREAMBLE))
    with pytest.raises(HandshakeError, match="does not know the secret"):
        other.feed(answer.replace(b"\x02n1", b"\x02n2"))


def test_unsealed_records_need_tls() -> None:
    connect(client(sealed=False), encrypted := server(plain=False))
    assert encrypted.established is not None
    assert encrypted.established.send_key is None
    with pytest.raises(HandshakeError, match="without TLS"):
        connect(client(sealed=False), server(plain=True))


@pytest.mark.parametrize("first", [bytes(8), b"\x00\x00\x00\x20\xfa\x52", b"GET / HTTP/1.1\r\n", PREAMBLE[:3] + b"XXXXX"])
def test_peer_that_does_not_authenticate_is_refused_without_an_answer(first: bytes) -> None:
    with pytest.raises(HandshakeError, match="does not authenticate") as raised:
        server().feed(first)
    assert raised.value.refusal is None


def test_other_version_is_refused() -> None:
    with pytest.raises(HandshakeError, match="version 2 of the handshake, expected 1") as raised:
        server().feed(PREAMBLE[:-1] + b"\x02")
    assert raised.value.refusal is RefusalReason.VERSION


def test_long_message_is_refused_before_it_arrives() -> None:
    other = server()
    other.feed(PREAMBLE)
    with pytest.raises(HandshakeError, match="invalid message"):
        other.feed(b"\x02" + (MAX_BODY + 1).to_bytes(2, "big"))


@pytest.mark.parametrize("size", [0, 1, 64, 65])
def test_short_answer_is_refused(size: int) -> None:
    other = server()
    other.feed(PREAMBLE)
    with pytest.raises(HandshakeError):
        other.feed(b"\x02" + size.to_bytes(2, "big") + bytes(size))


def test_refusal_is_explained_to_the_client() -> None:
    with pytest.raises(HandshakeError, match="it has another secret: compare peerSecretFile"):
        client().feed(encode_refusal(RefusalReason.SECRET))
    with pytest.raises(HandshakeError, match="reason 99"):
        client().feed(b"\x04\x00\x01\x63")


def test_preamble_is_harmless_to_peers_that_do_not_know_it() -> None:
    assert int.from_bytes(PREAMBLE, "big", signed=True) < 0  # as the first report of a slave
    assert int.from_bytes(PREAMBLE[:4], "big") > 1 << 30  # as the length of a Raft message
    assert PREAMBLE[0] not in (0x00, 0x16)
