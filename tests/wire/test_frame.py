"""Frames: what the real systems sent comes out as sent, however it is cut; what is broken is refused and nothing else happens."""

from __future__ import annotations

import json
import struct
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire.codes import LANGUAGES, VERSION
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import (
    MAX_EXT_FIELDS,
    MAX_FRAME,
    MAX_HEADER,
    Command,
    FrameDecoder,
    encode_command,
    encode_pull_response,
    encode_request,
    encode_response,
    encode_response_json,
    encode_success,
    pack_lengths,
    replace_success_code,
    send_response_template,
)
from firearrow.wire.headers.client import PullMessageResponseHeader
from tests.wire.captured import Captured, captured, sessions
from tests.wire.strategies import I32, json_values

EXT = st.dictionaries(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=30), max_size=8)
REMARK = st.one_of(st.none(), st.text(min_size=1, max_size=30))
JSON_COMMANDS = st.builds(
    Command, code=I32, opaque=I32, flag=st.integers(0, 3), language=st.sampled_from(LANGUAGES), version=st.integers(0, 2**31 - 1),
    remark=REMARK, ext=EXT, body=st.binary(max_size=60),
)  # fmt: skip
BINARY_COMMANDS = st.builds(
    Command, code=st.integers(0, 3000), opaque=I32, flag=st.integers(0, 3), language=st.sampled_from(LANGUAGES),
    version=st.integers(0, 2**15 - 1), remark=REMARK, ext=EXT, body=st.binary(max_size=60), binary=st.just(True),
)  # fmt: skip
COMMANDS = st.one_of(JSON_COMMANDS, BINARY_COMMANDS)


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def feed(pieces: list[bytes]) -> tuple[list[Command], str | None]:
    """All commands of a stream given in pieces, and what was wrong with it."""
    decoder = FrameDecoder()
    commands: list[Command] = []
    for piece in pieces:
        try:
            commands += decoder.feed(piece)
        except ProtocolError as error:
            return commands + error.commands, str(error)
    return commands, None


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


# ---- what the real systems sent


@pytest.mark.parametrize("session", sessions())
def test_every_captured_frame_decodes_to_its_header_and_body(session: str) -> None:
    for sent in (each for each in captured() if each.file == session):
        (command,) = FrameDecoder().feed(sent.frame)
        assert command.code == sent.header["code"]
        assert command.opaque == sent.header["opaque"]
        assert command.flag == sent.header["flag"]
        assert command.language == sent.header["language"]
        assert command.version == sent.header["version"]
        assert command.remark == (sent.header.get("remark") or (None if sent.binary else sent.header.get("remark")))
        assert command.ext == {key: value for key, value in sent.ext.items() if value != "" or not sent.binary}
        assert command.body == sent.body
        assert command.is_response == (sent.kind == "response")
        assert command.is_oneway == (sent.kind == "oneway")


def _is_apache(sent: Captured) -> bool:
    return "serializeTypeCurrentRPC" in sent.header and sent.header.get("extFields") != {}


def test_captured_frames_round_trip_with_the_same_fields() -> None:
    for sent in captured():
        (command,) = FrameDecoder().feed(sent.frame)
        (again,) = FrameDecoder().feed(encode_command(command))
        assert again.ext == {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in command.ext.items()
        }
        assert (again.code, again.opaque, again.flag, again.language) == (
            command.code,
            command.opaque,
            command.flag,
            command.language,
        )
        assert (again.version, again.remark, again.body) == (command.version, command.remark, command.body)


def test_frames_of_apache_round_trip_byte_for_byte() -> None:
    exact = [sent for sent in captured() if _is_apache(sent) and not sent.binary]
    assert len(exact) > 1000
    for sent in exact:
        (command,) = FrameDecoder().feed(sent.frame)
        assert encode_command(command) == sent.frame, sent


def test_binary_headers_of_a_java_client_round_trip_byte_for_byte() -> None:
    binary = [sent for sent in captured() if sent.binary]
    assert len(binary) > 50
    for sent in binary:
        (command,) = FrameDecoder().feed(sent.frame)
        assert command.binary
        assert encode_command(command) == sent.frame, sent


def test_answers_look_like_apaches() -> None:
    """Given the request that Apache answered, we write the same answer to it."""
    compared = 0
    for sent in captured():
        if sent.kind == "response" and sent.header["version"] == VERSION and not sent.binary:
            request = Command(10, opaque=sent.header["opaque"])
            ext = sent.header.get("extFields")
            assert encode_response(request, sent.header["code"], sent.header.get("remark"), ext, sent.body) == sent.frame, sent
            compared += 1
    assert compared > 500


