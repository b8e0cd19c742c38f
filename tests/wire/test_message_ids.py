from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire import message_ids, record
from firearrow.wire.errors import ProtocolError
from tests.wire.captured import captured

HOSTS = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))


def test_host_is_an_address_and_a_port() -> None:
    assert message_ids.host_bytes("127.0.0.1", 10911).hex() == "7f00000100002a9f"
    assert message_ids.host_text(bytes.fromhex("7f00000100002a9f")) == "127.0.0.1:10911"
    assert message_ids.host_bytes("::1", 1) == bytes(15) + b"\x01\x00\x00\x00\x01"
    assert message_ids.host_text(message_ids.host_bytes("::1", 1)) == "[::1]:1"


def test_an_ipv4_address_in_ipv6_is_ipv4() -> None:
    assert message_ids.host_bytes("::ffff:10.1.2.3", 5) == message_ids.host_bytes("10.1.2.3", 5)


def test_offset_id_equals_apaches() -> None:
    """The ids of captured sends name the places where the pulled records say they are."""
    told = {sent.ext["msgId"] for sent in captured() if sent.kind == "response" and sent.request == 310 and "msgId" in sent.ext}
    pulled = set()
    for sent in captured():
        if sent.kind == "response" and sent.request == 11 and sent.body:
            pulled |= {message_ids.offset_msg_id(each.store_host, each.physical_offset) for each in record.decode_all(sent.body)}
    assert len(told & pulled) > 10


@given(HOSTS, st.integers(-(2**63), 2**63 - 1))
def test_offset_id_round_trips(host: bytes, offset: int) -> None:
    msg_id = message_ids.offset_msg_id(host, offset)
    assert len(msg_id) in (32, 56)
    assert message_ids.parse_offset_msg_id(msg_id) == (host, offset)
    assert message_ids.parse_offset_msg_id(msg_id.lower()) == (host, offset)


@given(st.one_of(st.text(max_size=60), st.text("0123456789ABCDEFabcdef ", min_size=30, max_size=58)))
def test_any_text_yields_an_offset_or_protocol_error(msg_id: str) -> None:
    try:
        host, _ = message_ids.parse_offset_msg_id(msg_id)
    except ProtocolError:
        return
    assert len(host) in (8, 20)


@pytest.mark.parametrize("wrong", ["", "7F", "7F" * 17, "ZZ" * 16, "7F " * 10 + "7F", "é" * 32])
def test_invalid_id_is_rejected(wrong: str) -> None:
    with pytest.raises(ProtocolError, match="expected 32 or 56 hex digits"):
        message_ids.parse_offset_msg_id(wrong)


@given(st.binary(max_size=24))
def test_any_bytes_yield_a_host_or_protocol_error(host: bytes) -> None:
    try:
        message_ids.host_text(host)
    except ProtocolError:
        assert len(host) not in (8, 20)


def test_unique_keys_have_javas_form() -> None:
    keys = message_ids.UniqueKeys("10.0.0.9", 70_000, seed=0x30946E09)
    now_ms = int(time.mktime((2026, 11, 1, 0, 0, 0, 0, 0, -1))) * 1000 + 0x4D2F8246
    assert keys.next(now_ms) == "0A000009" + "1170" + "30946E09" + "4D2F8246" + "0000"
    assert keys.next(now_ms).endswith("4D2F82460001")
    assert len(message_ids.UniqueKeys("fd00::2", 1).next(now_ms)) == 56


def test_unique_keys_restart_with_the_month_and_the_counter_wraps() -> None:
    keys = message_ids.UniqueKeys("10.0.0.9", 1)
    december = int(time.mktime((2026, 12, 1, 0, 0, 0, 0, 0, -1))) * 1000
    assert keys.next(december - 1)[20:28] > "99"
    assert keys.next(december)[20:28] == "00000000"
    january = int(time.mktime((2027, 1, 1, 0, 0, 0, 0, 0, -1))) * 1000
    assert keys.next(january + 5)[20:28] == "00000005"
    seen = {keys.next(january) for _ in range(65536)}
    assert len(seen) == 65536
