"""Java's `.properties` syntax, in which Apache RocketMQ writes its configuration files.

- `#` and `!` begin a comment line.
- `=`, `:` or blanks separate key and value.
- A backslash at the end of a line continues the line.
- Escapes are \\t, \\n, \\r, \\f and \\uXXXX.
- The last value of a repeated key wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a file's text. Raise ValueError for a broken escape."""
    table: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _key_end(line)
        value_at = end
        while value_at < len(line) and line[value_at] in " \t\f":
            value_at += 1
        if value_at < len(line) and line[value_at] in "=:":
            value_at += 1
            while value_at < len(line) and line[value_at] in " \t\f":
                value_at += 1
        table[_unescape(line[:end])] = _unescape(line[value_at:])
    return table


def format_properties(table: Mapping[str, str]) -> str:
    """Return `key=value` lines without escapes, as Apache writes them in configuration responses."""
    return "".join(f"{key}={value}\n" for key, value in table.items())


def _logical_lines(text: str) -> Iterable[str]:
    held = ""
    continued = False
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            held += line[:-1]
            continued = True
            continue
        yield held + line
        held, continued = "", False
    if continued:
        yield held


def _key_end(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        char = text[at]
        at += 1
        if char != "u":
            out.append(_ESCAPES.get(char, char))
            continue
        digits = text[at : at + 4]
        if len(digits) != 4 or not all(c in "0123456789abcdefABCDEF" for c in digits):
            raise ValueError(f"\\u must be followed by four hexadecimal digits, not {digits!r}")
        out.append(chr(int(digits, 16)))
        at += 4
    # A character beyond the basic plane is written as two escapes: a surrogate pair.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
