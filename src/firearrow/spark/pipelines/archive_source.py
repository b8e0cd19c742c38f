"""Archives as a source of jobs: files in the order of the increments, grouped so that no queue is read by two tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from firearrow.spark.decode.columns import Columns
from firearrow.spark.decode.slices import repeated_text
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import DataSourceOptions, read_options
from firearrow.spark.pipelines.archive import archived_files
from firearrow.spark.pipelines.sources import CLIENT_OPTIONS, Json, Part
from firearrow.spark.pipelines.storage import StorageLocation

_BATCH_ROWS: Final = 2_048


class ArchivedFile(NamedTuple):
    """A file of an archive."""

    location: str
    path: str
    topic: str
    rows: int


@dataclass(frozen=True, slots=True)
class FilePart:
    """Files read in sequence. Plain data, sent to executors."""

    files: tuple[ArchivedFile, ...]

    @property
    def size(self) -> int:
        return sum(file.rows for file in self.files)

    def read(self, options: DataSourceOptions, columns: Columns) -> Iterator[Any]:
        for file in self.files:
            yield from _read_file(file, options, columns)


class ArchiveSource:
    """An archive. `given`: `subscribe`, `startingTimestamp` and `endingTimestamp` as for the data source."""

    def __init__(self, location: str, given: Mapping[str, str]) -> None:
        source_options = {name: text for name, text in given.items() if name not in CLIENT_OPTIONS}
        self.options = read_options({"path": location, **source_options}, stream=False)
        self._location = location
        self._increments = archived_files(location)
        topics = self.options["subscribe"]
        known = {file["topic"] for files in self._increments.values() for file in files}
        for topic in topics or ():
            if topic not in known:
                raise SparkOptionError(f"the topic {topic!r} is not in the archive {location!r}; it has {_some_names(known)}")
        self._topics = known if topics is None else set(topics)

    def identity(self) -> Json:
        topics = sorted(self.options["subscribe"] or ())
        times = self.options.explicit("startingTimestamp", "endingTimestamp")
        return {"source": "archive", "archive": self._location, "topics": topics, **times}

    def begin(self) -> Json:
        return {"round": 0}

    def end(self) -> Json:
        return {"round": max(self._increments, default=0)}

    def plan(self, position: Json, end: Json, most: int) -> Json | None:
        rows, last = 0, None
        for last in self._between(position, end):
            rows += sum(file["rows"] for file in self._files_of(last))
            if rows >= most:
                break
        return None if last is None else {"start": position, "end": {"round": last}}

    def rows(self, start: Json, end: Json) -> int:
        return sum(file["rows"] for file in self._files(start, end))

    def size_bytes(self, start: Json, end: Json) -> int:
        return sum(file["bytes"] for file in self._files(start, end))

    def parallel_parts(self, plan: Json, at_least: int) -> Sequence[Part]:
        return [self._part([file]) for file in self._files(**plan)]

    def ordered_parts(self, plan: Json) -> Sequence[Part]:
        """Group files that contain messages of the same queue, in their order."""
        files = self._files(**plan)
        groups: list[tuple[set[Any], list[int]]] = []  # queues, indexes of files
        for index, file in enumerate(files):
            queues = {(file["topic"], *queue) for queue in file["queues"]}
            joined = [group for group in groups if group[0] & queues]
            groups = [group for group in groups if not group[0] & queues]
            groups.append((queues.union(*(group[0] for group in joined)), [*chain(*(group[1] for group in joined)), index]))
        return [self._part(files[index] for index in indexes) for indexes in sorted(sorted(group[1]) for group in groups)]

    def _between(self, start: Json, end: Json) -> list[int]:
        return [number for number in sorted(self._increments) if start["round"] < number <= end["round"]]

    def _files(self, start: Json, end: Json) -> list[Json]:
        return [file for number in self._between(start, end) for file in self._files_of(number)]

    def _files_of(self, increment: int) -> Iterator[Json]:
        return (file for file in self._increments[increment] if file["topic"] in self._topics)

    def _part(self, files: Iterable[Json]) -> FilePart:
        return FilePart(tuple(ArchivedFile(self._location, file["path"], file["topic"], file["rows"]) for file in files))


def _read_file(file: ArchivedFile, options: DataSourceOptions, columns: Columns) -> Iterator[Any]:
    storage = StorageLocation(file.location)
    if not storage.exists(file.path):
        raise SparkOptionError(
            f"the archive {file.location!r} lists {file.path!r}, which does not exist: restore it, or run the job that "
            "writes the archive again to finish it"
        )
    with storage.open_read(file.path) as stream:
        opened = pq.ParquetFile(stream)
        wanted = [name for name in columns.names if name != "topic"]
        missing = [name for name in wanted if name not in opened.schema_arrow.names]
        if missing == ["flag"]:  # rarely used: an archive of selected columns may lack it
            wanted.remove("flag")
        elif missing:
            raise SparkOptionError(f"the archive {file.location!r} was written without the column {missing[0]}")
        for stored in opened.iter_batches(_BATCH_ROWS, columns=wanted):
            batch = _between_times(stored, options)
            if batch.num_rows:
                arrays = {name: batch.column(name) for name in wanted}
                arrays["topic"] = repeated_text(file.topic, batch.num_rows)
                arrays.setdefault("flag", pa.nulls(batch.num_rows, pa.int32()))
                yield pa.RecordBatch.from_arrays([arrays[name] for name in columns.names], names=list(columns.names))


def _between_times(batch: Any, options: DataSourceOptions) -> Any:
    for name, compare in (("startingTimestamp", pc.greater_equal), ("endingTimestamp", pc.less)):
        if options[name] is not None:
            bound = pa.scalar(options[name] * 1000, pa.timestamp("us", tz="UTC"))
            batch = batch.filter(compare(batch.column("storeTimestamp"), bound))
    return batch


def _some_names(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:5]) + (" and more" if len(listed) > 5 else "") or "none"
