"""Timer metrics: pending timer messages by topic (`config/timermetrics`, request 61), and enqueue and dequeue rates.

    {"dataVersion":{...},"timingCount":{topic:{"count":n,"timeStamp":ms}}}     in one line, as Apache writes it

A message is counted while it is in the wheel; a rolled message is dequeued and enqueued again. A recall marker counts as -1 while
it is in the wheel, whether or not its message exists.

The table is keyed by Java's hash code of the topic, because the timer log contains nothing else: topics with equal hash codes are
counted together. It is saved periodically and at a clean shutdown. After a crash it is recounted from the timer log; the file is
then needed for the topic names only.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from firearrow.store import atomic_file
from firearrow.store.filesystem import Disk
from firearrow.store.timer.files import TopicCount
from firearrow.store.timer.log import DELETE, TimerEntry
from firearrow.wire.bodies.topic import DataVersion
from firearrow.wire.errors import ProtocolError
from firearrow.wire.java_hash import hash_code

SAVE_MS = 10_000
_SAMPLE_MS = 1_000
_SAMPLES = 11  # rates cover the last ten seconds


@dataclass(slots=True)
class _TopicPending:
    topic: str
    count: int
    changed_ms: int


class TimerMetrics:
    """Counts of pending timer messages."""

    def __init__(self, disk: Disk, root: str, now_ms: int) -> None:
        self._disk = disk
        self._path = os.path.join(root, "config", "timermetrics")
        self._version = DataVersion(timestamp=now_ms)
        self._pending: dict[int, _TopicPending] = {}  # by hash code
        self._changes = 0  # since the data version was created
        self._unsaved = False
        self._next_save_ms = 0
        self._now_ms = now_ms
        self._enqueued = self._dequeued = 0
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=_SAMPLES)  # time, enqueued, dequeued

    @property
    def totals(self) -> tuple[int, int]:
        """Messages enqueued and dequeued since the start."""
        return self._enqueued, self._dequeued

    # Loading

    def load(self) -> bool:
        """Load the file; False if it is missing or unreadable and the counts must be recounted."""
        try:
            table = atomic_file.load_table(self._disk, self._path)
            if not isinstance(table, dict):
                return False
            self._take(table)
        except (atomic_file.TableError, ProtocolError):
            return False
        return True

    def _take(self, table: dict[str, Any]) -> None:
        self._version = DataVersion.from_json(_dict(table.get("dataVersion")))
        for topic, metric in _dict(table.get("timingCount")).items():
            count, changed_ms = _dict(metric).get("count"), _dict(metric).get("timeStamp")
            if isinstance(count, int) and isinstance(changed_ms, int):
                self._pending[hash_code(topic)] = _TopicPending(topic, count, changed_ms)

    def follow(self, table: dict[str, Any]) -> Callable[[], None] | None:
        """Take over the master's table on a replica. Return a job that writes the file; None if nothing changed."""
        if _dict(table.get("dataVersion")) == self._version.to_json() and not self._changes:
            return None
        self._pending.clear()
        self._take(table)
        self._changes, self._unsaved = 0, True
        return self.saver(always=True)

    def recount(self, counted: Mapping[int, TopicCount], topic_of: Callable[[int], str | None]) -> None:
        """Set the counts from the timer log. `topic_of(physical offset)` returns the destination topic of a timer message."""
        for known in self._pending.values():
            known.count = 0
        for topic_hash, (count, physical_offset) in counted.items():
            known = self._pending.get(topic_hash) or self._new(topic_hash, topic_of(physical_offset) or "")
            known.count = count
        self._changes += 1

    # Counting

    def enqueued(self, topic: str, topic_hash: int, magic: int) -> None:
        """Count an entry added to the wheel."""
        self._enqueued += 1
        known = self._pending.get(topic_hash) or self._new(topic_hash, topic)
        known.topic = known.topic or topic
        self._add(known, -1 if magic & DELETE else 1)

    def dequeued(self, entry: TimerEntry) -> None:
        """Count an entry removed from the wheel: delivered, rolled, recalled, lost, or a processed marker."""
        self._dequeued += 1
        known = self._pending.get(entry.topic_hash) or self._new(entry.topic_hash, "")
        self._add(known, 1 if entry.magic & DELETE else -1)

    def tick(self, now_ms: int) -> None:
        """Sample the counters for the rates."""
        self._now_ms = now_ms
        if not self._samples or now_ms - self._samples[-1][0] >= _SAMPLE_MS:
            self._samples.append((now_ms, self._enqueued, self._dequeued))

    def saver(self, *, always: bool = False) -> Callable[[], None] | None:
        """Return a job that writes the file; None if that is not necessary yet."""
        if not (self._unsaved or self._changes) or (self._now_ms < self._next_save_ms and not always):
            return None
        self._next_save_ms = self._now_ms + SAVE_MS
        text = json.dumps(self.to_json(), separators=(",", ":")).encode()
        self._unsaved = False
        return lambda: atomic_file.save_table_text(self._disk, self._path, text)

    # Reporting

    def to_json(self) -> dict[str, Any]:
        if self._changes:
            self._version = replace(self._version, counter=self._version.counter + self._changes, timestamp=self._now_ms)
            self._changes = 0
            self._unsaved = True
        counts = {one.topic: {"count": one.count, "timeStamp": one.changed_ms} for one in self._pending.values() if one.topic}
        return {"dataVersion": self._version.to_json(), "timingCount": counts}

    @property
    def pending(self) -> int:
        """Messages in the wheel."""
        return sum(one.count for one in self._pending.values())

    def rates(self) -> tuple[float, float]:
        """Return messages enqueued and dequeued per second."""
        if len(self._samples) < 2:
            return 0.0, 0.0
        (first_ms, first_in, first_out), (last_ms, last_in, last_out) = self._samples[0], self._samples[-1]
        seconds = (last_ms - first_ms) / 1000
        return round((last_in - first_in) / seconds, 1), round((last_out - first_out) / seconds, 1)

    def _new(self, topic_hash: int, topic: str) -> _TopicPending:
        self._pending[topic_hash] = known = _TopicPending(topic, 0, self._now_ms)
        return known

    def _add(self, pending: _TopicPending, count: int) -> None:
        pending.count += count
        pending.changed_ms = self._now_ms
        self._changes += 1


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