@pytest.mark.parametrize("session", sessions())
def test_conversation_decodes_alike_in_one_piece_and_in_many(session: str) -> None:
    frames = [sent.frame for sent in captured() if sent.file == session][:60]
    stream = b"".join(frames)
    whole = FrameDecoder().feed(stream)
    assert len(whole) == len(frames)
    for size in (1, 7, 8, 9, 1000):
        assert feed([stream[at : at + size] for at in range(0, len(stream), size)]) == (whole, None)


# ---- round trips and cutting


@given(COMMANDS)
def test_command_round_trips(command: Command) -> None:
    assert FrameDecoder().feed(encode_command(command)) == [command]


@given(st.lists(COMMANDS, max_size=4), st.binary(max_size=12), st.lists(st.integers(0, 5000), max_size=8))
def test_stream_decodes_alike_however_it_is_split(commands: list[Command], garbage: bytes, places: list[int]) -> None:
    stream = b"".join(map(encode_command, commands)) + garbage
    whole = feed([stream])
    assert feed(cut(stream, places)) == whole
    assert feed([bytes((byte,)) for byte in stream]) == whole
    assert whole[0][: len(commands)] == commands


@given(
    st.sampled_from(range(200)),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=4),
    st.lists(st.integers(0, 3000), max_size=4),
)
def test_damaged_frame_yields_a_command_or_protocol_error(which: int, damage: list[tuple[int, int]], places: list[int]) -> None:
    stream = bytearray(captured()[which * 7 % len(captured())].frame)
    for at, value in damage:
        stream[at % len(stream)] = value
    assert feed(cut(bytes(stream), places)) == feed([bytes(stream)])


@given(st.binary(max_size=200), st.binary(max_size=20), st.integers(0, 2))
def test_any_header_bytes_yield_a_command_or_protocol_error(header: bytes, body: bytes, kind: int) -> None:
    feed([frame(header or b"x", body, kind)])


@given(st.binary(max_size=300))
def test_any_bytes_yield_commands_or_protocol_error(stream: bytes) -> None:
    assert feed([stream]) == feed([bytes((byte,)) for byte in stream])


HEADER_KEYS = ("code", "opaque", "flag", "version", "language", "remark", "extFields")


ODD = json_values(3)
NEARLY_RIGHT = st.fixed_dictionaries(
    {"code": I32, "opaque": I32, "flag": I32}, optional={"version": ODD, "language": ODD, "remark": ODD, "extFields": ODD}
)


@given(st.one_of(json_values(), st.dictionaries(st.sampled_from(HEADER_KEYS), json_values(6)), NEARLY_RIGHT))
def test_any_json_header_yields_a_well_typed_command_or_protocol_error(header: Any) -> None:
    commands, error = feed([frame(json.dumps(header).encode())])
    if error is None:
        (command,) = commands
        assert isinstance(command.code, int)
        assert isinstance(command.opaque, int)
        assert isinstance(command.flag, int)
        assert isinstance(command.version, int)
        assert command.language in LANGUAGES
        assert command.remark is None or isinstance(command.remark, str)
        assert isinstance(command.ext, dict)
        encode_response(command, 0)


# ---- tolerance


def test_variants_of_other_clients_are_decoded() -> None:
    fields = b'{"AccessKey":"","n":4,"b":true,"z":null}'
    cpp = b'{"code":34,"extFields":%b,"flag":0,"language":"CPP","opaque":8,"remark":"","version":63}\n' % fields
    (command,) = FrameDecoder().feed(frame(cpp))
    assert command.ext == {"AccessKey": "", "n": 4, "b": True, "z": None}
    assert command.remark == ""
    bare = b'{"code":105,"opaque":1,"more":[1]}'
    (command,) = FrameDecoder().feed(frame(bare, b"b"))
    assert (command.flag, command.version, command.language, command.ext, command.body) == (0, 0, "OTHER", {}, b"b")
    null = b'{"code":105,"opaque":1,"flag":0,"language":"COBOL","version":1,"extFields":null}'
    (command,) = FrameDecoder().feed(frame(null))
    assert (command.language, command.ext) == ("OTHER", {})


def test_truncated_pop_code_of_a_binary_header_is_restored() -> None:
    (command,) = FrameDecoder().feed(encode_request(200050, {"topic": "T"}, opaque=1, binary=True))
    assert command.code == 200050
    (response,) = FrameDecoder().feed(encode_response(command, 3442))
    assert response.code == 3442  # a response's code is what it says


# ---- writing


