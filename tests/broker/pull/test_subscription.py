"""Tag expressions."""

from __future__ import annotations

import pytest

from firearrow.broker.pull import subscription as sub
from firearrow.broker.requests.responses import Refused
from firearrow.wire.bodies.client import SubscriptionData

TAG_A, TAG_B = 2598919, 2598920  # String.hashCode of "TagA" and "TagB"


@pytest.mark.parametrize("expression", [None, "", "*", " * "])
def test_expression_for_all_messages(expression: str | None) -> None:
    assert sub.tag_codes(sub.build("T", expression)) is None


@pytest.mark.parametrize("expression", ["TagA||TagB", "TagA || TagB", " TagB||TagA||TagA ", "TagA||||TagB||"])
def test_expression_with_tags(expression: str) -> None:
    built = sub.build("T", expression, 7)
    assert sub.tag_codes(built) == frozenset({TAG_A, TAG_B})
    assert set(built.tags_set) == {"TagA", "TagB"}
    assert set(built.code_set) == {TAG_A, TAG_B}
    assert built.sub_version == 7


def test_expression_without_tags_is_rejected() -> None:
    with pytest.raises(Refused) as caught:
        sub.build("T", "||")
    assert caught.value.code == 23


def test_codes_are_computed_from_the_expression() -> None:
    assert sub.tag_codes(SubscriptionData("T", "TagA", expression_type=None)) == frozenset({TAG_A})


def test_sql_expression_has_no_tag_codes() -> None:
    built = sub.build("T", "a > 1", 3, "SQL92")
    assert (built.expression_type, built.sub_string) == ("SQL92", "a > 1")
    assert sub.tag_codes(built) is None
