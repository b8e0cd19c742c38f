"""Incremental execution of a job, from the position in its journal to the end of its source.

    write plan -> work -> write done -> follow-up (files are moved to their final names)

An increment that is planned but not done is run again with the same plan. The follow-up of the last completed increment is
repeated at start; it is idempotent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from firearrow.spark.pipelines.journal import Journal
from firearrow.spark.pipelines.sources import Json, MessageSource

MAX_OFFSETS: Final = 2_000_000  # messages per increment
_MAX_SLEEP_S: Final = 0.2

Report = Callable[[dict[str, Any]], None]


def discard(event: dict[str, Any]) -> None:
    """Discard progress events."""


@dataclass
class Totals:
    """Totals of one run of a job."""

    increments: int = 0
    rows: int = 0
    bytes: int = 0
    files: int = 0
    seconds: float = 0.0
    resumed: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def add(self, done: Json) -> None:
        self.increments += 1
        self.rows += done.get("rows", 0)
        self.bytes += done.get("bytes", 0)
        self.files += len(done.get("files", ()))


class RunOptions(TypedDict, total=False):
    """Options of a run, common to all incremental jobs."""

    max_offsets: int  # messages per increment
    rate: float | None  # messages per second, over all tasks
    follow_s: float | None  # interval of the check for new messages, until stopped
    until: Json | None  # a fixed end
    report: Report
    stopped: Callable[[], bool]


@dataclass
class IncrementalJob:
    """A job: `work(number, plan)` runs an increment and returns its result; `after(done)` is its idempotent follow-up."""

    journal: Journal
    source: MessageSource
    job: str
    work: Callable[[int, Json], Json]
    after: Callable[[Json], None] = lambda done: None
    keep: bool = True  # keep the records of all increments
    max_offsets: int = MAX_OFFSETS  # this and the following: see RunOptions
    rate: float | None = None
    follow_s: float | None = None
    until: Json | None = None
    report: Report = discard
    stopped: Callable[[], bool] = lambda: False

    def run(self) -> Totals:
        began = time.monotonic()
        totals = Totals()
        number, position, pending = self._recover()
        totals.resumed = number > 0 or pending is not None
        while not self.stopped():
            end = self.until if self.until is not None else self.source.end()
            total = self.source.rows(position, end)
            while not self.stopped():
                plan = pending or self.source.plan(position, end, self._increment_size())
                if plan is None:
                    break
                number += 1
                if pending is None:
                    self.journal.put("plan", number, plan)
                done = self._run_increment(number, plan, totals, total, repeated=pending is not None)
                pending, position = None, done["position"]
            if self.follow_s is None:
                break
            sleep_until(time.monotonic() + self.follow_s, self.stopped)
        totals.seconds = time.monotonic() - began
        return totals

    def _recover(self) -> tuple[int, Json, Json | None]:
        """Return the last completed increment, its end position, and the plan of an unfinished increment."""
        number, done, pending = self.journal.last()
        if done is not None:
            self.after(done)
            return number, done["position"], pending
        return number, pending["start"] if pending is not None else self.source.begin(), pending

    def _run_increment(self, number: int, plan: Json, totals: Totals, total: int, *, repeated: bool) -> Json:
        began = time.monotonic()
        done = self.work(number, plan) | {"round": number, "position": plan["end"]}  # the key of the file format
        self.journal.put("done", number, done)
        self.after(done)
        if not self.keep:
            self.journal.remove_old()
        totals.add(done)
        seconds = time.monotonic() - began
        totals.extra["read"] = totals.extra.get("read", 0) + self.source.rows(plan["start"], plan["end"])
        self.report({
            "job": self.job, "event": "increment", "increment": number, "repeated": repeated, "rows": done.get("rows", 0),
            "bytes": done.get("bytes", 0), "seconds": round(seconds, 3),
            "rows_a_second": round(done.get("rows", 0) / seconds) if seconds else 0,
            "done": totals.extra["read"], "total": max(total, totals.extra["read"]), "position": plan["end"],
        })  # fmt: skip
        if self.rate is not None:
            sleep_until(began + done.get("rows", 0) / self.rate, self.stopped)
        return done

    def _increment_size(self) -> int:
        return self.max_offsets if self.rate is None else max(1, min(self.max_offsets, int(self.rate)))


def sleep_until(deadline: float, stopped: Callable[[], bool]) -> None:
    """Sleep until a time of the monotonic clock, or until the job is stopped."""
    while not stopped() and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _MAX_SLEEP_S))
