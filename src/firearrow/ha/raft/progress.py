"""Replication progress of one follower, as its leader tracks it.

Invariants: `match` counts towards the committed offset. It is the offset up to which the follower reported durable bytes in this
term, with this term's epoch in its table. `next` is the start of the next bytes to send; those between `acked` and `next` are in
flight.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Progress:
    last_heard_ms: int
    probing: bool = True  # the follower does not know the leader's epoch table yet; no bytes are sent
    next: int = 0
    acked: int = 0  # durable at the follower, whatever its table contains
    match: int = -1
    quarantine_token: int = 0  # the last one reported by the follower; echoed to it
    last_sent_ms: int = -(10**9)
    moved_ms: int = 0  # when `acked` last changed, or when bytes came to be in flight
    rewound_ms: int = -(10**9)
    acknowledged: int = 0  # the highest `acked` of this log in this term
    log_id: int = 0  # of the follower's log; 0: not heard of yet
    replaced_logs: set[int] = field(default_factory=set)  # that the follower had before in this term

    @property
    def in_flight(self) -> int:
        return max(0, self.next - self.acked)

    def accept_log(self, log_id: int) -> bool:
        """Return whether a message is about the follower's current log.

        A follower that lost its directory returns with another log, which holds nothing of what the previous one acknowledged.
        """
        if log_id in self.replaced_logs:
            return False
        if self.log_id not in (0, log_id):
            self.replaced_logs.add(self.log_id)
            self.start_probing()
            self.acknowledged = 0
        self.log_id = log_id
        return True

    def start_probing(self) -> None:
        self.probing = True
        self.match = -1
        self.acked = 0

    def start_streaming(self, end: int, now_ms: int) -> None:
        self.probing = False
        self.next = end
        self.moved_ms = now_ms

    def rewind(self, end: int, now_ms: int, pause_ms: int) -> None:
        """Continue at the follower's end after a gap, at most once per `pause_ms`: every message behind a gap reports it."""
        if now_ms - self.rewound_ms >= pause_ms:
            self.rewound_ms = now_ms
            self.next = end
            self.moved_ms = now_ms
