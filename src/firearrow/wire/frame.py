"""Frames and commands, the outermost layer of the remoting protocol.

One connection carries frames in both directions, each a request or a response (all integers big-endian):

    offset  size  field
    0       4     length      of everything after this field: 4 + H + B
    4       4     header word top byte: 0 JSON header, 1 binary header; low 24 bits: H
    8       H     header
    8+H     B     body        opaque here; B = 0 is the same as no body

A JSON header is one object: `code`, `extFields` (the command's own fields), `flag` (bit 0: response, bit 1: one-way request),
`language`, `opaque` (pairs a response with its request), `remark`, `version`. We write the keys in alphabetical order without
spaces, as Apache does, and every ext value as a string: the Go client rejects the whole frame otherwise. Clients in other
languages send numbers, booleans, empty strings and null; `Command.ext` holds them unchanged and `Header.decode` converts them.
A binary header:

    2 code   1 language   2 version   4 opaque   4 flag   4 R, R remark   4 E, E ext: (2 K, K key, 4 V, V value)*

Invariants
- `feed` yields the same commands for the same bytes however they are split, and costs O(bytes) over any number of pieces.
- Lengths are checked when the first eight bytes of a frame have arrived, before memory is allocated for it.
- After a `ProtocolError` the decoder stays broken: the next frame cannot be found.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson

from firearrow.wire.accelerated import native
from firearrow.wire.codes import LANGUAGE_CODES, LANGUAGES, OTHER_LANGUAGE, TRUNCATED_CODES, VERSION
from firearrow.wire.errors import ProtocolError, shown

MAX_FRAME: Final = 16 * 1024 * 1024  # with its length field
MAX_HEADER: Final = 512 * 1024
MAX_EXT_FIELDS: Final = 256

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

ExtValue = str | int | bool

_BINARY_TYPE: Final = 1
_MAX_LENGTH: Final = MAX_FRAME - 4
_WORDS: Final = struct.Struct(">ii")
_words_at = _WORDS.unpack_from
pack_lengths = _WORDS.pack  # (4 + H + B, H) in front of a JSON header
# Packing is the cheapest way to check that three values are integers of 32 bits: one call, and no exception when they are.
_check_i32 = struct.Struct("3i").pack
_BINARY_HEAD: Final = struct.Struct(">hbhii")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_loads = orjson.loads
_dumps = orjson.dumps


class Command:
    """A decoded frame. `ext` values are as the peer sent them (str, int, float, bool, None, even lists): see `Header.decode`.

    Language, version and remark are rarely used, so the decoder leaves these slots empty and fills them from the parsed header on
    first access. Invalid values are tolerated: an unknown language is OTHER. A command with a natively decoded `header`
    (accelerated.py) keeps only the JSON text and fills `ext` on first access, too.
    """

    __slots__ = (
        "_fields",
        "_json",
        "binary",
        "body",
        "caller",
        "code",
        "ext",
        "flag",
        "header",
        "language",
        "opaque",
        "remark",
        "version",
    )

    _fields: dict[str, Any]
    _json: bytes
    caller: Any  # the authenticated sender; assigned by a server with access control, never decoded
    header: Any  # the decoded `ext`, or None if it has not been decoded
    language: str
    version: int
    remark: str | None

    def __init__(
        self,
        code: int,
        opaque: int = 0,
        flag: int = 0,
        language: str = "JAVA",
        version: int = VERSION,
        remark: str | None = None,
        ext: dict[str, Any] | None = None,
        body: bytes = b"",
        binary: bool = False,
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.flag = flag
        self.language = language
        self.version = version
        self.remark = remark
        self.ext: dict[str, Any] = {} if ext is None else ext
        self.header = None
        self.body = body
        self.binary = binary

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & FLAG_ONEWAY != 0

    if not TYPE_CHECKING:  # type checkers would accept any attribute otherwise

        def __getattr__(self, name: str) -> Any:
            """Fill an empty slot; Python calls this for those only."""
            if name == "ext":  # first and without detours: access control needs it for every request
                self.ext = ext = self._fields["extFields"]
                return ext
            if name == "_fields":
                self._fields = fields = _loads(self._json)
                return fields
            if name in ("language", "version", "remark"):
                self._fill_from_header()
            else:
                raise AttributeError(f"a command has no {name}")
            return getattr(self, name)

    def _fill_from_header(self) -> None:
        fields = self._fields
        language, version, remark = fields.get("language"), fields.get("version"), fields.get("remark")
        self.language = language if isinstance(language, str) and language in LANGUAGE_CODES else OTHER_LANGUAGE
        self.version = version if isinstance(version, int) and 0 <= version <= 0x7FFFFFFF else 0
        self.remark = remark if isinstance(remark, str) else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Command):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _COMPARED)

    __hash__ = None  # type: ignore[assignment]  # commands are mutable

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        remark = f" remark={shown(self.remark)}" if self.remark else ""
        sender = f"{self.language}/{self.version}"
        return f"<{kind} {self.code} opaque={self.opaque} {sender}{remark} ext={self.ext} body={len(self.body)}B>"


_new_command = Command.__new__
_COMPARED: Final = ("code", "opaque", "flag", "language", "version", "remark", "ext", "body", "binary")


class FrameDecoder:
    """Splits a byte stream into commands. One per connection and direction."""

    __slots__ = ("_broken", "_need", "partial")

    def __init__(self) -> None:
        self.partial = bytearray()  # the start of an incomplete frame; always the same object, which the owner may inspect
        self._need = 8  # length of `partial` at which decoding can continue
        self._broken: str | None = None

    def feed(self, data: bytes) -> list[Command]:
        """Return the commands that `data` completes. A ProtocolError carries the commands before the broken frame."""
        commands: list[Command] = []
        try:
            pos = self._finish_partial(data, commands) if self.partial or self._broken else 0
            pos = self._decode_run(data, pos, commands)
        except ProtocolError as error:
            self._broken = str(error)
            self.partial.clear()
            error.commands = commands
            raise
        if pos < len(data):
            self.partial += data[pos:]
        return commands

    def _decode_run(self, data: bytes, pos: int, commands: list[Command]) -> int:
        """Decode the complete frames from `pos` on. Return the position of the first incomplete one.

        This is on the path of every message, so the usual JSON header is parsed inline: each saved call is a tenth of the time.
        """
        append = commands.append
        end = len(data)
        while end - pos >= 8:
            if native is not None:
                pos = native.decode_run(data, pos, commands)
                if end - pos < 8:
                    break
            length, word = _words_at(data, pos)
            header_length = word & 0xFFFFFF
            frame_end = pos + 4 + length
            pos += 8
            body_at = pos + header_length
            if not (pos < body_at <= frame_end and length <= _MAX_LENGTH and header_length <= MAX_HEADER):
                _refuse_lengths(length, header_length)
            if frame_end > end:
                self._need = 4 + length
                return pos - 8
            if 0 <= word < 0x1000000:
                command = _new_command(Command)
                try:
                    command._fields = fields = _loads(data[pos:body_at])
                    command.code = code = fields["code"]
                    command.opaque = opaque = fields["opaque"]
                    command.flag = flag = fields["flag"]
                    command.ext = ext = fields["extFields"]
                    _check_i32(code, opaque, flag)
                    usual = ext.__class__ is dict and len(ext) <= MAX_EXT_FIELDS
                except (orjson.JSONDecodeError, KeyError, TypeError, struct.error):
                    usual = False
                if not usual:
                    _fill_unusual(command, data[pos:body_at])
                command.body = data[body_at:frame_end]
                command.binary = False
                command.header = None
            else:
                command = _from_binary(word >> 24, data[pos:body_at], data[body_at:frame_end])
            append(command)
            pos = frame_end
        return pos

    def _finish_partial(self, data: bytes, commands: list[Command]) -> int:
        """Complete the incomplete frame with the start of `data`. Return the position of the remaining bytes."""
        if self._broken is not None:
            raise ProtocolError(f"framing was lost earlier: {self._broken}")
        pos = 0
        while self.partial:
            missing = self._need - len(self.partial)
            self.partial += data[pos : pos + missing]
            pos += missing
            if pos > len(data):
                return len(data)
            # Enough bytes for the next step: first the lengths, then the frame.
            if self._decode_run(bytes(self.partial), 0, commands) > 0:
                self.partial.clear()
                self._need = 8
        return pos


def encode_command(command: Command) -> bytes:
    """Return the frame of a command with the command's header type."""
    if command.binary:
        ext = {key: text(value) for key, value in command.ext.items() if value is not None}
        code = command.code
        header = _binary_header(code, command.language, command.version, command.opaque, command.flag, command.remark, ext)
        return _frame(_BINARY_TYPE << 24, header, command.body)
    language = _dumps(command.language)
    tail = b'"JSON","version":%d}' % command.version
    ext_json = _ext_json(command.ext) if command.ext else None
    header = _json_header(command.code, ext_json, command.flag, language, command.opaque, command.remark, tail)
    return _frame(0, header, command.body)


