"""The grammar of values on the command line: durations, times, positions, names.

duration    500ms, 3s, 10m, 2h, 1d
time        2030-01-31T12:00:00 (local, unless it has an offset), or an age: a duration before now
position    earliest, latest, a time, or an offset of a queue
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVar

import click

from firearrow.cli.security import SecurityArguments

NAMESRV_ADDR: Final = "127.0.0.1:9876"
DEFAULT_DATA: Final = "firearrow-data"
CLUSTER_FORMS: Final = ("2m", "2m-2s-async", "2m-2s-sync", "dledger-3", "2xdledger-3")
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)", re.ASCII)
_COMPLETION_TIMEOUT_S: Final = 0.5

Position = int | datetime | Literal["earliest", "latest"]
T = TypeVar("T")


def parse_duration(text: str) -> timedelta | None:
    found = _DURATION.fullmatch(text)
    return None if found is None else timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def parse_time(text: str) -> datetime | None:
    age = parse_duration(text)
    if age is not None:
        return datetime.now().astimezone() - age
    if text.isdigit():
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        return None


def parse_position(text: str) -> Position | None:
    if text == EARLIEST:
        return EARLIEST
    if text == LATEST:
        return LATEST
    return int(text) if text.isascii() and text.isdigit() else parse_time(text)


def parse_pair(text: str) -> tuple[str, str] | None:
    key, equals, value = text.partition("=")
    return (key.strip(), value) if equals and key.strip() and "\n" not in text else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean X?` for the closest known word; empty if none is close."""
    import difflib  # only for errors: it takes 3 ms

    stripped = {one.lstrip("-"): one for one in known}
    close = difflib.get_close_matches(word.lstrip("-").partition("=")[0], stripped, n=1, cutoff=0.6)
    return f"did you mean {stripped[close[0]]}?" if close else ""


class Value(click.ParamType[T]):
    """A value of the grammar. `parse` returns None for a malformed text; the shell completes `words`."""

    def __init__(self, name: str, parse: Callable[[str], T | None], problem: str, words: Sequence[str] = ()) -> None:
        self.name = name
        self._parse = parse
        self._problem = problem
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        found: T | None = self._parse(value) if isinstance(value, str) else value
        if found is None:
            self.fail(f"{value!r} {self._problem}", param, ctx)
        return found

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        return _items(self._words, incomplete)


class Number(Value[int]):
    """A whole number within bounds, which the help does not repeat."""

    def __init__(self, low: int, high: int = 2**63 - 1) -> None:
        def parse(text: str) -> int | None:
            return int(text) if text.isascii() and text.isdigit() and low <= int(text) <= high else None

        limit = "or more" if high > 2**31 else f"to {high}"
        super().__init__("n", parse, f"is out of range; expected a whole number, {low} {limit}")


class ClusterForm(click.Choice[str]):
    """A topology of `firearrow up --cluster`."""

    name = "form"

    def __init__(self) -> None:
        super().__init__(CLUSTER_FORMS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in CLUSTER_FORMS:
            close = did_you_mean(value.lower(), CLUSTER_FORMS)
            expected = f"{f'{close} ' if close else ''}expected one of {', '.join(CLUSTER_FORMS)}"
            self.fail(f"{value!r} is not a cluster form; {expected}", param, ctx)
        return str(value)


class Name(click.ParamType[str]):
    """The name of a topic, group, broker or cluster. The shell completes it with the names that the name server knows."""

    def __init__(self, kind: str) -> None:
        self.name = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        security = SecurityArguments.take(dict(ctx.params))
        return _items(_known_names(self.name, ctx.params.get("namesrv"), security), incomplete)


def _items(words: Iterable[str], incomplete: str) -> list[click.shell_completion.CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in words if word.startswith(incomplete) and word.isprintable()]


def _known_names(kind: str, namesrv: str | None, security: SecurityArguments) -> list[str]:
    """Return the names of a kind; nothing if the name server does not answer at once."""
    import asyncio

    from firearrow.admin.aio import Admin
    from firearrow.client.errors import FirearrowError

    async def ask() -> list[str]:
        address = namesrv or os.environ.get("NAMESRV_ADDR") or NAMESRV_ADDR
        async with asyncio.timeout(_COMPLETION_TIMEOUT_S), Admin(address, **security.keywords()) as admin:
            if kind == "topic":
                return [name for name in await admin.topic_names() if not name.startswith("%")]
            if kind == "group":
                return await admin.group_names()
            return sorted({one.name if kind == "broker" else one.cluster for one in await admin.list_brokers()})

    try:
        return asyncio.run(ask())
    except (FirearrowError, OSError, ValueError, TimeoutError, click.UsageError):
        return []


_NO_DURATION: Final = "is not a duration; expected a number with a unit, such as 500ms, 3s, 10m, 2h or 1d"
DURATION: Final = Value("duration", lambda text: parse_duration(text) or None, _NO_DURATION)
DURATION_OR_ZERO: Final = Value("duration", parse_duration, _NO_DURATION)
TIME: Final = Value("time", parse_time, "is not a time; expected one such as 2030-01-31T12:00:00, or an age such as 10m")
POSITION: Final = Value(
    "position",
    parse_position,
    "is not a position; expected earliest, latest, a time such as 2030-01-31T12:00:00, an age such as 10m, or an offset",
    words=(EARLIEST, LATEST),
)
BYTES: Final = Value("text", os.fsencode, "is not a text")
PAIR: Final = Value("key=value", parse_pair, "is not of the form KEY=VALUE")
TOPIC: Final = Name("topic")
GROUP: Final = Name("group")
BROKER: Final = Name("broker")
CLUSTER: Final = Name("cluster")
COUNT: Final = Number(1)
NUMBER: Final = Number(0)
RATE: Final = click.FloatRange(0, 1e6, min_open=True)
PORT: Final = Number(0, 65535)
