"""Declared settings, and reading them from Apache RocketMQ's property files.

A settings class is an ordinary (mutable) dataclass whose fields are made with `setting(...)`:

    @dataclass
    class StoreSettings:
        file_reserved_time: int = setting(72, "hours to keep commit-log files", low=1, high=24 * 365, runtime=True)
        flush_disk_type: str = setting("SYNC_FLUSH", "when a message counts as stored", choices=("SYNC_FLUSH", "ASYNC_FLUSH"))

The key in a property file is Apache's: the field's name in camelCase (`fileReservedTime`); irregular spellings (`brokerIP1`) come
from the list of Apache's keys or from `key=`. The annotation is the type: int, float, bool, str, an Enum, or one of these or
None. A field made without `setting` is no setting.

Rules
- A value that cannot be parsed, or is out of range, is a SettingError naming key, value and what is allowed; nothing is changed.
- A key that Apache knows and we have no use for (thread pools) is accepted. One that nobody knows is a warning with the nearest
  known name.
- At run time only settings declared with `runtime=True` change, all of a request or none (`change`).
- A settings class may have a method `check()` that raises SettingError when its fields do not fit each other.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

from firearrow.config.apache_keys import APACHE_KEYS

_INT_RANGE = (-(2**63), 2**63 - 1)


class SettingError(ValueError):
    """A setting's value is not acceptable."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        super().__init__(f"setting {key}={value}: expected {expected}")
        self.key = key
        self.value = value
        self.expected = expected


def setting(
    default: Any,
    help_text: str = "",
    *,
    key: str | None = None,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] | None = None,
    runtime: bool = False,
    secret: bool = False,
) -> Any:
    """A dataclass field that is a setting. `runtime`: may be changed while running. `secret`: never shown."""
    declaration = {
        "key": key, "help": help_text, "low": low, "high": high, "choices": choices, "runtime": runtime, "secret": secret
    }  # fmt: skip
    return dataclasses.field(default=default, metadata={"setting": declaration})


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting."""

    key: str
    attribute: str
    kind: type
    optional: bool
    default: Any
    low: float | None
    high: float | None
    choices: tuple[str, ...] | None
    runtime: bool
    secret: bool
    help: str

    @property
    def expected(self) -> str:
        """What values are allowed, in words."""
        if self.choices is not None:
            return "one of " + ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "a text"
        what = "a whole number" if self.kind is int else "a number"
        if self.low is not None and self.high is not None:
            return f"{what} from {self.low} to {self.high}"
        if self.low is not None:
            return f"{what} of {self.low} or more"
        return f"{what} of {self.high} or less" if self.high is not None else what

    def parse(self, text: str) -> Any:
        """The value of `text`, or SettingError."""
        text = text.strip()
        if self.optional and text in ("", "null"):
            return None
        if self.choices is not None:
            if text not in self.choices:
                raise SettingError(self.key, text, self.expected)
            return self.kind(text)
        if self.kind is str:
            return text
        if self.kind is bool:
            if text.lower() not in ("true", "false"):
                raise SettingError(self.key, text, self.expected)
            return text.lower() == "true"
        return self._parse_number(text)

    def format(self, value: Any) -> str:
        if value is None:
            return ""
        if self.secret:
            return "******"
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value.value) if isinstance(value, Enum) else str(value)

    def _parse_number(self, text: str) -> int | float:
        try:
            # A Java long has no underscores and no digits other than ASCII's; int() would take both.
            value = self.kind(text) if text.isascii() and "_" not in text else None
        except ValueError:
            value = None
        if value is None or value != value:
            raise SettingError(self.key, text, self.expected)
        low = _INT_RANGE[0] if self.low is None else self.low
        high = _INT_RANGE[1] if self.high is None else self.high
        if not low <= value <= high:
            raise SettingError(self.key, text, self.expected)
        return typing.cast("int | float", value)


@lru_cache(maxsize=64)
def declared(cls: type) -> dict[str, Setting]:
    """The settings of a settings class by key, in the order they are declared."""
    hints = typing.get_type_hints(cls)
    return {s.key: s for s in (_declaration(f, hints[f.name]) for f in dataclasses.fields(cls) if "setting" in f.metadata)}


# Keys that somebody sets to be protected: to ignore them in silence would be worse than an unknown key.
PROTECTING = frozenset(("aclEnable", "authenticationEnabled", "authorizationEnabled"))
_PROTECT = "listen on loopback only, or keep strangers away by other means"


def apply(targets: Iterable[Any], values: Mapping[str, str]) -> list[str]:
    """Puts `values` (key -> text) into the settings objects that declare them; returns warnings. All or nothing."""
    targets = list(targets)
    owners = _owners(targets)
    warnings: list[str] = []
    changes: list[tuple[Any, str, Any]] = []
    for key, text in values.items():
        for target, declaration in owners.get(key, ()):
            changes.append((target, declaration.attribute, declaration.parse(text)))
        if key not in owners and key not in APACHE_KEYS:
            warnings.append(f"setting {key} is not known and has no effect{_nearest(key, owners)}")
        elif key not in owners and key in PROTECTING and text.strip().lower() == "true":
            warnings.append(f"setting {key}=true has no effect: this version does not authenticate; {_PROTECT}")
    _assign(targets, changes)
    return warnings


def change(targets: Iterable[Any], values: Mapping[str, str]) -> None:
    """Changes settings of a running process: SettingError for a key that is unknown or fixed, or a bad value. All or nothing."""
    targets = list(targets)
    owners = _owners(targets)
    changes: list[tuple[Any, str, Any]] = []
    for key, text in values.items():
        if key not in owners:
            raise SettingError(key, text, f"the name of a known setting{_nearest(key, owners)}")
        for target, declaration in owners[key]:
            if not declaration.runtime:
                raise SettingError(key, text, "no change while running: set it in the configuration file and restart")
            changes.append((target, declaration.attribute, declaration.parse(text)))
    _assign(targets, changes)


def as_properties(targets: Iterable[Any]) -> dict[str, str]:
    """The values in force as key -> text, keys sorted."""
    table: dict[str, str] = {}
    for target in targets:
        for key, declaration in declared(target.__class__).items():
            table[key] = declaration.format(getattr(target, declaration.attribute))
    return dict(sorted(table.items()))


def read_properties(text: str) -> dict[str, str]:
    """Parses Java's .properties syntax: `#`/`!` comments; `=`, `:` or blanks between key and value; a backslash at the end of a
    line continues it; escapes of tab, newline, return, form feed, and four hexadecimal digits after `u`. A key that comes twice
    has its last value. ValueError for a broken escape."""
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
    """`key=value` lines as Apache's configuration answers have them (no escapes: they are for people and for `parse by =`)."""
    return "".join(f"{key}={value}\n" for key, value in table.items())


