"""Filter pushdown: conditions of a query that limit what is read (option `pushFilters`).

Spark passes conditions that are joined by AND and compare a column with values. The read may return more rows than match, never
fewer; Spark applies every condition again.

Limits on `storeTimestamp` rely on messages being stored in the order of their store times, as does every search by time.
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
_UNBOUNDED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """Limits of the read. None, or bounds without effect, where no condition applies."""

    topic: frozenset[Any] | None = None
    brokerName: frozenset[Any] | None = None  # noqa: N815 (the name of the column)
    queueId: frozenset[Any] | None = None  # noqa: N815 (the name of the column)
    tags: frozenset[Any] | None = None
    offsets: tuple[int, int] = (0, _UNBOUNDED)
    stored_ms: tuple[int, int] = (0, _UNBOUNDED)

    def queues(self, queues: Iterable[Queue]) -> list[Queue]:
        return [
            queue
            for queue in queues
            if (self.topic is None or queue.topic in self.topic)
            and (self.brokerName is None or queue.broker_name in self.brokerName)
            and (self.queueId is None or queue.queue_id in self.queueId)
        ]

    def narrow(self, client: ClusterClient, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Narrow the offsets to the matching messages. An end below its start means that the queue has none."""
        first, last = self.offsets
        start = {queue: max(offset, first) for queue, offset in start.items()}
        end = {queue: min(offset, last) for queue, offset in end.items()}
        from_ms, to_ms = self.stored_ms
        if from_ms > 0:
            at = client.offsets_at(dict.fromkeys(start, from_ms))
            start = {queue: max(offset, at[queue]) for queue, offset in start.items()}
        if to_ms < _UNBOUNDED:
            at = client.offsets_at(dict.fromkeys(end, to_ms))
            end = {queue: min(offset, at[queue]) for queue, offset in end.items()}
        return start, end

    def options(self, options: DataSourceOptions) -> DataSourceOptions:
        """Narrow the options: tags for a broker, times and topics for store files."""
        changed = dict(options.values)
        if options["path"] is not None:
            if self.topic is not None and options["subscribe"] is not None:
                changed["subscribe"] = tuple(topic for topic in options["subscribe"] if topic in self.topic)
            from_ms, to_ms = self.stored_ms
            if from_ms > 0:
                changed["startingTimestamp"] = max(from_ms, options["startingTimestamp"] or 0)
            if to_ms < _UNBOUNDED:
                changed["endingTimestamp"] = min(to_ms, options["endingTimestamp"] or _UNBOUNDED)
        elif self.tags and options["subExpression"] == "*" and _is_tag_expression(self.tags):
            changed["subExpression"] = " || ".join(sorted(self.tags))
        return replace(options, values=changed)


def _is_tag_expression(tags: Iterable[str]) -> bool:
    found = list(tags)
    return len(found) <= _MAX_TAGS and all(_PLAIN_TAG.fullmatch(tag) for tag in found)


def parse_filters(filters: Iterable[Any]) -> PushedFilters:
    """Convert filters of Spark (`pyspark.sql.datasource.Filter`)."""
    found = PushedFilters()
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        value = getattr(one, "value", None)
        if len(attribute) == 1 and value is not None:
            found = _apply_filter(found, attribute[0].lower(), type(one).__name__, value)
    return found


def _apply_filter(found: PushedFilters, column: str, kind: str, value: Any) -> PushedFilters:
    for name, value_type in _SETS.items():
        if column == name.lower() and kind in ("EqualTo", "EqualNullSafe", "In"):
            values = frozenset(value if kind == "In" else (value,)) - {None}
            if all(isinstance(one, value_type) for one in values):
                previous = getattr(found, name)
                changed: dict[str, Any] = {name: values if previous is None else previous & values}
                return replace(found, **changed)
    if column == "queueoffset" and isinstance(value, int):
        return replace(found, offsets=_between(found.offsets, kind, value, value))
    if column == "storetimestamp" and isinstance(value, datetime):
        at_us = round(value.timestamp() * 1_000_000)
        return replace(found, stored_ms=_between(found.stored_ms, kind, at_us // 1000, -(-at_us // 1000)))
    return found


def _between(bounds: tuple[int, int], kind: str, floor: int, ceiling: int) -> tuple[int, int]:
    """Narrow integer bounds (end exclusive) by a comparison with a value between `floor` and `ceiling`."""
    first, end = bounds
    if kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo", "EqualNullSafe"):
        first = max(first, floor)
    if kind in ("LessThan", "LessThanOrEqual", "EqualTo", "EqualNullSafe"):
        end = min(end, ceiling + 1)
    return first, max(end, 0)
