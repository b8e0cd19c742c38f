"""Consumption statistics for operators: counts by topic, and rates over the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

TICK_MS: Final = 10_000
WINDOW_TICKS: Final = 6

Count = Callable[[str, int, bool, float], None]
"""Arguments: topic, number of messages, consumed or failed, seconds in the listener."""


@dataclass(slots=True)
class _Counts:
    at_ms: int = 0
    consumed: int = 0
    failed: int = 0
    listener_s: float = 0.0
    calls: int = 0
    pulled: int = 0
    pulls: int = 0
    pull_s: float = 0.0


class ConsumerStats:
    """Counters by topic with a window of samples."""

    def __init__(self, now_ms: int) -> None:
        self._started_ms = now_ms
        self._counts: dict[str, _Counts] = {}
        self._before: dict[str, deque[_Counts]] = {}

    def consumed(self, topic: str, messages: int, success: bool, spent_s: float) -> None:
        counts = self._of(topic)
        if success:
            counts.consumed += messages
        else:
            counts.failed += messages
        counts.listener_s += spent_s
        counts.calls += messages

    def pulled(self, topic: str, messages: int, spent_s: float) -> None:
        counts = self._of(topic)
        counts.pulled += messages
        counts.pulls += 1
        counts.pull_s += spent_s

    def tick(self, now_ms: int) -> None:
        """Take a sample; called every TICK_MS."""
        for topic, counts in self._counts.items():
            self._before[topic].append(replace(counts, at_ms=now_ms))

    def status(self, topic: str, now_ms: int) -> dict[str, Any]:
        """Return the fields of a running info: rates per second, times in milliseconds."""
        counts = self._of(topic)
        before = self._before[topic][0]
        seconds = max(now_ms - before.at_ms, 1) / 1000
        calls, pulls = counts.calls - before.calls, counts.pulls - before.pulls
        return {
            "consumeFailedMsgs": counts.failed,
            "consumeFailedTPS": (counts.failed - before.failed) / seconds,
            "consumeOKTPS": (counts.consumed - before.consumed) / seconds,
            "consumeRT": (counts.listener_s - before.listener_s) * 1000 / calls if calls else 0.0,
            "pullRT": (counts.pull_s - before.pull_s) * 1000 / pulls if pulls else 0.0,
            "pullTPS": (counts.pulled - before.pulled) / seconds,
        }

    def _of(self, topic: str) -> _Counts:
        counts = self._counts.get(topic)
        if counts is None:
            counts = self._counts[topic] = _Counts()
            self._before[topic] = deque([_Counts(at_ms=self._started_ms)], maxlen=WINDOW_TICKS)
        return counts
