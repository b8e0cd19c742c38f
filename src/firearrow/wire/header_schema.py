"""Declarative custom headers: a class lists its fields; decoder and encoder are generated from the list.

    class PullMessageRequestHeader(Header, code=RequestCode.PULL_MESSAGE):
        consumer_group: str
        queue_id: int
        queue_offset: Long
        expression_type: str | None = None
        bulk: bool = field(default=False, omit_default=True)

A request header carries the code of its request. A request with the same fields and another code is a subclass. Requests without
fields have no class; their `RequestCode` alone is the request.

The wire key is the field's name in camel case unless `key` says otherwise. `short` is the one-letter key of the V2 send header,
used by classes declared with `short_keys=True`. `other` is a second key under which older versions expect the same field.
Types: `str`, `int` (32 bits), `Long` (64 bits), `bool`, each also `| None`. A field with a default may be missing.

Decoding rules
- Strings, numbers and booleans are accepted for every type: clients in loosely typed languages send them raw. A float, a list or
  a map is an error.
- An empty string, null and a missing key mean the same for a field with a default. A required string may be empty (some
  clients send an empty producer group); a required number may not.
- A bool is true exactly when its text in lower case is `true`; `1` is false, as in Apache.
- Unknown keys are ignored.

Encoding rules
- Fields are written in declaration order. None is left out, and so is the default of a field with `omit_default`.
- A field with `other` is written under both keys.

Decoding is on the path of every message, so each class gets its own function, compiled at its first use. It first tries the
case that all values are strings of the right kind and checks many fields with one call. Anything else takes the slow path, field
by field, which also produces the error message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, dataclass_transform

import orjson

from firearrow.wire.codes import RequestCode
from firearrow.wire.errors import HeaderError
from firearrow.wire.frame import text

if TYPE_CHECKING:
    Long = int
else:
    # A class of its own only to distinguish declarations from `int`; values are plain integers.
    class Long(int):
        pass


COMMON_KEYS: Final = frozenset((
    "AccessKey", "OnsChannel", "ReqT", "SecurityToken", "Signature", "__ZONE_MODE", "__ZONE_NAME",
    "bname", "lo", "ns", "nsd", "oway",
))  # fmt: skip
"""Keys that any request may carry besides its own: credentials, kind of client, name of the target broker, zone."""

_MISSING: Final[Any] = object()
_I32_MAX: Final = 0x7FFFFFFF
_I64_MAX: Final = 0x7FFFFFFFFFFFFFFF
_MAX_CACHED_NUMBERS: Final = 4096  # bounds the memory that peers can fill
_EXPECTED: Final = {
    "str": "text",
    "int": "an integer of 32 bits",
    "Long": "an integer of 64 bits",
    "bool": "true or false",
}


@dataclass(slots=True)
class FieldSpec:
    """One declared field, an element of `Header.FIELDS`."""

    key: str = ""
    short: str | None = None
    other: str | None = None
    default: Any = _MISSING
    omit_default: bool = False
    name: str = ""
    kind: str = ""

    @property
    def required(self) -> bool:
        return self.default is _MISSING


def field(
    *, key: str = "", short: str | None = None, other: str | None = None, default: Any = _MISSING, omit_default: bool = False
) -> Any:
    """Declare a field whose wire key is not its name in camel case, that has several keys, or whose default is not sent."""
    return FieldSpec(key, short, other, default, omit_default)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class HeaderType(type):
    """Metaclass that turns the annotations of a header class into slots and a list of fields."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        code: RequestCode | None = None,
        short_keys: bool = False,
    ) -> HeaderType:
        specs = []
        for field_name, annotation in namespace.get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            declared = namespace.pop(field_name, _MISSING)
            spec = declared if isinstance(declared, FieldSpec) else FieldSpec(default=declared)
            spec.name = field_name
            spec.kind = annotation.removesuffix(" | None")
            if spec.kind not in _EXPECTED:
                raise TypeError(f"{name}.{field_name}: unsupported type {annotation}, expected one of {', '.join(_EXPECTED)}")
            spec.key = spec.key or camel(field_name)
            specs.append(spec)
        namespace["__slots__"] = tuple(spec.name for spec in specs)
        inherited: tuple[FieldSpec, ...] = getattr(bases[0], "FIELDS", ()) if bases else ()
        if inherited:  # the functions compiled for the base class must not be inherited
            namespace |= {function: Header.__dict__[function] for function in ("__init__", "decode", "encode")}
        namespace["FIELDS"] = (*inherited, *specs)
        namespace["CODE"] = code
        namespace["SHORT_KEYS"] = short_keys
        return super().__new__(mcs, name, bases, namespace)


