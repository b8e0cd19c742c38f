"""Which offsets a batch reads, and how they become tasks. Plain arithmetic: the same input always gives the same tasks, which a
replayed batch of a stream relies on.

A task costs tens of milliseconds whatever it reads, a message about two microseconds: small ranges share a task, large ones are
split. Ranges of one broker stay together, and the messages of a queue keep their order within a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from firearrow.spark.cluster import ClusterClient
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import DataSourceOptions
from firearrow.spark.read.offsets import EARLIEST, LATEST, Offsets, Queue, assigned, from_dict
from firearrow.wire.names import is_system_topic


def wanted_queues(servers: ClusterClient, options: DataSourceOptions) -> list[Queue]:
    """The queues that the query reads, as they are now."""
    if options["assign"] is not None:
        queues = assigned(options["assign"])
        there = set(servers.queues(sorted({queue.topic for queue in queues})))
        missing = [queue for queue in queues if queue not in there]
        if missing:
            queue = missing[0]
            raise SparkOptionError(
                f"assign names queue {queue.queue_id} of {queue.topic} on {queue.broker_name}, which does not exist"
            )
        return queues
    return servers.queues(wanted_topics(servers, options))


def wanted_topics(servers: ClusterClient, options: DataSourceOptions) -> list[str]:
    if options["subscribe"] is not None:
        return sorted(set(options["subscribe"]))
    matches = re.compile(options["subscribePattern"]).fullmatch
    return [
        topic for topic in servers.topics() if matches(topic) and (options["includeSystemTopics"] or not is_system_topic(topic))
    ]


def starting(servers: ClusterClient, queues: list[Queue], options: DataSourceOptions, default: str) -> Offsets:
    moments = _moments(queues, options, "starting")
    if moments is not None:
        found = servers.offsets_at_each(moments)
        if options["startingOffsetsByTimestampStrategy"] == "error":
            _check_found(servers, moments, found)
        return found
    where: Any = options["startingOffsets"] or default
    if where == "earliest":
        return servers.min_offsets(queues)
    if where == "latest":
        return servers.max_offsets(queues)
    if where == "group":
        found = servers.committed(options["consumerGroup"], queues)
        rest = [queue for queue in queues if queue not in found]
        reset = servers.min_offsets(rest) if options["groupResetStrategy"] == "earliest" else servers.max_offsets(rest)
        return found | reset
    return _named(servers, queues, where, "startingOffsets")


def ending(servers: ClusterClient, queues: list[Queue], options: DataSourceOptions) -> Offsets:
    moments = _moments(queues, options, "ending")
    if moments is not None:
        return servers.offsets_at_each(moments)
    if options["endingOffsets"] == "latest":
        return servers.max_offsets(queues)
    offsets = _named(servers, queues, options["endingOffsets"], "endingOffsets")
    there = servers.max_offsets(queues)
    for queue, offset in sorted(offsets.items()):
        if offset > there[queue]:
            raise SparkOptionError(
                f"endingOffsets say {offset} for queue {queue.queue_id} of {queue.topic} on {queue.broker_name}, "
                f"which ends at {there[queue]}"
            )
    return offsets


def _moments(queues: list[Queue], options: DataSourceOptions, which: str) -> dict[Queue, int] | None:
    """The moment at which each queue is to begin or end, if options say it by time."""
    if options[f"{which}Timestamp"] is not None:
        return dict.fromkeys(queues, options[f"{which}Timestamp"])
    option = f"{which}OffsetsByTimestamp"
    if options[option] is None:
        return None
    moments = from_dict(options[option], option)
    _check_names(queues, moments, option, "moment")
    return moments


def _check_found(servers: ClusterClient, moments: dict[Queue, int], found: Offsets) -> None:
    ends = servers.max_offsets(moments)
    for queue, offset in sorted(found.items()):
        if offset >= ends[queue]:
            raise SparkOptionError(
                f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} holds nothing that was stored at or after "
                f"{moments[queue]} ms; with startingOffsetsByTimestampStrategy latest it is read from its end"
            )


def _named(servers: ClusterClient, queues: list[Queue], found: dict[str, Any], option: str) -> Offsets:
    offsets = from_dict(found, option, EARLIEST if option == "startingOffsets" else LATEST)
    _check_names(queues, offsets, option, "offset")
    earliest = servers.min_offsets([queue for queue, offset in offsets.items() if offset == EARLIEST])
    latest = servers.max_offsets([queue for queue, offset in offsets.items() if offset == LATEST])
    return offsets | earliest | latest


def _check_names(queues: list[Queue], named: Mapping[Queue, int], option: str, what: str) -> None:
    """Every queue that is read, and no other."""
    for queue in queues:
        if queue not in named:
            raise SparkOptionError(
                f"{option} has no {what} for queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: name every queue"
            )
    for queue in sorted(named.keys() - set(queues)):
        raise SparkOptionError(
            f"{option} names queue {queue.queue_id} of {queue.topic} on {queue.broker_name}, which is not one that is read"
        )


class Range(NamedTuple):
    """Offsets `first` to `end` (exclusive) of a queue."""

    queue: Queue
    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first


def ranges(start: Mapping[Queue, int], end: Mapping[Queue, int]) -> list[Range]:
    """What lies between two offsets. A queue that is not in `start` was not known then: its first end says where it begins."""
    found = (Range(queue, start.get(queue, offset), offset) for queue, offset in sorted(end.items()))
    return [one for one in found if one.size > 0]


def tasks(wanted: Sequence[Range], *, least: int, most: int, min_tasks: int | None = None) -> list[list[Range]]:
    """`least`: small ranges share a task until it has so many messages. `most`: no task has more."""
    total = sum(one.size for one in wanted)
    if min_tasks is not None and total:
        most = max(1, min(most, -(-total // min_tasks)))
        least = min(least, most)
    made: list[list[Range]] = []
    held = 0
    for piece in _pieces(wanted, most):
        last = made[-1][-1].queue if made else None
        shares = last is not None and last.broker_name == piece.queue.broker_name and held < least and held + piece.size <= most
        if shares:
            made[-1].append(piece)
            held += piece.size
        else:
            made.append([piece])
            held = piece.size
    return made


def limited(start: Mapping[Queue, int], end: Mapping[Queue, int], most: int) -> Offsets:
    """The ends of a batch of about `most` messages, shared by what the queues hold; each that holds any gets at least one."""
    held = {queue: offset - start.get(queue, offset) for queue, offset in end.items()}
    total = sum(count for count in held.values() if count > 0)
    if total <= most:
        return dict(end)
    return {
        queue: offset if held[queue] <= 0 else start[queue] + min(held[queue], max(1, held[queue] * most // total))
        for queue, offset in end.items()
    }


def _pieces(wanted: Sequence[Range], most: int) -> list[Range]:
    """By broker, then topic and queue; what is larger than `most` in equal parts."""
    made = []
    for queue, first, end in sorted(wanted, key=lambda one: (one.queue.broker_name, one.queue.topic, one.queue.queue_id)):
        parts = -(-(end - first) // most)
        size = -(-(end - first) // parts)
        made += [Range(queue, begin, min(begin + size, end)) for begin in range(first, end, size)]
    return made
