"""Native decoding gives the same commands and errors as the Python decoder."""

from __future__ import annotations

import json
import random
import struct
from typing import Any
from unittest import mock

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.wire import frame as wire_frame
from firearrow.wire.accelerated import enable_native_headers, native
from firearrow.wire.errors import HeaderError, ProtocolError
from firearrow.wire.frame import Command, FrameDecoder
from firearrow.wire.header_schema import Header
from firearrow.wire.headers.client import EndTransactionRequestHeader, PullMessageRequestHeader, SendMessageRequestHeader

if native is None:
    pytest.skip("the extension module was not built", allow_module_level=True)
enable_native_headers()

HEADERS: dict[int, type[Header]] = {
    310: SendMessageRequestHeader,
    320: SendMessageRequestHeader,
    37: EndTransactionRequestHeader,
    11: PullMessageRequestHeader,
    361: PullMessageRequestHeader,
}
SEND = {
    "a": "producers", "b": "Orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1794785474933", "h": "0",
    "i": "UNIQ_KEY\x01A0\x02TAGS\x01t\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
END = {
    "producerGroup": "g", "topic": "T", "tranStateTableOffset": "7", "commitLogOffset": "8589934592", "commitOrRollback": "8",
    "fromTransactionCheck": "false", "msgId": "7F000001",
}  # fmt: skip
PULL = {
    "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "12", "maxMsgNums": "32", "sysFlag": "2",
    "commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "1", "expressionType": "TAG",
}  # fmt: skip
USUAL = {310: SEND, 320: SEND, 37: END, 11: PULL, 361: PULL}


def frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def written(code: Any, ext: Any, **others: Any) -> bytes:
    fields = {"code": code, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 5, "serializeTypeCurrentRPC": "JSON"}
    return json.dumps(fields | {"version": 475} | others, separators=(",", ":")).encode()


def decoded(data: bytes, *, in_c: bool) -> tuple[list[Command], str | None]:
    with mock.patch.object(wire_frame, "native", native if in_c else None):
        try:
            return FrameDecoder().feed(data), None
        except ProtocolError as error:
            return error.commands, str(error)


def same(data: bytes) -> list[Command]:
    """Decode natively and in Python, compare the results and return the native commands."""
    fast, error = decoded(data, in_c=True)
    slow, other_error = decoded(data, in_c=False)
    assert error == other_error
    assert len(fast) == len(slow)
    for one, other in zip(fast, slow, strict=True):
        if one.header is not None:
            assert other.header is None
            header = HEADERS[other.code].decode(other.ext)
            assert one.header == header
            assert [type(getattr(one.header, f.name)) for f in header.FIELDS] == [
                type(getattr(header, f.name)) for f in header.FIELDS
            ]
        assert one == other
        assert repr(one) == repr(other)
    return fast


@pytest.mark.parametrize("code", sorted(USUAL))
def test_usual_requests_are_decoded_natively(code: int) -> None:
    data = b"".join(frame(written(code, USUAL[code], opaque=number), b"body %d" % number) for number in range(20))
    commands = same(data)
    assert [one.opaque for one in commands] == list(range(20))
    assert all(one.header is not None for one in commands)
    assert commands[3].body == b"body 3"


def test_remaining_fields_are_decoded_on_first_access() -> None:
    (one,) = same(frame(written(310, SEND, language="GO", version=3)))
    assert (one.language, one.version, one.remark, one.ext) == ("GO", 3, None, SEND)
    with pytest.raises(AttributeError, match="has no colour"):
        one.colour  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("ext", "in_c"),
    [
        (SEND | {"l": "16", "n": "broker-a"}, True),
        (SEND | {"l": "", "n": "", "c": "", "i": "", "d": ""}, True),
        (SEND | {"Signature": "x=", "AccessKey": "k"}, True),
        (SEND | {"b": "主题", "i": "KEYS\x01订单\x02"}, True),
        (SEND | {"e": "-1", "h": "-2147483648", "f": "2147483647"}, True),
        (SEND | {"i": 'quote " slash \\ / tab \t line \n \u0001 \u07ff \uffee'}, True),
        (SEND | {"e": "2147483648"}, False),
        (SEND | {"e": ""}, False),
        (SEND | {"e": " 1"}, False),
        (SEND | {"e": "+1"}, False),
        (SEND | {"e": "01"}, False),
        (SEND | {"e": 1}, False),
        (SEND | {"e": None}, False),
        (SEND | {"k": "TRUE"}, False),
        (SEND | {"g": "9223372036854775807"}, False),
        (SEND | {"i": "\ud83d\ude80".encode("utf-16", "surrogatepass").decode("utf-16")}, False),
        ({key: value for key, value in SEND.items() if key != "a"}, False),
        ({}, False),
        (SEND | {f"x{number}": "" for number in range(70)}, False),
    ],
)
def test_only_fields_in_canonical_form_are_decoded_natively(ext: dict[str, Any], in_c: bool) -> None:
    commands, _ = decoded(frame(written(310, ext)), in_c=True)
    assert (commands[0].header is not None) == in_c
    try:
        same(frame(written(310, ext)))
    except HeaderError:
        assert not in_c


