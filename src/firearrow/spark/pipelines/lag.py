"""`lag`: how far groups are behind, now and over time.

A snapshot is the table `lag` of `rocketmq_admin`. With a history directory every snapshot is kept there, as a Parquet file in the
directory of its day, and the report looks back. No Spark is needed for either; `spark.read.parquet` reads the history, too.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from firearrow.spark.pipelines.job import Report, silent
from firearrow.spark.pipelines.storage import StorageLocation
from firearrow.spark.read.admin_tables import table_columns, table_rows

POINTS: Final = 240  # of a line in a chart
_NAP_S: Final = 0.2
_US = pa.timestamp("us", tz="UTC")
_SCHEMA: Final = pa.schema([
    ("takenTimestamp", _US), ("group", pa.string()), ("topic", pa.string()), ("brokerName", pa.string()),
    ("queueId", pa.int32()), ("minOffset", pa.int64()), ("brokerOffset", pa.int64()), ("consumerOffset", pa.int64()),
    ("lag", pa.int64()), ("inFlight", pa.int64()), ("lastConsumedTimestamp", _US),
])  # fmt: skip


@dataclass
class GroupLag:
    """A group in a topic. Rates are messages a second over the time that was looked at; None where there is one snapshot."""

    group: str
    topic: str
    lag: int
    in_flight: int
    queues: int
    worst_queue: str
    worst_lag: int
    produced_a_second: float | None = None
    consumed_a_second: float | None = None
    seconds_to_catch_up: float | None = None  # None: never, or not known
    last_consumed_ms: int | None = None
    lost: int = 0  # deleted before the group consumed them
    room: float | None = None  # how much of the queue is left before retention overtakes the group, 0 to 1; the least of them
    history: list[tuple[int, int]] = field(default_factory=list)  # (ms, lag)
    by_queue: list[dict[str, Any]] = field(default_factory=list)


def snapshot(options: Mapping[str, str]) -> Any:
    """The lag of every queue of every group, as an Arrow table. `options`: those of `rocketmq_admin` but `table`."""
    rows = table_rows({**options, "table": "lag"})
    names = table_columns("lag")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=_SCHEMA)


def keep(table: Any, history: str) -> None:
    """Adds a snapshot to a history."""
    if not table.num_rows:
        return
    day = table.column("takenTimestamp")[0].as_py().date()
    place, name = StorageLocation(history), f"{uuid.uuid4().hex}.parquet"
    with place.writing(f"_new/{name}") as stream:  # Spark does not read names with `_`
        pq.write_table(table, stream, compression="zstd")
    taken = int(table.column("takenTimestamp")[0].as_py().timestamp() * 1000)
    place.move(f"_new/{name}", f"day={day}/{taken}-{name}")


def history_of(history: str, since_ms: int) -> Any:
    """The snapshots of a history from a moment on."""
    place = StorageLocation(history)
    tables = [_SCHEMA.empty_table()]
    first_day = str(datetime.fromtimestamp(since_ms / 1000, UTC).date())
    for day in place.names():
        if not day.startswith("day=") or day.removeprefix("day=") < first_day:
            continue
        for name in place.names(day):
            taken = name.partition("-")[0]
            if name.endswith(".parquet") and taken.isdecimal() and int(taken) >= since_ms:
                with place.reading(f"{day}/{name}") as file:
                    tables.append(pq.read_table(file, partitioning=None))
    return pa.concat_tables(tables)


def lag(
    options: Mapping[str, str],
    *,
    history: str | None = None,
    since_ms: int = 0,
    every_s: float | None = None,
    count: int | None = None,
    report: Report = silent,
    stopped: Callable[[], bool] = lambda: False,
) -> list[GroupLag]:
    """Takes `count` snapshots, one every `every_s` seconds (without a count: until `stopped`), and says what they come to."""
    tables: list[Any] = []
    due = time.monotonic()
    while True:
        taken = snapshot(options)
        tables.append(taken)
        if history is not None:
            keep(taken, history)
        report({
            "job": "lag", "event": "snapshot", "number": len(tables), "groups": len(set(taken.column("group").to_pylist())),
            "lag": sum(taken.column("lag").to_pylist()),
        })  # fmt: skip
        if every_s is None or (count is not None and len(tables) >= count) or stopped():
            break
        due += every_s
        while not stopped() and (left := due - time.monotonic()) > 0:
            time.sleep(min(left, _NAP_S))
        if history is not None:
            tables = tables[-1:]  # the others are in the history
    whole = history_of(history, since_ms) if history is not None else pa.concat_tables(tables)
    return summary(whole, groups_in(options))


def groups_in(options: Mapping[str, str]) -> set[str]:
    return {name.strip() for name in options.get("group", "").split(",") if name.strip()}


def summary(table: Any, groups: Iterable[str] = ()) -> list[GroupLag]:
    """What snapshots come to, by group and topic; the largest lag first."""
    wanted = set(groups)
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in table.sort_by("takenTimestamp").to_pylist():
        if not wanted or row["group"] in wanted:
            found[row["group"], row["topic"]].append(row)
    made = [_of_group(group, topic, rows) for (group, topic), rows in found.items()]
    return sorted(made, key=lambda one: (-one.lag, one.group, one.topic))


def _of_group(group: str, topic: str, rows: list[dict[str, Any]]) -> GroupLag:
    moments: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        moments[int(row["takenTimestamp"].timestamp() * 1000)].append(row)
    times = sorted(moments)
    first, last = moments[times[0]], moments[times[-1]]
    worst = max(last, key=lambda row: row["lag"])
    made = GroupLag(
        group, topic, sum(row["lag"] for row in last), sum(row["inFlight"] for row in last), len(last),
        f"{worst['brokerName']} {worst['queueId']}", worst["lag"],
    )  # fmt: skip
    consumed = [row["lastConsumedTimestamp"] for row in last if row["lastConsumedTimestamp"] is not None]
    made.last_consumed_ms = int(max(consumed).timestamp() * 1000) if consumed else None
    made.history = _thinned([(at, sum(row["lag"] for row in moments[at])) for at in times])
    made.by_queue = [
        {"queue": f"{row['brokerName']} {row['queueId']}", "lag": row["lag"], "min": row["minOffset"],
         "consumer": row["consumerOffset"], "end": row["brokerOffset"]}
        for row in sorted(last, key=lambda row: (row["brokerName"], row["queueId"]))
    ]  # fmt: skip
    made.lost = sum(max(0, (row["minOffset"] or 0) - row["consumerOffset"]) for row in last)
    made.room = _room(last)
    _rates(made, first, last, (times[-1] - times[0]) / 1000)
    return made


def _rates(made: GroupLag, first: list[dict[str, Any]], last: list[dict[str, Any]], seconds: float) -> None:
    if seconds <= 0:
        return

    def moved(name: str) -> float:
        return float(max(0, sum(row[name] for row in last) - sum(row[name] for row in first)) / seconds)

    made.produced_a_second, made.consumed_a_second = moved("brokerOffset"), moved("consumerOffset")
    gain = made.consumed_a_second - made.produced_a_second
    made.seconds_to_catch_up = 0.0 if not made.lag else made.lag / gain if gain > 0 else None


def _room(rows: list[dict[str, Any]]) -> float | None:
    """How far the consumer is from the oldest message, as a part of the queue: 0 when it is the next to be deleted."""
    shares = [
        max(0, row["consumerOffset"] - row["minOffset"]) / (row["brokerOffset"] - row["minOffset"])
        for row in rows
        if row["minOffset"] is not None and row["lag"] > 0 and row["brokerOffset"] > row["minOffset"]
    ]
    return min(shares, default=None)


def _thinned(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """At most POINTS of them; of neighbours the highest, so that no peak is lost."""
    size = -(-len(points) // POINTS)
    return [max(points[at : at + size], key=lambda point: point[1]) for at in range(0, len(points), size)]
