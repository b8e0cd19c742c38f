"""Declarative JSON bodies: a dataclass lists its fields; decoding and encoding follow from their types.

    @dataclass(slots=True)
    class QueueData(Body):
        broker_name: str
        perm: int = 6
        topic_sys_flag: int = member(other="topicSynFlag", default=0)

The JSON key is the field's name in camel case unless `member(key=...)` says otherwise; `other` is a second key that is accepted.
Types: `str`, `int` (64 bits), `float`, `bool`, another body, `Any`, `list[T]`, `dict[str, T]`, `dict[int, T]`,
`dict[MessageQueue, T]` (a map with object keys), each also `| None`, and `Annotated[str | None, Names(...)]` for an enumeration.

Decoding is as tolerant as clients need. A missing key or null gives the default, and unknown keys are ignored. Numbers and
booleans may be text and vice versa. An enumeration may be a name or an ordinal; unknown values decode to None. Anything else is
a ProtocolError that names the body, the key and the value. Encoding is exact: keys in alphabetical order, None left out, as
Apache's library does it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Self, Union, get_args, get_origin, get_type_hints

import orjson

from firearrow.wire.errors import ProtocolError, shown
from firearrow.wire.fastjson import ObjectMap
from firearrow.wire.frame import text
from firearrow.wire.header_schema import camel

Reader = Callable[[Any], Any]
Writer = Callable[[Any], Any]

_I64: Final = 1 << 63


class Names:
    """Members of an enumeration in the order of their ordinals."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def read(self, value: Any) -> str | None:
        if isinstance(value, str):
            return value if value in self.names else None
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(self.names):
            return self.names[value]
        return None


def member(*, key: str | None = None, other: str | None = None, default: Any = MISSING) -> Any:
    """Declare a field whose JSON key is not its name in camel case, or that has two keys."""
    return field(default=default, metadata={"key": key, "other": other})


class Body:
    """Base class of all JSON bodies. Subclasses are dataclasses."""

    __slots__ = ()
    _plan: ClassVar[tuple[_Member, ...] | None] = None

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Return the body for a parsed JSON value. Raise ProtocolError if the value does not fit."""
        if not isinstance(value, dict):
            raise ProtocolError(f"{cls.__name__} is {shown(value)}, expected an object")
        arguments = {}
        for part in _plan_of(cls):
            raw = value.get(part.key)
            if raw is None and part.other is not None:
                raw = value.get(part.other)
            if raw is None:
                if part.required:
                    raise ProtocolError(f"{cls.__name__}: the key {part.key} is missing")
                continue
            try:
                arguments[part.name] = part.read(raw)
            except _WrongType as wrong:
                raise ProtocolError(f"{cls.__name__}: {part.key} is {shown(raw)}, expected {wrong}") from None
        return cls(**arguments)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON value, with keys in alphabetical order."""
        written = {}
        for part in _plan_of(type(self)):
            value = getattr(self, part.name)
            if value is not None:
                written[part.key] = part.write(value)
        return written


@dataclass(slots=True)
class _Member:
    name: str
    key: str
    other: str | None
    required: bool
    read: Reader
    write: Writer


class EncodedEntries:
    """The JSON texts of the entries of a map, each encoded once. A value that changes is replaced, never modified."""

    def __init__(self, encode: Callable[[str, Any], bytes] | None = None) -> None:
        self._encode = encode or _encode_entry
        self._known: dict[str, tuple[Any, bytes]] = {}

    def texts(self, entries: Mapping[str, Any]) -> list[bytes]:
        """Return `"name":value` of every entry."""
        before, known = self._known, {}
        for name, value in entries.items():
            found = before.get(name)
            known[name] = found if found is not None and found[0] is value else (value, self._encode(name, value))
        self._known = known
        return [text for _, text in known.values()]

    def joined(self, entries: Mapping[str, Any]) -> orjson.Fragment:
        """Return the map as compact JSON."""
        return orjson.Fragment(b"{%b}" % b",".join(self.texts(entries)))


def _encode_entry(name: str, value: Body) -> bytes:
    return orjson.dumps(name) + b":" + orjson.dumps(value.to_json())