def encode_request(
    code: int,
    ext: Mapping[str, ExtValue] | None,
    body: bytes = b"",
    *,
    opaque: int,
    oneway: bool = False,
    binary: bool = False,
) -> bytes:
    """Return a request frame with language JAVA, which every client understands, and our version."""
    flag = FLAG_ONEWAY if oneway else 0
    if binary:
        return _frame(_BINARY_TYPE << 24, _binary_header(code, "JAVA", VERSION, opaque, flag, None, ext or {}), body)
    return _frame(0, _json_header(code, None if ext is None else _ext_json(ext), flag, b'"JAVA"', opaque, None, _TAIL), body)


def encode_response(
    request: Command,
    code: int,
    remark: str | None = None,
    ext: Mapping[str, ExtValue] | None = None,
    body: bytes = b"",
) -> bytes:
    """Return a response frame with the request's header type. An empty ext map is written, None is left out."""
    if request.binary:
        header = _binary_header(code, "JAVA", VERSION, request.opaque, FLAG_RESPONSE, remark, ext or {})
        return _frame(_BINARY_TYPE << 24, header, body)
    if remark is None and ext is not None:
        return encode_response_json(request.opaque, code, _ext_json(ext), body)
    ext_json = None if ext is None else _ext_json(ext)
    return _frame(0, _json_header(code, ext_json, FLAG_RESPONSE, b'"JAVA"', request.opaque, remark, _TAIL), body)


