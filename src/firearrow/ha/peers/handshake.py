"""Handshake between two brokers that share a secret. No sockets, no clock.

    client -> server   preamble    8 bytes, the last one is the version
    server -> client   challenge   32 random bytes
    client -> server   answer      flags, 32 random bytes, the identity of both sides, the client's proof
    server -> client   proof       the server's proof
                or     refusal     a reason, instead of any message of the server

The preamble is chosen for peers that do not know it. As the first log offset of a slave it is negative, which a master ignores.
As the length of a Raft message it is above the limit. It differs from a TLS ClientHello in its first byte. A client sends nothing
more until it has the challenge, so it never reports a wrong offset to a master that does not authenticate.

A message after the preamble is a kind (1 byte), a uint16 length and that many bytes, at most MAX_BODY.

    key          HMAC-SHA256(secret, label of the version)
    transcript   SHA-256(preamble || challenge || answer without its proof), messages with their heads
    proofs       HMAC-SHA256(key, "client" || transcript), HMAC-SHA256(key, "server" || transcript)
    record keys  HMAC-SHA256(key, "client records" || transcript), HMAC-SHA256(key, "server records" || transcript)

The client proves itself first: a stranger gets nothing to guess the secret from. Both sides contribute random bytes, so neither
proof can be replayed. The labels differ, so no proof can be reflected. The identity is part of the transcript: a proof for one
port, group or member is not valid for another one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

VERSION = 1
PREAMBLE = b"\xfaFAPEER" + bytes((VERSION,))
NONCE_BYTES = 32
MAX_BODY = 1024
_PROOF_BYTES = 32
_HEAD = Struct(">BH")
_CHALLENGE, _ANSWER, _PROOF, _REFUSAL = 1, 2, 3, 4
_SEALED = 1  # flag: records on this connection are sealed (sealing.py)
_LABEL = b"firearrow peer handshake 1"


class RefusalReason(IntEnum):
    """Reasons of a server to refuse a client."""

    VERSION = 1
    IDENTITY = 2
    SECRET = 3
    PLAIN = 4


_EXPLANATIONS = {
    RefusalReason.VERSION: "it does not support this version of the handshake: run the same release on all brokers",
    RefusalReason.IDENTITY: "it does not accept this group or member: compare brokerClusterName, brokerName and dLegerPeers",
    RefusalReason.SECRET: "it has another secret: compare peerSecretFile or innerClientAuthenticationCredentials on both brokers",
    RefusalReason.PLAIN: "it accepts records without protection only over TLS",
}


class HandshakeError(Exception):
    """The peer is refused, or refuses. The text is for the operator; `refusal` is sent to the peer if it is not None."""

    def __init__(self, text: str, refusal: RefusalReason | None = None) -> None:
        super().__init__(text)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """The two ends of a connection. `sender` is the broker that dialled it."""

    purpose: str  # the protocol of the port
    cluster: str
    group: str
    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class Established:
    """The result of a handshake. The record keys are None if the connection does not need sealed records."""

    peer: str
    send_key: bytes | None
    receive_key: bytes | None
    rest: bytes  # received after the handshake


class ClientHandshake:
    """The side that dialled. Send `PREAMBLE`, then what `feed` returns, until `established` is set."""

    def __init__(self, identity: LinkIdentity, secret: bytes, *, sealed: bool, nonce: bytes) -> None:
        self.established: Established | None = None
        self.challenged = False  # the server knows the handshake
        self._identity = identity
        self._key = _derive_key(secret)
        self._sealed = sealed
        self._nonce = nonce
        self._messages = _Messages()
        self._transcript = b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to send next. Raises HandshakeError."""
        self._messages.add(data)
        found = self._messages.take(_PROOF if self.challenged else _CHALLENGE, "the server")
        if found is None:
            return b""
        head, body = found
        if self.challenged:
            if not hmac.compare_digest(body, _hmac(self._key, b"server" + self._transcript)):
                raise HandshakeError("the server does not know the secret of this group")
            self.established = _establish(self._key, self._transcript, self._messages.rest, self._identity.receiver, self._sealed)
            return b""
        if len(body) != NONCE_BYTES:
            raise HandshakeError(f"a challenge of {len(body)} bytes, expected {NONCE_BYTES}")
        self.challenged = True
        answer = bytes((_SEALED if self._sealed else 0,)) + self._nonce + _encode_identity(self._identity)
        answer_head = _HEAD.pack(_ANSWER, len(answer) + _PROOF_BYTES)
        self._transcript = hashlib.sha256(PREAMBLE + head + body + answer_head + answer).digest()
        return answer_head + answer + _hmac(self._key, b"client" + self._transcript)


