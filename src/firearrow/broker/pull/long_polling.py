"""Pulls that found nothing new, held until a message arrives or their time is up (long polling).

A consumer that has read a queue to its end is not answered at once: its pull is held here. When messages of that queue
become readable, the pulls that one of them satisfies are released, in the order they came; a pull that nobody satisfies
is released at its deadline, so that the consumer hears "nothing yet" and asks again.

Invariants
- A pull is released exactly once: by arrival, by deadline or by `release_queue`, whichever comes first.
- After `arrived(queue, first, end)` no pull is held there with `from_offset < end` whose tags are among the new ones.
- `queue.waiters` is None when nobody waits. The send path looks only at that, so a queue without consumers costs it nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from firearrow.store.consume_queue import ENTRY, ConsumeQueue


@dataclass(slots=True, eq=False)
class HeldPull:
    queue: ConsumeQueue
    from_offset: int
    deadline_ms: int
    tag_codes: frozenset[int] | None  # None: every message satisfies it
    answer_to: Any  # opaque to us: whoever held the pull knows how to answer it
    released: bool = field(default=False, init=False)
    late: bool = field(default=False, init=False)  # released because its time was up


class LongPolling:
    def __init__(self) -> None:
        # A pull released by arrival stays in the heap: taking it out at once would cost O(n). When most of the heap is such
        # left-overs it is built anew, so a busy queue costs O(log n) a pull and no more memory than twice what is held.
        self._deadlines: list[tuple[int, int, HeldPull]] = []
        self._serial = 0
        self.count = 0

    def hold(self, pull: HeldPull) -> None:
        if pull.queue.waiters is None:
            pull.queue.waiters = []
        pull.queue.waiters.append(pull)
        self._serial += 1
        self.count += 1
        heapq.heappush(self._deadlines, (pull.deadline_ms, self._serial, pull))
        if len(self._deadlines) > 2 * self.count + 1024:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].released]
            heapq.heapify(self._deadlines)

    def arrived(self, queue: ConsumeQueue, first: int, end: int) -> list[HeldPull]:
        """Messages [first, end) of the queue are readable now. Returns whom to answer, oldest pull first."""
        waiting: list[HeldPull] = queue.waiters or []
        codes: frozenset[int] | None = None  # read from the queue only if somebody filters
        ready = []
        for pull in waiting:
            if pull.from_offset >= end:
                continue
            if pull.tag_codes is not None:
                if codes is None:
                    codes = _tag_codes(queue, first, end)
                if pull.tag_codes.isdisjoint(codes):
                    continue
            ready.append(pull)
        self._release(queue, ready)
        return ready

    def release_queue(self, queue: ConsumeQueue) -> list[HeldPull]:
        """Releases everybody who waits at this queue: its offsets were reset, or it is going away."""
        ready = list(queue.waiters or [])
        self._release(queue, ready)
        return ready

    def expired(self, now_ms: int) -> list[HeldPull]:
        """Releases the pulls whose time is up."""
        late = [pull for pull in self._pop_deadlines(now_ms) if not pull.released]
        for pull in late:
            pull.late = True
            self._release(pull.queue, [pull])
        return late

    def _pop_deadlines(self, now_ms: int) -> Iterator[HeldPull]:
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            yield heapq.heappop(self._deadlines)[2]

    def _release(self, queue: ConsumeQueue, pulls: list[HeldPull]) -> None:
        if not pulls:
            return
        for pull in pulls:
            assert not pull.released, "a pull is answered once"
            pull.released = True
        self.count -= len(pulls)
        queue.waiters = [pull for pull in queue.waiters if not pull.released] or None


def _tag_codes(queue: ConsumeQueue, first: int, end: int) -> frozenset[int]:
    return frozenset(tags_code for _, _, tags_code in ENTRY.iter_unpack(queue.entries(first, end - first)))
