"""Long polling: pulls that found nothing new are parked until a message arrives or their time is up.

When messages of a queue become readable, the pulls that one of them satisfies are resumed, in the order they came. A pull that no
message satisfies is resumed at its deadline, so that the consumer learns that there is nothing and asks again.

Invariants
- A pull is resumed exactly once: by `queue_grew`, by `expire` or by `release_queue`, whichever comes first. A pull whose
  connection is closed is dropped instead.
- After `queue_grew(queue, first, end)` no pull is parked there with `from_offset < end` whose tags are among the new ones.
- `parked` has no entry for a queue without pulls. For such a queue the send path pays for one lookup.

Costs. Parking and removing a pull takes O(log n). An event resumes SLICE pulls at once, and the rest in later iterations of the
event loop, so thousands of pulls that become ready together do not hold up other clients. Pulls with an SQL92 filter evaluate it
when they are resumed; they have a queue of their own and do not hold up the others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from firearrow.store.consume_queue import ENTRY, ConsumeQueue

if TYPE_CHECKING:
    from firearrow.broker.pull.handler import Pull
    from firearrow.broker.sql92 import Filter
    from firearrow.net.server import Connection

SLICE = 64  # pulls resumed in one event-loop iteration; a resumed pull costs about 15 us
SQL_SLICE = 4  # the same with an SQL92 filter, where each may cost 10 ms
EXPIRE_SLICE = 4096  # pulls that expire in one tick, every 100 ms; a few us each


@dataclass(slots=True, eq=False)
class ParkedPull:
    queue: ConsumeQueue
    from_offset: int
    deadline_ms: int
    tag_codes: frozenset[int] | None  # None: every message satisfies it
    pull: Pull
    resume: Callable[[ParkedPull], None]
    sql: Filter | None = None
    resumed: bool = field(default=False, init=False)  # or dropped
    expired: bool = field(default=False, init=False)  # resumed because its time was up


class LongPolling:
    """`call_soon` runs a function in the next iteration of the event loop; without it, all pulls are resumed at once."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self.parked: dict[ConsumeQueue, dict[ParkedPull, None]] = {}
        self.count = 0
        self.filter_size = 0  # of the distinct SQL92 filters of all parked pulls
        self._filters: dict[Filter, int] = {}  # SQL92 filter -> number of its parked pulls
        # A pull resumed by an arrival stays in the heap: removing it would cost O(n). When most entries are such leftovers the
        # heap is rebuilt, so a busy queue costs O(log n) per pull and at most twice the memory of the parked pulls.
        self.deadlines: list[tuple[int, int, ParkedPull]] = []
        self._serial = 0
        self._call_soon = call_soon
        self._ready: deque[ParkedPull] = deque()
        self._ready_sql: deque[ParkedPull] = deque()
        self._turn_scheduled = False

    def park(self, pull: ParkedPull) -> None:
        self.parked.setdefault(pull.queue, {})[pull] = None
        self._serial += 1
        self.count += 1
        if pull.sql is not None:
            self._count_filter(pull.sql, 1)
        heapq.heappush(self.deadlines, (pull.deadline_ms, self._serial, pull))
        self._trim_deadlines()

    def parked_at(self, queue: ConsumeQueue) -> int:
        """Return the number of pulls parked at a queue."""
        return len(self.parked.get(queue, ()))

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
        self._resume(ready)

    def release_queue(self, queue: ConsumeQueue) -> None:
        """Resume all pulls of a queue: its offsets were reset, or it is being deleted."""
        self._resume(list(self.parked.get(queue, ())))

    def expire(self, now_ms: int, most: int = EXPIRE_SLICE) -> None:
        """Resume pulls whose time is up, the earliest first, no more than `most` of them."""
        expired: list[ParkedPull] = []
        while self.deadlines and self.deadlines[0][0] <= now_ms and len(expired) < most:
            pull = heapq.heappop(self.deadlines)[2]
            if not pull.resumed:
                pull.expired = True
                expired.append(pull)
        self._resume(expired)

    def expire_all(self) -> None:
        """Resume all pulls as if their time were up."""
        self.expire(1 << 62, self.count)

    def drop(self, pulls: Iterable[ParkedPull]) -> None:
        """Remove pulls without resuming them: their connection is closed."""
        for pull in pulls:
            if not pull.resumed:
                self._remove(pull)
        self._trim_deadlines()

    def _resume(self, pulls: list[ParkedPull]) -> None:
        if not pulls:
            return
        for pull in pulls:
            self._remove(pull)
            (self._ready if pull.sql is None else self._ready_sql).append(pull)
        if not self._turn_scheduled:
            self._serve_ready()

    def _serve_ready(self) -> None:
        """Resume one slice of the pulls that are ready. A pull may be parked again by that."""
        self._turn_scheduled = False
        while self._ready or self._ready_sql:
            for ready, most in ((self._ready, SLICE), (self._ready_sql, SQL_SLICE)):
                for _ in range(min(most, len(ready))):
                    pull = ready.popleft()
                    pull.resume(pull)
            if self._call_soon is not None:
                if self._ready or self._ready_sql:
                    self._turn_scheduled = True
                    self._call_soon(self._serve_ready)
                return

    def _remove(self, pull: ParkedPull) -> None:
        assert not pull.resumed, "a pull is resumed once"
        pull.resumed = True
        self.count -= 1
        pulls = self.parked[pull.queue]
        del pulls[pull]
        if not pulls:
            del self.parked[pull.queue]
        if pull.sql is not None:
            self._count_filter(pull.sql, -1)

    def _count_filter(self, sql: Filter, change: int) -> None:
        before = self._filters.get(sql, 0)
        if before + change:
            self._filters[sql] = before + change
        else:
            del self._filters[sql]
        if not before or not before + change:
            self.filter_size += change * sql.size

    def _trim_deadlines(self) -> None:
        if len(self.deadlines) > 2 * self.count + 1024:
            self.deadlines = [entry for entry in self.deadlines if not entry[2].resumed]
            heapq.heapify(self.deadlines)


def _tag_codes(queue: ConsumeQueue, first: int, end: int) -> frozenset[int]:
    return frozenset(tags_code for _, _, tags_code in ENTRY.iter_unpack(queue.entries(first, end - first)))
