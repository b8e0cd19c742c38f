"""Java's `.properties` syntax."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.config.properties_file import format_properties, parse_properties

PROPERTIES = r"""
# comment = no
  ! another comment
brokerName=broker-a
 brokerId = 0
namesrvAddr : 10.0.0.1:9876;10.0.0.2:9876
listenPort 10911
empty
emptyToo=
key\ with\:odd\=chars=v
path=C:\\store\\x
long = one, \
       two, \
       # not a comment
unicode=\u4e2d\u6587 caf\u00e9 \ud83d\ude00
tab=a\tb
keepsTrailingBlank=x\u0020
even\\=backslashes
twice=1
twice=2
last=continued \
"""


def test_comments_separators_continuations_and_escapes() -> None:
    assert parse_properties(PROPERTIES) == {
        "brokerName": "broker-a",
        "brokerId": "0",
        "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
        "listenPort": "10911",
        "empty": "",
        "emptyToo": "",
        "key with:odd=chars": "v",
        "path": "C:\\store\\x",
        "long": "one, two, # not a comment",
        "unicode": "中文 café 😀",
        "tab": "a\tb",
        "keepsTrailingBlank": "x ",
        "even\\": "backslashes",
        "twice": "2",
        "last": "continued ",
    }


def test_line_feed_carriage_return_and_both_end_a_line() -> None:
    assert parse_properties("a=1\r\nb=2\rc=3\n\n\r\n") == {"a": "1", "b": "2", "c": "3"}


def test_broken_unicode_escape_raises_value_error() -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        parse_properties(r"a=\u12g4")


@given(st.text())
def test_any_text_yields_a_table_or_value_error(text: str) -> None:
    try:
        table = parse_properties(text)
    except ValueError:
        return
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in table.items())


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if not c.isalnum() or ord(c) > 126 else c for c in text)


@given(st.dictionaries(st.text(st.characters(max_codepoint=0xD7FF)), st.text(st.characters(max_codepoint=0xD7FF))))
def test_escaped_table_round_trips(table: dict[str, str]) -> None:
    text = "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in table.items())
    assert parse_properties(text) == table


def test_formatted_properties_are_one_line_per_key() -> None:
    assert format_properties({"brokerName": "broker-a", "brokerIP1": ""}) == "brokerName=broker-a\nbrokerIP1=\n"
