"""Custom headers by declaration: a class lists its fields, the decoder and the encoder are made from the list.

    class PullMessageRequestHeader(Header):
        consumer_group: str
        queue_id: int
        queue_offset: Long
        subscription: str | None = None
        is_force: bool = field(key="isForce", default=False)

The wire key is the field's name in camel case unless `key` says otherwise; `short` is the one-letter key of the V2 send
header; `other` is a second key under which older versions send the same field. Types: `str`, `int` (32 bits), `Long`
(64 bits), `bool`, each also `| None`. A field with a default may be missing.

How a value is read
- Strings, numbers and booleans are all taken: clients in loosely typed languages send them raw. A float, a list or a map is
  an error for every type.
- An empty string, null and a missing key are the same for a field with a default. A required string may be empty (some
  clients send an empty producer group); a required number may not.
- A bool is true exactly when its text in lower case is `true`; `1` is false, as in Apache.
- Unknown keys are ignored.

Decoding is on the path of every message, so each class gets its own function, compiled at its first use. It first tries the
case that all values are strings of the right kind, checking many fields with one call; whatever is out of the ordinary goes
through the careful way, field by field, which also words the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, dataclass_transform

import orjson

from firearrow.wire.errors import HeaderError
from firearrow.wire.frame import text

if TYPE_CHECKING:
    Long = int
else:
    # Its own class only so that a declaration can be told from `int`; values are plain integers.
    class Long(int):
        pass


COMMON_KEYS: Final = frozenset((
    "AccessKey", "OnsChannel", "ReqT", "SecurityToken", "Signature", "__ZONE_MODE", "__ZONE_NAME",
    "bname", "lo", "ns", "nsd", "oway",
))  # fmt: skip
"""Keys that any request may carry beside its own: credentials, the kind of client, the target broker's name, the zone."""

_MISSING: Final[Any] = object()
_I32_MAX: Final = 0x7FFFFFFF
_I64_MAX: Final = 0x7FFFFFFFFFFFFFFF
_MAX_REMEMBERED: Final = 4096  # numbers, so that nobody can fill the memory with them
_EXPECTED: Final = {
    "str": "text",
    "int": "an integer of 32 bits",
    "Long": "an integer of 64 bits",
    "bool": "true or false",
}


class FieldSpec:
    """One declared field, as `Header.FIELDS` shows it."""

    __slots__ = ("default", "key", "kind", "name", "other", "short")

    def __init__(self, key: str | None, short: str | None, other: str | None, default: Any) -> None:
        self.name = ""
        self.kind = ""
        self.key = key or ""
        self.short = short
        self.other = other
        self.default = default

    @property
    def required(self) -> bool:
        return self.default is _MISSING