def _declaration(field: dataclasses.Field[Any], hint: Any) -> Setting:
    given = field.metadata["setting"]
    kind, optional = hint, False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(hint) if part is not type(None)]
        assert len(parts) == 1, f"setting {field.name}: one type, or one type and None"
        kind, optional = parts[0], True
    choices = given["choices"]
    if choices is None and isinstance(kind, type) and issubclass(kind, Enum):
        choices = [str(member.value) for member in kind]
    assert choices is not None or kind in (int, float, bool, str), f"setting {field.name}: type {kind} cannot be read from text"
    return Setting(
        key=given["key"] or _camel_case(field.name),
        attribute=field.name,
        kind=kind,
        optional=optional,
        default=field.default,
        low=given["low"],
        high=given["high"],
        choices=tuple(choices) if choices is not None else None,
        runtime=given["runtime"],
        secret=given["secret"],
        help=given["help"],
    )


def _owners(targets: list[Any]) -> dict[str, list[tuple[Any, Setting]]]:
    owners: dict[str, list[tuple[Any, Setting]]] = {}
    for target in targets:
        for key, declaration in declared(target.__class__).items():
            owners.setdefault(key, []).append((target, declaration))
    return owners


def _assign(targets: list[Any], changes: list[tuple[Any, str, Any]]) -> None:
    before = [(target, attribute, getattr(target, attribute)) for target, attribute, _ in changes]
    for target, attribute, value in changes:
        setattr(target, attribute, value)
    try:
        for target in targets:
            check = getattr(target, "check", None)
            if check is not None:
                check()
    except SettingError:
        for target, attribute, value in before:
            setattr(target, attribute, value)
        raise


def _nearest(key: str, known: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


@lru_cache(maxsize=1)
def _apache_spelling() -> dict[str, str]:
    return {key.lower(): key for key in APACHE_KEYS}


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    regular = first + "".join(part.capitalize() for part in rest)
    return _apache_spelling().get(regular.lower(), regular)


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
    # A character beyond the basic plane is written as two escapes, a surrogate pair.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
