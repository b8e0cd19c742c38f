"""Attributes of a topic: which there are, what they may be, and how an operator's wish changes them.

A wish is text, `+message.type=FIFO,-reserve.time`: `+` sets, `-` takes away. A new topic can only be given attributes. Some
attributes are fixed for a topic's life.

| key            | values                                                  | changeable |
|----------------|---------------------------------------------------------|------------|
| message.type   | UNSPECIFIED NORMAL FIFO DELAY TRANSACTION MIXED         | yes        |
| queue.type     | SimpleCQ (BatchCQ is not supported)                     | no         |
| cleanup.policy | DELETE (COMPACTION is not supported)                    | no         |
| reserve.time   | -1, or hours to keep messages                           | yes        |
"""

from __future__ import annotations

from collections.abc import Mapping

from firearrow.broker.requests.responses import Refused
from firearrow.wire.codes import ResponseCode

_CHOICES: dict[str, frozenset[str]] = {
    "message.type": frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}),
    "queue.type": frozenset({"SimpleCQ"}),
    "cleanup.policy": frozenset({"DELETE"}),
}
_NUMBER = "reserve.time"
_FIXED = frozenset({"queue.type", "cleanup.policy"})
_MAX_RESERVE_HOURS = 2**63 - 1


def parse_wish(text: str | None) -> dict[str, str]:
    """`+k=v,-k2` as {"+k": "v", "-k2": ""}."""
    wish: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part:
            continue
        key, equals, value = part.partition("=")
        sign = "+" if equals else "-"
        if len(key) < 2 or key[0] != sign or (equals and not value):
            raise _refused(f"attribute {part!r} is not of the form +key=value or -key")
        if key in wish:
            raise _refused(f"key duplication: attribute {key!r} is given twice")
        wish[key] = value
    return wish


def alter_attributes(current: Mapping[str, str] | None, wish: Mapping[str, str]) -> dict[str, str]:
    """The attributes after the wish. `current` is None for a topic that does not exist yet."""
    after = dict(current or {})
    for signed, value in wish.items():
        sign, key = signed[0], signed[1:]
        if key != _NUMBER and key not in _CHOICES:
            raise _refused(f"unsupported key: {key}")
        if sign == "-" and current is None:
            raise _refused(f"only add attribute is supported while creating topic. key: {key}")
        if current is not None and key in _FIXED and after.get(key) != (value if sign == "+" else None):
            raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            after.pop(key, None)
            continue
        _check_value(key, value)
        after[key] = value
    return after


def _check_value(key: str, value: str) -> None:
    if key == _NUMBER:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or not -1 <= int(value) <= _MAX_RESERVE_HOURS:
            raise _refused(f"value {value!r} of attribute {key} is not a number of hours, or -1")
    elif value not in _CHOICES[key]:
        raise _refused(f"value {value!r} of attribute {key} is not in set: {', '.join(sorted(_CHOICES[key]))}")


def _refused(remark: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, remark)
