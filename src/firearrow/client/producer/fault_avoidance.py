"""Avoiding brokers that are slow or fail (`sendLatencyFaultEnable`).

How long a send took says for how long its broker is left alone: the highest row that was reached counts, and a send that failed
counts as ten seconds.

    took at least    50   100   550  1800  3000   5000  15000 ms
    left alone for    0     0  2000  5000  6000  10000  30000 ms

A broker that could not even be connected to is called unreachable until a send to it succeeds or its time is over.
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
    """Times are of any clock that goes forward."""

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
        """Smaller is better, among brokers that are all to be left alone."""
        fault = self.faults.get(broker_name)
        return (0.0, 0.0) if fault is None else (fault.until_ms, fault.latency_ms)


def pause_ms(latency_ms: float) -> int:
    for limit, pause in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_MS), strict=True):
        if latency_ms >= limit:
            return pause
    return 0
