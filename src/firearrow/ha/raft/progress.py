"""What a leader knows of one follower.

Invariants: `match` counts for the commit: the follower said, in this term and with this term's mark in its table, that it is
durable up to there. `next` is where the next bytes for it begin; what lies between `acked` and `next` is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    last_heard_ms: int
    probing: bool = True  # it does not know our table yet: no bytes are sent
    next: int = 0
    acked: int = 0  # durable there, whatever its table says
    match: int = -1
    doubt: int = 0  # what it said its doubt is; echoed
    last_sent_ms: int = -(10**9)
    moved_ms: int = 0  # when `acked` last changed, or bytes began to be on their way
    gap_ms: int = -(10**9)  # when we last went back

    @property
    def in_flight(self) -> int:
        return max(0, self.next - self.acked)

    def begin_probing(self) -> None:
        self.probing = True
        self.match = -1
        self.acked = 0

    def begin_streaming(self, end: int, now_ms: int) -> None:
        self.probing = False
        self.next = end
        self.moved_ms = now_ms

    def close_gap(self, end: int, now_ms: int, pause_ms: int) -> None:
        """Goes back to where the follower ends; not for each of those behind the gap that are answered with it."""
        if now_ms - self.gap_ms >= pause_ms:
            self.gap_ms = now_ms
            self.next = end
            self.moved_ms = now_ms
