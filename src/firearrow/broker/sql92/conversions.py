"""Conversion of property text to numbers, and comparison with nulls, like Apache's SQL filter.

Java's rules, not Python's: Integer and Long accept a sign and decimal digits of any script in Unicode's basic plane. Double
accepts surrounding blanks, an exponent, hexadecimal, NaN, Infinity and a trailing f or d. Java's order of doubles is total: NaN
is greatest and equal to itself, -0.0 is below 0.0.

Malformed text raises ConversionError, which ends the evaluation of the whole expression: the message does not match, whatever the
other parts of an OR are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final, NoReturn

Value = bytes | int | float | bool | None

_INFINITY: Final = float("inf")
_CONTROLS: Final = bytes(range(0x21))
_LONG_DOUBLE: Final = 400  # characters; reading a decimal costs time quadratic in its length
_DIGITS_OF_DOUBLE: Final = 800  # no double, and no midpoint between two doubles, has more significant decimal digits
_DIGITS_AT_ONCE: Final = 256
# Possessive quantifiers: with backtracking, digits that do not end as a number cost time quadratic in their number.
_DECIMAL: Final = re.compile(rb"([+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(rb"([+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?")
_NAMED: Final = {
    **dict.fromkeys((b"NaN", b"+NaN", b"-NaN"), math.nan),
    **dict.fromkeys((b"Infinity", b"+Infinity"), _INFINITY),
    b"-Infinity": -_INFINITY,
}


class ConversionError(Exception):
    """Two values cannot be compared. It has no message: only the filter catches it."""


def int32(text: bytes) -> int:
    return _whole(text, -(2**31), 2**31 - 1)


def int64(text: bytes) -> int:
    return _whole(text, -(2**63), 2**63 - 1)


def double(text: bytes) -> float:
    """Convert for a comparison with a finite number, where NaN behaves like infinity."""
    value = any_double(text)
    return value if value == value else _INFINITY


def any_double(text: bytes) -> float:
    if len(text) > _LONG_DOUBLE:
        return _unusual_double(text)
    try:
        value = float(text)
    except ValueError:
        return _unusual_double(text)
    # Python also accepts underscores and names like "inf".
    if -_INFINITY < value < _INFINITY and b"_" not in text:
        return value
    return _unusual_double(text)


def order(left: bytes, right: bytes) -> int:
    """Compare two properties as doubles and return a number below, at or above 0."""
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
    """Return null: minus of a value that is not a number. The operand has been evaluated."""


def equal(left: Value, right: Value, same: Callable[[Value, Value], bool]) -> bool | None:
    """Evaluate `=` between values of any kind; `same` compares two values that are not null."""
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
    # Java iterates over UTF-16 units: digits outside the basic plane are two units that are not digits.
    if not text.isdecimal() or len(text.encode("utf-16-le")) != 2 * len(text):
        raise ConversionError
    value = 0
    for start in range(0, len(text), _DIGITS_AT_ONCE):
        portion = text[start : start + _DIGITS_AT_ONCE]
        value = min(value * 10 ** len(portion) + int(portion), too_much)
    return value


def _unusual_double(text: bytes) -> float:
    text = text.strip(_CONTROLS)
    if (decimal := _DECIMAL.fullmatch(text)) is not None:
        return float(decimal[1] if len(text) <= _LONG_DOUBLE else _shortened(decimal[1]))
    if (hexadecimal := _HEXADECIMAL.fullmatch(text)) is not None:
        try:
            return float.fromhex(hexadecimal[1].decode())
        except OverflowError:
            return -_INFINITY if text.startswith(b"-") else _INFINITY
    if (named := _NAMED.get(text)) is not None:
        return named
    raise ConversionError


def _shortened(decimal: bytes) -> bytes:
    """Return a decimal number of bounded length that is read as the same double.

    Digits behind the first `_DIGITS_OF_DOUBLE` matter only if one of them is not 0. A 1 in their place then has the same effect.
    """
    mantissa, _, exponent = decimal.lower().partition(b"e")
    sign = mantissa[:1] if mantissa[:1] in (b"+", b"-") else b""
    whole, _, fraction = mantissa[len(sign) :].partition(b".")
    digits = (whole + fraction).lstrip(b"0")
    dropped = digits[_DIGITS_OF_DOUBLE:]
    scale = _bounded_exponent(exponent) - len(fraction) + len(dropped)
    kept = digits[:_DIGITS_OF_DOUBLE] or b"0"
    if dropped.strip(b"0"):
        kept, scale = kept + b"1", scale - 1
    return b"%s%se%d" % (sign, kept, scale)


def _bounded_exponent(text: bytes) -> int:
    """Return the exponent, or one that outweighs any number of digits in the same direction."""
    sign, digits = (-1 if text.startswith(b"-") else 1), text.lstrip(b"+-").lstrip(b"0")
    return sign * (int(digits or b"0") if len(digits) <= 9 else 10**9)


def _order_key(value: float) -> tuple[bool, float, float]:
    return (True, 0.0, 0.0) if value != value else (False, value, math.copysign(1.0, value))
