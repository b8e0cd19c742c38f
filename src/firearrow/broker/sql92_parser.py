"""Reads a SQL92 filter expression into a tree, with Apache's grammar and Apache's rules about what may be compared.

    condition  := and (OR and)*
    and        := equality (AND equality)*
    equality   := comparison ( (= | <>) comparison | IS [NOT] NULL )*
    comparison := operand ( (> | >= | < | <=) operand | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string
                          | [NOT] BETWEEN operand AND operand | [NOT] IN (string, ...) )*
    operand    := (+ | - | NOT)* ( literal | property | ( condition ) )

NOT stands with the signs and binds tighter than any comparison: `NOT a = 1` is `(NOT a) = 1`. What follows a complete condition
is not read (see `parse`). The four levels are one loop over binding strengths, so that a parenthesis costs few stack frames.
"""

from __future__ import annotations

from typing import Final

from firearrow.broker.sql92_lexer import STRING, Lexer, SqlError, Word, shorten, unquote
from firearrow.broker.sql92_tree import (
    NUMBERS,
    And,
    Between,
    Constant,
    Equal,
    In,
    IsNull,
    Kind,
    Match,
    Negate,
    Node,
    Not,
    Or,
    Order,
    Property,
    Truth,
    compare_numbers,
    kind_of,
    walk,
)

MAX_CHARACTERS: Final = 65536
MAX_NESTING: Final = 200  # parentheses, and signs or NOTs before one operand
MAX_DEPTH: Final = 60  # of the tree; AND and OR in a row, bracketed or not, are one level
MAX_OPERANDS: Final = 2048  # properties and literals; the strings of IN and CONTAINS do not count

_OR, _AND, _EQUALITY, _COMPARISON = 1, 2, 3, 4
_STRENGTHS: Final = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("=", "<>", "IS"), _EQUALITY),
    **dict.fromkeys((">", ">=", "<", "<=", "CONTAINS", "STARTSWITH", "ENDSWITH", "BETWEEN", "IN", "NOT"), _COMPARISON),
}
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_INFINITY: Final = float("inf")


def parse(text: str) -> tuple[Node, int]:
    """The condition at the start of the text, and where the word after it begins: the length of the text if there is none.

    Apache ignores everything from that word on (which must be a word, though). Raises SqlError.
    """
    if len(text) > MAX_CHARACTERS:
        raise SqlError(MAX_CHARACTERS, f"at most {MAX_CHARACTERS} characters", f"{len(text)}")
    parser = _Parser(Lexer(text))
    root = _condition(parser.expression(_OR))
    rest = parser.words.peek()
    for depth, node in walk(root):
        if depth > MAX_DEPTH:
            raise SqlError(node.position, f"conditions nested at most {MAX_DEPTH} deep", "deeper ones")
    return root, rest.position


class _Parser:
    def __init__(self, words: Lexer) -> None:
        self.words = words
        self._nesting = 0
        self._operands = 0

    def expression(self, weakest: int) -> Node:
        """An operand and the operators behind it that bind at least as strongly as `weakest`."""
        left = self._operand()
        # An operator's result takes part in no stronger operation: after IS NULL there is no CONTAINS.
        strongest = _COMPARISON
        while True:
            strength = _STRENGTHS.get(self.words.peek().kind, 0)
            if not weakest <= strength <= strongest:
                return left
            strongest = strength
            operator = self.words.take()
            if strength == _COMPARISON:
                left = self._comparison(left, operator)
            elif operator.kind == "IS":
                left = self._is_null(left, operator)
            else:
                left = _join(left, operator, self.expression(strength + 1))

    def _operand(self) -> Node:
        prefixes: list[Word] = []
        while self.words.peek().kind in ("+", "-", "NOT"):
            prefixes.append(self.words.take())
            if len(prefixes) > MAX_NESTING:
                raise SqlError(prefixes[-1].position, f"at most {MAX_NESTING} signs before an operand", "more")
        node = self._primary()
        for prefix in reversed(prefixes):
            if prefix.kind == "-":
                node = Negate(node, prefix.position)
            elif prefix.kind == "NOT":
                node = Not(_condition(node), prefix.position)
        return node

    def _primary(self) -> Node:
        word = self.words.take()
        if word.kind == "(":
            return self._bracketed(word)
        self._operands += 1
        if self._operands > MAX_OPERANDS:
            raise SqlError(word.position, f"at most {MAX_OPERANDS} properties and literals", "more")
        match word.kind:
            case "ID":
                return Property(word.text, word.position)
            case "STRING":
                return Constant(Kind.STRING, unquote(word.text), word.position)
            case "DECIMAL":
                return _decimal(word)
            case "FLOAT":
                return _float(word)
            case "TRUE" | "FALSE":
                return Constant(Kind.BOOLEAN, word.kind == "TRUE", word.position)
            case "NULL":
                return Constant(Kind.NULL, None, word.position)
        raise SqlError(word.position, "a property, a literal or (", word.shown())

    def _bracketed(self, opening: Word) -> Node:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise SqlError(opening.position, f"parentheses nested at most {MAX_NESTING} deep", "deeper ones")
        inner = self.expression(_OR)
        self._expect(f") for the ( at character {opening.position + 1}, or an operator", ")")
        self._nesting -= 1
        return inner

    def _is_null(self, left: Node, operator: Word) -> Node:
        negated = self.words.peek().kind == "NOT"
        if negated:
            self.words.take()
        self._expect("NULL" if negated else "NULL or NOT NULL", "NULL")
        test = IsNull(left, operator.position)
        return Not(test, operator.position) if negated else test

    def _comparison(self, left: Node, operator: Word) -> Node:
        negated = operator.kind == "NOT"
        if negated:
            operator = self.words.take()
        match operator.kind:
            case "CONTAINS" | "STARTSWITH" | "ENDSWITH":
                return Match(operator.kind, left, self._string(), negated, operator.position)
            case "BETWEEN":
                return self._between(left, operator, negated)
            case "IN":
                return self._in(left, operator, negated)
        if negated:
            raise SqlError(operator.position, "CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN after NOT", operator.shown())
        right = self._operand()
        _check_ordered(left, operator)
        _check_ordered(right, operator)
        return Order(operator.kind, left, right, operator.position)

    def _between(self, left: Node, operator: Word, negated: bool) -> Node:
        low = self._operand()
        self._expect("AND and the upper bound of BETWEEN", "AND")
        high = self._operand()
        for node in (left, low, high):
            _check_ordered(node, operator)
        # Apache looks at the order of the bounds only where both are plain literals, and not for NOT BETWEEN.
        if not negated and isinstance(low, Constant) and isinstance(high, Constant) and compare_numbers(high, low) < 0:
            raise SqlError(high.position, f"an upper bound that is not below the lower bound {low.value}", str(high.value))
        return Between(left, low, high, negated, operator.position)

    def _in(self, left: Node, operator: Word, negated: bool) -> Node:
        if not isinstance(left, Property):
            raise SqlError(left.position, "a property before IN", _shown(left))
        self._expect("( and the strings of IN", "(")
        values = {self._string()}
        while self._expect(", or ) after a string of IN", ",", ")").kind == ",":
            values.add(self._string())
        return In(left, frozenset(values), negated, operator.position)

    def _string(self) -> str:
        return unquote(self._expect("a string in single quotes", STRING).text)

    def _expect(self, expected: str, *kinds: str) -> Word:
        word = self.words.take()
        if word.kind not in kinds:
            raise SqlError(word.position, expected, word.shown())
        return word