class ServerHandshake:
    """The side that accepted. Send what `feed` returns, until `established` is set.

    `accepts` returns whether the port expects this identity. Each of `secrets` is valid. `plain` tells that the connection is not
    encrypted and requires sealed records.
    """

    def __init__(self, accepts: Callable[[LinkIdentity], bool], secrets: Sequence[bytes], *, plain: bool, nonce: bytes) -> None:
        self.established: Established | None = None
        self._accepts = accepts
        self._keys = [_derive_key(secret) for secret in secrets]
        self._plain = plain
        self._nonce = nonce
        self._messages = _Messages()
        self._begun = b""  # preamble and challenge

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to send next. Raises HandshakeError."""
        self._messages.add(data)
        if not self._begun:
            return self._challenge()
        found = self._messages.take(_ANSWER, "the client")
        return b"" if found is None else self._verify(*found)

    def _challenge(self) -> bytes:
        preamble = self._messages.rest[: len(PREAMBLE)]
        if not PREAMBLE[:-1].startswith(preamble[: len(PREAMBLE) - 1]):
            raise HandshakeError("it does not authenticate")
        if len(preamble) < len(PREAMBLE):
            return b""
        if preamble != PREAMBLE:
            raise HandshakeError(f"version {preamble[-1]} of the handshake, expected {VERSION}", RefusalReason.VERSION)
        self._messages.rest = self._messages.rest[len(PREAMBLE) :]
        challenge = _encode(_CHALLENGE, self._nonce)
        self._begun = preamble + challenge
        return challenge

    def _verify(self, head: bytes, body: bytes) -> bytes:
        if len(body) < 1 + NONCE_BYTES + _PROOF_BYTES:
            raise HandshakeError(f"an answer of {len(body)} bytes is too short")
        answer, proof = body[:-_PROOF_BYTES], body[-_PROOF_BYTES:]
        transcript = hashlib.sha256(self._begun + head + answer).digest()
        key = next((key for key in self._keys if hmac.compare_digest(proof, _hmac(key, b"client" + transcript))), None)
        if key is None:
            raise HandshakeError("it does not know the secret of this group", RefusalReason.SECRET)
        identity = _decode_identity(answer[1 + NONCE_BYTES :])
        if not self._accepts(identity):
            raise HandshakeError(f"it is not expected here: {identity}", RefusalReason.IDENTITY)
        sealed = bool(answer[0] & _SEALED)
        if self._plain and not sealed:
            raise HandshakeError("it does not protect its records on a connection without TLS", RefusalReason.PLAIN)
        established = _establish(key, transcript, self._messages.rest, identity.sender, sealed)
        self.established = Established(established.peer, established.receive_key, established.send_key, established.rest)
        return _encode(_PROOF, _hmac(key, b"server" + transcript))


def encode_refusal(reason: RefusalReason) -> bytes:
    return _encode(_REFUSAL, bytes((reason,)))


class _Messages:
    """Received bytes, and the messages in them."""

    def __init__(self) -> None:
        self.rest = b""

    def add(self, data: bytes) -> None:
        self.rest += data

    def take(self, expected: int, sender: str) -> tuple[bytes, bytes] | None:
        """Return head and body of the next message, None if it is incomplete."""
        if len(self.rest) < _HEAD.size:
            return None
        kind, size = _HEAD.unpack_from(self.rest)
        if kind not in (expected, _REFUSAL) or size > MAX_BODY:
            raise HandshakeError(f"{sender} sent an invalid message: kind {kind}, {size} bytes")
        end = _HEAD.size + size
        if len(self.rest) < end:
            return None
        head, body, self.rest = self.rest[: _HEAD.size], self.rest[_HEAD.size : end], self.rest[end:]
        if kind == _REFUSAL:
            raise HandshakeError(f"{sender} refuses this broker: {_explain(body)}")
        return head, body


def _explain(body: bytes) -> str:
    reason = body[0] if len(body) == 1 else 0
    return _EXPLANATIONS[RefusalReason(reason)] if reason in RefusalReason.__members__.values() else f"reason {reason}"


def _encode(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(kind, len(body)) + body


def _encode_identity(identity: LinkIdentity) -> bytes:
    fields = (identity.purpose, identity.cluster, identity.group, identity.sender, identity.receiver)
    return b"".join(bytes((len(text),)) + text for text in (field.encode() for field in fields))


def _decode_identity(data: bytes) -> LinkIdentity:
    fields: list[str] = []
    at = 0
    try:
        while at < len(data):
            size = data[at]
            text = data[at + 1 : at + 1 + size]
            if len(text) < size:
                raise ValueError("a field is incomplete")
            fields.append(text.decode())
            at += 1 + size
        purpose, cluster, group, sender, receiver = fields
    except ValueError as error:
        raise HandshakeError(f"invalid identity: {error}", RefusalReason.IDENTITY) from error
    return LinkIdentity(purpose, cluster, group, sender, receiver)


def _establish(key: bytes, transcript: bytes, rest: bytes, peer: str, sealed: bool) -> Established:
    """Return the result as the client sees it."""
    if not sealed:
        return Established(peer, None, None, rest)
    return Established(peer, _hmac(key, b"client records" + transcript), _hmac(key, b"server records" + transcript), rest)


def _derive_key(secret: bytes) -> bytes:
    return _hmac(secret, _LABEL)


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")
