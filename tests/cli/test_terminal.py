from __future__ import annotations

import io
import json

import pytest

from firearrow.cli.terminal import Output, ProgressBar, body_text, plural

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


def test_table_in_a_pipe_is_aligned_text() -> None:
    assert printed("table") == (
        "TOPIC      LAG  ORDER  BROKERS\n"
        "T       12,345  yes    a, b\n"
        "Longer       0  no     -\n"
    )  # fmt: skip


def test_json_and_csv_contain_values_unchanged() -> None:
    assert json.loads(printed("json")) == ROWS
    assert printed("csv").splitlines() == [
        "topic,lag,stored_ms,order,brokers",
        "T,12345,,true,a;b",
        "Longer,0,0,false,",
    ]


def test_empty_result_is_said_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    Output("table", stream).rows([], ["topic"])
    assert (stream.getvalue(), capsys.readouterr().err) == ("", "nothing found\n")
    for form, text in (("json", "[]\n"), ("csv", "topic\n")):
        stream = io.StringIO()
        Output(form, stream).rows([], ["topic"])
        assert stream.getvalue() == text


def test_names_of_apaches_fields_are_unchanged() -> None:
    stream = io.StringIO()
    Output("table", stream).record({"msg_id": "x", "putTps": "0.0", "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"})
    assert [line.split("  ")[0] for line in stream.getvalue().splitlines()] == ["msg id", "putTps", "PROP_CONSUME_TYPE"]


def test_terminal_gets_a_table_with_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = printed("table", Terminal())
    assert "\x1b[1m" in table
    assert all(text in table for text in ("TOPIC", "12,345", "a, b"))
    assert "\x1b" not in printed("table")
    assert "\x1b" not in printed("json", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in printed("table", Terminal())


def test_long_cell_is_folded_on_a_terminal_and_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        Output("table", stream).rows([{"body": "x" * 100}], ["body"])
    assert max(len(line) for line in terminal.getvalue().splitlines()) < 80
    assert "x" * 100 in pipe.getvalue()


def test_stream_has_one_object_per_line() -> None:
    for form, text in (("table", "line\nline\n"), ("json", '{"a": 1}\n{"a": 1}\n'), ("csv", "a\n1\n1\n")):
        stream = io.StringIO()
        out = Output(form, stream)
        for _ in range(2):
            out.item({"a": 1}, "line")
        assert stream.getvalue() == text


def test_record_has_one_field_per_line() -> None:
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
def test_body_is_formatted(body: bytes, form: str, text: str) -> None:
    assert body_text(body, form) == text


def test_progress_bar_appears_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        bar = ProgressBar("reading", stream, after_s=0)
        bar(1, 4)
        bar.close()
    assert "1/4" in terminal.getvalue()
    assert pipe.getvalue() == ""


def test_progress_bar_of_short_work_does_not_appear() -> None:
    terminal = Terminal()
    bar = ProgressBar("reading", terminal)
    bar(1, 4)
    bar(4, 4)
    bar.close()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(("count", "text"), [(0, "0 messages"), (1, "1 message"), (2000, "2,000 messages")])
def test_plural(count: int, text: str) -> None:
    assert plural(count, "message") == text
    assert plural(2, "address", "addresses") == "2 addresses"
