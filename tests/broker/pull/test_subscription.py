"""Tag expressions."""

from __future__ import annotations

import pytest

from firearrow.broker.pull import subscription as sub
from firearrow.broker.requests.responses import Refused
from firearrow.wire.bodies import SubscriptionData

TAG_A, TAG_B = 2598919, 2598920  # String.hashCode of "TagA" and "TagB"


@pytest.mark.parametrize("expression", [None, "", "*", " * "])
def test_everything(expression: str | None) -> None:
    assert sub.tag_codes(sub.build("T", expression)) is None


@pytest.mark.parametrize("expression", ["TagA||TagB", "TagA || TagB", " TagB||TagA||TagA ", "TagA||||TagB||"])
def test_some_tags(expression: str) -> None:
    built = sub.build("T", expression, 7)
    assert sub.tag_codes(built) == {TAG_A, TAG_B}
    assert set(built.tags_set) == {"TagA", "TagB"}
    assert set(built.code_set) == {TAG_A, TAG_B}
    assert built.sub_version == 7


def test_an_expression_of_separators_only_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        sub.build("T", "||")
    assert caught.value.code == 23


def test_codes_come_from_the_expression_also_when_the_client_sent_none() -> None:
    assert sub.tag_codes(SubscriptionData("T", "TagA", expression_type=None)) == {TAG_A}


def test_sql_is_no_tag_filter() -> None:
    built = sub.build("T", "a > 1", 3, "SQL92")
    assert (built.expression_type, built.sub_string) == ("SQL92", "a > 1")
    assert sub.tag_codes(built) is None
