"""Compiler of SQL92 filter expressions to Python functions over the stored properties of a message.

The function is generated as source code from fixed templates and numbered names (v0, c3, t1). Property names, strings and numbers
of the expression are bound as globals under such names and never become part of the source.

    price > 5 AND region = 'EU'

    def matches(raw):
        raw = SEPARATOR + raw
        try:
            return ((v0 := <load c0>) is not None and (<v0 as int>) > c2 and (<load c3>) == c5)
        except ConversionError:
            return False

A property used in one comparison is looked up there, and not at all if the comparison is not reached; a property used in several
is looked up first. A lookup is two C calls on the bytes (`_LOAD`).

A condition is true, false or null, and its evaluation may fail, which decides the whole expression. Its code has three forms: its
value (True, False, None), a test for true, a test for false. The tests ignore nulls and suffice for common expressions; they are
*strict* where a failure further to the right must be noticed although the result is known.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from firearrow.broker.sql92 import ast
from firearrow.broker.sql92 import conversions as values
from firearrow.wire import properties

Matches = Callable[[bytes], bool]

_TEMPLATE: Final = """
def matches(raw):
    raw = SEPARATOR + raw
    {loads}
    try:
        return {test}
    except ConversionError:
        return False
"""
# The text after the last "0x02 name 0x01" up to the next 0x02. If it is empty, an earlier occurrence counts.
_LOAD: Final = "(t[2].partition(SEPARATOR)[0] or find(raw, {name}) if (t := raw.rpartition({mark}))[1] else None)"
# Conversion of a property that is compared with a number. Short digit strings, the common case, need no Python function call.
_READ: Final = {
    ast.Kind.INT: "(int({0}) if {0}.isdigit() and len({0}) < 10 else int32({0}))",
    ast.Kind.LONG: "(int({0}) if {0}.isdigit() and len({0}) < 19 else int64({0}))",
    ast.Kind.DOUBLE: "double({0})",
}
NULL: Final = "None"  # the SQL null in generated code
_MIRRORED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "=="}
_SEARCH: Final = {"CONTAINS": "{1} in {0}", "STARTSWITH": "{0}.startswith({1})", "ENDSWITH": "{0}.endswith({1})"}


class _Form(Enum):
    VALUE = 0  # True, False or None
    TRUE = 1  # a bool: whether the condition is true
    FALSE = 2  # a bool: whether it is false


def compile_tree(root: ast.Node) -> Matches:
    writer = _Writer(root)
    test = writer.condition(root, _Form.TRUE, strict=False)
    source = _TEMPLATE.format(loads="; ".join(writer.loads) or "pass", test=test)
    names = writer.names
    exec(compile(source, "<SQL92 filter>", "exec"), names)
    matches: Matches = names["matches"]
    return matches


class _Writer:
    """Generates the code of one tree."""

    def __init__(self, root: ast.Node) -> None:
        self.names: dict[str, Any] = {
            "SEPARATOR": properties.VALUE_END,
            "find": properties.find,
            **{f.__name__: f for f in (values.ConversionError, values.int32, values.int64, values.double, values.order)},
            **{f.__name__: f for f in (values.nothing, values.equal)},
        }
        self.loads: list[str] = []
        self._variables: dict[str, str] = {}
        self._pending: dict[str, str] = {}  # property -> its lookup code, until that is emitted
        self._fallible: dict[ast.Node, bool] = {}
        self._temporaries = 0
        for name, mentions in _mentions(root).items():
            variable = self._variables[name] = f"v{len(self._variables)}"
            encoded = name.encode()
            mark = properties.VALUE_END + encoded + properties.NAME_END
            load = _LOAD.format(name=self._bind(encoded), mark=self._bind(mark))
            if mentions > 1:
                self.loads.append(f"{variable} = {load}")
            else:
                self._pending[name] = f"({variable} := {load})"

    def condition(self, node: ast.Node, form: _Form, strict: bool = True) -> str:
        match node:
            case ast.Not():
                return self._not(node, form, strict)
            case ast.And() | ast.Or():
                return self._joined(node, form, strict)
            case ast.Equal():
                return self._equal(node, form)
            case ast.Order():
                return self._order(node, form)
            case ast.Between():
                return self._between(node, form)
            case ast.In():
                member = f"{{0}} {'not in' if node.negated else 'in'} {self._bind(frozenset(v.encode() for v in node.values))}"
                return self._tested(node.subject, member, form, absent_fails=not node.negated)
            case ast.Match():
                return self._match(node, form)
            case ast.IsNull():
                return _formed(f"({self._operand(node.operand)} is {NULL})", form, never_null=True)
            case ast.Truth():
                return self._tested(node.subject, f"{{0}} is {NULL}", form)
        assert isinstance(node, ast.Constant), node
        return _formed(str(node.value), form)

    def _not(self, node: ast.Not, form: _Form, strict: bool) -> str:
        if form is _Form.VALUE:
            inner = self._temporary()
            return f"(None if ({inner} := {self.condition(node.operand, form)}) is {NULL} else not {inner})"
        return self.condition(node.operand, _Form.FALSE if form is _Form.TRUE else _Form.TRUE, strict)

    def _joined(self, node: ast.And | ast.Or, form: _Form, strict: bool) -> str:
        if form is _Form.VALUE:
            return self._joined_value(node)
        operands = node.operands
        if isinstance(node, ast.And) is (form is _Form.FALSE):
            # The first match decides, and Apache stops there too. Earlier parts must not hide a failure.
            last = len(operands) - 1
            return f"({' or '.join(self.condition(each, form, strict or at < last) for at, each in enumerate(operands))})"
        # All parts must match. At a null we could stop, but Apache continues and may encounter a failure.
        if strict and any(self._can_fail(each) for each in operands[1:]) and any(map(_nullable, operands[:-1])):
            return _formed(self._joined_value(node), form)
        return f"({' and '.join(self.condition(each, form, strict) for each in operands)})"

    def _joined_value(self, node: ast.And | ast.Or) -> str:
        decisive, other = ("False", "True") if isinstance(node, ast.And) else ("True", "False")
        held = [self._temporary() for _ in node.operands]
        decided = " or ".join(
            f"({name} := {self.condition(each, _Form.VALUE)}) is {decisive}"
            for name, each in zip(held, node.operands, strict=True)
        )
        return f"({decisive} if {decided} else None if {' or '.join(f'{name} is {NULL}' for name in held)} else {other})"

    def _equal(self, node: ast.Equal, form: _Form) -> str:
        left, right = node.left, node.right
        kinds = ast.kind_of(left), ast.kind_of(right)
        if isinstance(left, ast.Property) and (test := self._same_as_literal(right)) is not None:
            return self._tested(left, test, form, absent_fails=kinds[1] is ast.Kind.STRING)
        if (
            isinstance(right, ast.Property)
            and kinds[0] is not ast.Kind.BOOLEAN
            and (test := self._same_as_literal(left)) is not None
        ):
            return self._tested(right, test, form, absent_fails=kinds[0] is ast.Kind.STRING, never_null=True)
        if isinstance(left, ast.Property) and isinstance(right, ast.Property):
            return self._same_properties(left, right, form)
        if kinds[0] in ast.NUMBERS and kinds[1] in ast.NUMBERS:
            return _formed(str(ast.compare_numbers(left, right) == 0), form, never_null=True)
        same = self._bind(_same(*kinds))
        return _formed(f"equal({self._operand(left)}, {self._operand(right)}, {same})", form)

    def _same_as_literal(self, literal: ast.Node) -> str | None:
        """Return the test of a property against a literal; None for any other operands."""
        kind = ast.kind_of(literal)
        if kind in ast.NUMBERS:
            return f"{_READ[kind]} == {self._bind(ast.number_of(literal))}"
        if isinstance(literal, ast.Constant) and kind is ast.Kind.STRING:
            return f"{{0}} == {self._bind(str(literal.value).encode(errors='surrogatepass'))}"
        if isinstance(literal, ast.Constant) and kind is ast.Kind.BOOLEAN:
            return f"({{0}}.lower() == {self._bind(b'true')}) is {literal.value}"
        return None

    def _same_properties(self, left: ast.Property, right: ast.Property, form: _Form) -> str:
        """Compare two properties: both absent is true, only the left absent null, only the right absent false."""
        first, second, again = self._mention(left), self._mention(right), self._mention(left)
        if form is _Form.TRUE:
            return f"({first} == {second})"
        if form is _Form.FALSE:
            return f"({first} != {second} and {again} is not None)"
        return f"({first} == {second} or (None if {again} is {NULL} else False))"

    def _order(self, node: ast.Order, form: _Form) -> str:
        left, right = node.left, node.right
        kinds = ast.kind_of(left), ast.kind_of(right)
        if isinstance(left, ast.Property) and kinds[1] in ast.NUMBERS:
            return self._tested(left, f"{_READ[kinds[1]]} {node.symbol} {self._bind(ast.number_of(right))}", form)
        if isinstance(right, ast.Property) and kinds[0] in ast.NUMBERS:
            return self._tested(right, f"{_READ[kinds[0]]} {_MIRRORED[node.symbol]} {self._bind(ast.number_of(left))}", form)
        if isinstance(left, ast.Property) and isinstance(right, ast.Property):
            first, second = self._mention(left), self._mention(right)
            test = f"order({self._mention(left)}, {self._mention(right)}) {node.symbol} 0"
            return _formed(f"(None if {first} is {NULL} or {second} is {NULL} else {test})", form)
        if kinds[0] in ast.NUMBERS and kinds[1] in ast.NUMBERS:
            return _formed(str(_ORDERS[node.symbol](ast.compare_numbers(left, right), 0)), form, never_null=True)
        # One side is always null. The right side is evaluated only if the left is not null.
        if kinds[0] is ast.Kind.NULL:
            return _formed(self._operand(left), form)
        return _formed(f"(None if {self._operand(left)} is {NULL} else {self._operand(right)})", form)

    def _between(self, node: ast.Between, form: _Form) -> str:
        kind = ast.kind_of(node.low)
        if isinstance(node.subject, ast.Property) and kind in ast.NUMBERS and kind is ast.kind_of(node.high):
            low, high = self._bind(ast.number_of(node.low)), self._bind(ast.number_of(node.high))
            inside = f"{low} <= {_READ[kind]} <= {high}"
            return self._tested(node.subject, f"(not {inside})" if node.negated else inside, form)
        if ast.kind_of(node.subject) is ast.Kind.NULL:
            # Null, whatever the bounds are. The subject may be a large condition: its code must not be emitted twice.
            return _formed(self._operand(node.subject), form)
        first, second, join = ("<", ">", ast.Or) if node.negated else (">=", "<=", ast.And)
        bounds = (
            ast.Order(first, node.subject, node.low, node.position),
            ast.Order(second, node.subject, node.high, node.position),
        )
        return self._joined(join(bounds, node.position), form, strict=True)

    def _match(self, node: ast.Match, form: _Form) -> str:
        """Generate a match; false, negated or not, for an absent property or an empty string."""
        if not node.search:
            return _formed("False", form, never_null=True)
        test = _SEARCH[node.how].format("{0}", self._bind(node.search.encode(errors="surrogatepass")))
        if node.negated:
            test = f"(not {test})"
        if isinstance(node.operand, ast.Property):
            return self._tested(node.operand, test, form, never_null=True)
        if isinstance(node.operand, ast.Constant) and node.operand.kind is ast.Kind.STRING:
            return _formed(f"({test.format(self._operand(node.operand))})", form, never_null=True)
        return _formed(f"(nothing({self._operand(node.operand)}) is not None)", form, never_null=True)

    def _tested(
        self, subject: ast.Property, test: str, form: _Form, *, absent_fails: bool = False, never_null: bool = False
    ) -> str:
        """Generate a test of one property. Absent gives null, false with `never_null`. `absent_fails`: it rejects None."""
        first, again = self._mention(subject), self._mention(subject)
        if form is _Form.VALUE and not never_null:
            return f"(None if {first} is {NULL} else {test.format(again)})"
        if form is _Form.FALSE and not never_null:
            return f"({first} is not None and not {test.format(again)})"
        positive = f"({test.format(first)})" if absent_fails else f"({first} is not None and {test.format(again)})"
        return f"(not {positive})" if form is _Form.FALSE else positive

    def _operand(self, node: ast.Node) -> str:
        """Generate the value of any node: None, bytes, a number or a boolean."""
        if isinstance(node, ast.Property):
            return self._mention(node)
        if ast.kind_of(node) in ast.NUMBERS:
            return self._bind(ast.number_of(node))
        if isinstance(node, ast.Constant):
            return self._bind(node.value.encode(errors="surrogatepass") if isinstance(node.value, str) else node.value)
        if isinstance(node, ast.Negate):
            return f"nothing({self._operand(node.operand)})"
        return self.condition(node, _Form.VALUE)

    def _mention(self, subject: ast.Property) -> str:
        return self._pending.pop(subject.name, self._variables[subject.name])

    def _bind(self, value: object) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def _can_fail(self, node: ast.Node) -> bool:
        if node not in self._fallible:
            self._fallible[node] = _fails_itself(node) or any(map(self._can_fail, ast.children(node)))
        return self._fallible[node]


_ORDERS: Final[dict[str, Callable[[int, int], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _mentions(root: ast.Node) -> dict[str, int]:
    """Count the comparisons that use each property."""
    counts: Counter[str] = Counter()
    for _, node in ast.walk(root):
        counts.update({child.name for child in ast.children(node) if isinstance(child, ast.Property)})
    return counts


def _formed(value: str, form: _Form, *, never_null: bool = False) -> str:
    """Return the code of a value in the given form."""
    if form is _Form.VALUE:
        return value
    if never_null:
        return value if form is _Form.TRUE else f"(not {value})"
    return f"({value} is {form is _Form.TRUE})"


def _same(left: ast.Kind, right: ast.Kind) -> Callable[[Any, Any], bool]:
    """Return the equality function for two kinds of values, neither null."""
    if left in ast.NUMBERS and right is ast.Kind.STRING:
        return lambda number, text: _reader(left)(text) == number
    if left is ast.Kind.STRING and right in ast.NUMBERS:
        return lambda text, number: _reader(right)(text) == number
    if left is ast.Kind.STRING and right is ast.Kind.BOOLEAN:
        return lambda text, boolean: values.is_true(text) is boolean
    if left is ast.Kind.BOOLEAN and right is ast.Kind.STRING:
        return values.incomparable
    if left is right:
        return operator.eq
    return lambda _left, _right: False


def _reader(kind: ast.Kind) -> Callable[[bytes], int | float]:
    return {ast.Kind.INT: values.int32, ast.Kind.LONG: values.int64, ast.Kind.DOUBLE: values.double}[kind]


def _fails_itself(node: ast.Node) -> bool:
    """Return whether the evaluation of this node, apart from its parts, may fail."""
    if isinstance(node, ast.Equal):
        kinds = {ast.kind_of(node.left), ast.kind_of(node.right)}
        return ast.Kind.STRING in kinds and (not kinds.isdisjoint(ast.NUMBERS) or ast.kind_of(node.left) is ast.Kind.BOOLEAN)
    return isinstance(node, ast.Order | ast.Between)


def _nullable(node: ast.Node) -> bool:
    return not isinstance(node, ast.IsNull | ast.Match)
