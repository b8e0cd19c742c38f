"""Escaping of control characters in terminal output and log lines."""

from __future__ import annotations

import io
import json
import logging

import pytest

from firearrow.escaping import EscapingFormatter, escape_controls, escape_json, escape_lines


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain", "plain"),
        ("caf\xe9 \u4e2d\u6587 \U0001f600 \xa0", "caf\xe9 \u4e2d\u6587 \U0001f600 \xa0"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("abc\u202edcba", r"abc\u202edcba"),
        ("\u2028\ud800\U000e0041", r"\u2028\ud800\U000e0041"),
        (r"\x1b", r"\x1b"),
    ],
)
def test_controls_are_shown_as_escapes(text: str, escaped: str) -> None:
    assert escape_controls(text) == escaped


def test_lines_and_tabs_remain_in_paragraphs() -> None:
    assert escape_lines("a\n\tb\x1b]0;title\x07\r") == "a\n\tb" + r"\x1b]0;title\x07\r"


def test_json_remains_the_same_value() -> None:
    value = {"k\x9b": ["\x1b", "\x7f\u2028\u202e", "\U000e0041", "caf\xe9"]}

    text = escape_json(json.dumps(value, ensure_ascii=False, indent=2))

    assert json.loads(text) == value
    assert text.replace("\n", "").isprintable()
    assert "caf\xe9" in text


def test_log_records_occupy_one_line_and_tracebacks_are_indented() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(EscapingFormatter("%(levelname)s %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)

    logger.warning("topic %s", "x\n2026-01-01 INFO forged\x1b[2J")
    try:
        raise ValueError("bad name\nERROR forged\x1b[2J")
    except ValueError:
        logger.exception("failed")

    first, second, *traceback = stream.getvalue().splitlines()
    assert first == r"WARNING topic x\n2026-01-01 INFO forged\x1b[2J"
    assert second == "ERROR failed"
    assert all(line.startswith("  ") for line in traceback)
    assert "\x1b" not in stream.getvalue()
