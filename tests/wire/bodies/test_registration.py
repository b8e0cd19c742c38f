from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire import fastjson
from firearrow.wire.bodies import registration
from firearrow.wire.bodies.registration import RegisterBrokerBody
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.codes import VERSION_3_0_11, VERSION_5_0_0
from firearrow.wire.errors import ProtocolError
from tests.wire.captured import captured

BODY = RegisterBrokerBody(
    topic_config_table={
        "T": TopicConfig("T", 8, 4, 6, attributes={"message.type": "FIFO"}),
        "%RETRY%G": TopicConfig("%RETRY%G", 1, 1, 6),
    },
    data_version=DataVersion(3, 0, 1_700_000_000_000),
    filter_server_list=["h:1"],
    topic_queue_mapping_info_map={"S": {"topic": "S", "bname": "b"}},
)


def sized(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


def test_captured_registrations_are_read_and_written_again() -> None:
    registrations = [sent for sent in captured() if sent.kind == "request" and sent.request == 103]
    assert len(registrations) > 20
    for sent in registrations:
        body = RegisterBrokerBody.decode(sent.body, version=sent.header["version"])
        assert body.topic_config_table
        assert all(name == config.topic_name for name, config in body.topic_config_table.items())
        assert body.encode() == sent.body
        assert int(sent.ext["bodyCrc32"]) in (0, zlib.crc32(sent.body) & 0x7FFFFFFF)


def test_compressed_and_plain_registration_decode_alike() -> None:
    packed = BODY.encode(compressed=True)
    assert RegisterBrokerBody.decode(packed, compressed=True) == BODY
    older = RegisterBrokerBody.decode(packed, compressed=True, version=VERSION_5_0_0 - 1)
    assert older.topic_config_table == BODY.topic_config_table
    assert older.topic_queue_mapping_info_map == {}


def test_an_older_broker_ends_its_compressed_body_earlier_and_leaves_attributes_out() -> None:
    raw = sized(b'{"counter":1,"timestamp":5}') + struct.pack(">i", 1) + sized(b"T 8 4 6 SINGLE_TAG") + sized(b"[]")
    body = RegisterBrokerBody.decode(zlib.compress(raw), compressed=True, version=VERSION_5_0_0 - 1)
    assert body.topic_config_table == {"T": TopicConfig("T", 8, 4, 6)}
    assert body.data_version == DataVersion(1, 0, 5)


def test_oldest_brokers_send_only_the_topic_table() -> None:
    table = fastjson.dumps(
        {"dataVersion": {"counter": 1, "timestamp": 5}, "topicConfigTable": {"T": {"topicName": "T", "perm": 4}}}
    )
    body = RegisterBrokerBody.decode(table, version=VERSION_3_0_11 - 1)
    assert body.topic_config_table["T"].perm == 4
    assert body.data_version.counter == 1


def test_empty_body_means_a_broker_without_topics() -> None:
    assert RegisterBrokerBody.decode(b"", compressed=True) == RegisterBrokerBody()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\x00", "ends at byte 1"),
        (struct.pack(">i", 99), "the length 99, with 0 bytes left"),
        (struct.pack(">i", -1), "the length -1"),
        (sized(b"{}") + struct.pack(">i", 2**31 - 1), "the length 2147483647"),
        (sized(b"[]"), "DataVersion is a list"),
        (sized(b"{}") + struct.pack(">i", 1) + sized(b"T 8 x 6 SINGLE_TAG"), "expected `topic read write perm filterType`"),
        (sized(b"{}") + struct.pack(">i", 1) + sized(b"T"), "expected `topic read"),
        (sized(b"{}") + struct.pack(">i", 1) + sized(b"\xff 1 1 6 SINGLE_TAG"), "not UTF-8"),
        (sized(b"{}") + struct.pack(">i", 1) + sized(b"T 1 1 6 SINGLE_TAG []"), "expected a JSON object"),
        (sized(b"{}") + struct.pack(">i", 0) + sized(b"{}"), "ends at byte"),
        (sized(b"{}") + struct.pack(">i", 0) + sized(b"[7]"), "filterServerList"),
        (sized(b"{}") + struct.pack(">i", 0) + sized(b"[]") + struct.pack(">i", 1) + sized(b"7"), "expected a JSON object"),
    ],
)
def test_error_in_a_compressed_body_names_the_part(raw: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        RegisterBrokerBody.decode(zlib.compress(raw + b"\0" if said == "" else raw), compressed=True)


def test_broken_truncated_or_oversized_stream_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProtocolError, match="zlib cannot read"):
        RegisterBrokerBody.decode(b"not zlib", compressed=True)
    with pytest.raises(ProtocolError, match="cut off or larger"):
        RegisterBrokerBody.decode(BODY.encode(compressed=True)[:-5], compressed=True)
    monkeypatch.setattr(registration, "MAX_INFLATED", 1000)
    with pytest.raises(ProtocolError, match="larger than 1000 bytes"):
        RegisterBrokerBody.decode(zlib.compress(bytes(100_000)), compressed=True)


@given(st.binary(max_size=80), st.booleans(), st.booleans(), st.integers(0, 600))
def test_any_bytes_yield_a_registration_or_protocol_error(body: bytes, compressed: bool, packed: bool, version: int) -> None:
    with suppress(ProtocolError):
        RegisterBrokerBody.decode(zlib.compress(body) if packed else body, compressed=compressed, version=version)


@given(st.integers(0, 400), st.integers(0, 255))
def test_damaged_compressed_registration_yields_a_registration_or_protocol_error(at: int, value: int) -> None:
    raw = bytearray(zlib.decompress(BODY.encode(compressed=True)))
    raw[at % len(raw)] = value
    with suppress(ProtocolError):
        RegisterBrokerBody.decode(zlib.compress(bytes(raw)), compressed=True)
