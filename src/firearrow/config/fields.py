"""Declared settings: typed, validated, with the key names of Apache RocketMQ.

A settings class is an ordinary (mutable) dataclass whose fields are declared with `setting(...)`:

    @dataclass
    class StoreSettings:
        file_reserved_time: int = setting(72, "hours to keep commit-log files", low=1, high=24 * 365, runtime=True)
        flush_disk_type: str = setting("SYNC_FLUSH", "when a message counts as stored", choices=("SYNC_FLUSH", "ASYNC_FLUSH"))

The key in a properties file is the field's name in camelCase (`fileReservedTime`). Irregular spellings (`brokerIP1`) come from
the list of Apache's keys or from `key=`. The annotation is the type: int, float, bool, str, Secret, an Enum, each also `| None`.
Fields declared without `setting` are not settings. A Secret is read but never shown.

Rules
- A value that cannot be parsed or is out of range raises a SettingError that names the key, the value and the allowed values.
  No setting is changed then.
- Keys that Apache knows and Firearrow has no use for (thread pools) are accepted. Unknown keys produce a warning with the
  nearest known name.
- At run time only settings declared with `runtime=True` can change, all settings of a request or none (`change`).
- A settings class may have a method `check()` that raises SettingError when its fields contradict each other.
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
from firearrow.config.secret import MASK, Secret

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
) -> Any:
    """Declare a dataclass field that is a setting. `runtime` settings can change while running."""
    declaration = {"key": key, "help": help_text, "low": low, "high": high, "choices": choices, "runtime": runtime}
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
    help: str

    @property
    def expected(self) -> str:
        """Describe the allowed values."""
        if self.choices is not None:
            return "one of " + ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind is str or self.kind is Secret:
            return "text"
        noun = "a whole number" if self.kind is int else "a number"
        if self.low is not None and self.high is not None:
            return f"{noun} from {self.low} to {self.high}"
        if self.low is not None:
            return f"{noun} of {self.low} or more"
        return f"{noun} of {self.high} or less" if self.high is not None else noun

    def parse(self, text: str) -> Any:
        """Return the value of `text`. Raise SettingError if it is not allowed."""
        text = text.strip()
        if self.optional and text in ("", "null"):
            return None
        if self.choices is not None:
            if text not in self.choices:
                raise SettingError(self.key, text, self.expected)
            return self.kind(text)
        if self.kind is Secret:
            return Secret(text)
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
        if self.kind is Secret:
            return MASK
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value.value) if isinstance(value, Enum) else str(value)

    def _parse_number(self, text: str) -> int | float:
        try:
            # int() also accepts underscores and non-ASCII digits, which a Java long does not have.
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
    """Return the settings of a settings class by key, in declaration order."""
    hints = typing.get_type_hints(cls)
    return {s.key: s for s in (_declaration(f, hints[f.name]) for f in dataclasses.fields(cls) if "setting" in f.metadata)}


def apply(targets: Iterable[Any], values: Mapping[str, str]) -> list[str]:
    """Assign `values` (key -> text) to the settings objects that declare them, all or none. Return warnings."""
    targets = list(targets)
    owners = _owners(targets)
    warnings: list[str] = []
    changes: list[tuple[Any, str, Any]] = []
    for key, text in values.items():
        for target, declaration in owners.get(key, ()):
            changes.append((target, declaration.attribute, declaration.parse(text)))
        if key not in owners and key not in APACHE_KEYS:
            warnings.append(f"setting {key} is unknown and has no effect{_nearest(key, owners)}")
    _assign(targets, changes)
    return warnings


def change(targets: Iterable[Any], values: Mapping[str, str]) -> None:
    """Change settings of a running process, all or none. Raise SettingError for an unknown or fixed key or a bad value."""
    targets = list(targets)
    owners = _owners(targets)
    changes: list[tuple[Any, str, Any]] = []
    for key, text in values.items():
        if key not in owners:
            raise SettingError(key, text, f"the name of a known setting{_nearest(key, owners)}")
        for target, declaration in owners[key]:
            if not declaration.runtime:
                shown = MASK if declaration.kind is Secret else text
                raise SettingError(key, shown, "no change while running: set it in the configuration file and restart")
            changes.append((target, declaration.attribute, declaration.parse(text)))
    _assign(targets, changes)


def as_properties(targets: Iterable[Any]) -> dict[str, str]:
    """Return the current values as key -> text, sorted by key."""
    table: dict[str, str] = {}
    for target in targets:
        for key, declaration in declared(target.__class__).items():
            table[key] = declaration.format(getattr(target, declaration.attribute))
    return dict(sorted(table.items()))


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
    assert choices is not None or kind in (int, float, bool, str, Secret), (
        f"setting {field.name}: type {kind} cannot be read from text"
    )
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
