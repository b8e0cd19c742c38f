"""The job `lag`: lag of consumer groups, at present and over time.

A snapshot is the table `lag` of `rocketmq_admin`. With a history directory every snapshot is stored there, as a Parquet file in
the directory of its day, and the report covers the history. Neither needs Spark; `spark.read.parquet` also reads the history.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from firearrow.spark.decode.columns import ARROW_TYPES
from firearrow.spark.pipelines.job import Report, discard, sleep_until
from firearrow.spark.pipelines.storage import StorageLocation
from firearrow.spark.read.admin_tables import names_of, table_columns, table_rows

POINTS: Final = 240  # per line of a chart
_SCHEMA: Final = pa.schema([(name, ARROW_TYPES[kind]) for name, kind in table_columns("lag").items()])


@dataclass
class GroupLag:
    """Lag of a group in a topic. Rates are messages per second over the history; None with a single snapshot."""

    group: str
    topic: str
    lag: int
    in_flight: int
    queues: int
    worst_queue: str
    worst_lag: int
    produced_a_second: float | None = None
    consumed_a_second: float | None = None
    seconds_to_catch_up: float | None = None  # None: never, or unknown
    last_consumed_ms: int | None = None
    lost: int = 0  # deleted before the group consumed them
    room: float | None = None  # part of the queue left before retention overtakes the group, 0 to 1; minimum of the queues
    history: list[tuple[int, int]] = field(default_factory=list)  # (ms, lag)
    by_queue: list[dict[str, Any]] = field(default_factory=list)


def snapshot(options: Mapping[str, str]) -> Any:
    """Return the lag of every queue of every group as an Arrow table. `options`: those of `rocketmq_admin` except `table`."""
    rows = table_rows({**options, "table": "lag"})
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], schema=_SCHEMA)


def store_snapshot(table: Any, history: str) -> None:
    """Add a snapshot to a history."""
    if not table.num_rows:
        return
    day = table.column("takenTimestamp")[0].as_py().date()
    storage, name = StorageLocation(history), f"{uuid.uuid4().hex}.parquet"
    with storage.open_write(f"_new/{name}") as stream:  # Spark ignores names with `_`
        pq.write_table(table, stream, compression="zstd")
    taken = int(table.column("takenTimestamp")[0].as_py().timestamp() * 1000)
    storage.move(f"_new/{name}", f"day={day}/{taken}-{name}")


def read_history(history: str, since_ms: int) -> Any:
    """Return the snapshots of a history since a time."""
    storage = StorageLocation(history)
    tables = [_SCHEMA.empty_table()]
    first_day = str(datetime.fromtimestamp(since_ms / 1000, UTC).date())
    for day in storage.names():
        if not day.startswith("day=") or day.removeprefix("day=") < first_day:
            continue
        for name in storage.names(day):
            taken = name.partition("-")[0]
            if name.endswith(".parquet") and taken.isdecimal() and int(taken) >= since_ms:
                with storage.open_read(f"{day}/{name}") as file:
                    tables.append(pq.read_table(file, partitioning=None))
    return pa.concat_tables(tables)


def lag(
    options: Mapping[str, str],
    *,
    history: str | None = None,
    since_ms: int = 0,
    every_s: float | None = None,
    count: int | None = None,
    report: Report = discard,
    stopped: Callable[[], bool] = lambda: False,
) -> list[GroupLag]:
    """Take `count` snapshots, one every `every_s` seconds (without a count: until `stopped`), and summarise them."""
    tables: list[Any] = []
    due = time.monotonic()
    while True:
        taken = snapshot(options)
        tables.append(taken)
        if history is not None:
            store_snapshot(taken, history)
        report({
            "job": "lag", "event": "snapshot", "number": len(tables), "groups": len(set(taken.column("group").to_pylist())),
            "lag": sum(taken.column("lag").to_pylist()),
        })  # fmt: skip
        if every_s is None or (count is not None and len(tables) >= count) or stopped():
            break
        due += every_s
        sleep_until(due, stopped)
        if history is not None:
            tables = tables[-1:]  # the others are in the history
    covered = read_history(history, since_ms) if history is not None else pa.concat_tables(tables)
    return summary(covered, names_of(options.get("group")))


def summary(table: Any, requested: Collection[str] = ()) -> list[GroupLag]:
    """Summarise snapshots by group and topic, largest lag first. `requested`: only these groups, if any."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in table.sort_by("takenTimestamp").to_pylist():
        if not requested or row["group"] in requested:
            found[row["group"], row["topic"]].append(row)
    result = [_group_lag(group, topic, rows) for (group, topic), rows in found.items()]
    return sorted(result, key=lambda one: (-one.lag, one.group, one.topic))


def _group_lag(group: str, topic: str, rows: list[dict[str, Any]]) -> GroupLag:
    by_time: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_time[int(row["takenTimestamp"].timestamp() * 1000)].append(row)
    times = sorted(by_time)
    first, last = by_time[times[0]], by_time[times[-1]]
    worst = max(last, key=lambda row: row["lag"])
    result = GroupLag(
        group, topic, sum(row["lag"] for row in last), sum(row["inFlight"] for row in last), len(last),
        f"{worst['brokerName']} {worst['queueId']}", worst["lag"],
    )  # fmt: skip
    consumed = [row["lastConsumedTimestamp"] for row in last if row["lastConsumedTimestamp"] is not None]
    result.last_consumed_ms = int(max(consumed).timestamp() * 1000) if consumed else None
    result.history = _downsample([(at, sum(row["lag"] for row in by_time[at])) for at in times])
    result.by_queue = [
        {"queue": f"{row['brokerName']} {row['queueId']}", "lag": row["lag"], "min": row["minOffset"],
         "consumer": row["consumerOffset"], "end": row["brokerOffset"]}
        for row in sorted(last, key=lambda row: (row["brokerName"], row["queueId"]))
    ]  # fmt: skip
    result.lost = sum(max(0, (row["minOffset"] or 0) - row["consumerOffset"]) for row in last)
    result.room = _retention_margin(last)
    _rates(result, first, last, (times[-1] - times[0]) / 1000)
    return result


def _rates(result: GroupLag, first: list[dict[str, Any]], last: list[dict[str, Any]], seconds: float) -> None:
    if seconds <= 0:
        return

    def rate(name: str) -> float:
        return float(max(0, sum(row[name] for row in last) - sum(row[name] for row in first)) / seconds)

    result.produced_a_second, result.consumed_a_second = rate("brokerOffset"), rate("consumerOffset")
    gain = result.consumed_a_second - result.produced_a_second
    result.seconds_to_catch_up = 0.0 if not result.lag else result.lag / gain if gain > 0 else None


def _retention_margin(rows: list[dict[str, Any]]) -> float | None:
    """Return the distance of the consumer from the oldest message as a part of the queue; 0: deletion is imminent."""
    shares = [
        max(0, row["consumerOffset"] - row["minOffset"]) / (row["brokerOffset"] - row["minOffset"])
        for row in rows
        if row["minOffset"] is not None and row["lag"] > 0 and row["brokerOffset"] > row["minOffset"]
    ]
    return min(shares, default=None)


def _downsample(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Reduce to at most POINTS points, keeping the maximum of neighbours so that no peak is lost."""
    size = -(-len(points) // POINTS)
    return [max(points[at : at + size], key=lambda point: point[1]) for at in range(0, len(points), size)]
