"""How Apache's SQL filter reads the text of a property where a number stands on the other side, and what it does with nulls.

Java's rules, not Python's: Integer and Long take a sign and decimal digits, of any script that Unicode has in its first plane,
and nothing else; Double takes blanks around, an exponent, hexadecimal, NaN, Infinity and a closing f or d. Java orders doubles
totally: NaN above all and equal to itself, -0.0 below 0.0.

Text that cannot be read raises ConversionError, which ends the evaluation of the whole expression: such a message does not match,
whatever an OR further on says.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from typing import Final, NoReturn

Value = bytes | int | float | bool | None

_INFINITY: Final = float("inf")
_CONTROLS: Final = bytes(range(0x21))
_DECIMAL: Final = re.compile(rb"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(rb"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED: Final = {
    **dict.fromkeys((b"NaN", b"+NaN", b"-NaN"), math.nan),
    **dict.fromkeys((b"Infinity", b"+Infinity"), _INFINITY),
    b"-Infinity": -_INFINITY,
}


class ConversionError(Exception):
    """Two values cannot be compared. Says nothing: it is only ever caught by the filter."""


def int32(text: bytes) -> int:
    return _whole(text, -(2**31), 2**31 - 1)


def int64(text: bytes) -> int:
    return _whole(text, -(2**63), 2**63 - 1)


def double(text: bytes) -> float:
    """For a comparison with a finite number, where NaN is like infinity: above it."""
    value = any_double(text)
    return value if value == value else _INFINITY


def any_double(text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        return _unusual_double(text)
    # Python also takes underscores and names like "inf".
    if -_INFINITY < value < _INFINITY and b"_" not in text:
        return value
    return _unusual_double(text)


def order(left: bytes, right: bytes) -> int:
    """Below, at or above 0: two properties, both read as doubles."""
    first, second = any_double(left), any_double(right)
    if first < second:
        return -1
    if first > second:
        return 1
    first_key, second_key = _order_key(first), _order_key(second)
    return (first_key > second_key) - (first_key < second_key)


def is_true(text: bytes) -> bool:
    return text.lower() == b"true"


def nothing(_value: Value) -> None:
    """Minus before something that is not a number: null, but what it stands before has been looked at."""


def equal(left: Value, right: Value, same: Callable[[Value, Value], bool]) -> bool | None:
    """`=` between two parts of any kind; `same` compares what is not null."""
    if left is None:
        return True if right is None else None
    return right is not None and same(left, right)


def incomparable(left: Value, right: Value) -> NoReturn:
    raise ConversionError


def _whole(text: bytes, low: int, high: int) -> int:
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    if digits.isdigit():
        digits = digits.lstrip(b"0")
        magnitude = int(digits or b"0") if len(digits) <= 19 else high + 2
    else:
        magnitude = _other_digits(digits.decode(errors="replace"), high + 2)
    value = -magnitude if text.startswith(b"-") else magnitude
    if not low <= value <= high:
        raise ConversionError
    return value


def _other_digits(text: str, too_much: int) -> int:
    if not text:
        raise ConversionError
    value = 0
    for character in text:
        digit = unicodedata.decimal(character, -1)
        # Java walks over UTF-16 units: digits beyond the first plane are two units that are no digits.
        if digit < 0 or character > "\uffff":
            raise ConversionError
        value = min(value * 10 + digit, too_much)
    return value


def _unusual_double(text: bytes) -> float:
    text = text.strip(_CONTROLS)
    if (decimal := _DECIMAL.fullmatch(text)) is not None:
        return float(decimal[1])
    if (hexadecimal := _HEXADECIMAL.fullmatch(text)) is not None:
        try:
            return float.fromhex(hexadecimal[1].decode())
        except OverflowError:
            return -_INFINITY if text.startswith(b"-") else _INFINITY
    if (named := _NAMED.get(text)) is not None:
        return named
    raise ConversionError


def _order_key(value: float) -> tuple[bool, float, float]:
    return (True, 0.0, 0.0) if value != value else (False, value, math.copysign(1.0, value))