def encode_response_json(opaque: int, code: int, ext_json: bytes, body: bytes = b"") -> bytes:
    """Return a JSON response whose ext map is JSON text already."""
    header = _RESPONSE % (code, ext_json, opaque)
    length = len(header)
    return pack_lengths(4 + length + len(body), length) + header + body


def encode_success(request: Command) -> bytes:
    """Return a successful response without fields."""
    if request.binary:
        return encode_response(request, 0)
    header = _SUCCESS % request.opaque
    return pack_lengths(4 + len(header), len(header)) + header


def send_response_template(trace_on: str, region: str) -> bytes:
    """Return the JSON header of a successful send response as a template for %.

    The values are queue id, quoted transaction id, message id, queue offset and opaque.
    """
    fixed = b'","TRACE_ON":%b,"MSG_REGION":%b,' % (_dumps(trace_on), _dumps(region))
    fields = b'"queueId":"%d","transactionId":%b,"msgId":"%b' + fixed.replace(b"%", b"%%") + b'"queueOffset":"%d"'
    tail = b'"flag":1,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":' + _TAIL
    return b'{"code":0,"extFields":{' + fields + b"}," + tail


def encode_pull_response(
    request: Command,
    code: int,
    remark: str,
    body: bytes,
    body_bytes: int,
    *,
    suggested_broker_id: int,
    group_sys_flag: int,
    next_begin_offset: int,
    max_offset: int,
    min_offset: int,
    topic_sys_flag: int,
) -> bytes:
    """Return a pull response. With `body_bytes` larger than `body` the caller writes the rest of the body.

    `remark` must not need escaping in JSON.
    """
    if request.binary:
        ext = {"nextBeginOffset": next_begin_offset, "minOffset": min_offset, "maxOffset": max_offset}
        ext |= {"topicSysFlag": topic_sys_flag, "groupSysFlag": group_sys_flag, "suggestWhichBrokerId": suggested_broker_id}
        return encode_response(request, code, remark, ext, body)
    header = _PULL_RESPONSE % (
        code, suggested_broker_id, group_sys_flag, next_begin_offset, max_offset, min_offset, topic_sys_flag, request.opaque,
        remark.encode(),
    )  # fmt: skip
    return b"".join((pack_lengths(4 + len(header) + body_bytes, len(header)), header, body))


