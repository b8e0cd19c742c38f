"""Lexer of SQL92 filter expressions, and the error that names a position.

    word        form                                                             examples
    keyword     NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH     and, Between
                ENDSWITH, in any case
    ID          [A-Za-z_$][A-Za-z0-9_$]*, not a keyword                          price, $v, _1
    DECIMAL     0, or [1-9][0-9]* and perhaps an L                               0, 15, 15L
    FLOAT       a point or an exponent among ASCII digits                        5.5, 5., .5, 5E10
    STRING      between single quotes; a quote inside is doubled                 'it''s'
    symbol      = <> > >= < <= ( ) , + -

Between words there may be blanks, tabs, line ends, form feeds and comments: /* ... */ and -- up to the end of the line. A "--"
without a following line end is not a comment but two minus signs, as in Apache.

Words are read one at a time, the longest match first (so "05" is 0 and then 5), and only on demand: Apache does not read what
follows a complete condition, not even characters that cannot start a word.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

KEYWORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
ID: Final = "ID"
DECIMAL: Final = "DECIMAL"
FLOAT: Final = "FLOAT"
STRING: Final = "STRING"
END: Final = "END"

_BLANKS: Final = re.compile(r"[ \t\n\r\f]*")
_LINE_COMMENT: Final = re.compile(r"--[^\n\r]*(?:\r\n|\n|\r)")
_WORD: Final = re.compile(
    r"(?P<ID>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<DECIMAL>0|[1-9][0-9]*[lL]?)"
    r"|(?P<STRING>'[^']*(?:''[^']*)*')"
    r"|<>|>=|<=|[=<>(),+\-]"
)
_SHOWN_CHARACTERS: Final = 40
MAX_WORDS: Final = 8192  # a word costs about 2 us; the strings of a long IN are two words each


class SqlError(ValueError):
    """An invalid expression. `position` counts characters from 0; the message counts from 1."""

    def __init__(self, position: int, expected: str, found: str) -> None:
        super().__init__(f"SQL92 expression, character {position + 1}: expected {expected}, found {found}")
        self.position = position
        self.expected = expected
        self.found = found


class Word(NamedTuple):
    kind: str  # a keyword or a symbol as itself (upper case), else ID, DECIMAL, FLOAT, STRING or END
    text: str
    position: int

    def shown(self) -> str:
        """Return the word as shown in an error message."""
        if self.kind == END:
            return "the end of the expression"
        return shorten(self.text)


class Lexer:
    """The words of one expression in order. `peek` returns the next one without consuming it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._next: Word | None = None
        self._words = 0
        # After it "--" is not a comment. Without this, every "--" would search the rest of the text for a line end.
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))

    def peek(self) -> Word:
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Word:
        word = self.peek()
        self._next = None
        return word

    def _read(self) -> Word:
        start = self._skip()
        if start == len(self._text):
            self._at = start
            return Word(END, "", start)
        self._words += 1
        if self._words > MAX_WORDS:
            raise SqlError(start, f"at most {MAX_WORDS} words", "more")
        match = _WORD.match(self._text, start)
        if match is None:
            raise self._unreadable(start)
        self._at = match.end()
        text = match.group()
        kind = match.lastgroup
        if kind is None:
            return Word(text, text, start)
        if kind == ID and (keyword := text.upper()) in KEYWORDS:
            return Word(keyword, text, start)
        return Word(kind, text, start)

    def _skip(self) -> int:
        """Return the start of the next word."""
        text = self._text
        at = self._at
        while True:
            blanks = _BLANKS.match(text, at)
            assert blanks is not None, "the pattern matches nothing, too"
            at = blanks.end()
            if at < self._last_line_end and (comment := _LINE_COMMENT.match(text, at)) is not None:
                at = comment.end()
            elif text.startswith("/*", at):
                end = text.find("*/", at + 2)
                if end < 0:
                    raise SqlError(at, "a comment that is closed with */", "the end of the expression")
                at = end + 2
            else:
                return at

    def _unreadable(self, at: int) -> SqlError:
        character = self._text[at]
        if character == "'":
            return SqlError(at, "a string that is closed with '", shorten(self._text[at:]))
        hint = {
            "!": "<> (not equal is written so)",
            '"': "a string in single quotes, or a property name without quotes",
            "&": "AND (and is written so)",
            "|": "OR (or is written so)",
        }.get(character, "a property, a number, a string in single quotes or an operator")
        return SqlError(at, hint, repr(character))


def shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def unquote(text: str) -> str:
    """Return the value of a STRING word."""
    return text[1:-1].replace("''", "'")
