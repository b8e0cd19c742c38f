"""Where a query begins and ends: options become offsets, with the help of the brokers.

Of several options that say where, the first of these counts: a timestamp for all queues, timestamps by queue, offsets. What names
queues in JSON must name every queue that is read, so that none is left out by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from firearrow.spark.cluster import Cluster
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import Options
from firearrow.spark.read.offsets import EARLIEST, LATEST, Offsets, Queue, assigned, from_dict
from firearrow.wire.names import is_system_topic


def wanted_queues(servers: Cluster, options: Options) -> list[Queue]:
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


def wanted_topics(servers: Cluster, options: Options) -> list[str]:
    if options["subscribe"] is not None:
        return sorted(set(options["subscribe"]))
    matches = re.compile(options["subscribePattern"]).fullmatch
    return [
        topic for topic in servers.topics() if matches(topic) and (options["includeSystemTopics"] or not is_system_topic(topic))
    ]


def starting(servers: Cluster, queues: list[Queue], options: Options, default: str) -> Offsets:
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


def ending(servers: Cluster, queues: list[Queue], options: Options) -> Offsets:
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


def _moments(queues: list[Queue], options: Options, which: str) -> dict[Queue, int] | None:
    """The moment at which each queue is to begin or end, if options say it by time."""
    if options[f"{which}Timestamp"] is not None:
        return dict.fromkeys(queues, options[f"{which}Timestamp"])
    option = f"{which}OffsetsByTimestamp"
    if options[option] is None:
        return None
    moments = from_dict(options[option], option)
    _check_names(queues, moments, option, "moment")
    return moments


def _check_found(servers: Cluster, moments: dict[Queue, int], found: Offsets) -> None:
    ends = servers.max_offsets(moments)
    for queue, offset in sorted(found.items()):
        if offset >= ends[queue]:
            raise SparkOptionError(
                f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} holds nothing that was stored at or after "
                f"{moments[queue]} ms; with startingOffsetsByTimestampStrategy latest it is read from its end"
            )


def _named(servers: Cluster, queues: list[Queue], found: dict[str, Any], option: str) -> Offsets:
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
