"""SQL92 filters: which messages a subscription such as `price > 5 AND region = 'EU'` selects, as Apache RocketMQ decides it.

    compiled = compile_expression("price > 5 AND region = 'EU'")     SqlError if it cannot be used
    compiled.matches(b"price\\x0112\\x02region\\x01EU\\x02")             the stored properties of a message -> True

An expression is compiled once (a millisecond); a message then costs about a microsecond, mostly for finding the properties that
the expression names. The grammar is in sql92_parser, the words in sql92_lexer, the reading of numbers in sql92_values.

A property is a string, or null when the message does not have it (an empty value is none). A message is selected when the
expression is true, not when it is false or null, and not when looking at it fails.

    AND, OR, NOT        three-valued; AND stops at a false part and OR at a true one, left to right
    a property alone    null if absent, else false: a string is not TRUE (`flag = TRUE` compares)
    a = b               left null: null, or true when the right is null too; right null: false. A string beside a number is read
                        as a number of that literal's size (int, long, double), beside TRUE or FALSE as a boolean
    a <> b              NOT (a = b): a message without the property is not selected
    > >= < <=           numbers; either side null: null; two properties are compared as doubles
    BETWEEN l AND h     >= l AND <= h; NOT BETWEEN: < l OR > h
    IN ('x', ...)       only strings, only of a property; null if absent, also for NOT IN
    CONTAINS,           false if absent or if the string is empty, also for NOT CONTAINS and so on
    STARTSWITH, ENDSWITH
    IS NULL             never null itself
    -x                  null unless x is a number

Text that cannot be read as the number beside it makes looking fail, and so does TRUE = property.

Apache reads a condition and never looks at what follows it: `a = 1 b = 2` selects by `a = 1`. We do the same, since clients in
use may depend on it; `Filter.unread` is that text, for a warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from firearrow.broker.sql92.compiler import Matches, compile_tree
from firearrow.broker.sql92.lexer import SqlError
from firearrow.broker.sql92.parser import MAX_CHARACTERS, parse

__all__ = ["MAX_CHARACTERS", "Filter", "SqlError", "compile_expression"]


@dataclass(frozen=True, slots=True)
class Filter:
    expression: str
    matches: Matches  # a plain function in a field, so that a call is one call
    unread: str  # what stands behind the condition and is ignored; usually ""


@lru_cache(maxsize=128)  # every heartbeat of every consumer brings its expressions again
def compile_expression(text: str) -> Filter:
    """The filter that an expression stands for. Raises SqlError."""
    root, end = parse(text)
    return Filter(text, compile_tree(root), text[end:])