def _join(left: Node, operator: Word, right: Node) -> Node:
    at = operator.position
    if operator.kind in ("AND", "OR"):
        join = And if operator.kind == "AND" else Or
        operands: list[Node] = []
        for node in (_condition(left), _condition(right)):
            operands.extend(node.operands if isinstance(node, join) else (node,))
        return join(tuple(operands), at)
    _check_equal(left, right)
    return Equal(left, right, at) if operator.kind == "=" else Not(Equal(left, right, at), at)


def _condition(node: Node) -> Node:
    """The same where a condition has to stand."""
    if isinstance(node, Property):
        return Truth(node, node.position)
    if isinstance(node, Negate) or (isinstance(node, Constant) and node.kind not in (Kind.BOOLEAN, Kind.NULL)):
        raise SqlError(node.position, "a condition, which is true or false", _shown(node))
    return node


def _check_ordered(node: Node, operator: Word) -> None:
    if isinstance(node, Constant) and node.kind not in NUMBERS:
        raise SqlError(node.position, f"a property or a number to compare with {operator.kind}", _shown(node))
    if kind_of(node) is Kind.BOOLEAN:
        raise SqlError(node.position, f"a property or a number to compare with {operator.kind}", "a condition")


def _check_equal(left: Node, right: Node) -> None:
    for node in (left, right):
        if isinstance(node, Constant) and node.kind is Kind.NULL:
            raise SqlError(node.position, "a value, or IS NULL instead of a comparison with NULL", "NULL")
    literals = isinstance(left, Constant) and isinstance(right, Constant)
    if literals and kind_of(left) is Kind.BOOLEAN and kind_of(right) is not Kind.BOOLEAN:
        raise SqlError(right.position, f"TRUE or FALSE to compare with {_shown(left)}", _shown(right))


def _decimal(word: Word) -> Constant:
    digits = word.text.rstrip("lL")
    value = int(digits) if len(digits) <= 19 else _LONG_MAX + 1
    if value > _LONG_MAX:
        raise SqlError(word.position, f"a whole number of at most {_LONG_MAX}", shorten(word.text))
    return Constant(Kind.INT if value <= _INT_MAX else Kind.LONG, value, word.position)


def _float(word: Word) -> Constant:
    value = float(word.text)
    if not 0 < value < _INFINITY:
        raise SqlError(
            word.position,
            "a floating point number from 4.9E-324 to 1.7976931348623157E308 (zero is written 0)",
            shorten(word.text),
        )
    return Constant(Kind.DOUBLE, value, word.position)


def _shown(node: Node) -> str:
    match node:
        case Property():
            return f"the property {shorten(node.name)}"
        case Constant(kind=Kind.STRING):
            return f"the string {shorten(repr(node.value))}"
        case Constant(kind=Kind.BOOLEAN | Kind.NULL):
            return str(node.value).upper() if node.value is not None else "NULL"
        case Constant():
            return f"the number {node.value}"
        case Negate():
            return "a minus sign"
    return "a condition"
