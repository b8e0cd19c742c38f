"""How a task writes Parquet: decoded columns go straight into files, one for each topic and day, without Spark's rows in between.

The columns `topic` and `day` are in the path (`topic=Orders/day=2026-03-01/`), as Spark and others read them. A day is that of
the store timestamp, in UTC. Bodies are not dictionary encoded: they are seldom alike, and trying costs more than everything else.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from firearrow.spark.decode.columns import Columns
from firearrow.spark.options import DataSourceOptions
from firearrow.spark.pipelines.selection import Selection
from firearrow.spark.pipelines.sources import Part
from firearrow.spark.pipelines.storage import StorageLocation

GROUP_BYTES: Final = 48 << 20  # of a row group, before compression
GROUP_ROWS: Final = 131_072
_WAITING_BYTES: Final = 128 << 20  # of all files of a task together
_OPEN: Final = 32  # files of a task at a time
_DAY_US: Final = 86_400_000_000
_ALIKE: Final = ("brokerName", "tags", "bornHost", "storeHost", "flag", "sysFlag", "queueId", "reconsumeTimes")


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Plain data: it travels to executors."""

    part: Part
    options: DataSourceOptions
    columns: Columns
    location: str
    staging: str
    final: str  # the beginning of the file names
    compression: str
    selection: Selection | None = None


def write_part(task: WriteTask) -> dict[str, Any]:
    """Writes what a part holds to files in the staging directory; returns where each is, and what it is to be called."""
    attempt = uuid.uuid4().hex  # another attempt at the same task may be under way
    files = _Files(StorageLocation(task.location), f"{task.staging}/{attempt}", task.final, task.compression)
    names = list(task.columns.names)
    if "storeTimestamp" not in names or "topic" not in names:
        raise AssertionError("the day is made of storeTimestamp, the directory of topic")
    try:
        for batch in task.part.read(task.options, task.columns):
            if task.selection is not None:
                batch = task.selection.filtered(batch)
            for topic, day, rows in _by_topic_and_day(batch):
                files.add(topic, day, rows.drop_columns(["topic"]))
    except BaseException:
        files.abandon()
        raise
    return {"files": files.close()}


def _by_topic_and_day(batch: Any) -> Iterator[tuple[str, int, Any]]:
    if not batch.num_rows:
        return
    topics = batch.column("topic").dictionary_encode()
    days = batch.column("storeTimestamp").cast(pa.int64()).to_numpy() // _DAY_US
    kinds = topics.indices.to_numpy().astype(np.int64) << 32 | days
    found = np.unique(kinds)
    for kind in found.tolist():
        rows = batch if len(found) == 1 else batch.filter(pa.array(kinds == kind))
        yield topics.dictionary[kind >> 32].as_py(), kind & 0xFFFFFFFF, rows


@dataclass
class _Open:
    name: str
    topic: str
    day: int
    stack: ExitStack
    writer: Any
    waiting: list[Any] = field(default_factory=list)
    waiting_bytes: int = 0
    waiting_rows: int = 0
    rows: int = 0
    body_bytes: int = 0
    queues: set[tuple[str, int]] = field(default_factory=set)

    def flush(self) -> int:
        """Writes what waits; returns how many bytes that was."""
        size = self.waiting_bytes
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
            self.waiting, self.waiting_bytes, self.waiting_rows = [], 0, 0
        return size


class _Files:
    """The files of one attempt at a task."""

    def __init__(self, place: StorageLocation, staging: str, final: str, compression: str) -> None:
        self._place = place
        self._staging = staging
        self._final = final
        self._compression = compression
        self._open: OrderedDict[tuple[str, int], _Open] = OrderedDict()
        self._written: list[dict[str, Any]] = []
        self._count = 0
        self._waiting = 0  # bytes of all files

    def add(self, topic: str, day: int, rows: Any) -> None:
        file = self._open.get((topic, day))
        if file is None:
            if len(self._open) >= _OPEN:
                self._finish(self._open.popitem(last=False)[1])
            file = self._open[topic, day] = self._begin(topic, day, rows.schema)
        self._open.move_to_end((topic, day))
        file.waiting.append(rows)
        file.waiting_bytes += rows.nbytes
        file.waiting_rows += rows.num_rows
        file.rows += rows.num_rows
        if "body" in rows.schema.names:
            file.body_bytes += rows.column("body").nbytes
        _note_queues(rows, file.queues)
        self._waiting += rows.nbytes
        if file.waiting_bytes >= GROUP_BYTES or file.waiting_rows >= GROUP_ROWS:
            self._waiting -= file.flush()
        while self._waiting > _WAITING_BYTES:
            largest = max(self._open.values(), key=lambda one: one.waiting_bytes)
            self._waiting -= largest.flush()

    def close(self) -> list[dict[str, Any]]:
        while self._open:
            self._finish(self._open.popitem(last=False)[1])
        return self._written

    def abandon(self) -> None:
        for file in self._open.values():
            file.writer.close()
            file.stack.close()

    def _begin(self, topic: str, day: int, schema: Any) -> _Open:
        name = f"{self._count:04}.parquet"
        self._count += 1
        stack = ExitStack()
        stream = stack.enter_context(self._place.writing(f"{self._staging}/{name}"))
        writer = pq.ParquetWriter(
            stream,
            schema,
            compression=self._compression,
            use_dictionary=[column for column in _ALIKE if column in schema.names],
            write_statistics=[column for column in schema.names if column not in ("body", "properties")],
        )
        return _Open(name, topic, day, stack, writer)

    def _finish(self, file: _Open) -> None:
        self._waiting -= file.flush()
        file.writer.close()
        file.stack.close()
        staged = f"{self._staging}/{file.name}"
        day = date(1970, 1, 1) + timedelta(days=file.day)
        self._written.append({
            "staged": staged,
            "path": f"{directory(file.topic)}/day={day}/{self._final}-{file.name}",
            "topic": file.topic,
            "day": str(day),
            "rows": file.rows,
            "bytes": self._place.size(staged),
            "bodyBytes": file.body_bytes,
            "queues": sorted([broker, queue] for broker, queue in file.queues),
        })  # fmt: skip


def directory(topic: str) -> str:
    """Names with `%` in them (retry topics) must be escaped, as partition names are URL-encoded."""
    return f"topic={quote(topic, safe='')}"


def _note_queues(rows: Any, queues: set[tuple[str, int]]) -> None:
    if "queueId" not in rows.schema.names or "brokerName" not in rows.schema.names:
        return
    brokers = rows.column("brokerName").unique().to_pylist()
    for broker in brokers:
        for queue in rows.column("queueId").unique().to_pylist():
            queues.add((broker or "", queue))
