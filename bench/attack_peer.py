"""Blocking connections of the probe and of the attackers, and the requests that they send.

Every call has a timeout, and nothing connects beyond loopback.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command, FrameDecoder, encode_request

HOST = "127.0.0.1"
TIMEOUT_S = 60.0
RECEIVE_BYTES = 1 << 16
SQL_FLAGS = 4  # the pull carries its subscription
SUSPEND = 2


@dataclass(frozen=True)
class Victim:
    """Ports of the attacked servers, and the topic that the probe uses."""

    broker: int
    namesrv: int
    metrics: int
    topic: str = "Probe"


@dataclass
class Outcome:
    """Findings of an attacker, in addition to what the probe measures: its longest wait, and effects that must not happen."""

    blocked_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)


class Peer:
    """A connection with one reader: responses are taken in the order of their arrival."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((HOST, port))
        self._decoder = FrameDecoder()
        self._opaques = itertools.count(1)

    def request(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> Command:
        """Send a request and return its response. Requests of the server are ignored."""
        opaque = next(self._opaques)
        self.socket.sendall(encode_request(code, ext, body, opaque=opaque))
        for command in self._received(time.monotonic() + TIMEOUT_S):
            if command.is_response and command.opaque == opaque:
                return command
        raise TimeoutError(f"no response to request code {code} within {TIMEOUT_S:.0f} s")

    def pipeline(self, requests: Iterable[bytes]) -> int:
        """Send frames without waiting for responses. Return how many were sent before the send timeout or a disconnection."""
        sent = 0
        try:
            for frame in requests:
                self.socket.sendall(frame)
                sent += 1
        except OSError:
            pass
        return sent

    def drain(self, count: int, seconds: float) -> int:
        """Read up to `count` responses for at most `seconds`; return how many came."""
        responses = (command for command in self._received(time.monotonic() + seconds) if command.is_response)
        return sum(1 for _ in itertools.islice(responses, count)) if count else 0

    def discard(self, size: int) -> None:
        """Read and forget `size` bytes."""
        while size > 0:
            data = self.socket.recv(min(size, RECEIVE_BYTES))
            if not data:
                raise ConnectionError("the server closed the connection")
            size -= len(data)

    def close(self) -> None:
        self.socket.close()

    def _received(self, deadline: float) -> Iterator[Command]:
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                return
            if not data:
                raise ConnectionError("the server closed the connection")
            yield from self._decoder.feed(data)


def pull_ext(topic: str, offset: int = 0, *, sql: str | None = None, hold_ms: int = 0, queue_id: int = 0) -> dict[str, str]:
    return {
        "consumerGroup": "attackers",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(SQL_FLAGS | (SUSPEND if hold_ms else 0)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(hold_ms),
        "subscription": "*" if sql is None else sql,
        "expressionType": "TAG" if sql is None else "SQL92",
        "subVersion": "0",
    }


def send_ext(topic: str, properties: str = "", *, batch: bool = False) -> dict[str, str]:
    values = ("bench", topic, "TBW102", "4", "0", "0", "1700000000000", "0", properties, "0", "false")
    return {**dict(zip("abcdefghijk", values, strict=True)), "m": "true" if batch else "false"}


def topic_ext(topic: str, queues: int) -> dict[str, str]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


def send(peer: Peer, topic: str, body: bytes, properties: str = "") -> Command:
    return peer.request(RequestCode.SEND_MESSAGE_V2, send_ext(topic, properties), body)


def max_offset(peer: Peer, topic: str) -> int:
    return int(peer.request(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"}).ext["offset"])
