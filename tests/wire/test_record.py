from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire import record
from firearrow.wire.errors import ProtocolError
from firearrow.wire.record import Record
from tests.wire.captured import captured
from tests.wire.strategies import I32, I64


@st.composite
def records(draw: st.DrawFn) -> Record:
    sys_flag = draw(I32)
    version = draw(st.sampled_from((1, 2)))
    longest = 127 if version == 1 else 255
    born = 20 if sys_flag & record.BORN_HOST_V6 else 8
    store = 20 if sys_flag & record.STORE_HOST_V6 else 8
    return Record(
        topic=draw(st.text(max_size=longest // 4)), body=draw(st.binary(max_size=50)), properties=draw(st.binary(max_size=50)),
        queue_id=draw(I32), flag=draw(I32), queue_offset=draw(I64), physical_offset=draw(I64), sys_flag=sys_flag,
        born_timestamp=draw(I64), born_host=draw(st.binary(min_size=born, max_size=born)), store_timestamp=draw(I64),
        store_host=draw(st.binary(min_size=store, max_size=store)), reconsume_times=draw(I32),
        prepared_transaction_offset=draw(I64), version=version,
    )  # fmt: skip


def decoded(buffer: bytes, pos: int = 0) -> Record | None:
    try:
        return record.decode(buffer, pos)
    except ProtocolError:
        return None


SAMPLE = Record(topic="Orders", body=b"hello", properties=b"TAGS\x01a\x02", queue_id=3, physical_offset=4096, store_timestamp=7)


def test_layout_to_the_byte() -> None:
    raw = record.encode(SAMPLE)
    assert len(raw) == record.FIXED_BYTES_V1 + 5 + 6 + 7 == SAMPLE.total_size
    head = record.HEAD.unpack_from(raw)
    assert head == (
        len(raw),
        record.MAGIC_V1,
        zlib.crc32(b"hello") & 0x7FFFFFFF,
        3,
        0,
        0,
        4096,
        0,
        0,
        bytes(8),
        7,
        bytes(8),
        0,
        0,
        5,
    )
    assert record.HEAD_BYTES == 88
    assert raw[88:93] == b"hello"
    assert raw[93:] == b"\x06Orders\x00\x07TAGS\x01a\x02"
    assert struct.unpack_from(">q", raw, record.AT_PHYSICAL_OFFSET) == (4096,)
    assert struct.unpack_from(">q", raw, record.AT_STORE_TIMESTAMP_V4) == (7,)
    assert struct.unpack_from(">i", raw, record.AT_BODY_LENGTH_V4) == (5,)


def test_version_2_and_ipv6_hosts_make_it_longer() -> None:
    long = replace(
        SAMPLE, topic="%RETRY%" + "g" * 200, version=2, sys_flag=record.BORN_HOST_V6 | record.STORE_HOST_V6,
        born_host=bytes(range(20)), store_host=bytes(range(20, 40)),
    )  # fmt: skip
    raw = record.encode(long)
    assert len(raw) == record.FIXED_BYTES_V1 + 24 + 1 + 5 + 207 + 7
    assert record.decode(raw) == long
    assert record.encode(SAMPLE)[4:8].hex() == "daa320a7"
    assert raw[4:8].hex() == "daa320ab"


@given(records())
def test_record_round_trips_at_any_position(one: Record) -> None:
    raw = record.encode(one)
    assert record.decode(raw) == one
    assert record.decode(memoryview(b"xyz" + raw + b"more"), 3) == one
    assert record.encode(record.decode(raw)) == raw


@given(st.lists(records(), max_size=4))
def test_consecutive_records_round_trip(run: list[Record]) -> None:
    assert record.decode_all(b"".join(map(record.encode, run))) == run


@given(st.binary(max_size=200))
def test_any_bytes_yield_records_or_protocol_error(raw: bytes) -> None:
    decoded(raw)
    with suppress(ProtocolError):
        record.decode_all(raw)


@given(records(), st.integers(0, 400), st.integers(1, 255), st.integers(0, 400))
def test_damaged_or_truncated_record_is_rejected_or_keeps_its_size(one: Record, at: int, flip: int, cut: int) -> None:
    raw = bytearray(record.encode(one))
    raw[at % len(raw)] ^= flip
    damaged = decoded(bytes(raw))
    if damaged is not None:
        assert len(record.encode(damaged)) <= len(raw)
    assert decoded(record.encode(one)[: cut % one.total_size]) is None


@pytest.mark.parametrize(
    ("at", "packed", "message"),
    [
        (0, struct.pack(">i", 108), "TOTALSIZE 108"),
        (0, struct.pack(">i", -1), "TOTALSIZE -1"),
        (0, struct.pack(">i", 2**31 - 1), "of 2147483647 bytes in a buffer"),
        (4, struct.pack(">i", record.MAGIC_BLANK), "magic 0xcbd43194"),
        (8, struct.pack(">i", 1), "has CRC"),
        (84, struct.pack(">i", -1), "body has -1 bytes"),
        (84, struct.pack(">i", 2**31 - 1), "body has 2147483647 bytes"),
        (93, b"\x80", "topic has -128 bytes"),
        (93, b"\x7f", "topic has 127 bytes"),
        (94, b"\xff", "topic is not UTF-8"),
        (100, b"\xff\xff", "properties has -1 bytes"),
        (100, b"\x00\x08", "properties has 8 bytes"),
    ],
)
def test_error_names_the_invalid_field(at: int, packed: bytes, message: str) -> None:
    raw = bytearray(record.encode(SAMPLE))
    raw[at : at + len(packed)] = packed
    with pytest.raises(ProtocolError, match=message):
        record.decode(raw)


def test_crc_check_can_be_skipped() -> None:
    raw = bytearray(record.encode(SAMPLE))
    raw[88] ^= 1
    assert record.decode(raw, check_crc=False).body == b"iello"
    assert decoded(record.encode(SAMPLE), -1) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (replace(SAMPLE, topic="t" * 128), "topic of 128 bytes"),
        (replace(SAMPLE, properties=bytes(32768)), "properties of 32768 bytes"),
        (replace(SAMPLE, version=3), "record version 3"),
        (replace(SAMPLE, born_host=bytes(20)), "born host of 20 bytes, expected 8"),
        (replace(SAMPLE, sys_flag=record.STORE_HOST_V6), "store host of 8 bytes, expected 20"),
    ],
)
def test_record_that_the_layout_cannot_represent_is_rejected(wrong: Record, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record.encode(wrong)


def test_records_of_captured_pulls_round_trip() -> None:
    bodies = [sent for sent in captured() if sent.kind == "response" and sent.request in (11, 12, 33, 361) and sent.body]
    assert len(bodies) > 30
    for sent in bodies:
        assert b"".join(map(record.encode, record.decode_all(sent.body))) == sent.body, sent


@given(records())
def test_view_shows_the_fields_of_the_record(one: Record) -> None:
    view = record.RecordView.parse(record.encode(one))

    assert view is not None
    assert (view.physical_offset, view.store_timestamp, view.properties) == (
        one.physical_offset, one.store_timestamp, one.properties,
    )  # fmt: skip
    assert view.content() == (
        one.body, one.flag, one.sys_flag, one.born_timestamp, one.born_host, one.reconsume_times,
    )  # fmt: skip


@given(records(), st.integers(0, 400), st.integers(1, 255), st.integers(0, 400))
def test_view_of_a_damaged_or_truncated_record_is_absent_or_valid(one: Record, at: int, flip: int, cut: int) -> None:
    raw = bytearray(record.encode(one))
    raw[at % len(raw)] ^= flip
    view = record.RecordView.parse(bytes(raw))
    assert view is None or len(view.raw) == len(raw)
    assert record.RecordView.parse(record.encode(one)[: cut % one.total_size]) is None


def test_view_of_a_record_with_a_damaged_body_has_no_content() -> None:
    raw = bytearray(record.encode(SAMPLE))
    raw[88] ^= 1
    view = record.RecordView.parse(bytes(raw))
    assert view is not None
    assert view.content() is None


@given(records(), st.binary(max_size=20))
def test_single_fields_are_read_in_place(one: Record, before: bytes) -> None:
    buffer, pos = before + record.encode(one) + b"next", len(before)

    assert record.physical_offset_at(buffer, pos) == one.physical_offset
    assert record.queue_offset_at(buffer, pos) == one.queue_offset
    assert record.sys_flag_at(buffer, pos) == one.sys_flag
    assert record.store_timestamp_at(buffer, pos) == one.store_timestamp
    assert record.prepared_transaction_offset_at(buffer, pos) == one.prepared_transaction_offset
    assert buffer[slice(*record.properties_span(buffer, pos))] == one.properties


def test_properties_after_the_body_of_a_version_1_record() -> None:
    raw = b"before" + record.encode(SAMPLE) + b"next"
    assert record.properties_after_body(raw, len(b"before") + record.HEAD_BYTES + len(SAMPLE.body)) == SAMPLE.properties


def test_iteration_stops_at_the_first_byte_that_is_not_part_of_a_complete_record() -> None:
    one = record.encode(SAMPLE)
    blank = record.SIZE_AND_MAGIC.pack(200, record.MAGIC_BLANK) + bytes(192)
    whole = [(0, len(one)), (len(one), len(one))]
    assert list(record.iter_records(one + one)) == whole
    assert list(record.iter_records(one + one + blank)) == whole
    assert list(record.iter_records(one + one + one[:-1])) == whole
    assert list(record.iter_records(b"")) == []
