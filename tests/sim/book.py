"""What clients sent in a simulated group, and what may be seen of it.

Every message has a number, which its body begins with. Some are to be delivered at once, some later (delay levels, timers), some
are halves of transactions, which their producers commit, roll back or forget.

- Half a transaction is never seen; its message is, after its producer has asked to commit it, and not if it asked to roll back.
- Nothing is seen, and nothing is stored where consumers look, before its time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class BrokenPromiseError(AssertionError):
    """A promise was broken."""


class Kind(Enum):
    PLAIN = "plain"
    DELAYED = "delayed"  # by a level
    TIMED = "timed"
    HALF = "half"


LEVELS_MS = {1: 1000, 2: 2000, 3: 4000}
LEVELS = "1s 2s 4s"


@dataclass
class Message:
    number: int
    kind: Kind
    body: bytes
    sent_ms: int
    delay_ms: int = 0
    level: int = 0
    decision: bool | None = None  # what its producer asked for: True to commit
    place: tuple[int, int] | None = None  # of a half: queue offset and log offset that its producer was told
    decided: bool = False  # the decision was acknowledged

    @property
    def due_ms(self) -> int:
        return self.sent_ms + self.delay_ms


class ExpectationLedger:
    """`kinds`: what this run sends."""

    def __init__(self, rng: random.Random, kinds: list[Kind], now: Callable[[], int]) -> None:
        self.messages: dict[int, Message] = {}
        self.acknowledged: set[int] = set()
        self.delivered: set[int] = set()
        self._rng = rng
        self._kinds = kinds
        self._now = now

    def new(self) -> Message:
        rng, number = self._rng, len(self.messages) + 1
        kind = rng.choice(self._kinds)
        level = rng.choice(list(LEVELS_MS)) if kind is Kind.DELAYED else 0
        delay_ms = rng.randint(200, 5000) if kind is Kind.TIMED else LEVELS_MS.get(level, 0)
        body = b"message %d " % number + bytes(rng.randint(0, 120))
        message = self.messages[number] = Message(number, kind, body, self._now(), delay_ms, level)
        return message

    def seen(self, body: bytes, stored_ms: int, where: str) -> None:
        """A consumer could read this now; it was stored at that time, where consumers look."""
        message = self.messages[number_of(body)]
        if message.body != body:
            raise BrokenPromiseError(f"{where}: message {message.number} is not what was sent: {body[:40]!r}")
        if message.kind is Kind.HALF and not message.decision:
            said = "nobody has decided about" if message.decision is None else "was rolled back"
            raise BrokenPromiseError(f"{where} shows message {message.number}, half of a transaction that {said}")
        if min(stored_ms, self._now()) < message.due_ms:
            raise BrokenPromiseError(
                f"{where} shows message {message.number} at {self._now()}, stored at {stored_ms}: it is due at {message.due_ms}"
            )
        self.delivered.add(message.number)

    def waiting(self) -> list[int]:
        """Acknowledged, and, if it is half of a transaction, committed; not delivered."""
        return [
            number
            for number in sorted(self.acknowledged - self.delivered)
            if (message := self.messages[number]).kind is not Kind.HALF or (message.decision and message.decided)
        ]

    def missing(self) -> list[int]:
        """Of these, what is due."""
        return [number for number in self.waiting() if self.messages[number].due_ms <= self._now()]


def number_of(body: bytes) -> int:
    return int(body.split(b" ", 2)[1])
