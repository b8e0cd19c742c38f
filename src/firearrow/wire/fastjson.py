"""JSON in the dialect of Apache's library, which is not always valid JSON.

Beyond the standard there are maps with integer keys, written bare (`{0:"a"}`), and maps whose keys are objects
(`{{"queueId":0}:12}`). Both are read and written here; the reader also takes single quotes and trailing commas, as Apache's own
does.

    integer key    becomes a str key: {0:1} and {"0":1} read the same
    object key     the whole map becomes an `ObjectMap`, a list of (key, value) pairs

`loads` gives a value or a ProtocolError for any bytes at all. Standard JSON is read by orjson; only what that refuses is read by
the slower reader below, which is limited in depth. It takes about 1 us per character, so servers limit the size of requests that
need it.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from firearrow.wire.errors import ProtocolError

MAX_DEPTH: Final = 64
MAX_TOLERANT_REQUEST: Final = 32 * 1024  # bytes of a request's body that is not standard JSON
MAX_TOLERANT: Final = 64 * 1024 * 1024
_MAX_DIGITS: Final = 400  # of a number; no double needs more, and int() of more would cost


class ObjectMap(list[tuple[dict[str, Any], Any]]):
    """A map whose keys are objects, in order."""


def loads(text: bytes | bytearray | memoryview | str, *, max_tolerant_bytes: int = MAX_TOLERANT) -> Any:
    """Parse a text, which must not be longer than `max_tolerant_bytes` unless it is standard JSON."""
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
        if len(text) > max_tolerant_bytes:
            limit = f"and with {len(text)} bytes too long for Apache's dialect (at most {max_tolerant_bytes})"
            raise ProtocolError(f"text that is not standard JSON ({error}), {limit}") from None
        if isinstance(text, str):
            source = text
        else:
            try:
                source = bytes(text).decode()
            except UnicodeDecodeError:
                raise ProtocolError(f"text that is neither JSON nor UTF-8: {error}") from None
        return _Reader(source).whole()


def loads_object(text: bytes | bytearray | memoryview | str) -> dict[str, Any]:
    """Parse a body that must be one object with text keys."""
    value = loads(text)
    if not isinstance(value, dict):
        raise ProtocolError(f"a body that holds a {type(value).__name__}, expected a JSON object")
    return value


def dumps(value: Any, *, bare_int_keys: bool = False) -> bytes:
    """Compact text, keys in their order. With `bare_int_keys`, int keys have no quotes; text keys keep theirs, even digits."""
    if not bare_int_keys and not _has_object_keys(value):
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    return _text(value, bare_int_keys).encode()


def dumps_pretty(value: Any) -> bytes:
    """The style of Apache's configuration files: tabs, one entry a line, no space after a colon, integer keys bare."""
    return _text(value, True, "\n").encode()


# ---- writing


def _has_object_keys(value: Any) -> bool:
    if isinstance(value, ObjectMap):
        return True
    if isinstance(value, dict):
        return any(_has_object_keys(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_object_keys(item) for item in value)
    return False


def _text(value: Any, bare: bool, newline: str = "") -> str:
    """Encode a value. `newline` precedes every entry, one tab deeper at each level; without it the text is compact."""
    if isinstance(value, dict):
        entries = [(_key(key, bare) + ":", item) for key, item in value.items()]
    elif isinstance(value, ObjectMap):
        entries = [(_text(key, bare) + ":", item) for key, item in value]
    elif isinstance(value, (list, tuple)) and not all(item.__class__ is int for item in value):
        entries = [("", item) for item in value]
    else:
        return orjson.dumps(value).decode()  # a list of numbers stays on one line
    opening, closing = "[]" if isinstance(value, (list, tuple)) and not isinstance(value, ObjectMap) else "{}"
    deeper = newline and newline + "\t"
    texts = [f"{deeper}{key}{_text(item, bare, deeper)}" for key, item in entries]
    return f"{opening}{','.join(texts)}{newline if texts else ''}{closing}"


def _key(key: Any, bare: bool) -> str:
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key) if bare else f'"{key}"'
    if not isinstance(key, str):
        raise TypeError(f"a map key {key!r}, expected text or an integer")
    return orjson.dumps(key).decode()


# ---- reading what orjson refuses

