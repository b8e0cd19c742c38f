"""The texts of options: each function reads one kind of value. ValueError says what was expected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from firearrow.client.options import name_server_addresses

_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIMES: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value.strip()


def flag(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.strip().lower() == "true"


def count(value: str) -> int:
    if not value.strip().isdecimal() or int(value) < 1:
        raise ValueError("a whole number above 0")
    return int(value)


def count_from_0(value: str) -> int:
    if not value.strip().isdecimal():
        raise ValueError("a whole number")
    return int(value)


def size(value: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([kmg]?)(i?b)?", value.strip().lower())
    if found is None or int(found[1]) < 1:
        raise ValueError("a number of bytes such as 1048576, 512k, 4m or 1g")
    return int(found[1]) * _SIZES[found[2]]


def span_ms(value: str) -> int:
    found = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d)?", value.strip().lower())
    if found is None:
        raise ValueError("a time such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _TIMES[found[2] or "ms"]


def moment_ms(value: str) -> int:
    given = value.strip()
    if given.isdecimal():
        return int(given)
    try:
        return int(datetime.fromisoformat(given).astimezone().timestamp() * 1000)
    except ValueError:
        raise ValueError("milliseconds since 1970, or a time such as 2026-03-01T12:00:00+00:00") from None


def names(value: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in value.split(",") if name.strip())
    if not found:
        raise ValueError("names with commas between them")
    return found


def pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return value


def json_object(value: str) -> dict[str, Any]:
    try:
        loaded = json.loads(value)
    except ValueError as error:
        raise ValueError(f"a JSON object ({error})") from None
    if not isinstance(loaded, dict):
        raise ValueError("a JSON object")
    return loaded


def offsets(*words: str) -> Callable[[str], str | dict[str, Any]]:
    def read(value: str) -> str | dict[str, Any]:
        if value.strip().lower() in words:
            return value.strip().lower()
        example = '{"Orders":{"broker-a":{"0":120}}}'
        if not value.strip().startswith("{"):
            raise ValueError(f"{', '.join(words)} or a JSON object such as {example}")
        return json_object(value)

    return read


def choice(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        for choice in choices:
            if choice.lower() == value.strip().lower():
                return choice
        raise ValueError(" or ".join(choices))

    return read


def moments_by_queue(value: str) -> dict[str, Any]:
    """`{"Orders":{"broker-a":{"0":1772366400000}}}`; a moment may be written as for `moment_ms`."""
    found = json_object(value)
    example = 'moments by queue such as {"Orders":{"broker-a":{"0":1772366400000}}}'
    try:
        return {
            topic: {broker: {queue: moment_ms(str(at)) for queue, at in queues.items()} for broker, queues in brokers.items()}
            for topic, brokers in found.items()
        }
    except AttributeError:
        raise ValueError(example) from None
    except ValueError as error:
        raise ValueError(f"{example}, each {error}") from None


def addresses(value: str) -> tuple[tuple[str, str], ...]:
    """`{"10.0.0.5:10911":"broker.example:30911"}` as pairs."""
    example = '{"10.0.0.5:10911":"broker.example:30911"}'
    pairs = tuple(sorted(json_object(value).items()))
    for address in (one for pair in pairs for one in pair):
        if not isinstance(address, str) or not _is_address(address):
            raise ValueError(f"a JSON object of addresses such as {example}, not {address!r}")
    return pairs


def _is_address(text: str) -> bool:
    try:
        return len(name_server_addresses(text)) == 1
    except ValueError:
        return False
