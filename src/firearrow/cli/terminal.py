"""Output of commands: tables for people, JSON and CSV for programs; confirmation and progress.

A row is a mapping. The keys decide how a table shows the values: `last_stored_ms` is a local time, numbers are right-aligned with
thousands separators, lists are joined by commas, and a missing value is `-`. JSON and CSV contain the values unchanged, times in
milliseconds since 1970.

Text comes from peers: control characters in it are escaped, except in CSV that does not go to a terminal.

rich is imported for terminals only. Output to a pipe or file is plain text without line breaks inside a row.
"""

from __future__ import annotations

import asyncio
import csv
import json
import sys
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import click

from firearrow.escaping import escape_controls, escape_json, escape_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.progress import Progress

PROGRESS_AFTER_S: Final = 2.0
SHORT_BODY_CHARS: Final = 60
_REDRAW_S: Final = 0.1
_FIRST_TIME_MS: Final = 10**11  # a smaller value of a key in _ms is a duration

Row = Mapping[str, Any]
T = TypeVar("T")


class NotConfirmedError(Exception):
    """The question was answered with no."""


class Output:
    """The output of one command in the format of `-o`, and its questions and progress on the terminal."""

    def __init__(self, form: str = "table", stream: TextIO | None = None, *, yes: bool = False, dry_run: bool = False) -> None:
        self.form = form
        self._stream = stream if stream is not None else sys.stdout
        self._yes = yes
        self._dry_run = dry_run
        self._header_written = False
        self._activity: Live | None = None

    @property
    def for_people(self) -> bool:
        return self.form == "table"

    def rows(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        """Print rows: in a table these columns, in JSON and CSV all keys."""
        rows = list(rows)
        if self._write_for_programs(rows, rows, list(rows[0]) if rows else columns):
            return
        if not rows:
            print("nothing found", file=sys.stderr)
        elif self._stream.isatty():
            self._write_rich_table(rows, columns)
        else:
            self._write_plain_table(rows, columns)

    def record(self, record: Row) -> None:
        """Print all fields of one object."""
        if self._write_for_programs(record, [record], list(record)):
            return
        width = max((len(key) for key in record), default=0)
        for key, value in record.items():
            name = _title(key).lower() if key.islower() else key  # names of Apache's fields stay unchanged
            self.text((name.ljust(width), "bold"), f"  {format_value(key, value)}")

    def item(self, item: Row, text: str) -> None:
        """Print one item of a stream: a line for people, a JSON object or CSV record per line for programs."""
        if not self._write_for_programs(item, [item], list(item), indent=None, header=not self._header_written):
            self._write(escape_controls(text))
        self._header_written = True

    def done(self, sentence: str, **facts: Any) -> None:
        """Print the result of a change: a sentence for people, the facts for programs."""
        if self.for_people:
            self.text(sentence)
        else:
            self.record(facts)

    def text(self, *parts: str | tuple[str, str]) -> None:
        """Print a line for people. A part is a text, or a text with a rich style. Control characters are escaped."""
        if not self.for_people:
            return
        self._end_activity()
        safe = [escape_controls(part) if isinstance(part, str) else (escape_controls(part[0]), part[1]) for part in parts]
        if self._stream.isatty():
            from rich.text import Text

            self._console().print(Text.assemble(*safe), soft_wrap=True)
        else:
            self._write("".join(part if isinstance(part, str) else part[0] for part in safe))

    def paragraph(self, text: str) -> None:
        """Print text of several lines for people, after an empty line. Control characters other than tabs are escaped."""
        if self.for_people:
            self._end_activity()
            self._write(f"\n{escape_lines(text)}")

    def flush(self) -> None:
        self._stream.flush()

    # ---- confirmation

    def confirmed(self, action: str) -> bool:
        """Ask before a destructive action. Return False in a dry run, which prints the action.

        Raises NotConfirmedError after the answer no, and a usage error if there is no terminal and no `--yes`.
        """
        self._end_activity()
        if self._dry_run:
            print(f"dry run: would {escape_controls(action)}", file=sys.stderr)
            return False
        if self._yes:
            return True
        if not sys.stdin.isatty():
            raise click.UsageError(f"this would {action}; without a terminal, pass --yes or --dry-run")
        print(f"This will {escape_controls(action)}. Continue? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise NotConfirmedError("nothing was changed")
        return True

    # ---- progress

    def progress(self, label: str) -> ProgressBar:
        self._end_activity()
        return ProgressBar(label)

    async def with_activity(self, work: Coroutine[Any, Any, T], label: str) -> T:
        """Await `work`; show `label` on a terminal if it takes longer than two seconds."""
        timer = asyncio.get_running_loop().call_later(PROGRESS_AFTER_S, self._begin_activity, label)
        try:
            return await work
        finally:
            timer.cancel()
            self._end_activity()

    def _begin_activity(self, label: str) -> None:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live
            from rich.spinner import Spinner

            self._activity = Live(Spinner("dots", label), console=Console(stderr=True), transient=True)
            self._activity.start()

    def _end_activity(self) -> None:
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.stop()

    # ---- formats

    def _console(self) -> Console:
        from rich.console import Console

        return Console(file=self._stream, highlight=False, markup=False, emoji=False)

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")

    def _write_for_programs(
        self, value: object, rows: Sequence[Row], keys: Sequence[str], *, indent: int | None = 2, header: bool = True
    ) -> bool:
        """Write a value as JSON, or rows as CSV. Return False without writing if the output is for people."""
        self._end_activity()
        if self.form == "json":
            self._write(escape_json(json.dumps(value, default=_plain, ensure_ascii=False, indent=indent)))
        elif self.form == "csv":
            writer = csv.writer(self._stream, lineterminator="\n")
            if header:
                writer.writerow(keys)
            cell = _escaped_csv_cell if self._stream.isatty() else _csv_cell
            writer.writerows([cell(row.get(key)) for key in keys] for row in rows)
        return not self.for_people

    def _write_rich_table(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for key in columns:
            table.add_column(_title(key), justify="right" if _is_numeric(rows, key) else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(format_value(key, row.get(key))) for key in columns))
        self._console().print(table)

    def _write_plain_table(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        """Align columns with spaces. rich takes 0.3 ms a row, too long for ten thousand topics in a pipe."""
        cells = [[_title(key) for key in columns], *([format_value(key, row.get(key)) for key in columns] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        align = [str.rjust if _is_numeric(rows, key) else str.ljust for key in columns]
        for line in cells:
            self._write("  ".join(pad(cell, width) for pad, cell, width in zip(align, line, widths, strict=True)).rstrip())


class ProgressBar:
    """A progress bar on standard error, called with (done, total). It appears on terminals after two seconds."""

    def __init__(self, label: str, stream: TextIO | None = None, *, after_s: float = PROGRESS_AFTER_S) -> None:
        self._label = label
        self._stream = stream if stream is not None else sys.stderr
        self._show_at = time.monotonic() + after_s if self._stream.isatty() else float("inf")
        self._progress: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._show_at:
            return
        self._show_at = now + _REDRAW_S
        progress = self._progress or self._start()
        progress.update(progress.task_ids[0], completed=done, total=total)
        progress.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _start(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(file=self._stream), transient=True, auto_refresh=False)
        self._progress.add_task(self._label)
        self._progress.start()
        return self._progress


class StatusLine:
    """A line on standard error that is overwritten on a terminal; elsewhere each text is a line of its own."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def show(self, text: str) -> None:
        if not sys.stderr.isatty():
            print(text, file=sys.stderr, flush=True)
            return
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True, highlight=False), transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(text, refresh=True)

    def close(self) -> None:
        """Remove the line from the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def format_value(key: str, value: Any) -> str:
    """Return a value as a table shows it, in one line without control characters."""
    return escape_controls(_format_value(key, value))


def _format_value(key: str, value: Any) -> str:
    if value is None or value in ("", (), [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if key.endswith("_ms") and value >= _FIRST_TIME_MS:
            return local_time(value)
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(str(one) for one in value)
    return str(value)


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return `1 message`, `2,000 messages` or `0 queues`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {nouns or f'{noun}s'}"


def as_row(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass without the deep copies of `dataclasses.asdict`."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def local_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def body_text(body: bytes, form: str) -> str:
    """Return a body as text, JSON or hex; `auto` chooses by the content."""
    if form in ("auto", "json"):
        try:
            return json.dumps(json.loads(body), ensure_ascii=False, indent=2 if form == "json" else None)
        except ValueError:
            if form == "json":
                return body.decode(errors="backslashreplace")
    if form == "hex" or (form == "auto" and not _is_text(body)):
        return "\n".join(_hex_line(body, at) for at in range(0, len(body), 16))
    return body.decode(errors="backslashreplace")


def short_body(body: bytes) -> str:
    """Return the beginning of a body as one line of a table."""
    text = " ".join(body_text(body, "text").split())
    return text if len(text) <= SHORT_BODY_CHARS else f"{text[: SHORT_BODY_CHARS - 3]}..."


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


def _is_numeric(rows: Sequence[Row], key: str) -> bool:
    values = [row.get(key) for row in rows if row.get(key) is not None]
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    return bool(values) and numbers and not key.endswith("_ms")


def _title(key: str) -> str:
    return key.removesuffix("_ms").replace("_", " ").upper()


def _csv_cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, default=_plain)
    if isinstance(value, (list, tuple, set, frozenset)):
        return ";".join(str(one) for one in value)
    return value


def _escaped_csv_cell(value: Any) -> Any:
    cell = _csv_cell(value)
    return escape_controls(cell) if isinstance(cell, str) else cell


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset, tuple)):
        return sorted(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)
