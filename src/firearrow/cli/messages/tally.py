"""Counting for benchmarks: rate, bytes, failures and latencies, without keeping every latency.

Latencies are counted in buckets, 64 to each doubling, so that a percentile is off by less than 2 % and a million messages need no
more memory than one. The bucket of t microseconds: t below 128; above that, the number of doublings and the top seven bits.
"""

from __future__ import annotations

import resource
import threading
import time
from typing import Any

SHOWN = (50, 90, 99, 99.9)
_BUCKETS = 64 * 40


class LatencyRecorder:
    """May be added to by many threads."""

    def __init__(self) -> None:
        self.count = 0
        self.failed = 0
        self.bytes = 0
        self.max_us = 0
        self.first_failure = ""
        self._buckets = [0] * _BUCKETS
        self._lock = threading.Lock()
        self._began = self._ended = 0.0
        self._cpu_began = self._cpu_s = 0.0
        self._last = (0, 0.0)

    def start(self) -> None:
        self._began = time.perf_counter()
        self._cpu_began = _cpu_s()
        self._last = (0, self._began)

    def stop(self) -> None:
        if not self._ended:
            self._ended = time.perf_counter()
            self._cpu_s = _cpu_s() - self._cpu_began

    def add(self, latency_s: float, size: int, messages: int = 1) -> None:
        us = int(latency_s * 1_000_000)
        doublings = us.bit_length() - 7
        bucket = us if doublings <= 0 else (doublings << 6) + (us >> doublings)
        with self._lock:
            self.count += messages
            self.bytes += size * messages
            self._buckets[bucket if bucket < _BUCKETS else -1] += messages
            if us > self.max_us:
                self.max_us = us

    def failure(self, error: BaseException) -> None:
        with self._lock:
            self.failed += 1
            self.first_failure = self.first_failure or f"{type(error).__name__}: {error}"

    @property
    def elapsed_s(self) -> float:
        return (self._ended or time.perf_counter()) - self._began if self._began else 0.0

    def percentile_ms(self, percent: float) -> float:
        wanted = self.count * percent / 100
        seen = 0
        for bucket, messages in enumerate(self._buckets):
            seen += messages
            if messages and seen >= wanted:
                return min(_upper_us(bucket), self.max_us) / 1000
        return 0.0

    def live(self) -> str:
        """One line about the time since the last one."""
        now, count = time.perf_counter(), self.count
        (before, at), self._last = self._last, (count, now)
        rate = (count - before) / (now - at) if at and now > at else 0.0
        return f"{self.elapsed_s:6.1f} s {count:>12,} messages {rate:>10,.0f}/s, p99 {self.percentile_ms(99):.2f} ms" + (
            f", {self.failed:,} failed" if self.failed else ""
        )

    def figures(self) -> dict[str, Any]:
        seconds = max(self.elapsed_s, 1e-9)
        return {
            "messages": self.count,
            "failed": self.failed,
            "seconds": round(seconds, 3),
            "messages_per_s": round(self.count / seconds, 1),
            "mb_per_s": round(self.bytes / seconds / 1e6, 3),
            "latency_ms": {f"p{percent:g}": self.percentile_ms(percent) for percent in SHOWN} | {"max": self.max_us / 1000},
            "cpu_us_per_message": round(self._cpu_s / self.count * 1e6, 2) if self.count else None,
        }

    def report(self, verb: str) -> str:
        figures = self.figures()
        lines = [
            f"{verb} {self.count:,} messages in {figures['seconds']:.2f} s: {figures['messages_per_s']:,.0f} a second, "
            f"{figures['mb_per_s']:,.1f} MB/s, {self.failed:,} failed",
            "latency ms: " + "  ".join(f"{name} {value:.2f}" for name, value in figures["latency_ms"].items()),
        ]
        if self.count:
            lines.append(f"CPU: {figures['cpu_us_per_message']:.1f} us a message")
        if self.first_failure:
            lines.append(f"the first failure: {self.first_failure}")
        return "\n".join(lines)


def _upper_us(bucket: int) -> int:
    """The longest latency that falls into the bucket."""
    if bucket < 128:
        return bucket
    doublings = (bucket >> 6) - 1
    return ((bucket - (doublings << 6) + 1) << doublings) - 1


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
