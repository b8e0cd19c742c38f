"""Reference implementation of the SQL92 filter: walks the tree for every message, with Java's value types.

Written from the rules, independently of the code generator that it verifies. A value can be None, a str, a bool, or a number with
the name of its Java type. Reading numbers goes through exact fractions instead of Python's int and float.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

from firearrow.broker.sql92 import ast as tree


class EvaluationError(Exception):
    """Evaluation failed: the message does not match."""


@dataclass(frozen=True)
class Number:
    java: str  # Integer, Long or Double
    value: int | float


Value = None | str | bool | Number

_NAMES = {tree.Kind.INT: "Integer", tree.Kind.LONG: "Long", tree.Kind.DOUBLE: "Double"}


def verdict(root: tree.Node, properties: dict[str, str]) -> str:
    """T, F, N for null or E for an error."""
    try:
        value = evaluate(root, properties)
    except EvaluationError:
        return "E"
    return "N" if value is None else "T" if value is True else "F"


def evaluate(node: tree.Node, properties: dict[str, str]) -> Value:
    def look(part: tree.Node) -> Value:
        return evaluate(part, properties)

    match node:
        case tree.Property():
            return properties.get(node.name)
        case tree.Constant():
            if isinstance(node.value, int | float) and not isinstance(node.value, bool):
                return Number(_NAMES[node.kind], node.value)
            return node.value
        case tree.Negate():
            value = look(node.operand)
            return Number(value.java, -value.value) if isinstance(value, Number) else None
        case tree.Truth():
            return None if look(node.subject) is None else False
        case tree.Not():
            value = look(node.operand)
            return None if value is None else not value
        case tree.And():
            return _joined(node.operands, False, properties)
        case tree.Or():
            return _joined(node.operands, True, properties)
        case tree.Equal():
            return _equal(look(node.left), look(node.right))
        case tree.Order():
            return _ordered(node.symbol, node.left, node.right, properties)
        case tree.Between():
            first, second = ("<", ">") if node.negated else (">=", "<=")
            low = tree.Order(first, node.subject, node.low, 0)
            high = tree.Order(second, node.subject, node.high, 0)
            return _joined((low, high), node.negated, properties)
        case tree.In():
            value = look(node.subject)
            return None if value is None else (value in node.values) is not node.negated
        case tree.Match():
            return _match(node, properties)
        case tree.IsNull():
            return look(node.operand) is None


def _joined(operands: tuple[tree.Node, ...], decisive: bool, properties: dict[str, str]) -> bool | None:
    """AND (False decides) or OR (True decides): stops at the decisive value, and at nothing else."""
    seen = []
    for operand in operands:
        value = evaluate(operand, properties)
        if value is decisive:
            return decisive
        seen.append(value)
    return None if None in seen else not decisive


def _equal(left: Value, right: Value) -> bool | None:
    if left is None and right is None:
        return True
    if left is None:
        return None
    if right is None:
        return False
    return compare(left, right) == 0


def _ordered(symbol: str, left_node: tree.Node, right_node: tree.Node, properties: dict[str, str]) -> bool | None:
    left = evaluate(left_node, properties)
    if left is None:
        return None
    right = evaluate(right_node, properties)
    if right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        left, right = Number("Double", read_double(left)), Number("Double", read_double(right))
    answer = compare(left, right)
    return {">": answer > 0, ">=": answer >= 0, "<": answer < 0, "<=": answer <= 0}[symbol]


def _match(node: tree.Match, properties: dict[str, str]) -> bool:
    if node.search == "":
        return False
    value = evaluate(node.operand, properties)
    if not isinstance(value, str):
        return False
    found = {
        "CONTAINS": node.search in value,
        "STARTSWITH": value[: len(node.search)] == node.search,
        "ENDSWITH": value[-len(node.search) :] == node.search,
    }[node.how]
    return not found if node.negated else found


def compare(left: Value, right: Value) -> int:
    if isinstance(left, str) and isinstance(right, str):
        return 0 if left == right else 1
    if isinstance(left, bool):
        if isinstance(right, str):
            raise EvaluationError
        return 0 if left is right else -1
    if isinstance(left, Number) and isinstance(right, str):
        right = _read(right, left.java)
    elif isinstance(left, str) and isinstance(right, Number):
        left = _read(left, right.java)
    elif isinstance(left, str) and isinstance(right, bool):
        return 0 if (left.lower() == "true") is right else 1
    if not (isinstance(left, Number) and isinstance(right, Number)):
        return -1
    if "Double" in (left.java, right.java):
        return _compare_doubles(float(left.value), float(right.value))
    return (left.value > right.value) - (left.value < right.value)


def _compare_doubles(left: float, right: float) -> int:
    if left != left or right != right:
        return (left != left) - (right != right)
    if left == right == 0:
        return str(left).count("-") < str(right).count("-") or -(str(left).count("-") > str(right).count("-"))
    return (left > right) - (left < right)


def _read(text: str, java: str) -> Number:
    if java == "Double":
        return Number(java, read_double(text))
    bits = 32 if java == "Integer" else 64
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if not digits or any(len(d.encode("utf-16-be")) > 2 or unicodedata.category(d) != "Nd" for d in digits):
        raise EvaluationError
    value = sum(unicodedata.digit(d) * 10**place for place, d in enumerate(reversed(digits)))
    value = -value if sign == "-" else value
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise EvaluationError
    return Number(java, value)


def read_double(text: str) -> float:
    while text and text[0] <= " ":
        text = text[1:]
    while text and text[-1] <= " ":
        text = text[:-1]
    sign = -1.0 if text.startswith("-") else 1.0
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "NaN":
        return float("nan")
    if body == "Infinity":
        return sign * float("inf")
    if body[-1:] in ("f", "F", "d", "D") and not re.fullmatch(r"0[xX][0-9a-fA-F.]*", body):
        body = body[:-1]
    decimal = re.fullmatch(r"([0-9]*)(\.([0-9]*))?([eE]([+-]?[0-9]+))?", body, re.ASCII)
    if decimal and (decimal[1] or decimal[3]):
        return sign * _rounded(int((decimal[1] or "") + (decimal[3] or "")), 10, int(decimal[5] or 0) - len(decimal[3] or ""))
    hexadecimal = re.fullmatch(r"0[xX]([0-9a-fA-F]*)(\.([0-9a-fA-F]*))?[pP]([+-]?[0-9]+)", body, re.ASCII)
    if hexadecimal and (hexadecimal[1] or hexadecimal[3]):
        digits = int((hexadecimal[1] or "") + (hexadecimal[3] or ""), 16)
        return sign * _rounded(digits, 2, int(hexadecimal[4]) - 4 * len(hexadecimal[3] or ""))
    raise EvaluationError


def _rounded(digits: int, base: int, exponent: int) -> float:
    if digits == 0:
        return 0.0
    if exponent > 5000:
        return float("inf")
    if exponent < -5000:
        return 0.0
    try:
        return float(Fraction(digits) * Fraction(base) ** exponent)
    except OverflowError:
        return float("inf")
