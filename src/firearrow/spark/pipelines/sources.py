"""Sources of a job: topics of a cluster, a store directory, or an archive (`archive_source.py`).

A source knows the end of its data and plans the next increment. A position says what has been read, a plan what an increment
reads. Both are JSON and are stored in the journal. The same plan always yields the same parts with the same messages in the same
order.

    topics   offsets of queues                     {"offsets": {"Orders": {"broker-a": {"0": 120}}}}
    store    an offset of the commit log           {"log": 1073741824}
    archive  the number of an archived increment   {"round": 12}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol

from firearrow.spark.cluster import ClusterClient, cluster_client
from firearrow.spark.decode.columns import Columns
from firearrow.spark.errors import DataLossError
from firearrow.spark.options import SECURITY_OPTIONS, DataSourceOptions, read_options
from firearrow.spark.read.live import read_ranges, sample_bytes
from firearrow.spark.read.offsets import Offsets, from_dict, to_dict
from firearrow.spark.read.planning import (
    Range,
    ending_offsets,
    limit_offsets,
    plan_tasks,
    ranges_between,
    resolve_queues,
    starting_offsets,
)
from firearrow.spark.read.store_scan import Split, plan_splits, read_splits

Json = dict[str, Any]
CLIENT_OPTIONS: Final = frozenset(("nameServer", "brokerAddressMap", *SECURITY_OPTIONS))
"""Options for the connection to a cluster, common to reading and writing."""
INCREMENT_BYTES: Final = 2 << 30  # per increment of a store directory
_SAMPLED: Final = 4
_LOSSY_HINT: Final = "With --lossy (lossy=True) the job continues with the remaining messages"


class Part(Protocol):
    """Input of one task. Plain data, sent to executors."""

    @property
    def size(self) -> int: ...

    def read(self, options: DataSourceOptions, columns: Columns) -> Iterator[Any]:
        """Yield record batches."""


@dataclass(frozen=True, slots=True)
class RangePart:
    """Ranges of queues or of a commit log."""

    ranges: tuple[Range, ...] = ()
    splits: tuple[Split, ...] = ()

    @property
    def size(self) -> int:
        return sum(one.size for one in self.ranges) + sum(one.end - one.first for one in self.splits)

    def read(self, options: DataSourceOptions, columns: Columns) -> Iterator[Any]:
        if self.ranges:
            yield from read_ranges(self.ranges, options, columns)
        if self.splits:
            yield from read_splits(self.splits, options, columns)


class MessageSource(Protocol):
    """Source of a job."""

    options: DataSourceOptions

    def identity(self) -> Json:
        """Return the arguments that must not change between runs of the job."""

    def begin(self) -> Json:
        """Return the start position of a new job."""

    def end(self) -> Json:
        """Return the position after all messages that exist now."""

    def plan(self, position: Json, end: Json, most: int) -> Json | None:
        """Plan an increment of about `most` messages; its key `end` is the position after it. None: no message is left."""

    def rows(self, start: Json, end: Json) -> int:
        """Return the amount between two positions: messages, or bytes of a store."""

    def parallel_parts(self, plan: Json, at_least: int) -> Sequence[Part]:
        """Divide an increment into parts for tasks that need no order, `at_least` this many if it is large enough."""

    def ordered_parts(self, plan: Json) -> Sequence[Part]:
        """Divide an increment into parts for tasks that keep the order: no queue is in two parts."""

    def size_bytes(self, start: Json, end: Json) -> int:
        """Estimate the bytes between two positions."""


class _LossySource:
    """Base of sources that brokers delete from. `lossy`: continue after deleted messages instead of failing."""

    def __init__(self, given: Mapping[str, str], *, lossy: bool = False) -> None:
        self.options = read_options(given, stream=False)
        self._lossy = lossy
        if lossy:
            self.options.values["failOnDataLoss"] = False


class TopicSource(_LossySource):
    """Topics of a cluster."""

    @cached_property
    def _client(self) -> ClusterClient:
        return cluster_client(self.options.client())

    def identity(self) -> Json:
        given = self.options.explicit("subscribePattern", "assign", "subExpression", "expressionType")
        topics = self.options["subscribe"]  # also by the option `topic`
        return {"source": "topics", **given} | ({"subscribe": list(topics)} if topics else {})

    def begin(self) -> Json:
        return {"offsets": to_dict(starting_offsets(self._client, self._queues(), self.options, "earliest"))}

    def end(self) -> Json:
        return {"offsets": to_dict(ending_offsets(self._client, self._queues(), self.options))}

    def plan(self, position: Json, end: Json, most: int) -> Json | None:
        start, stop = _offsets(position), _offsets(end)
        start |= self._client.min_offsets([queue for queue in stop if queue not in start])
        start |= self._after_loss(start, stop)
        stop = {queue: max(offset, start[queue]) for queue, offset in stop.items()}
        if not ranges_between(start, stop):
            return None
        stop = limit_offsets(start, stop, most)
        removed = {queue: offset for queue, offset in start.items() if queue not in stop}
        return {"start": {"offsets": to_dict(start)}, "end": {"offsets": to_dict(stop | removed)}}

    def _after_loss(self, start: Offsets, stop: Offsets) -> Offsets:
        """Return the oldest offset of queues with deleted unread messages. DataLossError unless the job is lossy."""
        known = [queue for queue in stop if queue in start]
        min_offsets, max_offsets = self._client.min_offsets(known), self._client.max_offsets(known)
        moved = {queue: min_offsets[queue] for queue in known if not min_offsets[queue] <= start[queue] <= max_offsets[queue]}
        if moved and not self._lossy:
            queue, low = min(moved.items())
            what = (
                f"offsets {start[queue]} to {low - 1} were deleted before they were read"
                if low > start[queue]
                else f"it ends at {max_offsets[queue]}, but offsets up to {start[queue] - 1} were read: was the topic deleted?"
            )
            raise DataLossError(f"data loss: {queue}: {what}. {_LOSSY_HINT}")
        return moved

    def rows(self, start: Json, end: Json) -> int:
        return sum(one.size for one in ranges_between(_offsets(start), _offsets(end)))

    def parallel_parts(self, plan: Json, at_least: int) -> Sequence[Part]:
        planned = plan_tasks(
            _ranges(plan),
            least=self.options["minRecordsPerPartition"],
            most=self.options["maxRecordsPerPartition"],
            min_tasks=at_least if self.rows(plan["start"], plan["end"]) > self.options["minRecordsPerPartition"] else None,
        )
        return [RangePart(ranges=tuple(one)) for one in planned]

    def ordered_parts(self, plan: Json) -> Sequence[Part]:
        return [RangePart(ranges=(one,)) for one in _ranges(plan)]

    def size_bytes(self, start: Json, end: Json) -> int:
        wanted = sorted(ranges_between(_offsets(start), _offsets(end)), key=lambda one: -one.size)
        messages = size = 0
        for one in wanted[:_SAMPLED]:
            found = sample_bytes(self._client, one.queue, one.first, self.options)
            messages, size = messages + found[0], size + found[1]
        return sum(one.size for one in wanted) * size // messages if messages else 0

    def _queues(self) -> list[Any]:
        return resolve_queues(self._client, self.options)


class StoreSource(_LossySource):
    """A store directory: the commit log between the end of the last increment and the flushed offset."""

    def identity(self) -> Json:
        names = ("subscribe", "subscribePattern", "brokerName", "includeSystemTopics", "startingTimestamp", "endingTimestamp")
        return {"source": "store", **self.options.explicit(*names)}

    def begin(self) -> Json:
        splits = plan_splits(self.options)
        return {"log": splits[0].first if splits else 0}

    def end(self) -> Json:
        splits = plan_splits(self.options)
        return {"log": splits[-1].end if splits else 0}

    def plan(self, position: Json, end: Json, most: int) -> Json | None:
        first, at = self.begin()["log"], position["log"]
        if not first <= at <= end["log"]:
            if not self._lossy:
                what = f"bytes {at} to {first - 1} of the log were deleted" if at < first else f"the log ends at {end['log']}"
                raise DataLossError(
                    f"data loss: {at} bytes of the log were read, but {what}: is it the same store? {_LOSSY_HINT}"
                )
            at = max(at, first)
        if at >= end["log"]:
            return None
        return {"start": {"log": at}, "end": {"log": min(end["log"], at + INCREMENT_BYTES)}}

    def rows(self, start: Json, end: Json) -> int:
        return max(0, int(end["log"]) - int(start["log"]))

    size_bytes = rows

    def parallel_parts(self, plan: Json, at_least: int) -> Sequence[RangePart]:
        first, end = plan["start"]["log"], plan["end"]["log"]
        options = self.options
        share = -(-(end - first) // at_least)
        if share < options["maxSplitBytes"]:
            options = replace(options, values=options.values | {"maxSplitBytes": max(share, 1 << 20)})
        cut = (split._replace(first=max(split.first, first), end=min(split.end, end)) for split in plan_splits(options))
        return [RangePart(splits=(split,)) for split in cut if split.first < split.end]

    def ordered_parts(self, plan: Json) -> Sequence[Part]:
        return [RangePart(splits=tuple(split for part in self.parallel_parts(plan, 1) for split in part.splits))]


def open_source(given: Mapping[str, str], *, lossy: bool = False) -> MessageSource:
    """Create the source for these options of the data source: a store directory with `path`, else topics."""
    is_store = any(name.lower() == "path" for name in given)
    return (StoreSource if is_store else TopicSource)(given, lossy=lossy)


def distribute(parts: Sequence[Part], bins: int) -> list[list[tuple[int, Part]]]:
    """Distribute numbered parts over `bins` tasks of about equal size."""
    groups: list[list[tuple[int, Part]]] = [[] for _ in range(max(1, min(bins, len(parts))))]
    sizes = [0] * len(groups)
    for number, part in sorted(enumerate(parts), key=lambda one: -one[1].size):
        smallest = sizes.index(min(sizes))
        groups[smallest].append((number, part))
        sizes[smallest] += part.size
    return [sorted(group, key=lambda one: one[0]) for group in groups if group]


def _offsets(position: Json) -> Offsets:
    return from_dict(position["offsets"], "the offsets of the journal")


def _ranges(plan: Json) -> list[Range]:
    return ranges_between(_offsets(plan["start"]), _offsets(plan["end"]))
