"""Messages chosen by where they are, when a job takes only some: those a condition is true for, or all but duplicates.

A selection is found by a query over a few columns, and kept as Parquet files in the journal of the job, so that a job that goes
on after a kill means the same messages. Tasks read it once.
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
    """Plain data: it travels to executors. `mode`: only those (`keep`), or all others (`skip`)."""

    location: str
    mode: str

    def filtered(self, batch: Any) -> Any:
        chosen = _chosen(self.location)
        found = pc.is_in(place_of(batch), value_set=chosen)
        return batch.filter(pc.invert(found) if self.mode == SKIP else found)


def place_of(batch: Any) -> Any:
    """`topic/broker/queue/offset` of each row: where a message is, as one text."""
    broker = pc.fill_null(batch.column("brokerName"), "")
    numbers = [batch.column(name).cast(pa.string()) for name in ("queueId", "queueOffset")]
    return pc.binary_join_element_wise(batch.column("topic"), broker, *numbers, "/")


PLACE_SQL: Final = "concat_ws('/', topic, coalesce(brokerName, ''), queueId, queueOffset)"
"""The same, for Spark."""


def save(frame: Any, place: StorageLocation) -> None:
    """`frame` has a column `place`."""
    frame.select("place").write.mode("overwrite").parquet(place.uri(DIRECTORY))


@lru_cache(maxsize=4)
def _chosen(location: str) -> Any:
    place = StorageLocation(location)
    chunks = [pa.array([], pa.string())]
    for name in place.names(DIRECTORY):
        if name.endswith(".parquet"):
            with place.reading(f"{DIRECTORY}/{name}") as file:
                chunks += pq.read_table(file, columns=["place"]).column("place").chunks
    return pa.concat_arrays(chunks)
