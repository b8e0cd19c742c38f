"""How many timer messages wait, by topic, and how fast they come and go: `config/timermetrics` (61), figures for 28.

    {"dataVersion":{...},"timingCount":{topic:{"count":n,"timeStamp":ms}}}     in one line, as Apache writes it

A message counts from when it is entered into the wheel until it leaves it; one that rolls on leaves and is entered again. A
marker that recalls a message takes one away while both wait, whether it finds its message or not.

The table is kept by Java's hash code of the topic, which is all that the timer log knows of it: topics with the same hash code
are counted together. It is saved now and then, and at a clean stop. After a crash it is counted again from the timer log, so the
file is needed for the names only.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from firearrow.store import atomic_file
from firearrow.store.filesystem import Disk
from firearrow.store.timer.files import TopicCount
from firearrow.store.timer.log import DELETE, TimerEntry
from firearrow.wire.bodies import DataVersion
from firearrow.wire.errors import ProtocolError
from firearrow.wire.java_hash import hash_code

SAVE_MS = 10_000
_SAMPLE_MS = 1_000
_SAMPLES = 11  # rates are of the last ten seconds


@dataclass(slots=True)
class _Waiting:
    topic: str
    count: int
    changed_ms: int


class TimerMetrics:
    def __init__(self, disk: Disk, root: str, now_ms: int) -> None:
        self._disk = disk
        self._path = os.path.join(root, "config", "timermetrics")
        self._version = DataVersion(timestamp=now_ms)
        self._waiting: dict[int, _Waiting] = {}  # by hash code
        self._changes = 0  # since the data version was made
        self._unsaved = False
        self._next_save_ms = 0
        self._now_ms = now_ms
        self._entered = self._left = 0
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=_SAMPLES)  # time, entered, left

    @property
    def totals(self) -> tuple[int, int]:
        """How many were entered and left, since the start."""
        return self._entered, self._left

    # Beginning

    def load(self) -> bool:
        """Takes over what the file holds; False when there is none that can be read: it can be counted again."""
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
                self._waiting[hash_code(topic)] = _Waiting(topic, count, changed_ms)

    def follow(self, table: dict[str, Any]) -> Callable[[], None] | None:
        """A replica takes its master's table. Gives a job that writes the file; None when nothing is new."""
        if _dict(table.get("dataVersion")) == self._version.to_json() and not self._changes:
            return None
        self._waiting.clear()
        self._take(table)
        self._changes, self._unsaved = 0, True
        return self.saver(always=True)

    def recount(self, counted: Mapping[int, TopicCount], topic_of: Callable[[int], str | None]) -> None:
        """Takes what was counted in the timer log. `topic_of(physical offset)`: the real topic of a timer message."""
        for known in self._waiting.values():
            known.count = 0
        for topic_hash, (count, physical_offset) in counted.items():
            known = self._waiting.get(topic_hash) or self._new(topic_hash, topic_of(physical_offset) or "")
            known.count = count
        self._changes += 1

    # Going on

    def entered(self, topic: str, topic_hash: int, magic: int) -> None:
        self._entered += 1
        known = self._waiting.get(topic_hash) or self._new(topic_hash, topic)
        known.topic = known.topic or topic
        self._add(known, -1 if magic & DELETE else 1)

    def left(self, entry: TimerEntry) -> None:
        """An entry leaves the wheel: delivered, rolled on, recalled, lost; or it was a marker, and its slot is open."""
        self._left += 1
        known = self._waiting.get(entry.topic_hash) or self._new(entry.topic_hash, "")
        self._add(known, 1 if entry.magic & DELETE else -1)

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if not self._samples or now_ms - self._samples[-1][0] >= _SAMPLE_MS:
            self._samples.append((now_ms, self._entered, self._left))

    def saver(self, *, always: bool = False) -> Callable[[], None] | None:
        """A job that writes the file; None when that can wait."""
        if not (self._unsaved or self._changes) or (self._now_ms < self._next_save_ms and not always):
            return None
        self._next_save_ms = self._now_ms + SAVE_MS
        text = json.dumps(self.to_json(), separators=(",", ":")).encode()
        self._unsaved = False
        return lambda: atomic_file.save_table_text(self._disk, self._path, text)

    # What is asked for

    def to_json(self) -> dict[str, Any]:
        if self._changes:
            version = self._version
            self._version = DataVersion(
                counter=version.counter + self._changes, state_version=version.state_version, timestamp=self._now_ms
            )
            self._changes = 0
            self._unsaved = True
        counts = {one.topic: {"count": one.count, "timeStamp": one.changed_ms} for one in self._waiting.values() if one.topic}
        return {"dataVersion": self._version.to_json(), "timingCount": counts}

    @property
    def waiting(self) -> int:
        return sum(one.count for one in self._waiting.values())

    def rates(self) -> tuple[float, float]:
        """Messages a second that were entered and that left."""
        if len(self._samples) < 2:
            return 0.0, 0.0
        (first_ms, first_entered, first_left), (last_ms, last_entered, last_left) = self._samples[0], self._samples[-1]
        seconds = (last_ms - first_ms) / 1000
        return round((last_entered - first_entered) / seconds, 1), round((last_left - first_left) / seconds, 1)

    def _new(self, topic_hash: int, topic: str) -> _Waiting:
        self._waiting[topic_hash] = known = _Waiting(topic, 0, self._now_ms)
        return known

    def _add(self, waiting: _Waiting, count: int) -> None:
        waiting.count += count
        waiting.changed_ms = self._now_ms
        self._changes += 1


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
