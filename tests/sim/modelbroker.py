"""Delays and transactions over the model log: the least that a broker does. What waits is known from the log alone, read anew by
whoever begins to lead; what is due, or committed, is stored again with another word in front.

    plain N, out N       what consumers see
    later N DUE, half N  what waits
"""

from __future__ import annotations

from tests.sim.book import Kind, Message

VISIBLE = (b"plain", b"out")


class ModelBroker:
    def __init__(self) -> None:
        self._due: dict[int, tuple[int, bytes]] = {}  # waiting: when, body
        self._halves: dict[int, bytes] = {}

    def learn(self, payloads: list[bytes]) -> None:
        """Begins to lead with a log that holds these."""
        self._due.clear()
        self._halves.clear()
        for payload in payloads:
            self._stored(payload)

    def payload(self, message: Message) -> bytes:
        """What a message is stored as when it comes."""
        if message.kind is Kind.PLAIN:
            word = b"plain 0"
        elif message.kind is Kind.HALF:
            word = b"half 0"
        else:
            word = b"later %d" % message.due_ms
        return self._stored(word + b" " + message.body)

    def decided(self, message: Message) -> list[bytes]:
        """What a decision adds to the log."""
        body = self._halves.pop(message.number, None)
        if body is None or not message.decision:
            return []
        return [b"out 0 " + body]

    def due(self, now_ms: int) -> list[bytes]:
        """What is to be stored now because its time has come."""
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
    """What a consumer sees of a record; None: nothing."""
    word, _, body = payload.split(b" ", 2)
    return body if word in VISIBLE else None
