from __future__ import annotations

import zlib

import pytest

from firearrow.client.errors import DecompressionError
from firearrow.client.message import MessageQueue, received
from firearrow.wire.message_ids import host_bytes
from firearrow.wire.record import Record

RECORD = Record(
    "NS%Orders", b"body", b"TAGS\x01new\x02KEYS\x01A1 B2\x02UNIQ_KEY\x01ID\x02own\x01v\x02", queue_id=3, flag=7, queue_offset=5,
    physical_offset=255, born_timestamp=1, born_host=host_bytes("10.0.0.1", 99), store_timestamp=2,
    store_host=host_bytes("10.0.0.2", 10911), reconsume_times=4, prepared_transaction_offset=6,
)  # fmt: skip


def test_a_received_message_shows_its_record() -> None:
    message = received(RECORD, "broker-a", "NS")
    assert (message.topic, message.body, message.tags, message.keys, message.msg_id) == (
        "Orders",
        b"body",
        "new",
        ("A1", "B2"),
        "ID",
    )
    assert message.queue == MessageQueue("NS%Orders", "broker-a", 3)
    assert (message.queue_id, message.queue_offset, message.commit_log_offset, message.flag, message.sys_flag) == (
        3,
        5,
        255,
        7,
        0,
    )
    assert (message.born_ms, message.born_host, message.store_ms, message.store_host) == (1, "10.0.0.1:99", 2, "10.0.0.2:10911")
    assert message.offset_msg_id == "0A00000200002A9F00000000000000FF"
    assert (message.reconsume_times, message.prepared_transaction_offset, message.store_size) == (4, 6, RECORD.total_size)
    assert message.properties == {"own": "v"}
    assert message.system_properties == {"TAGS": "new", "KEYS": "A1 B2", "UNIQ_KEY": "ID"}
    assert message.all_properties == {"TAGS": "new", "KEYS": "A1 B2", "UNIQ_KEY": "ID", "own": "v"}
    assert (message.get("own"), message.get("KEYS"), message.get("absent", "?")) == ("v", "A1 B2", "?")
    assert (message.get("own"), message.get("none"), message.get("none", "d")) == ("v", None, "d")
    assert "ID" in repr(message)


def test_without_a_key_of_its_own_a_message_is_known_by_its_place() -> None:
    message = received(Record("T", b"x", physical_offset=1, store_host=host_bytes("10.0.0.2", 1)), "b")
    assert message.msg_id == message.offset_msg_id
    assert (message.tags, message.keys, message.properties, message.system_properties) == (None, (), {}, {})


def test_a_message_that_is_delivered_again_shows_where_it_was_sent() -> None:
    record = Record("%RETRY%NS%g", b"x", b"RETRY_TOPIC\x01NS%Orders\x02")
    assert received(record, "b", "NS", restore_topic=True).topic == "Orders"
    assert received(record, "b", "NS").topic == "%RETRY%g"
    assert received(record, "b").queue.topic == "%RETRY%NS%g"


def test_a_compressed_body_is_inflated_at_the_first_look() -> None:
    message = received(Record("T", zlib.compress(b"plain"), sys_flag=0x301), "b")
    assert message.body == b"plain"
    broken = received(Record("T", b"nonsense", sys_flag=0x301), "b")
    with pytest.raises(DecompressionError):
        _ = broken.body


def test_queues_sort_by_topic_broker_and_number() -> None:
    queues = [MessageQueue("b", "x", 0), MessageQueue("a", "y", 10), MessageQueue("a", "y", 9), MessageQueue("a", "x", 11)]
    assert sorted(queues) == [queues[3], queues[2], queues[1], queues[0]]
