"""Streaming read of topics: the offsets of each micro-batch.

Rules
- Offsets given to Spark come from `offsets.to_dict` only: unequal text of equal offsets would cause endless empty batches.
- A queue that appears while the stream runs is added at its oldest message, in a batch of its own; the next batch reads it.
- A queue that disappears keeps its last offset. If it were dropped and came back, it would be read again.
- The first batch of a large backlog is bounded by default, by messages and by bytes.
- Without new messages, `latestOffset` waits a little before it returns; Spark would call it a hundred times a second.
- With an AvailableNow trigger the end offsets are those at its start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from firearrow.spark.cluster import ClusterClient, cluster_client
from firearrow.spark.errors import DataLossError, SparkOptionError
from firearrow.spark.options import DataSourceOptions
from firearrow.spark.read.datasource import LiveReader, plan_partitions
from firearrow.spark.read.live import sample_bytes
from firearrow.spark.read.offsets import Offsets, Queue, from_dict, to_dict
from firearrow.spark.read.planning import limit_offsets, ranges_between, resolve_queues, starting_offsets

log = logging.getLogger("firearrow.spark")

_POLL_S: Final = 0.04
_MAX_OUTAGE_S: Final = 60.0  # of the brokers; a restart must not end a stream
_SAMPLED_QUEUES: Final = 4
_MAX_MESSAGE_BYTES: Final = 4 << 20  # default limit of brokers


class RocketMQStreamReader(LiveReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a streaming query."""

    def __init__(self, options: DataSourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._queues: list[Queue] = []
        self._queues_read_at = float("-inf")
        self._fixed_ends: Offsets | None = None
        self._last_batch_at = time.monotonic()
        self._latest: Offsets = {}
        self._reachable_at = float("-inf")
        self._committed: Offsets = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        queues = self._known_queues(refresh=True)
        return to_dict(starting_offsets(self._cluster(), queues, self._options, "latest"))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        return ReadMaxRows(self._options["maxOffsetsPerTrigger"])

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        queues = self._known_queues(refresh=True)
        self._fixed_ends = self._latest = self._cluster().max_offsets(queues)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        begin = _offsets(start)
        self._commit(begin)
        deadline = time.monotonic() + self._options["latestOffsetMaxWaitMs"] / 1000
        while True:
            end = self._next_end(begin, limit)
            if end != begin:
                self._last_batch_at = time.monotonic()
                return to_dict(end)
            if self._fixed_ends is not None or time.monotonic() >= deadline:
                return start
            time.sleep(_POLL_S)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        return to_dict(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return plan_partitions(ranges_between(_offsets(start), _offsets(end)), self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint holds the progress. Spark calls this late and not for every batch; see `_commit`."""

    def stop(self) -> None:
        """Do nothing: connections belong to the process."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state sent to executors, without the driver's offsets."""
        return {**self.__dict__, "_queues": [], "_latest": {}, "_fixed_ends": None, "_committed": {}}

    def _cluster(self) -> ClusterClient:
        return cluster_client(self._options.client())

    def _known_queues(self, *, refresh: bool = False) -> list[Queue]:
        now = time.monotonic()
        if refresh or now - self._queues_read_at >= self._options["metadataRefreshMs"] / 1000:
            try:
                self._queues = resolve_queues(self._cluster(), self._options)
            except SparkOptionError:
                if refresh or not self._queues:
                    raise
                # Brokers outlive name servers: continue with the known queues.
            self._queues_read_at = now
        return self._queues

    def _next_end(self, begin: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end of the next batch, or `begin` if no batch is due."""
        ends = self._ends()
        new = [queue for queue in ends if queue not in begin]
        if new:
            return begin | self._cluster().min_offsets(new)
        end = {queue: ends.get(queue, offset) for queue, offset in begin.items()}
        end |= self._recreated_queues(begin, end)
        available = sum(max(0, end[queue] - begin[queue]) for queue in end)
        if not available:
            return end
        if isinstance(limit, ReadAllAvailable):
            return end
        minimum = self._options["minOffsetsPerTrigger"]
        waited_ms = (time.monotonic() - self._last_batch_at) * 1000
        if (
            self._fixed_ends is None
            and minimum is not None
            and available < minimum
            and waited_ms < self._options["maxTriggerDelay"]
        ):
            return begin
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options["maxOffsetsPerTrigger"]
        return limit_offsets(begin, end, self._limit_by_bytes(begin, end, min(most, available)))

    def _commit(self, processed: Offsets) -> None:
        """Commit the end of the previous batch. Spark requests the next end only when that batch is complete."""
        if self._options["commitOffsets"] == "none" or processed == self._committed:
            return
        try:
            self._cluster().commit(self._options["consumerGroup"], processed)
            self._committed = processed
        except SparkOptionError as error:  # the stream does not depend on it
            log.warning("could not commit the offsets of the group %s: %s", self._options["consumerGroup"], error)

    def _ends(self) -> Offsets:
        if self._fixed_ends is not None:
            return self._fixed_ends
        try:
            self._latest = self._cluster().max_offsets(self._known_queues())
            self._reachable_at = time.monotonic()
        except SparkOptionError as error:
            if not self._latest or time.monotonic() - self._reachable_at > _MAX_OUTAGE_S:
                raise
            log.warning("brokers are unreachable, the stream waits for them: %s", error)
        return self._latest

    def _recreated_queues(self, begin: Offsets, end: Offsets) -> Offsets:
        """Return the start of queues that end before the offsets read: they were recreated. DataLossError if configured."""
        recreated = [queue for queue in sorted(end) if end[queue] < begin[queue]]
        if recreated and self._options["failOnDataLoss"]:
            queue = recreated[0]
            raise DataLossError(
                f"data loss: {queue} ends at {end[queue]}, but offsets up to {begin[queue] - 1} were read: was the topic "
                "deleted? Set failOnDataLoss to false to continue"
            )
        return self._cluster().min_offsets(recreated)

    def _limit_by_bytes(self, begin: Mapping[Queue, int], end: Mapping[Queue, int], most: int) -> int:
        """Estimate how many messages have `maxBytesPerTrigger` bytes from the next messages of the largest queues."""
        if most * _MAX_MESSAGE_BYTES <= self._options["maxBytesPerTrigger"]:
            return most
        largest = sorted(end, key=lambda queue: begin[queue] - end[queue])[:_SAMPLED_QUEUES]
        count = size = 0
        for queue in largest:
            if end[queue] > begin[queue]:
                messages, sampled_bytes = sample_bytes(self._cluster(), queue, begin[queue], self._options)
                count, size = count + messages, size + sampled_bytes
        if not count:
            return most
        by_bytes: int = self._options["maxBytesPerTrigger"] * count // size
        return max(1, min(most, by_bytes))


def _offsets(found: dict[str, Any]) -> Offsets:
    return from_dict(found, "the offsets of the checkpoint")
