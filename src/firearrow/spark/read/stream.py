"""The stream of a topic: which offsets the next micro-batch reads.

Rules
- Offsets only ever come from `offsets.to_dict`: equal offsets are equal text, else Spark runs empty batches for ever.
- A queue that appears while the stream runs enters the offsets at its oldest message, in a batch of its own; the next reads it.
- A queue that disappears keeps its last offset: if it were dropped and came back it would be read again.
- The first batch of a large backlog is bounded by default, by messages and by bytes.
- When nothing is new, `latestOffset` waits a little before it says so: Spark would ask a hundred times a second.
- Under an AvailableNow trigger the ends are those of the moment it began.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from firearrow.spark.cluster import ClusterClient, cluster_client
from firearrow.spark.errors import DataLossError, SparkOptionError
from firearrow.spark.options import DataSourceOptions
from firearrow.spark.read.datasource import RangePartition, columns_of, freeze_once, planned
from firearrow.spark.read.live import read_ranges, sample_bytes
from firearrow.spark.read.offsets import Offsets, Queue, from_dict, to_dict
from firearrow.spark.read.planning import limited, ranges, starting, wanted_queues

log = logging.getLogger("firearrow.spark")

_POLL_S: Final = 0.04
_PATIENCE_S: Final = 60.0  # with brokers that do not answer: one that is restarted is no reason to end a stream
_SAMPLED_QUEUES: Final = 4
_LARGEST: Final = 4 << 20  # of a message, unless a broker was told otherwise


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: DataSourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns, self._names = columns_of(schema)
        self._queues: list[Queue] = []
        self._looked_at = float("-inf")
        self._frozen: Offsets | None = None
        self._last_batch_at = time.monotonic()
        self._latest: Offsets = {}
        self._heard_at = float("-inf")
        self._committed: Offsets = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        queues = self._known_queues(refresh=True)
        return to_dict(starting(self._cluster(), queues, self._options, "latest"))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        return ReadMaxRows(self._options["maxOffsetsPerTrigger"])

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        queues = self._known_queues(refresh=True)
        self._frozen = self._latest = self._cluster().max_offsets(queues)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        begin = from_dict(start, "the offsets of the checkpoint")
        self._commit(begin)
        patience = time.monotonic() + self._options["latestOffsetMaxWaitMs"] / 1000
        while True:
            end = self._next_end(begin, limit)
            if end != begin:
                self._last_batch_at = time.monotonic()
                return to_dict(end)
            if self._frozen is not None or time.monotonic() >= patience:
                return start
            time.sleep(_POLL_S)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        return to_dict(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        wanted = ranges(from_dict(start, "the offsets of the checkpoint"), from_dict(end, "the offsets of the checkpoint"))
        return planned(wanted, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        freeze_once(self._options)
        return read_ranges(partition.ranges, self._options, self._columns, self._names)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint says where the stream is. Spark calls this late and not for every batch; see `_commit`."""

    def stop(self) -> None:
        """Nothing: connections belong to the process."""

    def __getstate__(self) -> dict[str, Any]:
        """What executors get."""
        return {**self.__dict__, "_queues": [], "_latest": {}, "_frozen": None, "_committed": {}}

    # ---- inside

    def _cluster(self) -> ClusterClient:
        return cluster_client(self._options.client())

    def _known_queues(self, *, refresh: bool = False) -> list[Queue]:
        now = time.monotonic()
        if refresh or now - self._looked_at >= self._options["metadataRefreshMs"] / 1000:
            try:
                self._queues = wanted_queues(self._cluster(), self._options)
            except SparkOptionError:
                if refresh or not self._queues:
                    raise
                # Brokers outlive name servers: what is known is read on.
            self._looked_at = now
        return self._queues

    def _next_end(self, begin: Offsets, limit: ReadLimit) -> Offsets:
        """The end of the next batch; `begin` itself if there is to be none."""
        there = self._ends()
        new = [queue for queue in there if queue not in begin]
        if new:
            return begin | self._cluster().min_offsets(new)
        end = {queue: there.get(queue, offset) for queue, offset in begin.items()}
        end |= self._made_anew(begin, end)
        available = sum(max(0, end[queue] - begin[queue]) for queue in end)
        if not available:
            return end
        if isinstance(limit, ReadAllAvailable):
            return end
        least = self._options["minOffsetsPerTrigger"]
        waited_ms = (time.monotonic() - self._last_batch_at) * 1000
        if self._frozen is None and least is not None and available < least and waited_ms < self._options["maxTriggerDelay"]:
            return begin
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options["maxOffsetsPerTrigger"]
        return limited(begin, end, self._most_by_bytes(begin, end, min(most, available)))

    def _commit(self, processed: Offsets) -> None:
        """Spark asks for the next end when the batch before is done: up to its end everything was processed."""
        if self._options["commitOffsets"] == "none" or processed == self._committed:
            return
        try:
            self._cluster().commit(self._options["consumerGroup"], processed)
            self._committed = processed
        except SparkOptionError as error:  # nothing depends on it
            log.warning("the offsets of the group %s were not reported: %s", self._options["consumerGroup"], error)

    def _ends(self) -> Offsets:
        if self._frozen is not None:
            return self._frozen
        try:
            self._latest = self._cluster().max_offsets(self._known_queues())
            self._heard_at = time.monotonic()
        except SparkOptionError as error:
            if not self._latest or time.monotonic() - self._heard_at > _PATIENCE_S:
                raise
            log.warning("the stream waits for its brokers: %s", error)
        return self._latest

    def _made_anew(self, begin: Offsets, end: Offsets) -> Offsets:
        """A queue that ends before what was read last was deleted and made anew: it is read from its beginning, if at all."""
        anew = [queue for queue in sorted(end) if end[queue] < begin[queue]]
        if anew and self._options["failOnDataLoss"]:
            queue = anew[0]
            raise DataLossError(
                f"data loss: queue {queue.queue_id} of {queue.topic} on {queue.broker_name} ends at {end[queue]}, but offsets "
                f"up to {begin[queue] - 1} were read: was the topic deleted? Set failOnDataLoss to false to go on"
            )
        return self._cluster().min_offsets(anew)

    def _most_by_bytes(self, begin: Mapping[Queue, int], end: Mapping[Queue, int], most: int) -> int:
        """How many messages weigh `maxBytesPerTrigger`, by what the next ones of the largest queues weigh."""
        if most * _LARGEST <= self._options["maxBytesPerTrigger"]:
            return most
        largest = sorted(end, key=lambda queue: begin[queue] - end[queue])[:_SAMPLED_QUEUES]
        count = size = 0
        for queue in largest:
            if end[queue] > begin[queue]:
                messages, weight = sample_bytes(self._cluster(), queue, begin[queue], self._options)
                count, size = count + messages, size + weight
        if not count:
            return most
        by_bytes: int = self._options["maxBytesPerTrigger"] * count // size
        return max(1, min(most, by_bytes))
