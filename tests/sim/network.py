"""A simulated network that loses, delays, duplicates, reorders and damages messages, and partitions in various ways."""

from __future__ import annotations

import random
from collections.abc import Sequence


class Network:
    """The network between the members of a group."""

    def __init__(self, rng: random.Random, members: Sequence[str]) -> None:
        self._rng = rng
        self._members = list(members)
        self.blocked: set[tuple[str, str]] = set()
        self.reset()

    def reset(self) -> None:
        self.drop = self.double = self.damage = self.slow = 0.0
        self.delay_ms = 3

    def randomize(self) -> str:
        rng = self._rng
        self.drop = rng.choice((0.0, 0.0, 0.02, 0.1, 0.3))
        self.double = rng.choice((0.0, 0.05, 0.3))
        self.damage = rng.choice((0.0, 0.0, 0.01))
        self.slow = rng.choice((0.0, 0.02, 0.2))
        self.delay_ms = rng.choice((1, 5, 30, 150))
        return f"drop {self.drop} double {self.double} damage {self.damage} slow {self.slow} delay {self.delay_ms} ms"

    def carry(self, sender: str, receiver: str, data: bytes) -> list[tuple[int, bytes]]:
        """Return (delay, bytes) of everything that will arrive."""
        rng = self._rng
        if (sender, receiver) in self.blocked or (self.drop and rng.random() < self.drop):
            return []
        arrivals = []
        for _ in range(2 if self.double and rng.random() < self.double else 1):
            delay = rng.randint(0, self.delay_ms)
            if self.slow and rng.random() < self.slow:
                delay += rng.randint(0, 3000)
            if self.damage and rng.random() < self.damage:
                at = rng.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            arrivals.append((delay, data))
        return arrivals

    # Partitions

    def heal(self) -> str:
        self.blocked.clear()
        return "network whole"

    def split(self) -> str:
        side = set(self._rng.sample(self._members, self._rng.randint(1, len(self._members) - 1)))
        self.blocked = {(a, b) for a in self._members for b in self._members if (a in side) != (b in side)}
        return f"split {sorted(side)} from the rest"

    def one_way(self) -> str:
        member = self._rng.choice(self._members)
        others = self._rng.sample(
            [other for other in self._members if other != member], self._rng.randint(1, len(self._members) - 1)
        )
        deaf = self._rng.random() < 0.5
        self.blocked |= {(other, member) if deaf else (member, other) for other in others}
        return f"{member} {'does not hear' if deaf else 'is not heard by'} {sorted(others)}"

    def bridge(self) -> str:
        """Split the group into two halves that both hear one member."""
        order = self._rng.sample(self._members, len(self._members))
        middle, rest = order[0], order[1:]
        left = set(rest[: len(rest) // 2])
        self.blocked = {(a, b) for a in rest for b in rest if (a in left) != (b in left)}
        return f"only {middle} hears both {sorted(left)} and the rest"

    def ring(self) -> str:
        """Let every member hear a majority, each a different one."""
        order = self._rng.sample(self._members, len(self._members))
        near = len(order) // 4 or 1
        self.blocked = set()
        for i, a in enumerate(order):
            for j, b in enumerate(order):
                apart = min((i - j) % len(order), (j - i) % len(order))
                if apart > near or (len(order) == 3 and (j - i) % 3 == 2):
                    self.blocked.add((a, b))
        return f"ring {order}"