def replace_success_code(response: bytes, code: int, *, binary: bool) -> bytes:
    """Return a successful response without body under another code."""
    if binary:
        return response[:8] + _I16.pack(code) + response[10:]
    header = response[8:].replace(b'{"code":0,', b'{"code":%d,' % code, 1)
    return pack_lengths(4 + len(header), len(header)) + header


def text(value: Any) -> str:
    """Return the text form of an ext value, as it is written and signed."""
    if value.__class__ is str:
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


_TAIL: Final = b'"JSON","version":%d}' % VERSION
_RESPONSE: Final = b'{"code":%d,"extFields":%b,"flag":1,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":' + _TAIL
_SUCCESS: Final = b'{"code":0,"flag":1,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":' + _TAIL
_PULL_RESPONSE: Final = (
    b'{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","groupSysFlag":"%d","nextBeginOffset":"%d","maxOffset":"%d",'
    b'"minOffset":"%d","topicSysFlag":"%d"},"flag":1,"language":"JAVA","opaque":%d,"remark":"%b","serializeTypeCurrentRPC":'
    + _TAIL
)


def _fill_unusual(command: Command, header: bytes) -> None:
    """Decode a JSON header without its optional fields. Anything else unusual is a ProtocolError."""
    try:
        fields = _loads(header)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(f"the header is not JSON ({error}): {shown(header)}") from None
    if not isinstance(fields, dict):
        raise ProtocolError(f"the header is {shown(fields)}, expected an object")
    numbers: list[Any] = [fields.get("code"), fields.get("opaque"), fields.get("flag", 0)]
    for name, value in zip(("code", "opaque", "flag"), numbers, strict=True):
        if not isinstance(value, int) or not -0x80000000 <= value <= 0x7FFFFFFF:
            raise ProtocolError(f"the header field {name} is {shown(value)}, expected an integer of 32 bits")
    ext = fields.get("extFields")
    if ext is not None and not isinstance(ext, dict):
        raise ProtocolError(f"the header field extFields is {shown(ext)}, expected a map of fields")
    if ext is not None and len(ext) > MAX_EXT_FIELDS:
        raise ProtocolError(f"a header with {len(ext)} ext fields, expected at most {MAX_EXT_FIELDS}")
    command.code, command.opaque, command.flag = numbers
    command.ext = {} if ext is None else ext
    command._fields = fields


def _from_binary(kind: int, header: bytes, body: bytes) -> Command:
    if kind != _BINARY_TYPE:
        raise ProtocolError(f"header type {kind & 0xFF}, expected 0 (JSON) or 1 (binary)")
    try:
        code, language, version, opaque, flag = _BINARY_HEAD.unpack_from(header)
        remark, pos = _sized_text(header, 13, "remark")
        (ext_length,) = _I32.unpack_from(header, pos)
        pos += 4
        if ext_length < 0 or ext_length > len(header) - pos:
            raise ProtocolError(f"a binary header whose ext map has {ext_length} bytes, with {len(header) - pos} left")
        ext = _binary_ext(header, pos, pos + ext_length)
    except struct.error:
        raise ProtocolError(f"a binary header of {len(header)} bytes ends too early") from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a binary header holds text that is not UTF-8: {error.reason}") from None
    name = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else OTHER_LANGUAGE
    if not flag & FLAG_RESPONSE:
        code = int(TRUNCATED_CODES.get(code, code))
    return Command(code, opaque, flag, name, version, remark or None, ext, body, True)


