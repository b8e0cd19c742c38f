"""Delays and transactions over the model log: a minimal broker.

Pending messages are known from the log alone, which a new leader reads. A message that is due or committed is stored again with
another keyword:

    plain N, out N       visible to consumers
    later N DUE, half N  pending
"""

from __future__ import annotations

from tests.sim.ledger import Kind, Message

VISIBLE = (b"plain", b"out")


class ModelBroker:
    """The pending messages of a leader."""

    def __init__(self) -> None:
        self._due: dict[int, tuple[int, bytes]] = {}  # number: (due, body)
        self._halves: dict[int, bytes] = {}

    def learn(self, payloads: list[bytes]) -> None:
        """Start to lead with a log that contains these payloads."""
        self._due.clear()
        self._halves.clear()
        for payload in payloads:
            self._stored(payload)

    def payload(self, message: Message) -> bytes:
        """Return the payload that stores a new message."""
        if message.kind is Kind.PLAIN:
            word = b"plain 0"
        elif message.kind is Kind.HALF:
            word = b"half 0"
        else:
            word = b"later %d" % message.due_ms
        return self._stored(word + b" " + message.body)

    def decided(self, message: Message) -> list[bytes]:
        """Return the payloads that a decision adds to the log."""
        body = self._halves.pop(message.number, None)
        if body is None or not message.decision:
            return []
        return [b"out 0 " + body]

    def due(self, now_ms: int) -> list[bytes]:
        """Return the payloads that are due."""
        due = [number for number, (due_ms, _) in self._due.items() if due_ms <= now_ms]
        return [b"out 0 " + self._due.pop(number)[1] for number in due]

    def _stored(self, payload: bytes) -> bytes:
        word, due_ms, body = payload.split(b" ", 2)
        number = int(body.split(b" ", 2)[1])
        if word == b"half":
            self._halves[number] = body
        elif word == b"later":
            self._due[number] = (int(due_ms), body)
        elif word == b"out":
            self._halves.pop(number, None)
            self._due.pop(number, None)
        return payload


def visible_body(payload: bytes) -> bytes | None:
    """Return the body that a consumer sees, None if the record is invisible."""
    word, _, body = payload.split(b" ", 2)
    return body if word in VISIBLE else None
