"""Values of Apache's options, and values as Java prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import click

from firearrow.admin.aio import Admin
from firearrow.admin.brokers import decimal
from firearrow.admin.cluster import BrokerAddress
from firearrow.admin.offsets import Target
from firearrow.escaping import escape_controls


async def targets_of(admin: Admin, options: SimpleNamespace) -> list[BrokerAddress]:
    """Return the broker of -b, or the masters of the cluster of -c."""
    if options.brokerAddr:
        return (await admin.list_brokers(broker=options.brokerAddr))[:1]
    if options.clusterName:
        return await admin.list_brokers(cluster=options.clusterName, masters_only=True)
    raise click.UsageError("no broker given; expected -b ADDRESS or -c CLUSTER")


def print_lines(*lines: str) -> None:
    """Print each text as a line, with control characters escaped."""
    for line in lines:
        print(escape_controls(line))


def print_titles(template: str, *titles: str) -> Callable[..., None]:
    """Print the titles of a table and return a function that prints a row in the same columns."""

    def print_row(*cells: object) -> None:
        print_lines(template.format(*(escape_controls(cell) if isinstance(cell, str) else cell for cell in cells)))

    print_row(*titles)
    return print_row


def print_config(address: str, config: Mapping[str, str], like: str = "") -> None:
    print_lines(f"============{address}============")
    for key, value in sorted(config.items()):
        if like in key:
            print_lines(f"{key:<50}=  {value}")


def attributes_of(text: str | None) -> dict[str, str | None]:
    """Parse `+name=value,-name`; a removed attribute has the value None."""
    found: dict[str, str | None] = {}
    for part in (text or "").split(","):
        name, equals, value = part.strip().partition("=")
        if not name:
            continue
        if name[0] not in "+-" or (name[0] == "+") != bool(equals):
            raise click.UsageError(f"argument -a: {part!r} is not an attribute; expected +name=value or -name")
        found[name[1:]] = value if name[0] == "+" else None
    return found


def time_range_of(options: SimpleNamespace) -> Iterator[datetime | None]:
    """Return the times of -b and -e."""
    return (time_of(text, "-b or -e") if text else None for text in (options.beginTimestamp, options.endTimestamp))


def int_of(options: SimpleNamespace, name: str) -> int:
    text = str(getattr(options, name)).strip()
    if not text.isascii() or not text.lstrip("-").isdigit():
        raise click.UsageError(f"argument --{name}: {text!r} is not a number")
    return int(text)


def bool_of(options: SimpleNamespace, name: str) -> bool:
    text = str(getattr(options, name)).strip().lower()
    if text not in ("true", "false"):
        raise click.UsageError(f"argument --{name}: {text!r} is not a boolean; expected true or false")
    return text == "true"


def time_of(text: str, flag: str) -> datetime:
    if text in ("now", "currentTimeMillis"):
        return datetime.now().astimezone()
    if text.isascii() and text.isdigit():
        return datetime.fromtimestamp(int(text) / 1000).astimezone()
    for form in ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%d#%H:%M:%S"):
        try:
            return datetime.strptime(text, form).astimezone()
        except ValueError:
            continue
    raise click.UsageError(f"argument {flag}: {text!r} is not a time; expected now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS")


def ms_of(to: Target) -> int:
    return int(to.timestamp() * 1000) if isinstance(to, datetime) else -1


def time_text(ms: int | None, digits: int = 0) -> str:
    if not ms:
        return "N/A"
    at = datetime.fromtimestamp(ms / 1000)
    return at.strftime("%Y-%m-%d %H:%M:%S") + (f",{ms % 1000:03d}" if digits else "")


def day_total(status: Mapping[str, str], way: str, day: str) -> int:
    total = f"msg{way}Total"
    if day == "today":
        return int(decimal(status, f"{total}TodayNow") - decimal(status, f"{total}TodayMorning"))
    return int(decimal(status, f"{total}TodayMorning") - decimal(status, f"{total}YesterdayMorning"))


def permission_text(perm: int) -> str:
    return ("R" if perm & 4 else "-") + ("W" if perm & 2 else "-") + "-"


def java_text(value: Any) -> str:
    """Return a value as Java prints it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={java_text(one)}" for key, one in value.items()) + "}"
    return str(value)
