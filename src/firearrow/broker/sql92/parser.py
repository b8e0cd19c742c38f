"""Parser of SQL92 filter expressions, with Apache's grammar and type rules.

    condition  := and (OR and)*
    and        := equality (AND equality)*
    equality   := comparison ( (= | <>) comparison | IS [NOT] NULL )*
    comparison := operand ( (> | >= | < | <=) operand | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string
                          | [NOT] BETWEEN operand AND operand | [NOT] IN (string, ...) )*
    operand    := (+ | - | NOT)* ( literal | property | ( condition ) )

NOT is a prefix like the signs and binds tighter than any comparison: `NOT a = 1` is `(NOT a) = 1`. Text after a complete
condition is not read (see `parse`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from firearrow.broker.sql92 import ast
from firearrow.broker.sql92.lexer import STRING, Lexer, SqlError, Word, shorten, unquote

MAX_CHARACTERS: Final = 65536
MAX_DEPTH: Final = 60  # of nested conditions; consecutive ANDs, parenthesised or not, are one level, and so are ORs
MAX_OPERANDS: Final = 640  # properties and literals; the strings of IN and CONTAINS do not count

# Precedence of operators. An opening parenthesis is the weakest; only its closing one completes it.
_OPENING = _NONE = 0
_OR, _AND, _EQUALITY, _COMPARISON, _PREFIX = 1, 2, 3, 4, 5
_STRENGTHS: Final = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("=", "<>", "IS"), _EQUALITY),
    **dict.fromkeys((">", ">=", "<", "<=", "CONTAINS", "STARTSWITH", "ENDSWITH", "BETWEEN", "IN", "NOT"), _COMPARISON),
}
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_INFINITY: Final = float("inf")


def parse(text: str) -> tuple[ast.Node, int]:
    """Parse the condition at the start of the text. Return it with the position of the next word, or the length of the text.

    Apache ignores everything from that word on, but it must be a valid word. Raises SqlError.
    """
    if len(text) > MAX_CHARACTERS:
        raise SqlError(MAX_CHARACTERS, f"at most {MAX_CHARACTERS} characters", f"{len(text)}")
    parser = _Parser(Lexer(text))
    root = _condition(parser.condition())
    rest = parser.words.peek()
    for depth, node in ast.walk(root):
        if depth > MAX_DEPTH:
            raise _too_deep(node.position)
    return root, rest.position


def _too_deep(position: int) -> SqlError:
    return SqlError(position, f"conditions nested at most {MAX_DEPTH} deep", "deeper ones")


@dataclass(slots=True)
class _Pending:
    """An operator that waits for its operand: a prefix, an opening parenthesis, a binary operator, BETWEEN."""

    word: Word
    strength: int
    left: ast.Node | None = None
    low: ast.Node | None = None  # lower bound of BETWEEN
    negated: bool = False


class _Parser:
    """Operator-precedence parser with an explicit stack instead of recursion, so that depth costs memory only."""

    def __init__(self, words: Lexer) -> None:
        self.words = words
        self._pending: list[_Pending] = []
        self._prefixes = 0  # pending minus signs and NOTs; each is a level of the tree
        self.operands = 0

    def condition(self) -> ast.Node:
        """Return the longest condition at the start of the words."""
        complete = None
        while complete is None:
            complete = self._after_operand(self._operand())
        return complete

    def _operand(self) -> ast.Node:
        """Return the next property or literal, after pushing the prefixes and parentheses before it."""
        while (word := self.words.take()).kind in ("+", "-", "NOT", "("):
            if word.kind == "(":
                self._pending.append(_Pending(word, _OPENING))
            elif word.kind != "+":  # a plus sign has no effect
                self._pending.append(_Pending(word, _PREFIX))
                self._prefixes += 1
                if self._prefixes > MAX_DEPTH:
                    raise _too_deep(word.position)
        self.operands += 1
        if self.operands > MAX_OPERANDS:
            raise SqlError(word.position, f"at most {MAX_OPERANDS} properties and literals", "more")
        match word.kind:
            case "ID":
                return ast.Property(word.text, word.position)
            case "STRING":
                return ast.Constant(ast.Kind.STRING, unquote(word.text), word.position)
            case "DECIMAL":
                return _decimal(word)
            case "FLOAT":
                return _float(word)
            case "TRUE" | "FALSE":
                return ast.Constant(ast.Kind.BOOLEAN, word.kind == "TRUE", word.position)
            case "NULL":
                return ast.Constant(ast.Kind.NULL, None, word.position)
        raise SqlError(word.position, "a property, a literal or (", word.shown())

    def _after_operand(self, node: ast.Node) -> ast.Node | None:
        """Continue after an operand. Return the condition if it is complete, None if an operator needs another operand."""
        # The result of an operator is not an operand of a stronger one: after IS NULL no CONTAINS can follow.
        strongest = _COMPARISON
        while True:
            node = self._complete(node, _PREFIX)
            if self._pending and self._pending[-1].word.kind == "BETWEEN":
                if self._pending[-1].low is None:
                    self._expect("AND and the upper bound of BETWEEN", "AND")
                    self._pending[-1].low = node
                    return None
                node = _between(self._pending.pop(), node)
                strongest = _COMPARISON
                continue
            strength = _STRENGTHS.get(self.words.peek().kind, _NONE)
            if strength > strongest:
                strength = _NONE
            node = self._complete(node, max(strength, _OR))
            if strength != _NONE:
                strongest = strength
                applied = self._operator(node, strength)
                if applied is None:
                    return None
                node = applied
            elif self._pending:
                opening = self._pending.pop().word
                self._expect(f") for the ( at character {opening.position + 1}, or an operator", ")")
                strongest = _COMPARISON
            else:
                return node

    def _complete(self, node: ast.Node, weakest: int) -> ast.Node:
        """Apply pending operators with at least the precedence `weakest` to their operand."""
        while self._pending and self._pending[-1].strength >= weakest:
            operator = self._pending.pop()
            self._prefixes -= operator.strength == _PREFIX
            node = _applied(operator, node)
        return node

    def _operator(self, left: ast.Node, strength: int) -> ast.Node | None:
        """Read an operator. Return its result if its operands are only strings; otherwise it becomes pending."""
        word = self.words.take()
        negated = word.kind == "NOT"
        if negated:
            word = self.words.take()
        match word.kind:
            case "IS":
                return self._is_null(left, word)
            case "CONTAINS" | "STARTSWITH" | "ENDSWITH":
                return ast.Match(word.kind, left, self._string(), negated, word.position)
            case "IN":
                return self._in(left, word, negated)
            case "BETWEEN":
                self._pending.append(_Pending(word, _OPENING, left, negated=negated))
                return None
        if negated:
            raise SqlError(word.position, "CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN after NOT", word.shown())
        self._pending.append(_Pending(word, strength, left))
        return None

    def _is_null(self, left: ast.Node, operator: Word) -> ast.Node:
        negated = self.words.peek().kind == "NOT"
        if negated:
            self.words.take()
        self._expect("NULL" if negated else "NULL or NOT NULL", "NULL")
        test = ast.IsNull(left, operator.position)
        return ast.Not(test, operator.position) if negated else test

    def _in(self, left: ast.Node, operator: Word, negated: bool) -> ast.Node:
        if not isinstance(left, ast.Property):
            raise SqlError(left.position, "a property before IN", _shown(left))
        self._expect("( and the strings of IN", "(")
        values = {self._string()}
        while self._expect(", or ) after a string of IN", ",", ")").kind == ",":
            values.add(self._string())
        return ast.In(left, frozenset(values), negated, operator.position)

    def _string(self) -> str:
        return unquote(self._expect("a string in single quotes", STRING).text)

    def _expect(self, expected: str, *kinds: str) -> Word:
        word = self.words.take()
        if word.kind not in kinds:
            raise SqlError(word.position, expected, word.shown())
        return word


def _applied(pending: _Pending, operand: ast.Node) -> ast.Node:
    """Return the node of a prefix or binary operator with its last operand."""
    word, left = pending.word, pending.left
    at = word.position
    if left is None:
        return ast.Negate(operand, at) if word.kind == "-" else ast.Not(_condition(operand), at)
    if word.kind in ("AND", "OR"):
        return _joined(ast.And if word.kind == "AND" else ast.Or, left, operand, at)
    if word.kind in ("=", "<>"):
        _check_equal(left, operand)
        return ast.Equal(left, operand, at) if word.kind == "=" else ast.Not(ast.Equal(left, operand, at), at)
    _check_ordered(left, word)
    _check_ordered(operand, word)
    return ast.Order(word.kind, left, operand, at)


def _joined(join: type[ast.And] | type[ast.Or], left: ast.Node, right: ast.Node, at: int) -> ast.Node:
    operands: list[ast.Node] = []
    for node in (_condition(left), _condition(right)):
        operands.extend(node.operands if isinstance(node, join) else (node,))
    return join(tuple(operands), at)


def _between(pending: _Pending, high: ast.Node) -> ast.Node:
    subject, low = pending.left, pending.low
    assert subject is not None
    assert low is not None
    for node in (subject, low, high):
        _check_ordered(node, pending.word)
    # Apache checks the order of the bounds only if both are plain literals, and not for NOT BETWEEN.
    literals = isinstance(low, ast.Constant) and isinstance(high, ast.Constant)
    if literals and not pending.negated and ast.compare_numbers(high, low) < 0:
        raise SqlError(
            high.position, f"an upper bound that is not below the lower bound {ast.number_of(low)}", str(ast.number_of(high))
        )
    return ast.Between(subject, low, high, pending.negated, pending.word.position)


def _condition(node: ast.Node) -> ast.Node:
    """Return the node for a position that requires a condition."""
    if isinstance(node, ast.Property):
        return ast.Truth(node, node.position)
    if isinstance(node, ast.Negate) or (isinstance(node, ast.Constant) and node.kind not in (ast.Kind.BOOLEAN, ast.Kind.NULL)):
        raise SqlError(node.position, "a condition, which is true or false", _shown(node))
    return node


def _check_ordered(node: ast.Node, operator: Word) -> None:
    if isinstance(node, ast.Constant) and node.kind not in ast.NUMBERS:
        raise SqlError(node.position, f"a property or a number to compare with {operator.kind}", _shown(node))
    if ast.kind_of(node) is ast.Kind.BOOLEAN:
        raise SqlError(node.position, f"a property or a number to compare with {operator.kind}", "a condition")


def _check_equal(left: ast.Node, right: ast.Node) -> None:
    for node in (left, right):
        if isinstance(node, ast.Constant) and node.kind is ast.Kind.NULL:
            raise SqlError(node.position, "a value, or IS NULL instead of a comparison with NULL", "NULL")
    literals = isinstance(left, ast.Constant) and isinstance(right, ast.Constant)
    if literals and ast.kind_of(left) is ast.Kind.BOOLEAN and ast.kind_of(right) is not ast.Kind.BOOLEAN:
        raise SqlError(right.position, f"TRUE or FALSE to compare with {_shown(left)}", _shown(right))


def _decimal(word: Word) -> ast.Constant:
    digits = word.text.rstrip("lL")
    value = int(digits) if len(digits) <= 19 else _LONG_MAX + 1
    if value > _LONG_MAX:
        raise SqlError(word.position, f"a whole number of at most {_LONG_MAX}", shorten(word.text))
    return ast.Constant(ast.Kind.INT if value <= _INT_MAX else ast.Kind.LONG, value, word.position)


def _float(word: Word) -> ast.Constant:
    value = float(word.text)
    if not 0 < value < _INFINITY:
        raise SqlError(
            word.position,
            "a floating point number from 4.9E-324 to 1.7976931348623157E308 (zero is written 0)",
            shorten(word.text),
        )
    return ast.Constant(ast.Kind.DOUBLE, value, word.position)


def _shown(node: ast.Node) -> str:
    match node:
        case ast.Property():
            return f"the property {shorten(node.name)}"
        case ast.Constant(kind=ast.Kind.STRING):
            return f"the string {shorten(repr(node.value))}"
        case ast.Constant(kind=ast.Kind.BOOLEAN | ast.Kind.NULL):
            return str(node.value).upper() if node.value is not None else "NULL"
        case ast.Constant():
            return f"the number {node.value}"
        case ast.Negate():
            return "a minus sign"
    return "a condition"
