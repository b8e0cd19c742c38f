"""Planning of a read: the queues, their first and last offsets, and the division into tasks.

Of several starting (or ending) options, the first of these counts: a timestamp for all queues, timestamps by queue, offsets. JSON
values must name every queue that is read, so that none is omitted by mistake.

The division into tasks is deterministic, as a replayed micro-batch requires. A task costs tens of milliseconds whatever it reads,
a message about two microseconds: small ranges share a task, large ones are split. Ranges of one broker stay together, and the
messages of a queue keep their order within a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from firearrow.spark.cluster import ClusterClient
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import DataSourceOptions
from firearrow.spark.read.offsets import EARLIEST, LATEST, Offsets, Queue, from_dict, parse_assigned
from firearrow.wire.names import is_system_topic


def resolve_queues(client: ClusterClient, options: DataSourceOptions) -> list[Queue]:
    """Return the queues that the query reads at present."""
    if options["assign"] is not None:
        queues = parse_assigned(options["assign"])
        existing = set(client.queues(sorted({queue.topic for queue in queues})))
        missing = [queue for queue in queues if queue not in existing]
        if missing:
            raise SparkOptionError(f"assign names {missing[0]}, which does not exist")
        return queues
    return client.queues(resolve_topics(client, options))


def resolve_topics(client: ClusterClient, options: DataSourceOptions) -> list[str]:
    if options["subscribe"] is not None:
        return sorted(set(options["subscribe"]))
    matches = re.compile(options["subscribePattern"]).fullmatch
    return [
        topic for topic in client.topics() if matches(topic) and (options["includeSystemTopics"] or not is_system_topic(topic))
    ]


def starting_offsets(client: ClusterClient, queues: list[Queue], options: DataSourceOptions, default: str) -> Offsets:
    times_ms = _times(queues, options, "starting")
    if times_ms is not None:
        found = client.offsets_at(times_ms)
        if options["startingOffsetsByTimestampStrategy"] == "error":
            _check_found(client, times_ms, found)
        return found
    position: Any = options["startingOffsets"] or default
    if position == "earliest":
        return client.min_offsets(queues)
    if position == "latest":
        return client.max_offsets(queues)
    if position == "group":
        found = client.committed(options["consumerGroup"], queues)
        rest = [queue for queue in queues if queue not in found]
        reset = client.min_offsets(rest) if options["groupResetStrategy"] == "earliest" else client.max_offsets(rest)
        return found | reset
    return _explicit_offsets(client, queues, position, "startingOffsets")


def ending_offsets(client: ClusterClient, queues: list[Queue], options: DataSourceOptions) -> Offsets:
    times_ms = _times(queues, options, "ending")
    if times_ms is not None:
        return client.offsets_at(times_ms)
    if options["endingOffsets"] == "latest":
        return client.max_offsets(queues)
    offsets = _explicit_offsets(client, queues, options["endingOffsets"], "endingOffsets")
    ends = client.max_offsets(queues)
    for queue, offset in sorted(offsets.items()):
        if offset > ends[queue]:
            raise SparkOptionError(f"endingOffsets say {offset} for {queue}, which ends at {ends[queue]}")
    return offsets


def _times(queues: list[Queue], options: DataSourceOptions, which: str) -> dict[Queue, int] | None:
    """Return the start or end time of each queue, if the options give one."""
    if options[f"{which}Timestamp"] is not None:
        return dict.fromkeys(queues, options[f"{which}Timestamp"])
    option = f"{which}OffsetsByTimestamp"
    if options[option] is None:
        return None
    times_ms = from_dict(options[option], option)
    _check_complete(queues, times_ms, option, "time")
    return times_ms


def _check_found(client: ClusterClient, times_ms: dict[Queue, int], found: Offsets) -> None:
    ends = client.max_offsets(times_ms)
    for queue, offset in sorted(found.items()):
        if offset >= ends[queue]:
            raise SparkOptionError(
                f"{queue} has no message stored at or after {times_ms[queue]} ms; with startingOffsetsByTimestampStrategy "
                "latest it is read from its end"
            )


def _explicit_offsets(client: ClusterClient, queues: list[Queue], found: dict[str, Any], option: str) -> Offsets:
    offsets = from_dict(found, option, EARLIEST if option == "startingOffsets" else LATEST)
    _check_complete(queues, offsets, option, "offset")
    earliest = client.min_offsets([queue for queue, offset in offsets.items() if offset == EARLIEST])
    latest = client.max_offsets([queue for queue, offset in offsets.items() if offset == LATEST])
    return offsets | earliest | latest


def _check_complete(queues: list[Queue], named: Mapping[Queue, int], option: str, what: str) -> None:
    """Reject `named` unless it names exactly the queues that are read."""
    for queue in queues:
        if queue not in named:
            raise SparkOptionError(f"{option} has no {what} for {queue}: name every queue")
    for queue in sorted(named.keys() - set(queues)):
        raise SparkOptionError(f"{option} names {queue}, which is not read")


class Range(NamedTuple):
    """Offsets `first` to `end` (exclusive) of a queue."""

    queue: Queue
    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first


def ranges_between(start: Mapping[Queue, int], end: Mapping[Queue, int]) -> list[Range]:
    """Return the ranges between two sets of offsets. A queue missing in `start` is new; it starts at its first end."""
    found = (Range(queue, start.get(queue, offset), offset) for queue, offset in sorted(end.items()))
    return [one for one in found if one.size > 0]


def plan_tasks(wanted: Sequence[Range], *, least: int, most: int, min_tasks: int | None = None) -> list[list[Range]]:
    """Divide ranges into tasks: small ranges share a task of up to `least` messages, and no task has more than `most`."""
    total = sum(one.size for one in wanted)
    if min_tasks is not None and total:
        most = max(1, min(most, -(-total // min_tasks)))
        least = min(least, most)
    planned: list[list[Range]] = []
    backlog = 0
    for part in _split_ranges(wanted, most):
        last = planned[-1][-1].queue if planned else None
        shares = (
            last is not None and last.broker_name == part.queue.broker_name and backlog < least and backlog + part.size <= most
        )
        if shares:
            planned[-1].append(part)
            backlog += part.size
        else:
            planned.append([part])
            backlog = part.size
    return planned


def limit_offsets(start: Mapping[Queue, int], end: Mapping[Queue, int], most: int) -> Offsets:
    """Limit a batch to about `most` messages, in proportion to the backlog of each queue, at least one per queue."""
    backlog = {queue: offset - start.get(queue, offset) for queue, offset in end.items()}
    total = sum(count for count in backlog.values() if count > 0)
    if total <= most:
        return dict(end)
    return {
        queue: offset if backlog[queue] <= 0 else start[queue] + min(backlog[queue], max(1, backlog[queue] * most // total))
        for queue, offset in end.items()
    }


def _split_ranges(wanted: Sequence[Range], most: int) -> list[Range]:
    """Sort ranges by broker, topic and queue, and split those larger than `most` into equal parts."""
    planned = []
    for queue, first, end in sorted(wanted, key=lambda one: (one.queue.broker_name, one.queue.topic, one.queue.queue_id)):
        parts = -(-(end - first) // most)
        size = -(-(end - first) // parts)
        planned += [Range(queue, begin, min(begin + size, end)) for begin in range(first, end, size)]
    return planned