def test_request_has_sorted_keys_and_text_values() -> None:
    sent = encode_request(105, {"topic": "T1", "count": 3, "force": True, "none": None}, b"body", opaque=7)  # type: ignore[dict-item]
    header = (
        b'{"code":105,"extFields":{"topic":"T1","count":"3","force":"true"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )
    assert sent == frame(header, b"body")
    assert b'"flag":2' in encode_request(40, None, opaque=1, oneway=True)
    assert b"extFields" not in encode_request(40, None, opaque=1)


def test_encode_response_json_writes_the_same_bytes_as_encode_response() -> None:
    request = Command(310, opaque=-5)
    long = encode_response(request, 0, None, {"msgId": "A", "queueId": 3}, b"xyz")
    assert encode_response_json(-5, 0, b'{"msgId":"A","queueId":"3"}', b"xyz") == long


def test_response_has_the_header_type_of_its_request() -> None:
    answer = encode_response(Command(11, opaque=3, binary=True), 19, "not found", {"nextBeginOffset": 5})
    (command,) = FrameDecoder().feed(answer)
    assert command.binary
    assert (command.code, command.opaque, command.flag, command.remark) == (19, 3, 1, "not found")
    assert command.ext == {"nextBeginOffset": "5"}


# ---- limits and errors


def _compact(header: Any) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def refused(stream: bytes) -> str:
    with pytest.raises(ProtocolError) as caught:
        FrameDecoder().feed(stream)
    return str(caught.value)


def test_excessive_lengths_are_rejected_from_the_first_eight_bytes() -> None:
    tracemalloc.start()
    try:
        assert "4294967295 bytes" in refused(b"\xff\xff\xff\xff\x00\x00\x00\x10")
        assert "does the peer speak this protocol" in refused(b"GET / HTTP/1.1\r\n")
        assert "expected 5 to" in refused(struct.pack(">ii", MAX_FRAME - 3, 10))
        assert "expected 1 to" in refused(struct.pack(">ii", MAX_FRAME - 4, MAX_HEADER + 1))
        assert "expected 1 to" in refused(struct.pack(">ii", 100, 0))
        assert "in a frame of 10" in refused(struct.pack(">ii", 10, 7))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_largest_frame_is_decoded_in_pieces_and_releases_its_memory() -> None:
    header = b'{"code":10,"opaque":1,"flag":0,"version":1,"language":"JAVA","extFields":{}}'
    stream = frame(header, bytes(MAX_FRAME - 8 - len(header)))
    decoder = FrameDecoder()
    commands: list[Command] = []
    for at in range(0, len(stream), 200_000):
        commands += decoder.feed(stream[at : at + 200_000])
    assert len(commands[0].body) == MAX_FRAME - 8 - len(header)
    assert not decoder.partial


def test_too_many_fields_are_rejected_in_both_header_types() -> None:
    fields = {f"k{n}": "v" for n in range(MAX_EXT_FIELDS + 1)}
    assert f"at most {MAX_EXT_FIELDS}" in refused(encode_request(10, fields, opaque=1))
    assert f"more than {MAX_EXT_FIELDS}" in refused(encode_request(10, fields, opaque=1, binary=True))
    many = {f"{n:x}": 1 for n in range(40_000)}
    assert "40000 ext fields" in refused(frame(_compact({"code": 1, "opaque": 1, "flag": 0, "extFields": many})))
    huge = {f"{n:x}": 1 for n in range(100_000)}
    assert "a header of" in refused(frame(_compact({"code": 1, "opaque": 1, "flag": 0, "extFields": huge})))
    empty = struct.pack(">hbhiiii", 10, 0, 1, 1, 0, 0, 6 * 1000) + bytes(6 * 1000)  # a thousand entries without key and value
    assert f"more than {MAX_EXT_FIELDS}" in refused(frame(empty, kind=1))


@pytest.mark.parametrize("depth", [1100, 100_000])
def test_deep_nesting_is_rejected(depth: int) -> None:
    assert "not JSON" in refused(frame(b'{"code":1,"opaque":1,"extFields":{"a":' + b"[" * depth + b"]" * depth + b"}}"))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"[]", "the header is a list"),
        (b"{}", "field code is"),
        (b'{"code":"105","opaque":1}', "code is '105'"),
        (b'{"code":1.5,"opaque":1}', "code is 1.5"),
        (b'{"code":1,"opaque":2147483648,"flag":0,"extFields":{}}', "opaque is 2147483648"),
        (b'{"code":1,"opaque":1,"flag":[]}', "flag is a list"),
        (b'{"code":1,"opaque":1,"extFields":[]}', "extFields is a list"),
        (b'{"code":1,"opaque":1,"flag":0,"extFields":"x"}', "extFields is 'x'"),
        (b'{"code":1,"opaque":1,"flag":0,"extFields":{"a":"\xff"}}', "not JSON"),
    ],
)
def test_invalid_header_is_rejected_with_field_and_value(header: bytes, said: str) -> None:
    assert said in refused(frame(header))


