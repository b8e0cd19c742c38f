"""Conditions of a query that limit what is read (option `pushFilters`).

Spark hands them over while it plans, those that are joined by AND and compare a column with values. What is read then may be more
than what they are true for, never less: Spark is told to apply every one of them once more.

That `storeTimestamp` finds its place in a queue relies on messages being stored in the order of their times, as does every search
by time of a broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from firearrow.spark.cluster import ClusterClient
from firearrow.spark.options import DataSourceOptions
from firearrow.spark.read.offsets import Offsets, Queue

_PLAIN_TAG: Final = re.compile(r"[\w.:-]+", re.ASCII)
_MAX_TAGS: Final = 64
_SETS: Final = {"topic": str, "brokerName": str, "queueId": int, "tags": str}
_ENDLESS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """What is left of the table. Sets are None, and bounds far away, where nothing was said."""

    topic: frozenset[Any] | None = None
    brokerName: frozenset[Any] | None = None  # noqa: N815 (the name of the column)
    queueId: frozenset[Any] | None = None  # noqa: N815 (a column is called so)
    tags: frozenset[Any] | None = None
    offsets: tuple[int, int] = (0, _ENDLESS)
    stored_ms: tuple[int, int] = (0, _ENDLESS)

    def queues(self, queues: Iterable[Queue]) -> list[Queue]:
        return [
            queue
            for queue in queues
            if (self.topic is None or queue.topic in self.topic)
            and (self.brokerName is None or queue.broker_name in self.brokerName)
            and (self.queueId is None or queue.queue_id in self.queueId)
        ]

    def bounded(self, servers: ClusterClient, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The offsets between which the wanted messages are. An end may lie below its start: there are none."""
        first, last = self.offsets
        start = {queue: max(offset, first) for queue, offset in start.items()}
        end = {queue: min(offset, last) for queue, offset in end.items()}
        from_ms, to_ms = self.stored_ms
        if from_ms > 0:
            at = servers.offsets_at(start, from_ms)
            start = {queue: max(offset, at[queue]) for queue, offset in start.items()}
        if to_ms < _ENDLESS:
            at = servers.offsets_at(end, to_ms)
            end = {queue: min(offset, at[queue]) for queue, offset in end.items()}
        return start, end

    def options(self, options: DataSourceOptions) -> DataSourceOptions:
        """The same for a read that is told by its options: tags for a broker, times and topics for store files."""
        changed = dict(options.values)
        if options["path"] is not None:
            if self.topic is not None and options["subscribe"] is not None:
                changed["subscribe"] = tuple(topic for topic in options["subscribe"] if topic in self.topic)
            from_ms, to_ms = self.stored_ms
            if from_ms > 0:
                changed["startingTimestamp"] = max(from_ms, options["startingTimestamp"] or 0)
            if to_ms < _ENDLESS:
                changed["endingTimestamp"] = min(to_ms, options["endingTimestamp"] or _ENDLESS)
        elif self.tags and options["subExpression"] == "*" and _can_be_an_expression(self.tags):
            changed["subExpression"] = " || ".join(sorted(self.tags))
        return replace(options, values=changed)


def _can_be_an_expression(tags: Iterable[str]) -> bool:
    found = list(tags)
    return len(found) <= _MAX_TAGS and all(_PLAIN_TAG.fullmatch(tag) for tag in found)


def pushed(filters: Iterable[Any]) -> PushedFilters:
    """What these filters of Spark (`pyspark.sql.datasource.Filter`) leave."""
    found = PushedFilters()
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        value = getattr(one, "value", None)
        if len(attribute) == 1 and value is not None:
            found = _narrowed(found, attribute[0].lower(), type(one).__name__, value)
    return found


def _narrowed(found: PushedFilters, column: str, kind: str, value: Any) -> PushedFilters:
    for name, of_type in _SETS.items():
        if column == name.lower() and kind in ("EqualTo", "EqualNullSafe", "In"):
            values = frozenset(value if kind == "In" else (value,)) - {None}
            if all(isinstance(one, of_type) for one in values):
                before = getattr(found, name)
                changed: dict[str, Any] = {name: values if before is None else before & values}
                return replace(found, **changed)
    if column == "queueoffset" and isinstance(value, int):
        return replace(found, offsets=_between(found.offsets, kind, value, value))
    if column == "storetimestamp" and isinstance(value, datetime):
        at_us = round(value.timestamp() * 1_000_000)
        return replace(found, stored_ms=_between(found.stored_ms, kind, at_us // 1000, -(-at_us // 1000)))
    return found


def _between(bounds: tuple[int, int], kind: str, floor: int, ceiling: int) -> tuple[int, int]:
    """Bounds (the second exclusive) that leave whole numbers which a comparison with a value between these two is true for."""
    first, end = bounds
    if kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo", "EqualNullSafe"):
        first = max(first, floor)
    if kind in ("LessThan", "LessThanOrEqual", "EqualTo", "EqualNullSafe"):
        end = min(end, ceiling + 1)
    return first, max(end, 0)
