"""Records of timer messages: batch reads and inspection without decoding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.broker.deferred.records import batch_within_limit, read_records, recall_key
from firearrow.broker.message import BrokerMessage
from firearrow.store.message_store import MessageStore
from firearrow.wire import properties
from firearrow.wire.properties import parse_long
from firearrow.wire.record import Record, decode, encode

T0 = 1_700_000_000_000
SEGMENT = 1 << 20


class FakeStore:
    """A commit log in memory that counts its reads."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(mapped_file_size_commit_log=SEGMENT)
        self.data = bytearray()
        self.reads: list[tuple[int, int]] = []

    def add(self, record: Record, gap: int = 0) -> tuple[int, int]:
        self.data += bytes(gap)
        record.physical_offset = len(self.data)
        self.data += encode(record)
        return record.physical_offset, record.total_size

    def read(self, offset: int, size: int) -> bytes:
        self.reads.append((offset, size))
        return bytes(self.data[offset : offset + size])


def reader(store: FakeStore) -> MessageStore:
    return cast(MessageStore, store)


def a_record(body: bytes = b"x", *, v6: int = 0, version: int = 1, **names: str) -> Record:
    born = bytes(range(20)) if v6 & 0x10 else bytes(range(8))
    stored = bytes(range(20)) if v6 & 0x20 else bytes(range(8))
    return Record(
        "rmq_sys_wheel_timer", body, properties.encode(names), flag=3, sys_flag=v6 | 1, born_timestamp=T0, born_host=born,
        store_timestamp=T0 + 5, store_host=stored, reconsume_times=2, version=version,
    )  # fmt: skip


@pytest.mark.parametrize("v6", [0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("body", [b"", b"x", b"y" * 5000])
def test_view_equals_the_decoded_record(v6: int, version: int, body: bytes) -> None:
    store = FakeStore()
    wanted = [store.add(a_record(body, v6=v6, version=version, KEYS=f"k{number}", TIMER_DELAY_SEC="5")) for number in range(3)]
    for number, record in enumerate(read_records(reader(store), wanted)):
        assert record is not None
        assert (record.text(b"KEYS"), record.number(b"TIMER_DELAY_SEC"), record.text(b"TAGS")) == (f"k{number}", 5, None)
        assert (record.store_timestamp, record.physical_offset) == (T0 + 5, wanted[number][0])
        assert record.message("T", 7) == BrokerMessage.from_record(decode(record.raw), "T", 7)
    assert len(store.reads) == 1


def test_adjacent_records_share_one_read() -> None:
    store = FakeStore()
    wanted = [store.add(a_record(), gap) for gap in (0, 100, 8_000, 9_000, 0)]
    assert all(read_records(reader(store), wanted))
    assert [offset for offset, _ in store.reads] == [wanted[0][0], wanted[3][0]]
    store.reads.clear()
    assert all(read_records(reader(store), wanted[::-1]))
    assert len(store.reads) == 5


def test_read_stays_within_a_file_and_the_size_limit() -> None:
    store = FakeStore()
    wanted = [store.add(a_record(b"z" * 60_000)) for _ in range(30)]
    assert all(read_records(reader(store), wanted))
    assert max(size for _, size in store.reads) <= 262_144
    for offset, _size in store.reads[1:]:
        assert offset in dict(wanted)
    crossed = [(offset, size) for offset, size in store.reads if offset // SEGMENT != (offset + size - 1) // SEGMENT]
    assert all((offset, size) in wanted for offset, size in crossed)  # the fake has no files; nothing was merged over one


@pytest.mark.parametrize("size", [0, 90, -5, 0x7FFFFFFF])
def test_entry_without_record_is_not_read(size: int) -> None:
    store = FakeStore()
    here = store.add(a_record())
    assert [record is None for record in read_records(reader(store), [(0, size), here])] == [True, False]
    assert len(store.reads) == 1


def test_other_bytes_are_not_a_record() -> None:
    store = FakeStore()
    offset, size = store.add(a_record(b"x" * 100))
    second, _ = store.add(a_record(b"x" * 100))
    for wrong in ((offset, size - 1), (offset + 1, size), (second, size + 1), (1 << 30, size)):
        assert read_records(reader(store), [wrong]) == [None]


@given(st.binary(max_size=300), st.integers(0, 200), st.integers(0, 255))
def test_corruption_is_detected_before_delivery(body: bytes, at: int, value: int) -> None:
    store = FakeStore()
    wanted = store.add(a_record(body, TIMER_OUT_MS="5"))
    store.data[at % len(store.data)] = value
    (record,) = read_records(reader(store), [wanted])
    if record is not None:
        record.due_ms(5, 1000)
        message = record.message("T", 0)
        assert message is None or message.body == body


@pytest.mark.parametrize(
    ("names", "due"),
    [
        ({"TIMER_DELIVER_MS": str(T0 + 1_234)}, T0 + 1_234),
        ({"TIMER_DELAY_MS": "1500"}, T0 + 5 + 1_500),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "1500"}, T0 + 5 + 1_000),
        ({"TIMER_DELAY_MS": "1500", "TIMER_ROLL_TIMES": "1"}, T0 + 2_000),  # stored again: the original time is lost
        ({"TIMER_DELIVER_MS": str(T0 + 1_999), "TIMER_ROLL_TIMES": "1"}, T0 + 1_999),
        ({"TIMER_DELIVER_MS": str(T0 + 1_000)}, T0 + 2_000),  # not after the slot's moment: what it says is not meant
        ({"TIMER_DELIVER_MS": str(T0 + 90_000)}, T0 + 2_000),
        ({"TIMER_DELIVER_MS": "soon"}, T0 + 2_000),
        ({}, T0 + 2_000),
    ],
)
def test_exact_delivery_time_is_used_where_known(names: dict[str, Any], due: int) -> None:
    store = FakeStore()
    (record,) = read_records(reader(store), [store.add(a_record(**names))])
    assert record is not None
    assert record.due_ms(T0 + 1_000, 1_000) == due


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"0", 0), (b"-5", -5), (b"+5", 5), (b"007", 7), (b"9223372036854775807", 2**63 - 1), (b"-9223372036854775808", -(2**63)),
        (b"0" * 30 + b"5", 5), (b"9223372036854775808", None), (b"-9223372036854775809", None), (b"", None), (b"-", None),
        (b"5 ", None), (b"5_0", None), (b"0x5", None), (b"\xd9\xa1", None), (b"\xff", None), (None, None), (b"9" * 5000, None),
    ],
)  # fmt: skip
def test_numbers_are_parsed_like_java(text: bytes | None, number: int | None) -> None:
    assert parse_long(text) == number


def test_large_records_are_read_in_small_batches() -> None:
    assert batch_within_limit([100] * 50) == 50
    assert batch_within_limit([4 << 20] * 50) == 1
    assert batch_within_limit([400_000] * 50) == 2
    assert batch_within_limit([]) == 0


def test_marker_names_a_message_of_its_own_topic() -> None:
    assert recall_key("T", "K") == recall_key("T", "T+K") == "T+K"
    assert recall_key("T", "U+K") == "T+U+K"
