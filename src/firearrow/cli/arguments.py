"""The grammar of values on the command line: durations, times, positions, names.

duration    500ms, 3s, 10m, 2h, 1d
time        2030-01-31T12:00:00 (local, unless it has an offset), or an age: a duration before now
position    earliest, latest, a time, or an offset of a queue
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import click

NAMESRV_ADDR: Final = "127.0.0.1:9876"
DEFAULT_DATA: Final = "firearrow-data"
CLUSTER_FORMS: Final = ("2m", "2m-2s-async", "2m-2s-sync", "dledger-3", "2xdledger-3")
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)", re.ASCII)
_COMPLETION_TIMEOUT_S: Final = 0.5

Position = int | datetime | Literal["earliest", "latest"]


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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean X?` for the closest known word; empty if none is close."""
    import difflib  # only for errors: it takes 3 ms

    stripped = {one.lstrip("-"): one for one in known}
    close = difflib.get_close_matches(word.lstrip("-").partition("=")[0], stripped, n=1, cutoff=0.6)
    return f"did you mean {stripped[close[0]]}?" if close else ""


class Number(click.ParamType[int]):
    """A whole number within bounds, which the help does not repeat."""

    name = "n"

    def __init__(self, low: int, high: int = 2**63 - 1) -> None:
        self._low = low
        self._high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not text.isascii() or not text.isdigit() or not self._low <= int(text) <= self._high:
            limit = "or more" if self._high > 2**31 else f"to {self._high}"
            self.fail(f"{text!r} is out of range; expected a whole number, {self._low} {limit}", param, ctx)
        return int(text)


class Duration(click.ParamType[timedelta]):
    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = parse_duration(value)
        if found is None or (not found and not self._zero):
            self.fail(f"{value!r} is not a duration; expected a number with a unit, such as 500ms, 3s, 10m, 2h or 1d", param, ctx)
        return found


class Time(click.ParamType[datetime]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        found = value if isinstance(value, datetime) else parse_time(value)
        if found is None:
            self.fail(f"{value!r} is not a time; expected one such as 2030-01-31T12:00:00, or an age such as 10m", param, ctx)
        return found


class PositionType(click.ParamType[Position]):
    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        if isinstance(value, (int, datetime)):
            return value
        if value == EARLIEST:
            return EARLIEST
        if value == LATEST:
            return LATEST
        if value.isascii() and value.isdigit():
            return int(value)
        found = parse_time(value)
        if found is None:
            self.fail(
                f"{value!r} is not a position; expected earliest, latest, a time such as 2030-01-31T12:00:00, an age such as "
                "10m, or an offset",
                param,
                ctx,
            )
        return found

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        return _items([word for word in (EARLIEST, LATEST) if word.startswith(incomplete)])


class Pair(click.ParamType[tuple[str, str]]):
    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not equals or not key.strip() or "\n" in value:
            self.fail(f"{value!r} is not of the form KEY=VALUE", param, ctx)
        return key.strip(), text


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

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        return _items([name for name in _known_names(self.name, ctx.params.get("namesrv")) if name.startswith(incomplete)])


def _items(words: list[str]) -> list[click.shell_completion.CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in words]


def _known_names(kind: str, namesrv: str | None) -> list[str]:
    """Return the names of a kind; nothing if the name server does not answer at once."""
    import asyncio
    import os

    from firearrow.admin.aio import Admin
    from firearrow.client.errors import FirearrowError

    async def ask() -> list[str]:
        address = namesrv or os.environ.get("NAMESRV_ADDR") or NAMESRV_ADDR
        async with asyncio.timeout(_COMPLETION_TIMEOUT_S), Admin(address) as admin:
            if kind == "topic":
                return [name for name in await admin.topic_names() if not name.startswith("%")]
            if kind == "group":
                return await admin.group_names()
            return sorted({one.name if kind == "broker" else one.cluster for one in await admin.list_brokers()})

    try:
        return asyncio.run(ask())
    except (FirearrowError, OSError, ValueError, TimeoutError):
        return []


DURATION: Final = Duration()
DURATION_OR_ZERO: Final = Duration(zero=True)
TIME: Final = Time()
POSITION: Final = PositionType()
PAIR: Final = Pair()
TOPIC: Final = Name("topic")
GROUP: Final = Name("group")
BROKER: Final = Name("broker")
CLUSTER: Final = Name("cluster")
COUNT: Final = Number(1)
NUMBER: Final = Number(0)
RATE: Final = click.FloatRange(0, 1e6, min_open=True)
PORT: Final = Number(0, 65535)
