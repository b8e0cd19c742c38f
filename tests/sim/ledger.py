"""Messages that clients sent to a simulated group, and the rules for their visibility.

The body of every message begins with its number. Some messages are delivered at once, some later (delay levels, timers), some are
halves of transactions, which their producers commit, roll back or forget.

- A half message is never visible. Its message is visible after a commit and never after a rollback.
- Nothing is visible, or stored where consumers read, before its time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class InvariantViolationError(AssertionError):
    """An invariant of the group does not hold."""


class Kind(Enum):
    PLAIN = "plain"
    DELAYED = "delayed"  # by a delay level
    TIMED = "timed"
    HALF = "half"


LEVELS_MS = {1: 1000, 2: 2000, 3: 4000}
LEVELS = "1s 2s 4s"


@dataclass
class Message:
    """A message that a client sent."""

    number: int
    kind: Kind
    body: bytes
    sent_ms: int
    delay_ms: int = 0
    level: int = 0
    decision: bool | None = None  # True: commit, False: roll back
    place: tuple[int, int] | None = None  # of a half: queue offset and log offset in the send result
    decided: bool = False  # the decision was acknowledged

    @property
    def due_ms(self) -> int:
        return self.sent_ms + self.delay_ms


class ExpectationLedger:
    """The messages of one run. `kinds` are the kinds that it sends."""

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
        """Check a message that a consumer can read now and that was stored at `stored_ms`."""
        message = self.messages[number_of(body)]
        if message.body != body:
            raise InvariantViolationError(f"{where}: message {message.number} differs from what was sent: {body[:40]!r}")
        if message.kind is Kind.HALF and not message.decision:
            state = "is undecided" if message.decision is None else "was rolled back"
            raise InvariantViolationError(f"{where} shows message {message.number}, half of a transaction that {state}")
        if min(stored_ms, self._now()) < message.due_ms:
            raise InvariantViolationError(
                f"{where} shows message {message.number} at {self._now()}, stored at {stored_ms}: it is due at {message.due_ms}"
            )
        self.delivered.add(message.number)

    def waiting(self) -> list[int]:
        """Return the acknowledged (and, for halves, committed) messages that are not delivered."""
        return [
            number
            for number in sorted(self.acknowledged - self.delivered)
            if (message := self.messages[number]).kind is not Kind.HALF or (message.decision and message.decided)
        ]

    def missing(self) -> list[int]:
        """Return the waiting messages that are due."""
        return [number for number in self.waiting() if self.messages[number].due_ms <= self._now()]


def number_of(body: bytes) -> int:
    return int(body.split(b" ", 2)[1])