def _sized_text(header: bytes, pos: int, what: str) -> tuple[str, int]:
    (length,) = _I32.unpack_from(header, pos)
    pos += 4
    if length < 0 or length > len(header) - pos:
        raise ProtocolError(f"a binary header whose {what} has {length} bytes, with {len(header) - pos} left")
    return header[pos : pos + length].decode(), pos + length


def _binary_ext(header: bytes, pos: int, end: int) -> dict[str, Any]:
    ext: dict[str, Any] = {}
    entries = 0
    while pos < end:
        entries += 1
        if entries > MAX_EXT_FIELDS:
            raise ProtocolError(f"a binary header with more than {MAX_EXT_FIELDS} ext fields")
        (length,) = _I16.unpack_from(header, pos)
        pos += 2
        if length < 0 or length > end - pos:
            raise ProtocolError(f"a binary header with an ext key of {length} bytes, with {end - pos} left")
        key = header[pos : pos + length].decode()
        value, pos = _sized_text(header, pos + length, f"ext value {shown(key)}")
        if pos > end:
            raise ProtocolError(f"the value of the ext field {shown(key)} runs out of the ext map")
        if key and value:
            ext[key] = value
    return ext


def _ext_json(ext: Mapping[str, Any]) -> bytes:
    return _dumps({key: value if value.__class__ is str else text(value) for key, value in ext.items() if value is not None})


def _json_header(
    code: int, ext_json: bytes | None, flag: int, language: bytes, opaque: int, remark: str | None, tail: bytes
) -> bytes:
    ext = b"" if ext_json is None else b',"extFields":%b' % ext_json
    remark_json = b"" if remark is None else b',"remark":%b' % _dumps(remark)
    return b'{"code":%d%b,"flag":%d,"language":%b,"opaque":%d%b,"serializeTypeCurrentRPC":%b' % (
        code, ext, flag, language, opaque, remark_json, tail,
    )  # fmt: skip


def _binary_header(
    code: int, language: str, version: int, opaque: int, flag: int, remark: str | None, ext: Mapping[str, ExtValue]
) -> bytes:
    truncated = (code & 0xFFFF ^ 0x8000) - 0x8000
    head = _BINARY_HEAD.pack(truncated, LANGUAGE_CODES.get(language, LANGUAGE_CODES[OTHER_LANGUAGE]), version, opaque, flag)
    remark_bytes = (remark or "").encode()
    parts: list[bytes] = []
    for key, value in ext.items():
        if value is not None:
            name, content = key.encode(), text(value).encode()
            parts += (_I16.pack(len(name)), name, _I32.pack(len(content)), content)
    fields = b"".join(parts)
    return b"".join((head, _I32.pack(len(remark_bytes)), remark_bytes, _I32.pack(len(fields)), fields))


def _frame(kind: int, header: bytes, body: bytes) -> bytes:
    length = len(header)
    return pack_lengths(4 + length + len(body), kind | length) + header + body


def _refuse_lengths(length: int, header_length: int) -> NoReturn:
    if not 4 < length <= _MAX_LENGTH:
        raise ProtocolError(
            f"a frame of {length & 0xFFFFFFFF} bytes, expected 5 to {_MAX_LENGTH}; does the peer speak this protocol?"
        )
    if not 0 < header_length <= MAX_HEADER:
        raise ProtocolError(f"a header of {header_length} bytes, expected 1 to {MAX_HEADER}")
    raise ProtocolError(f"a header of {header_length} bytes in a frame of {length}")
