"""Expressions and messages for the SQL92 filter: what is odd, written down, and much more of it from a seeded generator.

`MESSAGES` are stored property texts. Every expression is tried on every message, so the values are chosen to sit on both sides
of the literals that the generator likes, and on the edges of Java's ways to read a number.
"""

from __future__ import annotations

import random

NAMES = ("a", "b", "c", "price", "TAGS", "$v", "_")
VALUES = (
    *("1", "2", "5", "-3", "+7", "007", "10", "0", "-0", "42"),
    *("1.5", "5.", ".5", "0.0", "-0.0", "1e3", "1E-2", "1.5f", "2d", "5.5", "-1.5"),
    *("NaN", "-NaN", "Infinity", "-Infinity", "inf", "nan", "1e400", "-1e400", "0x1p3", "0X.8P1", "0x10", "1_000"),
    *(" 5", "5 ", "\t5.5\n", "+", "-", ".", "1e", "--1", "\u0663", "\uff11\uff12", "\U0001d7d3", "\u00a05"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9007199254740993"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "000000000000000000000000000012"),
    *("true", "TRUE", "True", "false", "yes", "abc", "ab", "b", "x", "it's", "''", "M\u00fcnchen", "\u65e5\u672c", "a,b", "NULL"),
)


def _stored(properties: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def _messages() -> tuple[str, ...]:
    rng = random.Random(92)
    drawn = [_stored({name: rng.choice(VALUES) for name in rng.sample(NAMES, rng.randint(1, len(NAMES)))}) for _ in range(24)]
    plain = [_stored({"a": value, "b": other}) for value, other in zip(VALUES, ("1", "x", "2", "abc") * 20, strict=False)]
    odd = [
        "",
        "\x02",
        "a\x011",  # without the closing separator, as 4.9 writes it
        "b\x01x\x02a\x015",
        "a\x011\x02a\x015\x02",  # the last one holds
        "a\x015\x02a\x01\x02",  # an empty one does not count
        "a\x01\x02b\x01x\x02",
        "a\x01x\x01y\x02",
        "a\x02b\x011\x02",
        "\x01x\x02a\x011\x02",
        "ba\x011\x02ab\x012\x02",  # neither is a
        "x\x01a\x02b\x011\x02",
        "A\x011\x02B\x01x\x02",
        "TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01AC11000100002A9F0000000000000001\x02WAIT\x01true\x02",
    ]
    return (*odd, *plain, *drawn)


MESSAGES = _messages()

_LINES = """
(c = 1 AND (a = 1) = b) OR TRUE | (c = 1 OR TRUE = b) AND FALSE | (c = 1 AND TRUE = b) IS NULL
a = 1 | a <> 1 | a = 1 b | a = 1 # | a = 1 b # | a = 1 ) | a = 1, b | a like 'x' | a | NOT a | not a = 1 | NOT (a=1) | a = 05
a = 0l | a=1l | a=1L | a = 2147483647 | a = 2147483648 | a=9223372036854775807 | a=9223372036854775808 | a = 00
a = 12345678901234567890123 | a > 0.0 | a > 0e5 | a>0.1 | a > 1e400 | a>1e-400 | a > 4.9e-324 | a > .5 | a > 5. | a > 5.e
a > 1..5 | a = b | a <> b | a > b | a >= b | a < b | a <= b | a > a | a = a | TRUE=a | a=TRUE | a = false | a <> TRUE
TRUE = 5 | 5 = TRUE | 'true'=TRUE | TRUE = 'true' | TRUE=FALSE | TRUE | NULL | FALSE | NULL IS NULL | a IS NULL
a IS NOT NULL | a = NULL | NULL = a | a <> NULL | 1 | 'x' | -a | +a | -a = 1 | -a = b | -a IS NULL | -1 < a | a < -1 | a = -3
a = - -5 | a between 1 and 2 | a between 2 and 1 | a between 1 and 1 | a not between 2 and 1 | a between 'a' and 'b'
a between null and 1 | a between -1 and -5 | a between 1 and 5.5 | a between 1.5 and 1 | a between b and 5 | a between 1 and b
a not between b and 5 | 5 between a and b | 5 not between 1 and a | a between 9007199254740993 and 9007199254740992.0
a between 0 and 2147483648 | a between TRUE and FALSE | TRUE between 1 and 2 | (a=1) between 1 and 2 | a between (b) and (5)
a between -b and 5 | a between 5 and -(b=1) | -(b=1) between 1 and 2 | a in ('1','x') | a not in ('1','x') | (a) in ('1')
+a in ('1') | a in (1) | a in () | a in '1' | 1 in ('1') | '1' in ('1') | -a in ('1') | NOT a in ('1') | (NOT a) in ('1')
a in ('1') in ('2') | a in ('1','2','5','x','abc','it''s') | a not in ('1','2','5','x','abc','it''s') | a in ('x',)
a in ('x' 'y') | a in ('' ) | a in ('1' | a contains '1' | a not contains '1' | a contains '' | a not contains ''
5 contains '5' | 'abc' contains 'b' | 'abc' not contains 'b' | (a=1) contains 'x' | (a=1) contains '' | -(a=1) contains 'x'
-1 not contains 'x' | NULL contains 'x' | a contains b | a contains 1 | a startswith '1' | a not startswith '1'
a endswith '5' | a not endswith '5' | a endswith '' | a contains 'x' contains 'y' | a contains 'x' = TRUE | a contains 'x' > 1
a in ('x') > 1 | a is null > 1 | 1 < a contains 'x' | a = 'x' | 'x' = a | 'x' <> a | a = '''' | a = 'it''s'
a = 'M\u00fcnchen' | a contains '\u672c' | a -- c | a /* c */ is null | a /* c * / ** x */ is null | a is not | a is 1
a is null is null | a is not null is null | a is null = b is null | a = 1 = TRUE | a = 1 = b | a = (b = 2) | (b=2)=a
(b=2) = (a=1) | a > 1 > 2 | (a) > 1 | (a > 1) > 2 | a > -(b=2) | -(b=2) > a | -a > b | a > -b | a > NULL | a > TRUE | a > 'x'
'1' > a | NULL < 1 | 5 > 3 | a > +1 | a > --1 | a > -1.5 | 1.5 <= a | 5 >= a | 2147483648 > a | a=1 or b = 2 | b=2 or a=1
a==1 | a!=1 | a<>'1' | '' | a = 1 and | and | () | (a=1 | a=1)) | ((a=1)) | (a) | ((((a)))) is null | a IS | a not | a not x
a not null | a is not null not in ('x') | a between 1 | a between 1 and | a between 1 and 2 and b = 2 | a between 1 or 2
not not a = 1 | not not a is null | not null | not null is null | not true = false | not (a = 1 and b = 'x')
not (a = 1 or b = 'x') | not 1 | not 'x' | not -a | $v is null | _ is null | a.b is null | "a" is null | a = . | a= 1.e5
a = 1.5f | a = 0x10 | a = 1e5 | a = 1e+5 | a = 1e+ | a = 1e | -(a=1) | -(a=1) is null | -'x' is null | -true is null
-null is null | +null is null | +true | + + true | +'x'='x' | 1=1 | 1=1.0 | 1=2 | 1<>2 | 1='1' | '1'=1 | 1='x' | 'x' = 1
'1.5' = 1.5 | 'NaN' = 1.5 | 1.0=1 | 5000000000=5 | 9007199254740993 = 9007199254740992.0 | 1 < 2 | 2147483647 < 2147483648
'a'='a' | 'a'='b' | a = 1 AND TRUE | 1 OR TRUE | TRUE OR 1 | a OR TRUE | a AND NULL OR TRUE | a = 1 OR TRUE | TRUE OR a = 1
FALSE AND a = 1 | NULL AND a = 1 | NULL OR a = 1 | a=1 AND FALSE | a IS NULL OR a > 1 | a IS NOT NULL AND a > 1
(c AND a = 1) OR TRUE | (c OR a = 1) AND FALSE | NOT ((c AND a = 1) OR b = 1) | NOT (c OR a = 1) | NOT (c AND a = 1)
(NOT c AND a = 1) IS NULL | (c = 1 OR a = 1) IS NULL | (a = 1) = (b = 1) | (a = 1) <> (b = 1) | (a IS NULL) = TRUE
(a = 1) = 1 | 1 = (a = 1) | 'true' = (a = 1) | (a = 1) = 'true' | TAGS IS NOT NULL | tags IS NULL | A = 1
price > 1 AND price < 100 AND price <> 42 | a=1AND b=1 | a=1or b=1 | a IN('1')AND TRUE | nota = 1 | a isnull | a is nullx
andy = 1 | a = TRUEx | BETWEEN = 1 | a = contains | in in ('x') | a => 1 | a =< 1 | a >< 1 | a < > 1 | a < = 1
a = 1 AND AND b = 1 | a = 1 OR AND b = 1 | (a = 1 AND) b = 1 | a = 1 AND (b = 1 | a b = 1 | a 1 | 1 a | a (b) | a = 1 (b)
( a = 1 ) b IS
"""

WRITTEN = (
    *(text.strip(" ") for text in _LINES.replace("\n", "|").split("|")),
    "",
    " ",
    "\t\r\n\fa = 1\n",
    "a -- c\nIS NULL",
    "a -- c\r\nIS NULL",
    "a -- c\rIS NULL",
    "a IS NULL -- no end",
    "a IS NULL --",
    "a = --1\n5",
    "-- nothing\n",
    "--\na = 1",
    "a IS NULL /* open",
    "a IS NULL /*/",
    "/**/a IS NULL/***/",
    "a /* -- */ IS NULL",
    "a = '/* no comment */'",
    "a = '-- no comment\n'",
    "a = '\n'",
    "a = '\t5.5\n'",
    "'a",
    "a IS NULL 'a",
    "a IS NULL x 'a",
    "a = 'x''",
    "a = 'x'''",
    "\x0ba IS NULL",
    "\u00a0a IS NULL",
    "a\u0131 IS NULL",
    "\u212a IS NULL",
    "\u0130n = 1",
    "a IS NULL\ufffd",
    "a IS NULL\x00",
    "m\u00fcnchen = 1",
    "a = '\U0001d7d3'",
    "a CONTAINS '\U0001d7d3'",
    "a || b",
    "a && b",
    "a = 1; b = 2",
    "a = 1 * 2",
    "a % 2 = 1",
    "[a] = 1",
    "a = ?",
    "(" * 300 + "a = 1" + ")" * 300,
    "NOT " * 50 + "a IS NULL",
    "a" + " = a" * 30,
    "a" + " IS NULL" * 30,
    " OR ".join(f"a = '{number}'" for number in range(300)),
    "a IN (" + ", ".join(f"'{number}'" for number in range(300)) + ")",
)


def generated(seed: int, count: int) -> list[str]:
    """Expressions, most of them right; the others have a word too many, too few or in the wrong place."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        words = _Words(rng).condition(rng.randint(0, 4))
        if rng.random() < 0.2:
            _damage(rng, words)
        made.append(_spaced(rng, words))
    return made


class _Words:
    """Draws the words of one expression. Two of three keep to what may be compared with what, so that long ones compile, too."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._wild = rng.random() < 0.33

    def condition(self, depth: int) -> list[str]:
        pick = self._rng.random
        if depth == 0:
            return self._test(0)
        if pick() < 0.55:
            joined = self.condition(depth - 1)
            for _ in range(self._rng.randint(1, 2)):
                joined += [self._keyword(self._rng.choice(("AND", "OR"))), *self.condition(depth - 1)]
            return joined if pick() < 0.4 else ["(", *joined, ")"]
        if pick() < 0.3:
            return [self._keyword("NOT"), "(", *self.condition(depth - 1), ")"]
        return self._test(depth - 1)

    def _test(self, depth: int) -> list[str]:
        rng = self._rng
        negation = [self._keyword("NOT")] if rng.random() < 0.35 else []
        draw = rng.random()
        if draw < 0.25:
            return [*self._operand(depth), rng.choice(("=", "<>")), *self._operand(depth)]
        if draw < 0.5:
            left, right = [rng.choice(NAMES)], self._number()
            if rng.random() < 0.3:
                left, right = right, left
            if rng.random() < 0.3:
                left, right = self._ordered(depth), self._ordered(depth)
            return [*left, rng.choice((">", ">=", "<", "<=")), *right]
        if draw < 0.62:
            bounds = [self._number(), self._number()] if rng.random() < 0.7 else [self._ordered(depth), self._ordered(depth)]
            bounds.sort(key=_rough)
            subject = [rng.choice(NAMES)] if rng.random() < 0.8 else self._ordered(depth)
            return [*subject, *negation, self._keyword("BETWEEN"), *bounds[0], self._keyword("AND"), *bounds[1]]
        if draw < 0.72:
            strings = [self._string() for _ in range(rng.randint(1, 7))]
            listed = [word for string in strings for word in (string, ",")][:-1]
            subject = self._subject(depth) if self._wild else [rng.choice(NAMES)]
            return [*subject, *negation, self._keyword("IN"), "(", *listed, ")"]
        if draw < 0.85:
            how = rng.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
            return [*self._subject(depth), *negation, self._keyword(how), self._string()]
        if draw < 0.97:
            return [*self._subject(depth), self._keyword("IS"), *negation, self._keyword("NULL")]
        return [rng.choice((*NAMES, self._keyword("TRUE"), self._keyword("FALSE"), self._keyword("NULL")))]

    def _subject(self, depth: int) -> list[str]:
        return [self._rng.choice(NAMES)] if self._rng.random() < 0.85 else self._operand(depth)

    def _ordered(self, depth: int) -> list[str]:
        """Operands of < and BETWEEN."""
        draw = self._rng.random()
        if self._wild:
            return self._operand(depth)
        if draw < 0.5:
            return [self._rng.choice(NAMES)]
        if draw < 0.8:
            return self._number()
        return ["-", *self._operand(depth)]

    def _operand(self, depth: int) -> list[str]:
        draw = self._rng.random()
        if draw < 0.45:
            return [self._rng.choice(NAMES)]
        if draw < 0.65:
            return self._number()
        if draw < 0.8:
            return [self._string()]
        if draw < 0.87:
            return [self._keyword(self._rng.choice(("TRUE", "FALSE")))]
        if draw < 0.92:
            return [self._rng.choice("+-"), *self._operand(depth)]
        return ["(", *self.condition(max(depth - 1, 0)), ")"]

    def _number(self) -> list[str]:
        whole = ("0", "1", "2", "5", "7", "10", "42", "3L", "2147483647", "2147483648", "9007199254740993", "9223372036854775807")
        broken = ("1.5", ".5", "5.", "1e3", "5.5", "0.01", "9007199254740992.0")
        sign = ["-"] if self._rng.random() < 0.15 else []
        return [*sign, self._rng.choice(whole if self._rng.random() < 0.7 else broken)]

    def _string(self) -> str:
        return "'" + self._rng.choice((*VALUES, "")).replace("'", "''") + "'"

    def _keyword(self, word: str) -> str:
        return self._rng.choice((word, word, word.lower(), word.capitalize()))


def _rough(words: list[str]) -> float:
    """Puts most bounds in order, so that most BETWEENs are accepted."""
    try:
        return float("".join(words).rstrip("L"))
    except ValueError:
        return 0.0


def _damage(rng: random.Random, words: list[str]) -> None:
    at = rng.randrange(len(words))
    draw = rng.random()
    if draw < 0.35:
        del words[at]
    elif draw < 0.6:
        junk = (
            "(",
            ")",
            ",",
            "=",
            "<>",
            "-",
            "+",
            "NOT",
            "AND",
            "OR",
            "IS",
            "NULL",
            "5",
            "'x'",
            "a",
            "#",
            "'",
            "0.0",
            "--",
            "/*",
        )
        words.insert(at, rng.choice(junk))
    elif draw < 0.8:
        words.insert(at, words[at])
    else:
        other = rng.randrange(len(words))
        words[at], words[other] = words[other], words[at]


def _spaced(rng: random.Random, words: list[str]) -> str:
    """Blanks where they are needed, and here and there a comment or a line end."""
    parts = []
    for word in words:
        draw = rng.random()
        parts.append(" " if draw < 0.94 else "\n" if draw < 0.97 else " /* c */ " if draw < 0.985 else " -- c\n")
        parts.append(word)
    return "".join(parts).strip(" ")