class Header(metaclass=HeaderType):
    """Base class of all custom headers.

    The constructor, `decode` and `encode` of a class are compiled when one of them is first called, and replace these.
    """

    FIELDS: ClassVar[tuple[FieldSpec, ...]]
    CODE: ClassVar[RequestCode | None]  # None for a response header
    SHORT_KEYS: ClassVar[bool]

    if not TYPE_CHECKING:  # a type checker derives the constructor from the declaration

        def __init__(self, **values: Any) -> None:
            _compile(type(self))
            type(self).__init__(self, **values)

    @classmethod
    def decode(cls, ext: Mapping[str, Any]) -> Self:
        """Read the declared fields from a command's ext map. Raise HeaderError for the first invalid one."""
        _compile(cls)
        return cls.decode(ext)

    def encode(self) -> dict[str, str]:
        """Return the ext map of this header; all values are text."""
        _compile(type(self))
        return self.encode()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, spec.name) == getattr(other, spec.name) for spec in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]  # headers are mutable

    def __repr__(self) -> str:
        shown = ", ".join(f"{spec.name}={getattr(self, spec.name)!r}" for spec in self.FIELDS)
        return f"{type(self).__name__}({shown})"


Request = Header | RequestCode
"""A request header, or the code of a request without fields."""


def request_code(request: Request) -> int:
    code = request.CODE if isinstance(request, Header) else request
    assert code is not None, "a response header is not a request"
    return int(code)


def request_fields(request: Request) -> dict[str, str]:
    return request.encode() if isinstance(request, Header) else {}


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _compile(cls: Any) -> None:
    specs = cls.FIELDS
    namespace: dict[str, Any] = {
        "cls": cls, "new": object.__new__, "missing": _MISSING, "to_bool": _to_bool, "small": _SMALL, "loads": orjson.loads,
        "defaults": {spec.name: spec.default for spec in specs},
        "slow": _slow_decoder(cls, specs, lambda spec: spec.key),
    }  # fmt: skip
    short = [spec.short for spec in specs if spec.short]
    if short:
        namespace["slow_short"] = _slow_decoder(cls, specs, lambda spec: spec.short or spec.key)
        has_long_keys = f"if {short[0]!r} not in ext and {short[1]!r} not in ext: return decode_long(ext)"
        source = _fast_source("decode", specs, lambda spec: spec.short or spec.key, "slow_short", has_long_keys)
        source += _fast_source("decode_long", specs, lambda spec: spec.key, "slow")
    else:
        source = _fast_source("decode", specs, lambda spec: spec.key, "slow")
    source += _init_source(specs) + _encode_source(specs, cls.SHORT_KEYS)
    # The source consists of declarations of this package only; nothing that a peer sends reaches it.
    exec(compile(source, f"<{cls.__name__}>", "exec"), namespace)
    cls.decode = staticmethod(namespace["decode"])
    cls.encode = namespace["encode"]
    cls.__init__ = namespace["init"]


def _init_source(specs: tuple[FieldSpec, ...]) -> str:
    parameters = ", ".join(spec.name if spec.required else f"{spec.name}=defaults[{spec.name!r}]" for spec in specs)
    return f"def init(self, *, {parameters}):\n" + "".join(f" self.{spec.name} = {spec.name}\n" for spec in specs)


def _encode_source(specs: tuple[FieldSpec, ...], short_keys: bool) -> str:
    lines = ["def encode(self):", " ext = {}"]
    for spec in specs:
        key = spec.short if short_keys and spec.short else spec.key
        target = f"ext[{key!r}] = ext[{spec.other!r}]" if spec.other else f"ext[{key!r}]"
        written = {"str": "value", "bool": "'true' if value else 'false'"}.get(spec.kind, "str(value)")
        sent = f"value is not None and value != {spec.default!r}" if spec.omit_default else "value is not None"
        lines += [f" value = self.{spec.name}", f" if {sent}: {target} = {written}"]
    return "\n".join([*lines, " return ext\n"])