_SPACE = re.compile(r"[ \t\r\n]*").match
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?").match
_PLAIN = {'"': re.compile(r'[^"\\]*').match, "'": re.compile(r"[^'\\]*").match}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}").match
_ESCAPES: Final = {
    '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
}  # fmt: skip
_WORDS: Final[dict[str, tuple[str, bool | None]]] = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


class _Reader:
    """A recursive reader over one text; `at` is how far it has come."""

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def whole(self) -> Any:
        value = self._value(0)
        if self._peek():
            raise self._fault("more text after the value")
        return value

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._fault(f"nesting deeper than {MAX_DEPTH}")
        first = self._peek()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first == '"' or first == "'":
            return self._string(first)
        if first in _WORDS:
            word, value = _WORDS[first]
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        return self._number()

    def _object(self, depth: int) -> Any:
        self.at += 1
        entries: dict[str, Any] = {}
        pairs = ObjectMap()
        while (first := self._peek()) != "}":
            if first == "{":
                key = self._object(depth + 1) if depth < MAX_DEPTH else self._value(depth + 1)
                if not isinstance(key, dict):
                    raise self._fault("a map key that itself has object keys")
                self._expect(":")
                pairs.append((key, self._value(depth + 1)))
            else:
                name = self._string(first) if first in _PLAIN else str(self._number())
                self._expect(":")
                entries[name] = self._value(depth + 1)
            follows = self._peek()
            if follows == ",":
                self.at += 1
            elif follows != "}":
                raise self._fault("no comma or closing brace after a map entry")
        self.at += 1
        if pairs and entries:
            raise self._fault("a map with both text keys and object keys")
        return pairs or entries

    def _array(self, depth: int) -> list[Any]:
        self.at += 1
        items = []
        while self._peek() != "]":
            items.append(self._value(depth + 1))
            follows = self._peek()
            if follows == ",":
                self.at += 1
            elif follows != "]":
                raise self._fault("no comma or closing bracket after a list item")
        self.at += 1
        return items

    def _string(self, quote: str) -> str:
        parts = []
        self.at += 1
        plain = _PLAIN[quote]
        while True:
            run = plain(self.text, self.at)
            assert run is not None, "the pattern matches the empty string"
            parts.append(run.group())
            self.at = run.end() + 1
            if self.at > len(self.text):
                raise self._fault("text without its closing quote")
            if self.text[self.at - 1] == quote:
                return self._joined(parts)
            parts.append(self._escape())

    def _joined(self, parts: list[str]) -> str:
        """Escaped surrogates come in pairs; joining them needs a round through UTF-16, and a lone one is an error."""
        joined = "".join(parts)
        try:
            return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise self._fault("half a surrogate pair") from None

    def _escape(self) -> str:
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        if letter == "u":
            digits = _HEX4(self.text, self.at)
            if digits is None:
                raise self._fault("an escape without four hex digits")
            self.at += 4
            return chr(int(digits.group(), 16))
        if letter not in _ESCAPES:
            raise self._fault(f"an unknown escape {letter!r}")
        return _ESCAPES[letter]

    def _number(self) -> int | float:
        found = _NUMBER(self.text, self.at)
        if found is None:
            raise self._fault("no value")
        digits = found.group()
        if len(digits) > _MAX_DIGITS:
            raise self._fault(f"a number of {len(digits)} digits")
        self.at = found.end()
        if found.lastindex is None:  # neither a fraction nor an exponent
            return int(digits)
        number = float(digits)
        if number in (float("inf"), float("-inf")):
            raise self._fault("a number beyond every double")
        return number

    def _peek(self) -> str:
        """The next character that is not a space, without taking it; empty at the end."""
        first = self.text[self.at : self.at + 1]
        if first > " ":  # the usual case, without a search
            return first
        space = _SPACE(self.text, self.at)
        assert space is not None, "the pattern matches the empty string"
        self.at = space.end()
        return self.text[self.at : self.at + 1]

    def _expect(self, char: str) -> None:
        if self._peek() != char:
            raise self._fault(f"no {char!r}")
        self.at += 1

    def _fault(self, what: str) -> ProtocolError:
        return ProtocolError(f"invalid JSON: {what} at character {self.at} of {len(self.text)}")