def field(*, key: str | None = None, short: str | None = None, other: str | None = None, default: Any = _MISSING) -> Any:
    """Declares a field whose wire key is not its name in camel case, or that has more than one."""
    return FieldSpec(key, short, other, default)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class HeaderType(type):
    """Turns the annotations of a class into slots and a list of fields."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> HeaderType:
        specs = []
        for field_name, annotation in namespace.get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            declared = namespace.pop(field_name, _MISSING)
            spec = declared if isinstance(declared, FieldSpec) else FieldSpec(None, None, None, declared)
            spec.name = field_name
            spec.kind = annotation.removesuffix(" | None")
            if spec.kind not in _EXPECTED:
                raise TypeError(f"{name}.{field_name}: the type {annotation} is none of {', '.join(_EXPECTED)}")
            spec.key = spec.key or _camel(field_name)
            specs.append(spec)
        namespace["__slots__"] = tuple(spec.name for spec in specs)
        namespace["FIELDS"] = tuple(specs)
        return super().__new__(mcs, name, bases, namespace)


class Header(metaclass=HeaderType):
    """The base of every custom header; a class without fields is a header that carries none.

    The constructor, `decode` and `encode` of a class are compiled when one of them is first called, and take the place of these.
    """

    FIELDS: ClassVar[tuple[FieldSpec, ...]] = ()

    if not TYPE_CHECKING:  # a type checker derives the constructor from the declaration

        def __init__(self, **values: Any) -> None:
            if self.FIELDS:
                _compile(type(self), self.FIELDS)
                type(self).__init__(self, **values)
            elif values:
                raise TypeError(f"{type(self).__name__} has no fields, given were {', '.join(values)}")

    @classmethod
    def decode(cls, ext: Mapping[str, Any]) -> Self:
        """Reads the declared fields out of a command's ext map. Raises HeaderError for the first one that is wrong."""
        if not cls.FIELDS:
            return cls()
        _compile(cls, cls.FIELDS)
        return cls.decode(ext)

    def encode(self) -> dict[str, str]:
        """The ext map of this header: text only, nothing for None."""
        return {spec.key: text(value) for spec in self.FIELDS if (value := getattr(self, spec.name)) is not None}

    def encode_short(self) -> dict[str, str]:
        """The same under the one-letter keys, for the V2 send header."""
        values = ((spec.short or spec.key, getattr(self, spec.name)) for spec in self.FIELDS)
        return {key: text(value) for key, value in values if value is not None}

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, spec.name) == getattr(other, spec.name) for spec in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]  # headers are mutable: equality, but no place in a set

    def __repr__(self) -> str:
        shown = ", ".join(f"{spec.name}={getattr(self, spec.name)!r}" for spec in self.FIELDS)
        return f"{type(self).__name__}({shown})"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _compile(cls: Any, specs: tuple[FieldSpec, ...]) -> None:
    namespace: dict[str, Any] = {
        "cls": cls, "new": object.__new__, "missing": _MISSING, "truth": _truth, "small": _SMALL, "loads": orjson.loads,
        "defaults": {spec.name: spec.default for spec in specs},
        "careful": _careful_decoder(cls, specs, lambda spec: spec.key),
    }  # fmt: skip
    short = [spec.short for spec in specs if spec.short]
    if short:
        namespace["careful_short"] = _careful_decoder(cls, specs, lambda spec: spec.short or spec.key)
        unlike = f"if {short[0]!r} not in ext and {short[1]!r} not in ext: return decode_long(ext)"
        source = _fast_source("decode", specs, lambda spec: spec.short or spec.key, "careful_short", unlike)
        source += _fast_source("decode_long", specs, lambda spec: spec.key, "careful")
    else:
        source = _fast_source("decode", specs, lambda spec: spec.key, "careful")
    source += _init_source(specs) + _encode_source(specs)
    # The text is made of the declarations of this package only; nothing a peer sends comes near it.
    exec(compile(source, f"<{cls.__name__}>", "exec"), namespace)
    cls.decode = staticmethod(namespace["decode"])
    cls.encode = namespace["encode"]
    cls.__init__ = namespace["init"]


def _init_source(specs: tuple[FieldSpec, ...]) -> str:
    parameters = ", ".join(spec.name if spec.required else f"{spec.name}=defaults[{spec.name!r}]" for spec in specs)
    return f"def init(self, *, {parameters}):\n" + "".join(f"    self.{spec.name} = {spec.name}\n" for spec in specs)


def _encode_source(specs: tuple[FieldSpec, ...]) -> str:
    lines = ["def encode(self):", " ext = {}"]
    for spec in specs:
        written = {"str": "value", "bool": "'true' if value else 'false'"}.get(spec.kind, "str(value)")
        lines += [f" value = self.{spec.name}", f" if value is not None: ext[{spec.key!r}] = {written}"]
    return "\n".join([*lines, " return ext\n"])


def _fast_source(
    name: str,
    specs: tuple[FieldSpec, ...],
    key_of: Callable[[FieldSpec], str],
    careful: str,
    first: str = "pass",
) -> str:
    """The usual case in straight-line code: every value a string. Any surprise leads to the `careful` function."""
    lines = [f"def {name}(ext):", f" {first}", " try:", "  get = ext.get"]
    joint: dict[str, list[str]] = {"str": [], "Long": []}
    for spec in specs:
        var, key = f"v_{spec.name}", key_of(spec)
        alone = _stands_alone(spec)
        if alone:
            lines.append(f"  {var} = get({key!r})")
        elif spec.required:
            lines.append(f"  {var} = ext[{key!r}]")
        else:
            lines.append(f"  {var} = get({key!r}, {text(spec.default)!r})")
        if alone:
            lines += _alone_lines(spec, var, careful)
        elif spec.kind == "bool":
            default = "missing" if spec.required else f"defaults[{spec.name!r}]"
            lines.append(f"  {var} = {var} == 'true' or ({var} != 'false' and truth({var}, {default}))")
        elif spec.kind == "int":
            lines.append(f"  {var} = small[{var}]")
        else:
            joint[spec.kind].append(var)
    if joint["str"]:
        lines.append(f"  if not ({_classes(joint['str'])} is str): return {careful}(ext)")
    if joint["Long"]:
        lines += _long_lines(joint["Long"], careful)
    lines += [" except (KeyError, ValueError, TypeError, AttributeError):", f"  return {careful}(ext)"]
    lines.append(" header = new(cls)")
    lines += [f" header.{spec.name} = v_{spec.name}" for spec in specs]
    lines.append(" return header\n")
    return "\n".join(lines)


def _classes(variables: list[str]) -> str:
    return " is ".join(f"{var}.__class__" for var in variables)