@pytest.mark.parametrize(
    "header",
    [
        written(310, SEND, flag=1),
        written(310, SEND, remark="x"),
        written(310, SEND, opaque=1 << 31),
        written(310, SEND, opaque="5"),
        written("310", SEND),
        written(310, None),
        written(310, [1]),
        written(311, SEND),
        written(310, SEND) + b" ",
        b" " + written(310, SEND),
        written(310, SEND)[:-1],
        written(310, SEND) + written(310, SEND),
        written(310, SEND).replace(b'"a":', b'"\\u0061":'),
        written(310, SEND).replace(b'"a":', b'"b":'),
        written(310, SEND).replace(b'"TBW102"', b'"\\x"'),
        written(310, SEND).replace(b'"TBW102"', b'"\\u12"'),
        written(310, SEND).replace(b'"TBW102"', b'"\\ud83d"'),
        written(310, SEND).replace(b'"TBW102"', b'"a\nb"'),
        written(310, SEND).replace(b"TBW102", b"\xff"),
        written(310, SEND | {"unknown": "TBW103"}).replace(b"TBW103", b"\xff"),
        written(310, SEND).replace(b'"JAVA"', b'"\xff"'),
        written(310, SEND).replace(b'"opaque":5', b'"opaque":5,"opaque":6'),
        written(310, SEND).replace(b'"opaque":5', b'"opaque":05'),
        written(310, SEND).replace(b'"opaque":5', b'"opaque":-0'),
        written(310, SEND).replace(b'"opaque":5', b'"opaque":5.0'),
        written(310, SEND | {"i": "x" * 9_000}),
        b"{}",
        b'{"code":',
        b'{"code":310',
        b'{"code":310}',
        b'{"code":310,',
        b'{"code":310,"extFields":{',
        b'{"code":310,"extFields":{"a"',
        b'{"code":310,"extFields":{"a":"',
        b'{"code":310,"extFields":{"a":"\\',
        b'{"code":310,"extFields":{"a":"\\u00',
        b"",
    ],
)
def test_unusual_or_invalid_frames_are_decoded_in_python(header: bytes) -> None:
    if header:
        same(frame(header, b"x"))
    same(frame(written(310, SEND)) + frame(header, b"x") + frame(written(37, END)))


def test_frames_may_be_split_anywhere() -> None:
    whole = frame(written(310, SEND), b"first") + frame(written(999, {"x": 1}), b"") + frame(written(37, END), b"last")
    for cut in range(len(whole)):
        decoder = FrameDecoder()
        commands = decoder.feed(whole[:cut]) + decoder.feed(whole[cut:])
        assert [one.code for one in commands] == [310, 999, 37]
        assert commands == same(whole)


def test_wrong_lengths_are_treated_alike() -> None:
    usual = frame(written(310, SEND), b"x")
    for at in range(8):
        for value in (0, 1, 3, 4, 127, 128, 255):
            same(usual[:at] + bytes((value,)) + usual[at + 1 :] + usual)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(USUAL)), st.data())
def test_corrupted_bytes_are_treated_alike(code: int, data: st.DataObject) -> None:
    raw = bytearray(frame(written(code, USUAL[code]), b"body"))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(8, len(raw) - 1))] = data.draw(st.sampled_from(list(b'"\\{}:,u0-9aZ \x00\x1f\x7f\x80\xe4\xff')))
    try:
        same(bytes(raw))
    except HeaderError:
        assert all(one.header is None for one in decoded(bytes(raw), in_c=True)[0])


values = st.one_of(
    st.text(max_size=6), st.integers(-(1 << 40), 1 << 66).map(str), st.sampled_from(["true", "false", "", "-", "0", "-0", "00"]),
    st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False), st.lists(st.integers(), max_size=1),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(USUAL)), st.data())
def test_arbitrary_field_values_are_treated_alike(code: int, data: st.DataObject) -> None:
    ext: dict[str, Any] = dict(USUAL[code])
    keys = st.one_of(st.sampled_from(sorted(ext)), st.text(max_size=3))
    ext |= data.draw(st.dictionaries(keys, values, max_size=3))
    for key in data.draw(st.lists(st.sampled_from(sorted(USUAL[code])), max_size=2)):
        ext.pop(key, None)
    items = list(ext.items())
    random.Random(data.draw(st.integers(0, 99))).shuffle(items)
    try:
        header = orjson.dumps({"code": code, "extFields": dict(items), "flag": data.draw(st.integers(0, 3)), "opaque": 7})
    except (TypeError, orjson.JSONEncodeError):
        return  # not representable as JSON
    try:
        same(frame(header))
    except HeaderError:
        assert all(one.header is None for one in decoded(frame(header), in_c=True)[0])
