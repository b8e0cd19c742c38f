"""Native implementations compared with Python, and their handling of invalid arguments."""

from __future__ import annotations

import random
import struct
from typing import Any
from unittest import mock
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.store.accelerated import native
from firearrow.store.commitlog import log, verification
from firearrow.store.consume_queue import ENTRY, ConsumeQueue
from firearrow.wire import batch
from firearrow.wire.errors import ProtocolError
from firearrow.wire.message_ids import host_bytes
from firearrow.wire.record import HEAD, MAGIC_V1, Record, encode

if native is None:
    pytest.skip("the C part was not built", allow_module_level=True)
part: Any = native

HOST = host_bytes("127.0.0.1", 10911)
SAME = struct.pack(">iq8sq8siq", 0, 5, HOST, 6, HOST, 1, 0)
QUEUE = ConsumeQueue("Orders", 3, None, plain=True)  # type: ignore[arg-type]  # its files are not asked for

texts = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), max_size=8).map(str.encode)
names = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"MYTAGS", b"TAGS2", b""])
blocks = st.lists(st.tuples(names, st.one_of(texts, st.binary(max_size=6))).map(b"\x01".join), max_size=4).map(b"\x02".join)
messages = st.lists(st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=40), blocks), max_size=6)


@settings(max_examples=300, deadline=None)
@given(messages, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_native_batch_records_equal_python(parts: list[tuple[int, bytes, bytes]], queue_offset: int, offset: int) -> None:
    body = batch.join(parts)
    QUEUE.next_offset = queue_offset
    pieces, entries, offsets, raws = log.batch_records(body, QUEUE, offset, SAME)
    made = part.batch_records(body, QUEUE.queue_id, queue_offset, offset, SAME, QUEUE.topic_piece)
    assert made == (b"".join(pieces), entries, offsets, raws)


@settings(max_examples=300, deadline=None)
@given(messages, st.data())
def test_malformed_batch_is_rejected_by_both_implementations(parts: list[tuple[int, bytes, bytes]], data: st.DataObject) -> None:
    body = bytearray(batch.join(parts) + data.draw(st.binary(max_size=30)))
    for _ in range(data.draw(st.integers(0, 3)) if body else 0):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 20, 22, 127, 128, 255]))
    QUEUE.next_offset = 0
    made = part.batch_records(bytes(body), QUEUE.queue_id, 0, 0, SAME, QUEUE.topic_piece)
    if made is None:
        with pytest.raises(ProtocolError):
            log.batch_records(bytes(body), QUEUE, 0, SAME)
    else:
        pieces, *others = log.batch_records(bytes(body), QUEUE, 0, SAME)
        assert made == (b"".join(pieces), *others)


numbers32 = st.integers(-(1 << 31), (1 << 31) - 1)
numbers64 = st.integers(-(1 << 63), (1 << 63) - 1)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=50), blocks, st.tuples(numbers32, numbers64, numbers64, numbers64),
    st.tuples(numbers32, numbers64, numbers64, numbers32, numbers64), st.binary(min_size=8, max_size=8),
)  # fmt: skip
def test_native_record_equals_python(
    body: bytes, raw: bytes, place: tuple[int, ...], said: tuple[int, ...], born_host: bytes
) -> None:
    flag, queue_offset, offset, code = place
    sys_flag, born_ms, store_ms, times, prepared = said
    record, entry = part.record(
        body,
        raw,
        QUEUE.topic_piece,
        3,
        flag,
        queue_offset,
        offset,
        code,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        HOST,
        times,
        prepared,
    )
    size = QUEUE.base_size + len(body) + len(raw)
    head = HEAD.pack(
        size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, 3, flag, queue_offset, offset, sys_flag, born_ms, born_host, store_ms, HOST,
        times, prepared, len(body),
    )  # fmt: skip
    assert record == head + body + QUEUE.topic_piece + struct.pack(">h", len(raw)) + raw
    assert entry == ENTRY.pack(offset, size, code)


GOOD: list[Any] = [b"x", b"", b"\x01T", 0, 0, 0, 0, 0, 0, 0, HOST, 0, HOST, 0, 0]


@pytest.mark.parametrize(
    ("at", "wrong"),
    [(0, "x"), (1, bytes(32768)), (1, None), (2, b""), (2, bytes(129)), (3, 1 << 31), (4, -(1 << 31) - 1), (5, 1 << 63), (6, "0"),
     (8, 1 << 31), (9, 1.5), (10, bytes(20)), (12, b""), (13, 1 << 40), (14, None)],
)  # fmt: skip
def test_values_out_of_range_are_rejected(at: int, wrong: Any) -> None:
    assert part.record(*GOOD)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        part.record(*GOOD[:at], wrong, *GOOD[at + 1 :])
    with pytest.raises(TypeError, match="arguments"):
        part.record(*GOOD[:at])