def test_lengths_inside_a_binary_header_are_checked() -> None:
    head = struct.pack(">hbhii", 10, 0, 1, 1, 0)
    i32 = struct.Struct(">i").pack
    assert "ends too early" in refused(frame(head[:5], kind=1))
    assert "ends too early" in refused(frame(head + i32(0), kind=1))
    assert "remark has 2147483647 bytes" in refused(frame(head + i32(2**31 - 1) + i32(0), kind=1))
    assert "remark has -1 bytes" in refused(frame(head + i32(-1) + i32(0), kind=1))
    assert "ext map has 9 bytes" in refused(frame(head + i32(0) + i32(9), kind=1))
    assert "ext key of 99 bytes" in refused(frame(head + i32(0) + i32(6) + struct.pack(">hi", 99, 0), kind=1))
    assert "has 7 bytes" in refused(frame(head + i32(0) + i32(7) + struct.pack(">h", 1) + b"k" + i32(7), kind=1))
    runs_over = struct.pack(">h", 1) + b"k" + i32(2)
    assert "runs out" in refused(frame(head + i32(0) + i32(len(runs_over)) + runs_over + b"xy", kind=1))
    assert "not UTF-8" in refused(frame(head + i32(1) + b"\xff" + i32(0), kind=1))
    assert "header type 2" in refused(frame(head, kind=2))
    assert "header type 255" in refused(frame(head, kind=255))


def test_frames_before_a_broken_one_are_kept_and_the_decoder_stays_broken() -> None:
    good = encode_request(105, {"topic": "T"}, opaque=1)
    decoder = FrameDecoder()
    with pytest.raises(ProtocolError) as caught:
        decoder.feed(good + good + b"\xff" * 8 + good)
    assert [command.code for command in caught.value.commands] == [105, 105]
    with pytest.raises(ProtocolError, match="framing was lost earlier") as later:
        decoder.feed(good)
    assert later.value.commands == []
    assert not decoder.partial


def test_repr_of_a_command_shows_kind_code_and_sender() -> None:
    command = Command(310, opaque=4, ext={"b": "T"}, body=b"xyz")
    assert repr(command) == "<request 310 opaque=4 JAVA/513 ext={'b': 'T'} body=3B>"
    assert "<oneway 40" in repr(Command(40, flag=2))
    assert "<response 17 opaque=0 JAVA/513 remark='no' " in repr(Command(17, flag=1, remark="no"))
    assert command != 310
    assert not hasattr(command, "topic")


# ---- preformatted responses


@pytest.mark.parametrize("binary", [False, True])
def test_success_equals_the_general_encoding(binary: bool) -> None:
    request = Command(37, opaque=7, binary=binary)
    assert encode_success(request) == encode_response(request, 0)


def test_send_response_template_formats_the_fields_of_the_response() -> None:
    fields = {
        "queueId": "3", "transactionId": "A1", "msgId": "FF00", "TRACE_ON": "true", "MSG_REGION": "100% \"here\"",
        "queueOffset": "9",
    }  # fmt: skip
    header = send_response_template("true", '100% "here"') % (3, b'"A1"', b"FF00", 9, 7)
    frame = pack_lengths(4 + len(header), len(header)) + header
    assert frame == encode_response(Command(310, opaque=7), 0, None, fields)


@pytest.mark.parametrize("binary", [False, True])
def test_pull_response_carries_the_declared_header(binary: bool) -> None:
    request = Command(11, opaque=7, binary=binary)
    frame = encode_pull_response(
        request, 0, "FOUND", b"records", 7, suggested_broker_id=1, group_sys_flag=2, next_begin_offset=3, max_offset=4,
        min_offset=5, topic_sys_flag=6,
    )  # fmt: skip
    (response,) = FrameDecoder().feed(frame)
    assert (response.code, response.opaque, response.remark, response.body) == (0, 7, "FOUND", b"records")
    assert PullMessageResponseHeader.decode(response.ext) == PullMessageResponseHeader(
        suggest_which_broker_id=1, next_begin_offset=3, min_offset=5, max_offset=4, topic_sys_flag=6, group_sys_flag=2
    )


@pytest.mark.parametrize("binary", [False, True])
def test_success_code_is_replaced_in_the_encoded_response(binary: bool) -> None:
    request = Command(310, opaque=7, binary=binary)
    stored = encode_response(request, 0, None, {"queueId": 3})
    assert replace_success_code(stored, 12, binary=binary) == encode_response(request, 12, None, {"queueId": 3})
