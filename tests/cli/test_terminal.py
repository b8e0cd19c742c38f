from __future__ import annotations

import io
import json

import pytest

from firearrow.cli.asking import ProgressBar
from firearrow.cli.terminal import Output, body_text

ROWS = [
    {"topic": "T", "lag": 12345, "stored_ms": None, "order": True, "brokers": ["a", "b"]},
    {"topic": "Longer", "lag": 0, "stored_ms": 0, "order": False, "brokers": []},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(form: str, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    Output(form, stream).rows(ROWS, ["topic", "lag", "order", "brokers"])
    return stream.getvalue()


def test_a_table() -> None:
    assert printed("table") == (
        "TOPIC      LAG  ORDER  BROKERS\n"
        "T       12,345  yes    a, b\n"
        "Longer       0  no     -\n"
    )  # fmt: skip


def test_programs_get_values_as_they_are() -> None:
    assert json.loads(printed("json")) == ROWS
    assert printed("csv").splitlines() == [
        "topic,lag,stored_ms,order,brokers",
        "T,12345,,true,a;b",
        "Longer,0,0,false,",
    ]


def test_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    Output("table", stream).rows([], ["topic"])
    assert (stream.getvalue(), capsys.readouterr().err) == ("", "nothing found\n")
    for form, text in (("json", "[]\n"), ("csv", "topic\n")):
        stream = io.StringIO()
        Output(form, stream).rows([], ["topic"])
        assert stream.getvalue() == text


def test_names_that_are_apaches_are_shown_as_they_are() -> None:
    stream = io.StringIO()
    Output("table", stream).record({"msg_id": "x", "putTps": "0.0", "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"})
    assert [line.split("  ")[0] for line in stream.getvalue().splitlines()] == ["msg id", "putTps", "PROP_CONSUME_TYPE"]


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1m" in printed("table", Terminal())
    assert "\x1b" not in printed("table")
    assert "\x1b" not in printed("json", Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed("table", Terminal())


def test_one_thing() -> None:
    stream = io.StringIO()
    Output("table", stream).record({"msg_id": "x", "stored_ms": 1_000_000_000_000})
    first, second = stream.getvalue().splitlines()
    assert first == "msg id     x"
    assert second.startswith("stored     2001-09-")


@pytest.mark.parametrize(
    ("body", "form", "text"),
    [
        (b'{"a":1}', "auto", '{"a": 1}'),
        (b'{"a":1}', "text", '{"a":1}'),
        (b'{"a":1}', "json", '{\n  "a": 1\n}'),
        (b"plain", "json", "plain"),
        ("grün".encode(), "auto", "grün"),
        (b"\xff", "text", "\\xff"),
        (b"\x00\xff", "auto", f"00000000  {'00 ff':<47}  .."),
        (b"ab", "hex", f"00000000  {'61 62':<47}  ab"),
    ],
)
def test_bodies(body: bytes, form: str, text: str) -> None:
    assert body_text(body, form) == text


def test_progress_is_for_terminals() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        bar = ProgressBar("reading", stream)
        bar(1, 4)
        bar(4, 4)
        bar.clear()
    assert "100 % 4 of 4" in terminal.getvalue()
    assert pipe.getvalue() == ""
