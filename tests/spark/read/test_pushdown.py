"""Filter pushdown: never fewer rows than match, and fewer than all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from firearrow.spark.options import read_options
from firearrow.spark.read.offsets import Queue
from firearrow.spark.read.pushdown import PushedFilters, parse_filters

A0, A1, B0 = Queue("T", "a", 0), Queue("T", "a", 1), Queue("U", "b", 0)


@dataclass
class Comparison:
    attribute: tuple[str, ...]
    value: Any


class EqualTo(Comparison): ...


class In(Comparison): ...


class Not(Comparison): ...


class GreaterThan(Comparison): ...


class LessThan(Comparison): ...


class LessThanOrEqual(Comparison): ...


def test_queues() -> None:
    everything = [A0, A1, B0]
    assert parse_filters([]).queues(everything) == everything
    assert parse_filters([EqualTo(("TOPIC",), "T")]).queues(everything) == [A0, A1]
    assert parse_filters([In(("queueId",), (0, 5)), EqualTo(("brokerName",), "a")]).queues(everything) == [A0]
    assert parse_filters([EqualTo(("topic",), "T"), EqualTo(("topic",), "U")]).queues(everything) == []
    assert (
        parse_filters([Not(("topic",), "T"), EqualTo(("topic", "x"), "T"), EqualTo(("queueId",), "0")]).queues(everything)
        == everything
    )


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([GreaterThan(("queueOffset",), 10)], (10, 1 << 62)),
        ([LessThan(("queueOffset",), 10)], (0, 11)),
        ([EqualTo(("queueOffset",), 10)], (10, 11)),
        ([GreaterThan(("queueOffset",), 3), LessThanOrEqual(("queueOffset",), 7), LessThan(("queueOffset",), 6)], (3, 7)),
        ([LessThan(("queueOffset",), -5)], (0, 0)),
    ],
)
def test_offsets(filters: list[Comparison], bounds: tuple[int, int]) -> None:
    assert parse_filters(filters).offsets == bounds


def test_times_between_milliseconds_keep_both() -> None:
    between = datetime(1970, 1, 1, 0, 0, 1, 500, UTC)
    exact = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)

    assert parse_filters([GreaterThan(("storeTimestamp",), between)]).stored_ms == (1000, 1 << 62)
    assert parse_filters([LessThan(("storeTimestamp",), between)]).stored_ms == (0, 1002)
    assert parse_filters([EqualTo(("storeTimestamp",), exact)]).stored_ms == (1000, 1001)


def test_plain_tags_become_a_subscription_expression() -> None:
    live = read_options({"nameServer": "a:1", "subscribe": "T", "pushFilters": "true"})

    def expression(*tags: str, **more: str) -> Any:
        options = read_options({"nameServer": "a:1", "subscribe": "T", **more}) if more else live
        return parse_filters([In(("tags",), tags)]).options(options)["subExpression"]

    assert expression("b", "a") == "a || b"
    assert expression("a", "b || c") == "*"
    assert expression("*") == "*"
    assert expression(*[str(n) for n in range(65)]) == "*"
    assert expression("a", subExpression="b") == "b"
    assert expression("a", subExpression="n > 1", expressionType="SQL92") == "n > 1"
    assert live["subExpression"] == "*"


def test_store_files() -> None:
    files = read_options({"path": "/x", "subscribe": "T,U", "startingTimestamp": "500", "pushFilters": "true"})
    left = PushedFilters(topic=frozenset(("U", "V")), stored_ms=(100, 900)).options(files)

    assert (left["subscribe"], left["startingTimestamp"], left["endingTimestamp"]) == (("U",), 500, 900)
    assert PushedFilters(topic=frozenset(("V",))).options(read_options({"path": "/x"}))["subscribe"] is None
