"""Attributes of topics, as mqadmin writes the wish and as the broker judges it."""

from __future__ import annotations

import pytest

from firearrow.broker.requests.responses import Refused
from firearrow.broker.tables.topic_attributes import alter_attributes, parse_wish


def test_a_wish_is_a_list_of_signed_attributes() -> None:
    assert parse_wish("+message.type=FIFO,-reserve.time") == {"+message.type": "FIFO", "-reserve.time": ""}
    assert parse_wish("") == parse_wish(None) == {}


@pytest.mark.parametrize("text", ["message.type=FIFO", "+message.type", "-a=b", "+=x", "+a=", "+", "-", "+a=1,+a=2", "=", "a"])
def test_a_wish_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_wish(text)


@pytest.mark.parametrize(
    ("current", "wish", "after"),
    [
        (None, {"+message.type": "FIFO"}, {"message.type": "FIFO"}),
        (None, {"+queue.type": "SimpleCQ", "+reserve.time": "-1"}, {"queue.type": "SimpleCQ", "reserve.time": "-1"}),
        ({"message.type": "FIFO"}, {"+message.type": "NORMAL"}, {"message.type": "NORMAL"}),
        ({"message.type": "FIFO"}, {"-message.type": ""}, {}),
        ({"queue.type": "SimpleCQ"}, {"+queue.type": "SimpleCQ"}, {"queue.type": "SimpleCQ"}),
        ({"message.type": "FIFO"}, {}, {"message.type": "FIFO"}),
    ],
)
def test_what_becomes_of_attributes(current: dict[str, str] | None, wish: dict[str, str], after: dict[str, str]) -> None:
    assert alter_attributes(current, wish) == after


@pytest.mark.parametrize(
    ("current", "wish", "named"),
    [
        (None, {"+colour": "red"}, "unsupported key: colour"),
        (None, {"+message.type": "fifo"}, "not in set"),
        (None, {"+reserve.time": "soon"}, "hours"),
        (None, {"+reserve.time": "-2"}, "hours"),
        (None, {"+reserve.time": "٣"}, "hours"),
        (None, {"-message.type": ""}, "only add"),
        (None, {"+queue.type": "BatchCQ"}, "not in set"),
        ({}, {"+cleanup.policy": "DELETE"}, "unchangeable"),
        ({"queue.type": "SimpleCQ"}, {"-queue.type": ""}, "unchangeable"),
    ],
)
def test_what_is_refused(current: dict[str, str] | None, wish: dict[str, str], named: str) -> None:
    with pytest.raises(Refused) as caught:
        alter_attributes(current, wish)
    assert caught.value.code == 1
    assert named in caught.value.remark
