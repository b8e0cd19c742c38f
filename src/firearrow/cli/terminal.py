"""What commands print: tables for people, JSON and CSV for programs.

A row is a mapping; what the columns are called and how values look in a table follows from the keys: `last_stored_ms` is a
moment, numbers stand on the right with separators between thousands, lists are joined by commas, nothing is `-`. JSON and CSV
have the values as they are, moments in milliseconds.

Colours are for terminals: never in a pipe or a file, and not where NO_COLOR is set.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TextIO

FORMS: Final = ("table", "json", "csv")
BOLD, DIM, RED, YELLOW, GREEN, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[0m"
_FIRST_MOMENT_MS: Final = 10**11  # smaller values of a key in _ms are durations

Row = Mapping[str, Any]


class Output:
    def __init__(self, form: str = "table", stream: TextIO | None = None) -> None:
        self.form = form
        self._stream = stream if stream is not None else sys.stdout
        self._colours = self._stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def rows(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        """Many of a kind. In a table only these columns; in JSON and CSV all keys."""
        rows = list(rows)
        if self.form == "json":
            self._write(json.dumps(rows, default=_plain, ensure_ascii=False, indent=2))
        elif self.form == "csv":
            self._csv(rows, columns)
        else:
            self._table(rows, columns)

    def record(self, record: Row) -> None:
        """One thing, all that is known of it."""
        if self.form == "json":
            self._write(json.dumps(record, default=_plain, ensure_ascii=False, indent=2))
        elif self.form == "csv":
            self._csv([record], list(record))
        else:
            width = max((len(key) for key in record), default=0)
            for key, value in record.items():
                name = _title(key).lower() if key.islower() else key  # Apache's names stay as they are
                self._write(f"{self.painted(name.ljust(width), BOLD)}  {shown(key, value)}")

    def done(self, sentence: str, **facts: Any) -> None:
        """What was done: a sentence for people, the facts for programs."""
        if self.form == "table":
            self._write(sentence)
        else:
            self.record(facts)

    def text(self, text: str) -> None:
        """For people only."""
        if self.form == "table":
            self._write(text)

    def painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{PLAIN}" if self._colours else text

    def flush(self) -> None:
        self._stream.flush()

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")

    def _csv(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        keys = list(rows[0]) if rows else list(columns)
        writer = csv.writer(self._stream, lineterminator="\n")
        writer.writerow(keys)
        writer.writerows([_cell(row.get(key)) for key in keys] for row in rows)

    def _table(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        if not rows:
            print("nothing found", file=sys.stderr)
            return
        cells = [[shown(key, row.get(key)) for key in columns] for row in rows]
        titles = [_title(key) for key in columns]
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
        right = [not key.endswith("_ms") and _numbers(rows, key) for key in columns]
        self._write(self.painted(_line(titles, widths, right), BOLD))
        self._stream.write("".join(_line(line, widths, right) + "\n" for line in cells))


def shown(key: str, value: Any) -> str:
    """A value as a person reads it."""
    if value is None or value in ("", (), [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if key.endswith("_ms") and value >= _FIRST_MOMENT_MS:
            return moment(value)
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(str(one) for one in value)
    return str(value)


def as_row(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, as they are: `dataclasses.asdict` would copy ten thousand of them deeply."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def moment(ms: int) -> str:
    """Local time."""
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def body_text(body: bytes, form: str) -> str:
    """A body as text, JSON or hex; `auto` decides by what it is."""
    if form in ("auto", "json"):
        try:
            return json.dumps(json.loads(body), ensure_ascii=False, indent=2 if form == "json" else None)
        except ValueError:
            if form == "json":
                return body.decode(errors="backslashreplace")
    if form == "hex" or (form == "auto" and not _is_text(body)):
        return "\n".join(_hex_line(body, at) for at in range(0, len(body), 16))
    return body.decode(errors="backslashreplace")


def _hex_line(body: bytes, at: int) -> str:
    part = body[at : at + 16]
    letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
    return f"{at:08x}  {part.hex(' '):<47}  {letters}"


def _is_text(body: bytes) -> bool:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return False
    return all(letter.isprintable() or letter in "\r\n\t" for letter in text)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = [
        cell.rjust(width) if on_right else cell.ljust(width) for cell, width, on_right in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(parts).rstrip()


def _numbers(rows: Sequence[Row], key: str) -> bool:
    """Whether all there is of a column are numbers."""
    values = [row.get(key) for row in rows]
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)


def _title(key: str) -> str:
    return key.removesuffix("_ms").replace("_", " ").upper()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, default=_plain)
    if isinstance(value, (list, tuple, set, frozenset)):
        return ";".join(str(one) for one in value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset, tuple)):
        return sorted(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)
