"""Which queue a message goes to.

Without a wish: one after the other, beginning anywhere; after a failure not on the same broker again if there is another. With a
sharding key: always the same one, and the same as Java's `SelectMessageQueueByHash` takes for that text.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from firearrow.client.message import Message, MessageQueue
from firearrow.client.producer.fault_avoidance import FaultTable
from firearrow.wire.java_hash import hash_code

Selector = Callable[[list[MessageQueue], Message], MessageQueue]


class OfBroker(Protocol):
    @property
    def broker_name(self) -> str: ...


T = TypeVar("T", bound=OfBroker)


class RoundRobin:
    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = random.randrange(1 << 16)

    def choose(self, targets: Sequence[T], last_broker: str | None = None) -> T:
        """The next one; one of another broker than the last if there is any."""
        index = self._next = self._next + 1
        count = len(targets)
        if last_broker is not None:
            for turn in range(count):
                target = targets[(index + turn) % count]
                if target.broker_name != last_broker:
                    self._next += turn
                    return target
        return targets[index % count]

    def choose_available(self, targets: Sequence[T], faults: FaultTable, now_ms: float, last_broker: str | None = None) -> T:
        """The next one of a broker that is not to be left alone; failing that, of one that can be reached, of the least bad."""
        index = self._next = self._next + 1
        count = len(targets)
        in_turn = [targets[(index + turn) % count] for turn in range(count)]
        for good in (faults.available, faults.reachable):
            for target in in_turn:
                if target.broker_name != last_broker and good(target.broker_name, now_ms):
                    return target
        others = [target for target in in_turn if target.broker_name != last_broker] or in_turn
        return min(others, key=lambda target: faults.penalty(target.broker_name))


def by_sharding_key(count: int, key: str) -> int:
    """The index among `count` queues for a key."""
    return abs(hash_code(key)) % count
