"""SQL92 filter expressions such as `price > 5 AND region = 'EU'`, with the semantics of Apache RocketMQ.

    compiled = compile_expression("price > 5 AND region = 'EU'")     SqlError if it cannot be used
    compiled.matches(b"price\\x0112\\x02region\\x01EU\\x02")             the stored properties of a message -> True

An expression is compiled once. That takes a millisecond, and some tens at the limits of parser.py and lexer.py. Evaluating a
message costs about a microsecond, mostly for finding the properties.

A property is a string, or null if it is absent or empty. A message is selected if the expression is true, not if it is false or
null, and not if its evaluation fails.

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

The evaluation fails for text that cannot be converted to the number beside it, and for TRUE = property.

Apache ignores everything after a complete condition: `a = 1 b = 2` selects by `a = 1`. Firearrow does the same, since existing
clients may depend on it; `Filter.unread` is the ignored text, for a warning.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from firearrow.broker.sql92.ast import walk
from firearrow.broker.sql92.compiler import Matches, compile_tree
from firearrow.broker.sql92.lexer import SqlError
from firearrow.broker.sql92.parser import MAX_CHARACTERS, parse

__all__ = ["MAX_CHARACTERS", "Filter", "SqlError", "compile_expression"]


@dataclass(frozen=True, slots=True)
class Filter:
    expression: str
    matches: Matches  # a plain function in a field, so that a call is one call
    unread: str  # ignored text after the condition; usually ""
    size: int  # nodes of the syntax tree, to which the cost of an evaluation is proportional


class FilterCache:
    """The compiled filters used last, up to a total size. Every pull and every heartbeat of a consumer repeats its expression."""

    def __init__(self, max_size: int) -> None:
        self.size = 0
        self._max_size = max_size
        self._filters: OrderedDict[str, Filter] = OrderedDict()

    def compiled(self, text: str) -> Filter:
        """Return the filter of an expression. Raises SqlError."""
        found = self._filters.get(text)
        if found is not None:
            self._filters.move_to_end(text)
            return found
        root, end = parse(text)
        found = Filter(text, compile_tree(root), text[end:], sum(1 for _ in walk(root)))
        self._filters[text] = found
        self.size += found.size
        while self.size > self._max_size:
            self.size -= self._filters.popitem(last=False)[1].size
        return found


_MAX_CACHED = 100_000  # nodes of syntax trees; the compiled code of one takes about 450 bytes
compile_expression = FilterCache(_MAX_CACHED).compiled
