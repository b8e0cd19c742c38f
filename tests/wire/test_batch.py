from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire import batch
from firearrow.wire.errors import ProtocolError
from tests.wire.captured import captured
from tests.wire.strategies import I32

MESSAGES = st.lists(st.tuples(I32, st.binary(max_size=30), st.binary(max_size=30)), max_size=5)


def split(body: bytes) -> list[tuple[int, bytes, bytes]] | None:
    try:
        return batch.split(body)
    except ProtocolError:
        return None


@given(MESSAGES)
def test_messages_round_trip(messages: list[tuple[int, bytes, bytes]]) -> None:
    assert batch.split(batch.join(messages)) == messages


@given(st.binary(max_size=100))
def test_any_bytes_yield_messages_covering_them_or_protocol_error(body: bytes) -> None:
    messages = split(body)
    if messages is not None:
        assert len(batch.join(messages)) == len(body)


@given(MESSAGES, st.integers(0, 300), st.integers(1, 255), st.integers(0, 300))
def test_damaged_or_truncated_batch_yields_complete_messages_or_protocol_error(
    messages: list[tuple[int, bytes, bytes]], at: int, flip: int, cut: int
) -> None:
    body = batch.join(messages)
    if body:
        damaged = bytearray(body)
        damaged[at % len(body)] ^= flip
        again = split(bytes(damaged))
        assert again is None or len(batch.join(again)) == len(body)
        short = split(body[: cut % len(body)])
        assert short is None or short == messages[: len(short)]


@pytest.mark.parametrize("lengths", [(23, -1), (23, 2**31 - 1), (-1, 1), (0, 1), (22, 1), (24, 1), (2**31 - 1, 1)])
def test_lengths_that_do_not_fit_are_rejected(lengths: tuple[int, int]) -> None:
    total, body_length = lengths
    with pytest.raises(ProtocolError, match="message 1 at byte 23"):
        batch.split(batch.join([(0, b"x", b"")]) + struct.pack(">iiiii", total, 0, 0, 0, body_length) + b"x\x00\x00")


def test_properties_have_a_limit() -> None:
    with pytest.raises(ValueError, match="at most 32767"):
        batch.join([(0, b"", bytes(32768))])


def test_captured_batches_round_trip_byte_for_byte() -> None:
    bodies = [sent.body for sent in captured() if sent.kind != "response" and sent.request == 320]
    assert len(bodies) >= 3
    for body in bodies:
        messages = batch.split(body)
        assert len(messages) > 1
        assert batch.join(messages) == body
