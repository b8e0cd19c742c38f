"""What a job would do, for `--dry-run`: from where to where, how much, in how many increments and tasks. Nothing is written."""

from __future__ import annotations

from typing import Any

from firearrow.spark.pipelines.journal import Journal
from firearrow.spark.pipelines.sources import Json, MessageSource
from firearrow.spark.pipelines.storage import StorageLocation


def estimate(source: MessageSource, location: str | None, name: str = "", *, most: int, parallelism: int = 2) -> dict[str, Any]:
    """`location` and `name`: where the journal is, if there is one already."""
    start, end, again = left(source, location, name)
    first = source.plan(start, end, most)
    rows = source.rows(start, end)
    return {
        "from": start,
        "to": end,
        "amount": rows,
        "unit": "bytes of the log" if "log" in end else "messages",
        "bytes": source.size_bytes(start, end),
        "tasks_per_increment": 0 if first is None else len(source.parallel_parts(first, parallelism)),
        "repeats_increment": again,
    }


def left(source: MessageSource, location: str | None, name: str = "") -> tuple[Json, Json, bool]:
    """(where the job is, the end of what is there, whether an increment was begun and not finished)."""
    position, again = _position(location, name)
    return position if position is not None else source.begin(), source.end(), again


def _position(location: str | None, name: str) -> tuple[Json | None, bool]:
    """(where the last increment ended, whether another was begun)."""
    if location is None:
        return None, False
    place = StorageLocation(location)
    if not place.exists():
        return None, False
    journal = Journal(place, name)
    known = journal.increments()
    done, planned = max(known["done"], default=0), max(known["plan"], default=0)
    return (journal.get("done", done)["position"] if done else None), planned > done
