from __future__ import annotations

import json

import pytest

from firearrow.spark.errors import SparkOptionError
from firearrow.spark.read.offsets import Queue, from_dict, parse_assigned, to_dict


def test_equal_offsets_are_equal_text() -> None:
    offsets = {Queue("T", "b", number): number for number in range(12)} | {Queue("A", "b", 0): 1}
    backwards = dict(reversed(list(offsets.items())))

    assert json.dumps(to_dict(offsets)) == json.dumps(to_dict(backwards)) == json.dumps(to_dict(offsets), sort_keys=True)
    assert from_dict(to_dict(offsets)) == offsets


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"T": 3}, 'the offsets have 3 for "T", expected a JSON object'),
        ({"T": {"b": {"x": 1}}}, "the offsets name the queue 'x' of T on b, expected a number"),
        ({"T": {"b": {"0": "1"}}}, "the offsets say '1' for queue 0 of T on b, expected a whole number"),
        ({"T": {"b": {"0": -1}}}, "the offsets say -1 for queue 0 of T on b, expected a whole number"),
        ({"_v": 2}, "the offsets have version 2, which this release does not support"),
    ],
)
def test_invalid_offsets_are_rejected(found: dict[str, object], expected: str) -> None:
    with pytest.raises(SparkOptionError) as error:
        from_dict(found)

    assert str(error.value) == expected


def test_assigned_queues_are_parsed() -> None:
    assert parse_assigned({"T": {"b": [1, 0]}}) == [Queue("T", "b", 0), Queue("T", "b", 1)]
    with pytest.raises(SparkOptionError, match="expected a list of queue numbers"):
        parse_assigned({"T": {"b": 1}})
    with pytest.raises(SparkOptionError, match="names no queue"):
        parse_assigned({})
