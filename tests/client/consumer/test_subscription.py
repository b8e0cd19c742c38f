"""Expressions and what they stand for."""

from __future__ import annotations

import pytest

from firearrow.client.consumer.subscription import Sql, as_expressions, subscription


@pytest.mark.parametrize("expression", ["*", "", "  ", " * ", None])
def test_star_and_blank_match_all_messages(expression: str | None) -> None:
    wanted = subscription("T", expression, 7)
    assert (wanted.expression, wanted.tags, wanted.data.tags_set, wanted.data.code_set) == ("*", None, [], [])
    assert wanted.wants(None)
    assert wanted.wants("any")


def test_tags_are_split_and_hashed_as_java_does() -> None:
    data = subscription("T", " TagB||TagA || || TagA", 7).data
    assert data.to_json() == {
        "classFilterMode": False, "codeSet": [2598919, 2598920], "expressionType": "TAG", "subString": " TagB||TagA || || TagA",
        "subVersion": 7, "tagsSet": ["TagA", "TagB"], "topic": "T",
    }  # fmt: skip


def test_tags_are_compared_by_their_text() -> None:
    wanted = subscription("T", "Aa", 1)
    assert wanted.wants("Aa")
    assert not wanted.wants("BB")
    assert not wanted.wants(None)


def test_sql_is_left_to_the_broker() -> None:
    wanted = subscription("T", Sql("a > 1"), 3)
    assert (wanted.kind, wanted.expression, wanted.tags) == ("SQL92", "a > 1", None)
    assert wanted.wants(None)


@pytest.mark.parametrize("expression", ["||", " || ||", Sql(" ")])
def test_expression_that_matches_nothing_is_rejected(expression: str | Sql) -> None:
    with pytest.raises(ValueError, match="'T'"):
        subscription("T", expression, 1)


def test_a_plain_string_subscribes_to_all_messages_of_the_topic() -> None:
    assert as_expressions("Orders") == {"Orders": "*"}
    assert as_expressions({"Orders": "new"}) == {"Orders": "new"}


def test_a_subscription_of_another_type_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"subscribe is \['Orders'\], expected a topic or a mapping"):
        as_expressions(["Orders"])  # type: ignore[arg-type]