class _WrongType(Exception):  # noqa: N818 (internal; callers see a ProtocolError)
    pass


def _plan_of(cls: type[Body]) -> tuple[_Member, ...]:
    plan = cls.__dict__.get("_plan")
    if plan is None:
        plan = cls._plan = _make_plan(cls)
    return plan


def _make_plan(cls: Any) -> tuple[_Member, ...]:
    """Build the plan of a class at its first use, not at import: unused bodies cost nothing."""
    hints = get_type_hints(cls, include_extras=True)
    members = []
    for declared in fields(cls):
        read, write = _codec(hints[declared.name])
        key = declared.metadata.get("key") or camel(declared.name)
        required = declared.default is MISSING and declared.default_factory is MISSING
        members.append(_Member(declared.name, key, declared.metadata.get("other"), required, read, write))
    return tuple(sorted(members, key=lambda part: part.key))


def _codec(hint: Any) -> tuple[Reader, Writer]:
    """Return the functions that decode and encode a value of this type."""
    if get_origin(hint) is Annotated:
        names = next(extra for extra in get_args(hint)[1:] if isinstance(extra, Names))
        return names.read, _same
    if get_origin(hint) in (Union, UnionType):
        inner = [part for part in get_args(hint) if part is not NoneType]
        if len(inner) != 1:
            raise TypeError(f"unsupported field type {hint}")
        return _codec(inner[0])
    if get_origin(hint) is list:
        return _list_codec(get_args(hint)[0])
    if get_origin(hint) is dict:
        return _map_codec(*get_args(hint))
    if hint is Any:
        return _same, _same
    if isinstance(hint, type) and issubclass(hint, Body):
        return hint.from_json, lambda body: body.to_json()
    return _SCALARS[hint], _same


def _list_codec(item: Any) -> tuple[Reader, Writer]:
    read_item, write_item = _codec(item)

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list) or isinstance(value, ObjectMap):
            raise _WrongType("a list")
        return [read_item(entry) for entry in value if entry is not None]

    def write(value: Iterable[Any]) -> list[Any]:
        return [write_item(entry) for entry in value]

    return read, write


def _map_codec(key: Any, item: Any) -> tuple[Reader, Writer]:
    read_item, write_item = _codec(item)
    if isinstance(key, type) and issubclass(key, Body):
        return _object_map_codec(key, read_item, write_item)
    read_key = _integer if key is int else _text

    def read(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _WrongType("a map")
        return {read_key(name): read_item(entry) for name, entry in value.items() if entry is not None}

    def write(value: dict[Any, Any]) -> dict[Any, Any]:
        return {name: write_item(entry) for name, entry in value.items()}

    return read, write


def _object_map_codec(key: type[Body], read_item: Reader, write_item: Writer) -> tuple[Reader, Writer]:
    def read(value: Any) -> dict[Any, Any]:
        if value == {}:
            return {}
        if not isinstance(value, ObjectMap):
            raise _WrongType(f"a map whose keys are objects ({key.__name__})")
        return {key.from_json(name): read_item(entry) for name, entry in value if entry is not None}

    def write(value: dict[Any, Any]) -> ObjectMap:
        return ObjectMap((name.to_json(), write_item(entry)) for name, entry in value.items())

    return read, write


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return text(value)
    raise _WrongType("text")


def _integer(value: Any) -> int:
    number: Any = value
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("-", "+") else value
        number = int(value) if digits.isdecimal() and len(digits) <= 20 else None
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if not isinstance(number, int) or isinstance(number, bool) or not -_I64 <= number < _I64:
        raise _WrongType("an integer of 64 bits")
    return number


def _float(value: Any) -> float:
    number: Any = value
    if isinstance(value, str) and len(value) <= 64:
        try:
            number = float(value)
        except ValueError:
            number = None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or abs(number) > 1e300 or math.isnan(number):
        raise _WrongType("a number")
    return float(number)


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0", ""):
        return value.lower() in ("true", "1")
    if isinstance(value, int) and value in (0, 1):
        return value == 1
    raise _WrongType("true or false")


_SCALARS: Final[dict[Any, Reader]] = {str: _text, int: _integer, float: _float, bool: _bool}
