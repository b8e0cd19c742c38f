"""Estimate of a job's work for `--dry-run`, without writing anything."""

from __future__ import annotations

from typing import Any

from firearrow.spark.pipelines.journal import Journal
from firearrow.spark.pipelines.sources import Json, MessageSource
from firearrow.spark.pipelines.storage import StorageLocation


def estimate(source: MessageSource, location: str | None, name: str = "", *, most: int, parallelism: int = 2) -> dict[str, Any]:
    """Estimate a job. `location` and `name` lead to its journal, which need not exist."""
    start, end, unfinished = remaining_range(source, location, name)
    first = source.plan(start, end, most)
    rows = source.rows(start, end)
    return {
        "from": start,
        "to": end,
        "amount": rows,
        "unit": "bytes of the log" if "log" in end else "messages",
        "bytes": source.size_bytes(start, end),
        "tasks_per_increment": 0 if first is None else len(source.parallel_parts(first, parallelism)),
        "repeats_increment": unfinished,
    }


def remaining_range(source: MessageSource, location: str | None, name: str = "") -> tuple[Json, Json, bool]:
    """Return the position of the job, the end of its source, and whether an increment is unfinished."""
    position, unfinished = _position(location, name)
    return position if position is not None else source.begin(), source.end(), unfinished


def _position(location: str | None, name: str) -> tuple[Json | None, bool]:
    """Return the end of the last increment and whether another was started."""
    if location is None:
        return None, False
    storage = StorageLocation(location)
    if not storage.exists():
        return None, False
    journal = Journal(storage, name)
    known = journal.increments()
    done, planned = max(known["done"], default=0), max(known["plan"], default=0)
    return (journal.get("done", done)["position"] if done else None), planned > done
