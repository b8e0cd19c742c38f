"""Messages that the broker stores itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.broker.message import BrokerMessage
from firearrow.wire import properties
from firearrow.wire.java_hash import tags_code
from firearrow.wire.record import Record, decode_all
from tests.broker.kit import HOST, T0, Kit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    yield made
    made.close()


def a_message(body: bytes = b"x", **names: str) -> BrokerMessage:
    return BrokerMessage("T", 1, body, properties.encode(names), 3, 0, T0 - 5, HOST, reconsume_times=2, prepared_offset=77)


def stored(kit: Kit) -> list[Record]:
    kit.store.write_out()
    kit.store.confirm(kit.store.flush())
    return decode_all(kit.store.get_messages(kit.store.queue("T", 1), 0, 32).body)


def test_message_is_stored_with_all_its_fields(kit: Kit) -> None:
    kit.context.writer.append(a_message(b"hello", KEYS="k"), T0)
    (record,) = stored(kit)
    assert (record.body, properties.parse(record.properties)["KEYS"], record.flag) == (b"hello", "k", 3)
    assert (record.born_timestamp, record.store_timestamp, record.born_host) == (T0 - 5, T0, HOST)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (2, 77)


def test_offsets_of_the_message_are_set(kit: Kit) -> None:
    first, second = a_message(), a_message()
    kit.context.writer.append(first, T0)
    kit.context.writer.append(second, T0)
    assert (first.queue_offset, second.queue_offset) == (0, 1)
    assert [record.physical_offset for record in stored(kit)] == [first.physical_offset, second.physical_offset]


def test_delivered_message_is_indexed_by_its_tags(kit: Kit) -> None:
    message = a_message(TAGS="TagA")
    message.tags_code = T0  # as for a message in a holding topic
    kit.context.writer.deliver(message, T0)
    stored(kit)
    entry = kit.store.queue("T", 1).entry(0)
    assert entry is not None
    assert entry[2] == tags_code("TagA")


def test_every_append_is_counted_and_schedules_a_commit(kit: Kit) -> None:
    kit.context.writer.append(a_message(b"a"), T0)
    kit.context.writer.append(a_message(b"b" * 100), T0)
    put = kit.context.stats.topic_put("T")
    assert (put.nums, put.size) == (2, kit.store.appended_offset)
    assert kit.rounds == 2
