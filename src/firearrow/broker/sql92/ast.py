"""Syntax tree of SQL92 filter expressions, and the types of its nodes.

Every node has one statically known kind: a property is a string (or null if absent), a literal has its own kind, a condition is a
boolean (or null), minus keeps the kind of a number and turns everything else into null. So numbers come only from literals.

AND and OR have two or more parts; nested ones of the same kind are merged, which changes neither the value nor the order of
evaluation. `<>` is Not(Equal), IS NOT NULL is Not(IsNull).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Apache's types: String, Integer, Long, Double, Boolean, and the constant null."""

    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    NULL = "null"


NUMBERS = frozenset((Kind.INT, Kind.LONG, Kind.DOUBLE))


@dataclass(frozen=True, slots=True, eq=False)
class Property:
    name: str
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    kind: Kind
    value: str | int | float | bool | None
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Negate:
    operand: Node
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """A property used as a condition: null if absent, else false, since a string is not TRUE."""

    subject: Property
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Not:
    operand: Node
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class And:
    operands: tuple[Node, ...]
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Or:
    operands: tuple[Node, ...]
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Equal:
    left: Node
    right: Node
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """`symbol` is >, >=, < or <=."""

    symbol: str
    left: Node
    right: Node
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """`>= low AND <= high`, or negated `< low OR > high`."""

    subject: Node
    low: Node
    high: Node
    negated: bool
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class In:
    subject: Property
    values: frozenset[str]
    negated: bool
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """`how` is CONTAINS, STARTSWITH or ENDSWITH."""

    how: str
    operand: Node
    search: str
    negated: bool
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class IsNull:
    operand: Node
    position: int


Condition = Truth | Not | And | Or | Equal | Order | Between | In | Match | IsNull
Node = Property | Constant | Negate | Condition


def kind_of(node: Node) -> Kind:
    if isinstance(node, Property):
        return Kind.STRING
    if isinstance(node, Constant):
        return node.kind
    if isinstance(node, Negate):
        kind = kind_of(node.operand)
        return kind if kind in NUMBERS else Kind.NULL
    return Kind.BOOLEAN


def number_of(node: Node) -> int | float:
    """Return the value of a numeric node."""
    if isinstance(node, Negate):
        return -number_of(node.operand)
    assert isinstance(node, Constant)
    assert isinstance(node.value, int | float), node.value
    return node.value


def compare_numbers(left: Node, right: Node) -> int:
    """Compare like Java and return a number below, at or above 0: with a double on one side, both are compared as doubles."""
    first, second = number_of(left), number_of(right)
    if Kind.DOUBLE in (kind_of(left), kind_of(right)):
        first, second = float(first), float(second)
    return (first > second) - (first < second)


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Property() | Constant():
            return ()
        case And() | Or():
            return node.operands
        case Equal() | Order():
            return (node.left, node.right)
        case Between():
            return (node.subject, node.low, node.high)
        case Truth() | In():
            return (node.subject,)
        case _:
            return (node.operand,)


def walk(root: Node) -> Iterator[tuple[int, Node]]:
    """Yield every node with its depth, the root at 1. Not recursive: a chain of comparisons may be very deep."""
    stack = [(1, root)]
    while stack:
        depth, node = stack.pop()
        yield depth, node
        stack.extend((depth + 1, child) for child in children(node))