def _long_lines(variables: list[str], careful: str) -> list[str]:
    if len(variables) == 1:
        (var,) = variables
        return [f"  if not ({var}.isdecimal() and {var}.isascii()) or ({var} := int({var})) > {_I64_MAX}: return {careful}(ext)"]
    # Several numbers are parsed by one call as a JSON list. A text that is no number makes the list longer, or puts something
    # else than an integer into it, or makes it no JSON; a sign or too large a number shows in the bits of all of them together.
    numbers = ",".join("{" + var + "}" for var in variables)
    return [
        f"  {', '.join(variables)} = loads(f'[{numbers}]')",
        f"  if not ({_classes(variables)} is int and 0 <= ({' | '.join(variables)}) <= {_I64_MAX}): return {careful}(ext)",
    ]


def _alone_lines(spec: FieldSpec, var: str, careful: str) -> list[str]:
    """A field whose default no text stands for: a missing one takes the default, anything but plain text is for `careful`."""
    lines = []
    if spec.other:
        lines.append(f"  if {var} is None: {var} = get({spec.other!r})")
    lines.append(f"  if {var} is None: {var} = defaults[{spec.name!r}]")
    if spec.kind == "str":
        lines.append(f"  elif {var}.__class__ is not str or {var} == '': return {careful}(ext)")
    elif spec.kind == "bool":
        lines.append(f"  else: {var} = {var} == 'true' or ({var} != 'false' and truth({var}, missing))")
    elif spec.kind == "int":
        lines.append(f"  else: {var} = small[{var}]")
    else:
        digits = f"{var}.__class__ is str and {var}.isdecimal() and {var}.isascii() and len({var}) < 19"
        lines.append(f"  elif {digits}: {var} = int({var})")
        lines.append(f"  else: return {careful}(ext)")
    return lines


class _Small(dict[str, int]):
    """Text to integer of 32 bits. A header repeats the same few numbers, and looking one up costs a quarter of converting it."""

    def __missing__(self, value: Any) -> int:
        number = _integer(value)
        if number is None or not -_I32_MAX - 1 <= number <= _I32_MAX:
            raise KeyError(value)
        if value.__class__ is str and len(self) < _MAX_REMEMBERED:
            self[value] = number
        return number


def _stands_alone(spec: FieldSpec) -> bool:
    """Whether the fast path converts this field by itself: no text stands for its default in a joint check."""
    return not spec.required and (spec.default is None or spec.other is not None or (spec.kind == "str" and spec.default != ""))


def _careful_decoder(
    cls: Any, specs: tuple[FieldSpec, ...], key_of: Callable[[FieldSpec], str]
) -> Callable[[Mapping[str, Any]], Any]:
    name = cls.__name__
    plan = tuple((spec, key_of(spec)) for spec in specs)

    def careful(ext: Mapping[str, Any]) -> Any:
        header = object.__new__(cls)
        for spec, key in plan:
            value = ext.get(key)
            if spec.other is not None and (value is None or value == ""):
                value = ext.get(spec.other)
            if value is None or (value == "" and not (spec.required and spec.kind == "str")):
                if spec.required:
                    raise HeaderError(name, key, value, _EXPECTED[spec.kind])
                value = spec.default
            else:
                value = _convert(name, key, spec.kind, value)
            setattr(header, spec.name, value)
        return header

    return careful


def _convert(header: str, key: str, kind: str, value: Any) -> Any:
    if value.__class__ not in (str, int, bool):
        raise HeaderError(header, key, value, _EXPECTED[kind])
    if kind == "str":
        return text(value)
    if kind == "bool":
        return text(value).lower() == "true"
    number = _integer(value)
    limit = _I32_MAX if kind == "int" else _I64_MAX
    if number is None or not -limit - 1 <= number <= limit:
        raise HeaderError(header, key, value, _EXPECTED[kind])
    return number


def _integer(value: Any) -> int | None:
    """The number behind a value: an optional sign and decimal digits, space around them, nothing of what `int` takes besides."""
    if value.__class__ is int:
        return value
    if value.__class__ is not str or len(value) > 20:
        return None
    value = value.strip(" \t\r\n")
    digits = value[1:] if value[:1] in ("-", "+") else value
    return int(value) if digits.isdecimal() and digits.isascii() else None


_SMALL: Final = _Small((str(number), number) for number in range(-1, 1025))


def _truth(value: Any, default: Any) -> Any:
    """A bool field that holds neither of the usual texts. Raises TypeError where only the careful decoder may judge."""
    if value is None or value == "":
        if default is _MISSING:
            raise TypeError
        return default
    if value.__class__ is bool or value.__class__ is int:
        return value is True
    if value.__class__ is str:
        return bool(value.lower() == "true")
    raise TypeError
