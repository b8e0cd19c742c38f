"""The forms of a half message that other tests do not come across: damaged, foreign, with odd properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.broker.message import BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.broker.transaction.half_message import Half, half_at, hold_as_half, is_half, read_half
from firearrow.wire import properties
from firearrow.wire.names import TRANS_HALF_TOPIC
from firearrow.wire.record import Record, decode
from tests.broker.kit import Kit


def sent(names: dict[str, str], *, internal: bool = False) -> BrokerMessage:
    return BrokerMessage("T", 3, b"x", properties.encode(names), 0, 4, 0, b"12345678", unique_key=b"U", internal=internal)


def half(**names: str) -> Half:
    return Half(Record(TRANS_HALF_TOPIC, b"x", properties.encode(names), queue_offset=12, physical_offset=99))


def test_internal_message_is_not_a_half_message() -> None:
    names = {"TRAN_MSG": "true"}
    assert is_half(sent(names))
    assert not is_half(sent(names, internal=True))


def test_properties_of_an_earlier_transaction_are_removed() -> None:
    names = {"TRAN_MSG": "true", "TRANSACTION_CHECK_TIMES": "14", "TRAN_PREPARED_QUEUE_OFFSET": "5", "REAL_TOPIC": "Forged"}
    message = sent(names)
    hold_as_half(message)
    assert properties.parse(message.properties) == {
        "TRAN_MSG": "true", "__transactionId__": "U", "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip
    assert (message.topic, message.queue_id, message.sys_flag) == (TRANS_HALF_TOPIC, 0, 0)


def test_properties_without_room_for_additions_are_rejected() -> None:
    hold_as_half(sent({"big": "x" * 32_500}))
    with pytest.raises(Refused, match="properties take"):
        hold_as_half(sent({"big": "x" * 32_600}))


@pytest.mark.parametrize(("text", "expected"), [("7", 7), ("", 12), ("-1", 12), ("x", 12), ("٣", 12), ("9" * 30, 12)])
def test_the_origin_is_the_first_record_or_itself(text: str, expected: int) -> None:
    names = {"TRAN_PREPARED_QUEUE_OFFSET": text} if text else {}
    assert half(**names).origin == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("", None), ("60", 60_000), ("0", 0), ("-1", 6_000), ("x", 6_000), ("-5", -5_000)]
)
def test_immunity_is_parsed_like_apache(text: str, expected: int | None) -> None:
    names = {"CHECK_IMMUNITY_TIME_IN_SECONDS": text} if text else {}
    assert half(**names).immunity_ms(6_000) == expected


def test_copy_without_room_keeps_its_properties() -> None:
    full = half(big="x" * 32_760)
    copy = full.copied(3)
    assert copy.properties == full.record.properties
    assert Half(Record(TRANS_HALF_TOPIC, b"x", half(a="b").copied(3).properties)).check_times == 3


def test_long_topic_name_can_be_checked() -> None:
    topic = "t" * 200
    one = half(REAL_TOPIC=topic, REAL_QID="1")
    copy = one.copied(1)
    copy.queue_offset, copy.physical_offset = 5, 77
    record = decode(one.for_check(copy))
    assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == (topic, 1, 5, 77)


def test_only_records_of_the_half_topic_are_half_messages(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    ordinary = kit.put("T", 0, b"x")
    nowhere = kit.put(TRANS_HALF_TOPIC, 0, b"without a topic to go to")
    queue = kit.store.queue(TRANS_HALF_TOPIC, 0)
    for offset in (ordinary, nowhere, 1, -1, 10**12):
        assert half_at(kit.store, offset) is None
    for queue_offset in (-1, 0, 1, 2**62):
        assert read_half(kit.store, queue, queue_offset) is None
    kit.close()
