"""Estimate of a job's work for `--dry-run`, without writing anything."""

from __future__ import annotations

from typing import Any

from firearrow.spark.pipelines.journal import Journal
from firearrow.spark.pipelines.sources import Json, MessageSource
from firearrow.spark.pipelines.storage import StorageLocation


def estimate(source: MessageSource, location: str, name: str = "", *, most: int) -> dict[str, Any]:
    """Estimate a job. `location` and `name` lead to its journal, which need not exist."""
    start, end, unfinished = remaining_range(source, location, name)
    first = source.plan(start, end, most)
    return {
        "from": start,
        "to": end,
        "amount": source.rows(start, end),
        "unit": "bytes of the log" if "log" in end else "messages",
        "bytes": source.size_bytes(start, end),
        "tasks_per_increment": 0 if first is None else len(source.parallel_parts(first, 2)),
        "repeats_increment": unfinished,
    }


def remaining_range(source: MessageSource, location: str, name: str = "") -> tuple[Json, Json, bool]:
    """Return the position of the job, the end of its source, and whether an increment is unfinished."""
    _, done, pending = Journal(StorageLocation(location), name).last()
    return source.begin() if done is None else done["position"], source.end(), pending is not None
