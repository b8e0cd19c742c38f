"""Loads of the comparison, and the limits for our broker under each.

Async loads run first, on a broker with ASYNC_FLUSH; sync loads on a fresh one with SYNC_FLUSH. `64x1` is 64 connections with one
request in flight each.

    send         single messages
    batch        32 messages to a request
    pull         a backlog read over and over, 32 messages to a request
    open         single messages at a fixed rate, independent of replies
    delay        messages of delay level 1; the rate is that of sending and delivering all of them, the latency that of the send
    transaction  a half message and its commit: the rate and the latency are of both requests together
"""

from __future__ import annotations

from dataclasses import dataclass

ASYNC, SYNC = "ASYNC_FLUSH", "SYNC_FLUSH"
QUEUES = 4
PULL_CONNECTIONS = 16


@dataclass(frozen=True)
class Bars:
    """Limits of the ratios of ours to Apache's; None: no limit."""

    rate_at_least: float | None
    cpu_at_most: float
    p999_at_most: float | None = 1.0


SEND_BARS = Bars(rate_at_least=1.3, cpu_at_most=0.6)
BATCH_BARS = Bars(rate_at_least=1.0, cpu_at_most=0.9)
OPEN_BARS = Bars(rate_at_least=None, cpu_at_most=0.6)  # the rate is the same for both
KIND_BARS = Bars(rate_at_least=1.3, cpu_at_most=0.6, p999_at_most=None)
KINDS = ("delay", "transaction")  # modes whose messages the broker itself moves to their queue


@dataclass(frozen=True)
class Load:
    name: str
    flush: str
    mode: str  # of the load program
    size: int
    connections: int
    depth: int
    bars: Bars
    half_of: str | None = None  # open loop, at half the rate that Apache reached under the load of this name

    @property
    def topic(self) -> str:
        """A separate topic for every load; pulls of one size read the same backlog."""
        return f"bench-backlog-{self.size}" if self.mode == "pull" else "bench-" + self.name.replace(" ", "-")


def all_loads() -> list[Load]:
    loads: list[Load] = []
    for flush, prefix in ((ASYNC, ""), (SYNC, "sync ")):
        for size, text in ((128, "128B"), (1024, "1KB")):
            for connections, depth in ((64, 1), (16, 16), (1, 1)):
                name = f"{prefix}send {text} {connections}x{depth}"
                loads.append(Load(name, flush, "send", size, connections, depth, SEND_BARS))
            loads.append(Load(f"{prefix}batch 32x{text} 16x1", flush, "batch", size, 16, 1, BATCH_BARS))
            if flush == ASYNC:
                loads.append(Load(f"pull 32x{text} {PULL_CONNECTIONS}x1", flush, "pull", size, PULL_CONNECTIONS, 1, SEND_BARS))
        maximum = f"{prefix}send 128B 16x16"
        loads.append(Load(f"{prefix}open 128B half rate", flush, "send", 128, 16, 16, OPEN_BARS, half_of=maximum))
        loads += [Load(f"{prefix}{kind} 128B 16x16", flush, kind, 128, 16, 16, KIND_BARS) for kind in KINDS]
    return loads


def select(loads: list[Load], patterns: list[str]) -> list[Load]:
    """Return the loads whose names contain one of the patterns, or all without patterns."""
    return [load for load in loads if not patterns or any(pattern in load.name for pattern in patterns)]