def test_crc_of_a_large_body_equals_zlib() -> None:
    rng = random.Random(3)
    for size in (0, 1, 7, 8, 9, 63, 1_000, 70_001):
        body = batch.join([(0, rng.randbytes(size), b"")])
        QUEUE.next_offset = 0
        pieces, *_ = log.batch_records(body, QUEUE, 0, SAME)
        assert part.batch_records(body, QUEUE.queue_id, 0, 0, SAME, QUEUE.topic_piece)[0] == b"".join(pieces)


@pytest.mark.parametrize(
    "run",
    [
        (),
        [1],
        [(1, 2, "T")],
        [(1, 2, "T", b"", 5)],
        [("1", 2, "T", b"")],
        [(1, None, "T", b"")],
        [(1, 2, b"T", b"")],
        [(1, 2, "T", "")],
        [(1 << 80, 2, "T", b"")],
    ],
)
def test_malformed_run_is_rejected(run: Any) -> None:
    with pytest.raises((TypeError, OverflowError)):
        part.hash_keys(run)


def test_messages_out_of_order_are_rejected() -> None:
    with pytest.raises(AssertionError, match="log order"):
        part.hash_keys([(2, 0, "T", b""), (2, 0, "T", b"")])


@pytest.mark.parametrize(
    ("slots", "pages", "start", "end", "number"),
    [
        (0, 1, 0, 2, 1),
        (2_000, 1, 0, 2, 1),
        (10, 1, 0, 3, 1),
        (10, 1, -1, 2, 1),
        (10, 1, 2, 1, 1),
        (10, 1, 0, 2, 0),
        (10, 1, 0, 2, 2**31 - 2),
    ],
)
def test_entries_beyond_the_slots_are_rejected(slots: int, pages: int, start: int, end: int, number: int) -> None:
    columns = part.hash_keys([(7, 8, "T", b"UNIQ_KEY\x01a\x02KEYS\x01b\x02")])
    slot_array, page_array = np.zeros(slots, np.int32), np.zeros(pages, np.bool_)
    with pytest.raises(ValueError, match="do not fit"):
        part.put_entries(slot_array, page_array, *columns, start, end, number, 0, 0)
    assert not slot_array.any()


@pytest.mark.parametrize(("same", "topic"), [(SAME[1:], b"\x01T"), (SAME, b""), (SAME, bytes(129))])
def test_shared_fields_of_the_wrong_size_are_rejected(same: bytes, topic: bytes) -> None:
    with pytest.raises(ValueError, match="in common"):
        part.batch_records(batch.join([(0, b"x", b"")]), 0, 0, 0, same, topic)


hosts = st.sampled_from([(0, HOST), (0x10, bytes(range(20)))])
record_parts = st.tuples(st.binary(max_size=30), st.binary(max_size=20), hosts, st.sampled_from([1, 2]))


@settings(max_examples=400, deadline=None)
@given(st.lists(record_parts, min_size=1, max_size=4), st.data())
def test_native_verification_equals_python(parts: list[tuple[bytes, bytes, tuple[int, bytes], int]], data: st.DataObject) -> None:
    records = b""
    entries = b""
    for number, (body, properties, (sys_flag, born_host), version) in enumerate(parts):
        made = encode(
            Record(
                "Orders", body, properties, queue_id=3, queue_offset=7 + number, physical_offset=100 + len(records),
                sys_flag=sys_flag, born_host=born_host, store_host=HOST, version=version,
            )
        )  # fmt: skip
        entries += ENTRY.pack(100 + len(records), len(made), 0)
        records += made
    changed, changed_entries = bytearray(records), bytearray(entries)
    for text in (changed, changed_entries):
        for _ in range(data.draw(st.integers(0, 2))):
            text[data.draw(st.integers(0, len(text) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, len(records)))
    for some in (bytes(changed), bytes(changed[:cut])):
        native_count = verification.count_intact(some, bytes(changed_entries), QUEUE, 7)
        with mock.patch.object(verification, "native", None):
            assert verification.count_intact(some, bytes(changed_entries), QUEUE, 7) == native_count
    if changed == records and changed_entries == entries:
        assert verification.count_intact(records, entries, QUEUE, 7) == len(parts)
        assert verification.count_intact(records, entries, QUEUE, 8) == 0
