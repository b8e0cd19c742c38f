"""Quoting of peer values in error messages."""

from __future__ import annotations

import pytest

from firearrow.wire.errors import HeaderError, ProtocolError, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("abc", "'abc'"),
        (12, "12"),
        ("x" * 81, f"'{'x' * 80}'... (81 long)"),
        (b"x" * 81, f"b'{'x' * 80}'... (81 long)"),
        ({"a": 1}, "a map of 1"),
        ([1, 2], "a list of 2"),
    ],
)
def test_quoted_values_are_never_longer_than_a_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_header_error_names_header_field_value_and_expectation() -> None:
    missing, invalid = HeaderError("Send", "topic", None, "text"), HeaderError("Send", "queueId", "x", "a number")
    assert str(missing) == "Send: the field topic is missing, expected text"
    assert str(invalid) == "Send: the field queueId has the value 'x', expected a number"
    assert isinstance(invalid, ProtocolError)
    assert invalid.commands == []