def _fast_source(
    name: str, specs: tuple[FieldSpec, ...], key_of: Callable[[FieldSpec], str], slow: str, first: str = "pass"
) -> str:
    """Generate the usual case as straight-line code: every value a string. Anything else is left to the `slow` function."""
    lines = [f"def {name}(ext):", f" {first}", " try:", "  get = ext.get"]
    joint: dict[str, list[str]] = {"str": [], "Long": []}
    for spec in specs:
        var, key = f"v_{spec.name}", key_of(spec)
        if _is_converted_separately(spec):
            lines.append(f"  {var} = get({key!r})")
            lines += _separate_lines(spec, var, slow)
            continue
        lines.append(f"  {var} = ext[{key!r}]" if spec.required else f"  {var} = get({key!r}, {text(spec.default)!r})")
        if spec.kind == "bool":
            default = "missing" if spec.required else f"defaults[{spec.name!r}]"
            lines.append(f"  {var} = {var} == 'true' or ({var} != 'false' and to_bool({var}, {default}))")
        elif spec.kind == "int":
            lines.append(f"  {var} = small[{var}]")
        else:
            joint[spec.kind].append(var)
    if joint["str"]:
        lines.append(f"  if not ({_classes(joint['str'])} is str): return {slow}(ext)")
    if joint["Long"]:
        lines += _long_lines(joint["Long"], slow)
    lines += [" except (KeyError, ValueError, TypeError, AttributeError):", f"  return {slow}(ext)"]
    lines.append(" header = new(cls)")
    lines += [f" header.{spec.name} = v_{spec.name}" for spec in specs]
    lines.append(" return header\n")
    return "\n".join(lines)


def _classes(variables: list[str]) -> str:
    return " is ".join(f"{var}.__class__" for var in variables)


def _long_lines(variables: list[str], slow: str) -> list[str]:
    if len(variables) == 1:
        (var,) = variables
        return [f"  if not ({var}.isdecimal() and {var}.isascii()) or ({var} := int({var})) > {_I64_MAX}: return {slow}(ext)"]
    # One call parses several numbers as a JSON list. Text that is not a number makes the list longer, adds a value that is not an
    # integer, or is not valid JSON. A sign or an overflow shows in the bitwise OR of all numbers.
    numbers = ",".join("{" + var + "}" for var in variables)
    return [
        f"  {', '.join(variables)} = loads(f'[{numbers}]')",
        f"  if not ({_classes(variables)} is int and 0 <= ({' | '.join(variables)}) <= {_I64_MAX}): return {slow}(ext)",
    ]


def _separate_lines(spec: FieldSpec, var: str, slow: str) -> list[str]:
    """Generate the conversion of a field whose default has no text form. Anything but plain text is left to `slow`."""
    lines = []
    if spec.other:
        lines.append(f"  {var} = {var} if {var} is not None else get({spec.other!r})")
    lines.append(f"  if {var} is {None}: {var} = defaults[{spec.name!r}]")
    if spec.kind == "str":
        lines.append(f"  elif {var}.__class__ is not str or {var} == '': return {slow}(ext)")
    elif spec.kind == "bool":
        lines.append(f"  else: {var} = {var} == 'true' or ({var} != 'false' and to_bool({var}, missing))")
    elif spec.kind == "int":
        lines.append(f"  else: {var} = small[{var}]")
    else:
        digits = f"{var}.__class__ is str and {var}.isdecimal() and {var}.isascii() and len({var}) < 19"
        lines.append(f"  elif {digits}: {var} = int({var})")
        lines.append(f"  else: return {slow}(ext)")
    return lines


class _Small(dict[str, int]):
    """Cache of 32-bit integers by text. Headers repeat few numbers, and a lookup costs a quarter of a conversion."""

    def __missing__(self, value: Any) -> int:
        number = _integer(value)
        if number is None or not -_I32_MAX - 1 <= number <= _I32_MAX:
            raise KeyError(value)
        if value.__class__ is str and len(self) < _MAX_CACHED_NUMBERS:
            self[value] = number
        return number


def _is_converted_separately(spec: FieldSpec) -> bool:
    """Return True if the default has no text form that could take part in a joint check."""
    return not spec.required and (spec.default is None or spec.other is not None or (spec.kind == "str" and spec.default != ""))


def _slow_decoder(
    cls: Any, specs: tuple[FieldSpec, ...], key_of: Callable[[FieldSpec], str]
) -> Callable[[Mapping[str, Any]], Any]:
    name = cls.__name__
    plan = tuple((spec, key_of(spec)) for spec in specs)

    def decode(ext: Mapping[str, Any]) -> Any:
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

    return decode


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
    """Return the integer in `value`, or None. Unlike `int`, accept only a sign, ASCII digits and surrounding spaces."""
    if value.__class__ is int:
        return value
    if value.__class__ is not str or len(value) > 20:
        return None
    value = value.strip(" \t\r\n")
    digits = value[1:] if value[:1] in ("-", "+") else value
    return int(value) if digits.isdecimal() and digits.isascii() else None


_SMALL: Final = _Small((str(number), number) for number in range(-1, 1025))


def _to_bool(value: Any, default: Any) -> Any:
    """Convert a bool field that is neither "true" nor "false". Raise TypeError for values left to the slow decoder."""
    if value is None or value == "":
        if default is _MISSING:
            raise TypeError
        return default
    if value.__class__ is bool or value.__class__ is int:
        return value is True
    if value.__class__ is str:
        return bool(value.lower() == "true")
    raise TypeError
