"""Task of the archive job: writes decoded columns directly to Parquet files, one per topic and day, without Spark rows.

The columns `topic` and `day` are in the path (`topic=Orders/day=2026-03-01/`), as Spark and other tools expect. The day is that
of the store timestamp, in UTC. Bodies are not dictionary-encoded: they rarely repeat, and trying costs more than everything else.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import product
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

GROUP_BYTES: Final = 48 << 20  # per row group, before compression
GROUP_ROWS: Final = 131_072
_PENDING_BYTES: Final = 128 << 20  # in all files of a task
_MAX_OPEN: Final = 32  # files per task
_DAY_US: Final = 86_400_000_000
_DICTIONARY_COLUMNS: Final = ("brokerName", "tags", "bornHost", "storeHost", "flag", "sysFlag", "queueId", "reconsumeTimes")


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Arguments of a task. Plain data, sent to executors."""

    part: Part
    options: DataSourceOptions
    columns: Columns
    location: str
    staging: str
    final: str  # prefix of the file names
    compression: str
    selection: Selection | None = None


def write_part(task: WriteTask) -> dict[str, Any]:
    """Write a part to files in the staging directory; return their paths and final names."""
    attempt = uuid.uuid4().hex  # another attempt at this task may run concurrently
    files = _FileSet(StorageLocation(task.location), f"{task.staging}/{attempt}", task.final, task.compression)
    try:
        for read in task.part.read(task.options, task.columns):
            batch = read if task.selection is None else task.selection.filter(read)
            for topic, day, rows in _by_topic_and_day(batch):
                files.add(topic, day, rows.drop_columns(["topic"]))
    except BaseException:
        files.abort()
        raise
    return {"files": files.close()}


def _by_topic_and_day(batch: Any) -> Iterator[tuple[str, int, Any]]:
    if not batch.num_rows:
        return
    topics = batch.column("topic").dictionary_encode()
    days = batch.column("storeTimestamp").cast(pa.int64()).to_numpy() // _DAY_US
    codes = topics.indices.to_numpy().astype(np.int64) << 32 | days
    found = np.unique(codes)
    for code in found.tolist():
        rows = batch if len(found) == 1 else batch.filter(pa.array(codes == code))
        yield topics.dictionary[code >> 32].as_py(), code & 0xFFFFFFFF, rows


@dataclass
class _OpenFile:
    name: str
    topic: str
    day: int
    stack: ExitStack
    writer: Any
    pending: list[Any] = field(default_factory=list)
    pending_bytes: int = 0
    pending_rows: int = 0
    rows: int = 0
    body_bytes: int = 0
    queues: set[tuple[str | None, int]] = field(default_factory=set)

    def flush(self) -> int:
        """Write the pending batches; return their size in bytes."""
        size = self.pending_bytes
        if self.pending:
            self.writer.write_table(pa.Table.from_batches(self.pending))
            self.pending, self.pending_bytes, self.pending_rows = [], 0, 0
        return size


class _FileSet:
    """Open files of one attempt at a task."""

    def __init__(self, storage: StorageLocation, staging: str, final: str, compression: str) -> None:
        self._storage = storage
        self._staging = staging
        self._final = final
        self._compression = compression
        self._open: OrderedDict[tuple[str, int], _OpenFile] = OrderedDict()
        self._written: list[dict[str, Any]] = []
        self._count = 0
        self._pending = 0  # bytes in all files

    def add(self, topic: str, day: int, rows: Any) -> None:
        file = self._open.get((topic, day))
        if file is None:
            if len(self._open) >= _MAX_OPEN:
                self._finish(self._open.popitem(last=False)[1])
            file = self._open[topic, day] = self._begin(topic, day, rows.schema)
        self._open.move_to_end((topic, day))
        file.pending.append(rows)
        file.pending_bytes += rows.nbytes
        file.pending_rows += rows.num_rows
        file.rows += rows.num_rows
        if "body" in rows.schema.names:
            file.body_bytes += rows.column("body").nbytes
        file.queues |= set(product(*(rows.column(name).unique().to_pylist() for name in ("brokerName", "queueId"))))
        self._pending += rows.nbytes
        if file.pending_bytes >= GROUP_BYTES or file.pending_rows >= GROUP_ROWS:
            self._pending -= file.flush()
        while self._pending > _PENDING_BYTES:
            largest = max(self._open.values(), key=lambda one: one.pending_bytes)
            self._pending -= largest.flush()

    def close(self) -> list[dict[str, Any]]:
        while self._open:
            self._finish(self._open.popitem(last=False)[1])
        return self._written

    def abort(self) -> None:
        for file in self._open.values():
            file.writer.close()
            file.stack.close()

    def _begin(self, topic: str, day: int, schema: Any) -> _OpenFile:
        name = f"{self._count:04}.parquet"
        self._count += 1
        stack = ExitStack()
        stream = stack.enter_context(self._storage.open_write(f"{self._staging}/{name}"))
        writer = pq.ParquetWriter(
            stream,
            schema,
            compression=self._compression,
            use_dictionary=[column for column in _DICTIONARY_COLUMNS if column in schema.names],
            write_statistics=[column for column in schema.names if column not in ("body", "properties")],
        )
        return _OpenFile(name, topic, day, stack, writer)

    def _finish(self, file: _OpenFile) -> None:
        self._pending -= file.flush()
        file.writer.close()
        file.stack.close()
        staged = f"{self._staging}/{file.name}"
        day = date(1970, 1, 1) + timedelta(days=file.day)
        self._written.append({
            "staged": staged,
            "path": f"{topic_directory(file.topic)}/day={day}/{self._final}-{file.name}",
            "topic": file.topic,
            "day": str(day),
            "rows": file.rows,
            "bytes": self._storage.size(staged),
            "bodyBytes": file.body_bytes,
            "queues": sorted([broker or "", queue] for broker, queue in file.queues),
        })  # fmt: skip


def topic_directory(topic: str) -> str:
    """Return the directory of a topic, URL-encoded as partition names are (retry topics contain `%`)."""
    return f"topic={quote(topic, safe='')}"
