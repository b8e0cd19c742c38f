"""Selections of messages by location, for jobs that copy only some: those that match a condition, or all but duplicates.

A query over a few columns finds the selection. It is stored as Parquet files beside the journal of the job, so that a job that
resumes after a kill copies the same messages. Tasks read it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from firearrow.spark.pipelines.storage import StorageLocation

KEEP, SKIP = "keep", "skip"
DIRECTORY: Final = "selection"
COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset")


@dataclass(frozen=True, slots=True)
class Selection:
    """A stored selection, to copy (`keep`) or to omit (`skip`). Plain data, sent to executors."""

    location: str
    mode: str

    def filter(self, batch: Any) -> Any:
        selected = _read_selection(self.location)
        found = pc.is_in(place_of(batch), value_set=selected)
        return batch.filter(pc.invert(found) if self.mode == SKIP else found)


def place_of(batch: Any) -> Any:
    """Return the location of each message as one text: `topic/broker/queue/offset`."""
    broker = pc.fill_null(batch.column("brokerName"), "")
    numbers = [batch.column(name).cast(pa.string()) for name in ("queueId", "queueOffset")]
    return pc.binary_join_element_wise(batch.column("topic"), broker, *numbers, "/")


PLACE_SQL: Final = "concat_ws('/', topic, coalesce(brokerName, ''), queueId, queueOffset)"
"""SQL equivalent of `place_of`."""


def save_selection(frame: Any, storage: StorageLocation) -> None:
    """Store a selection; `frame` has a column `place`."""
    frame.select("place").write.mode("overwrite").parquet(storage.uri(DIRECTORY))


@lru_cache(maxsize=4)
def _read_selection(location: str) -> Any:
    storage = StorageLocation(location)
    chunks = [pa.array([], pa.string())]
    for name in storage.names(DIRECTORY):
        if name.endswith(".parquet"):
            with storage.open_read(f"{DIRECTORY}/{name}") as file:
                chunks += pq.read_table(file, columns=["place"]).column("place").chunks
    return pa.concat_arrays(chunks)
