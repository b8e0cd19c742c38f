"""Long polling: pulls that found nothing new are parked until a message arrives or their time is up.

When messages of a queue become readable, the pulls that one of them satisfies are resumed, in the order they came. A pull that no
message satisfies is resumed at its deadline, so that the consumer learns that there is nothing and asks again.

Invariants
- A pull is resumed exactly once: by `queue_grew`, by `expire` or by `release_queue`, whichever comes first.
- After `queue_grew(queue, first, end)` no pull is parked there with `from_offset < end` whose tags are among the new ones.
- `parked` has no entry for a queue without pulls. For such a queue the send path pays for one lookup.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from firearrow.store.consume_queue import ENTRY, ConsumeQueue

if TYPE_CHECKING:
    from firearrow.broker.pull.handler import Pull
    from firearrow.net.server import Connection


@dataclass(slots=True, eq=False)
class ParkedPull:
    queue: ConsumeQueue
    from_offset: int
    deadline_ms: int
    tag_codes: frozenset[int] | None  # None: every message satisfies it
    pull: Pull
    resume: Callable[[ParkedPull], None]
    resumed: bool = field(default=False, init=False)
    expired: bool = field(default=False, init=False)  # resumed because its time was up


class LongPolling:
    def __init__(self) -> None:
        self.parked: dict[ConsumeQueue, list[ParkedPull]] = {}
        self.count = 0
        # A pull resumed by an arrival stays in the heap: removing it would cost O(n). When most entries are such leftovers the
        # heap is rebuilt, so a busy queue costs O(log n) per pull and at most twice the memory of the parked pulls.
        self.deadlines: list[tuple[int, int, ParkedPull]] = []
        self._serial = 0

    def park(self, pull: ParkedPull) -> None:
        self.parked.setdefault(pull.queue, []).append(pull)
        self._serial += 1
        self.count += 1
        heapq.heappush(self.deadlines, (pull.deadline_ms, self._serial, pull))
        if len(self.deadlines) > 2 * self.count + 1024:
            self.deadlines = [entry for entry in self.deadlines if not entry[2].resumed]
            heapq.heapify(self.deadlines)

    def has_parked(self, queue: ConsumeQueue, conn: Connection, group: str) -> bool:
        """Return whether a pull of this connection and consumer group is parked at `queue`."""
        pulls = [parked.pull for parked in self.parked.get(queue, ())]
        return any(pull.conn is conn and pull.header.consumer_group == group for pull in pulls)

    def queue_grew(self, queue: ConsumeQueue, first: int, end: int) -> None:
        """Resume the pulls that the messages [first, end) of `queue` satisfy, oldest pull first."""
        codes: frozenset[int] | None = None  # read from the queue only if a pull filters
        ready = []
        for pull in self.parked.get(queue, ()):
            if pull.from_offset >= end:
                continue
            if pull.tag_codes is not None:
                if codes is None:
                    codes = _tag_codes(queue, first, end)
                if pull.tag_codes.isdisjoint(codes):
                    continue
            ready.append(pull)
        self._resume(queue, ready)

    def release_queue(self, queue: ConsumeQueue) -> None:
        """Resume all pulls of a queue: its offsets were reset, or it is being deleted."""
        self._resume(queue, list(self.parked.get(queue, ())))

    def expire(self, now_ms: int) -> None:
        """Resume the pulls whose time is up."""
        expired = []
        while self.deadlines and self.deadlines[0][0] <= now_ms:
            pull = heapq.heappop(self.deadlines)[2]
            if not pull.resumed:
                expired.append(pull)
        for pull in expired:
            pull.expired = True
            self._resume(pull.queue, [pull])

    def expire_all(self) -> None:
        """Resume all pulls as if their time were up."""
        self.expire(1 << 62)

    def _resume(self, queue: ConsumeQueue, pulls: list[ParkedPull]) -> None:
        if not pulls:
            return
        for pull in pulls:
            assert not pull.resumed, "a pull is resumed once"
            pull.resumed = True
        self.count -= len(pulls)
        left = [pull for pull in self.parked[queue] if not pull.resumed]
        if left:
            self.parked[queue] = left
        else:
            del self.parked[queue]
        for pull in pulls:  # last: a pull may be parked again
            pull.resume(pull)


def _tag_codes(queue: ConsumeQueue, first: int, end: int) -> frozenset[int]:
    return frozenset(tags_code for _, _, tags_code in ENTRY.iter_unpack(queue.entries(first, end - first)))
