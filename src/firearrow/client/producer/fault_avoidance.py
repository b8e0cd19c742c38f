"""Avoidance of slow and failed brokers (`sendLatencyFaultEnable`).

The latency of a send decides for how long its broker is avoided; a failed send counts as ten seconds.

    latency at least   50   100   550  1800  3000   5000  15000 ms
    avoided for         0     0  2000  5000  6000  10000  30000 ms

A broker that refused a connection is unreachable until a send to it succeeds or the time has passed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LATENCY_MAX_MS: Final = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_MS: Final = (0, 0, 2000, 5000, 6000, 10000, 30000)
FAILED_MS: Final = 10_000


class Fault(NamedTuple):
    latency_ms: float
    until_ms: float
    reachable: bool


class FaultTable:
    """Latencies and failures by broker. Times are those of any monotonic clock."""

    def __init__(self) -> None:
        self.faults: dict[str, Fault] = {}

    def succeeded(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        self.faults[broker_name] = Fault(latency_ms, now_ms + pause_ms(latency_ms), True)

    def failed(self, broker_name: str, latency_ms: float, now_ms: float, *, reachable: bool) -> None:
        self.faults[broker_name] = Fault(latency_ms, now_ms + pause_ms(FAILED_MS), reachable)

    def available(self, broker_name: str, now_ms: float) -> bool:
        fault = self.faults.get(broker_name)
        return fault is None or now_ms >= fault.until_ms

    def reachable(self, broker_name: str, now_ms: float) -> bool:
        fault = self.faults.get(broker_name)
        return fault is None or fault.reachable or now_ms >= fault.until_ms

    def penalty(self, broker_name: str) -> tuple[float, float]:
        """Return a sort key among brokers that should all be avoided; the smallest is the best choice."""
        fault = self.faults.get(broker_name)
        return (0.0, 0.0) if fault is None else (fault.until_ms, fault.latency_ms)


def pause_ms(latency_ms: float) -> int:
    for limit, pause in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_MS), strict=True):
        if latency_ms >= limit:
            return pause
    return 0
