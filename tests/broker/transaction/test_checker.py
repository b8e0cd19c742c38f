"""Rounds of asking, under a clock that the test turns: who is asked when, about what, and when it ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.broker.transaction import checker
from firearrow.wire import properties
from firearrow.wire.codes import ResponseCode
from firearrow.wire.message_ids import offset_msg_id
from firearrow.wire.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import HOST, T0
from tests.broker.transaction_story import QUEUE, TOPIC, TransactionStory

ROUND = 30_000
HOUR = 3_600_000


@pytest.fixture
def story(tmp_path: Path) -> Iterator[TransactionStory]:
    told = TransactionStory(tmp_path)
    told.connect(told.producer)
    told.at(T0)
    yield told
    told.close()


def test_check_request_names_the_copy_with_the_topic_of_the_send(story: TransactionStory) -> None:
    story.half(b"x", UNIQ_KEY="U", TAGS="new")
    story.at(T0 + ROUND - 1)
    assert story.asked == []
    story.at(T0 + ROUND)

    (asked,) = story.asked
    first, copy = story.halves()
    assert asked.producer is story.producer
    assert asked.ext == {
        "topic": TRANS_HALF_TOPIC, "tranStateTableOffset": "1", "commitLogOffset": str(copy.physical_offset), "msgId": "U",
        "transactionId": "U", "offsetMsgId": offset_msg_id(HOST, copy.physical_offset), "bname": "broker-a",
    }  # fmt: skip
    record = asked.record
    assert (record.topic, record.queue_id, record.body, record.flag) == (TOPIC, QUEUE, b"x", 7)
    assert (record.queue_offset, record.physical_offset) == (1, copy.physical_offset)
    assert (record.born_timestamp, record.born_host) == (first.born_timestamp, first.born_host)
    names = properties.parse(record.properties)
    assert names == properties.parse(copy.properties)
    assert names == properties.parse(first.properties) | {"TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
    assert copy.born_timestamp == first.born_timestamp


def test_properties_of_the_copy_are_not_delivered(story: TransactionStory) -> None:
    story.half(b"x")
    story.at(T0 + ROUND)
    story.commit(story.asked[0].as_sent(), check=True)
    (record,) = story.messages(TOPIC, QUEUE)
    names = properties.parse(record.properties)
    assert names["TRANSACTION_CHECK_TIMES"] == "1"
    assert {"REAL_TOPIC", "REAL_QID", "TRAN_PREPARED_QUEUE_OFFSET"}.isdisjoint(names)


def test_young_message_is_not_checked(story: TransactionStory) -> None:
    story.kit.now = T0 + ROUND - 6_000
    story.half(b"6000 ms old")
    story.at(T0 + ROUND)
    assert story.asked == []
    story.at(T0 + 2 * ROUND)
    assert len(story.asked) == 1


def test_message_born_in_the_future_is_checked_like_an_old_one(story: TransactionStory) -> None:
    story.half(b"x", born_ms=T0 + HOUR)
    story.at(T0 + ROUND)
    assert len(story.asked) == 1


def test_check_is_sent_once_the_copy_is_readable(story: TransactionStory) -> None:
    story.half(b"x")
    story.transactions.tick(T0 + ROUND)
    story.transactions.tick(T0 + ROUND + 100)
    assert story.asked == []
    story.end_round()
    story.transactions.tick(T0 + ROUND + 200)
    assert len(story.asked) == 1


def test_message_decided_in_the_meantime_is_not_checked(story: TransactionStory) -> None:
    sent = story.half(b"x")
    story.transactions.tick(T0 + ROUND)
    assert story.commit(sent).code == ResponseCode.SUCCESS
    story.through(T0 + ROUND + 100, T0 + 2 * ROUND, T0 + 3 * ROUND)
    assert (story.delivered(), story.asked) == ([b"x"], [])


def test_checks_rotate_over_connected_producers(story: TransactionStory) -> None:
    dead, other = FakeConnection(1), FakeConnection(2)
    for conn in (dead, other):
        story.connect(conn)
    story.connect(FakeConnection(3), "Another")
    dead.closed = True
    for number in range(6):
        story.half(b"%d" % number)
    story.at(T0 + ROUND)
    asked = [one.producer for one in story.asked]
    assert sorted(asked.count(conn) for conn in (story.producer, other)) == [3, 3]
    assert len(asked) == 6


def test_check_without_producer_counts_and_is_logged_once(story: TransactionStory, caplog: pytest.LogCaptureFixture) -> None:
    story.context.clients.unregister_producer(story.producer, "P")  # type: ignore[arg-type]  # a connection in all but name
    for number in range(3):
        story.half(b"%d" % number)
    story.at(T0 + ROUND)
    assert [properties.parse(copy.properties)["TRANSACTION_CHECK_TIMES"] for copy in story.halves()[3:]] == ["1"] * 3
    assert [record.message for record in caplog.records] == [
        "no producer of group P is connected to check its 3 open transactions"
    ]


def test_message_is_given_up_after_the_last_check(story: TransactionStory, caplog: pytest.LogCaptureFixture) -> None:
    story.half(b"x", UNIQ_KEY="U")
    story.through(*range(T0 + ROUND, T0 + 16 * ROUND, ROUND))
    assert len(story.asked) == 15
    assert story.messages(TRANS_CHECK_MAX_TIME_TOPIC, 0) == []  # the last question may still be answered
    with caplog.at_level(logging.WARNING):
        story.at(T0 + 16 * ROUND)
    (record,) = story.messages(TRANS_CHECK_MAX_TIME_TOPIC, 0)
    names = properties.parse(record.properties)
    assert record.body == b"x"
    assert (names["TRANSACTION_CHECK_TIMES"], names["REAL_TOPIC"], names["UNIQ_KEY"]) == ("15", TOPIC, "U")
    config = story.context.topics.find(TRANS_CHECK_MAX_TIME_TOPIC)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    assert "transaction U of group P for topic Orders is given up: its producers were checked 15 times" in caplog.text
    story.through(*range(T0 + 16 * ROUND, T0 + 30 * ROUND, ROUND))
    assert len(story.asked) == 15
    assert len(story.messages(TRANS_CHECK_MAX_TIME_TOPIC, 0)) == 1


def test_message_older_than_the_retention_is_given_up(story: TransactionStory) -> None:
    story.half(b"old", born_ms=T0 - 72 * HOUR)
    story.at(T0 + ROUND)
    assert [record.body for record in story.messages(TRANS_CHECK_MAX_TIME_TOPIC, 0)] == [b"old"]
    assert story.asked == []


def test_immunity_delays_the_first_check_and_does_not_count(story: TransactionStory) -> None:
    story.half(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="7200")
    story.half(b"ordinary")
    story.through(*range(T0 + ROUND, T0 + 7_200_000 + 1, ROUND))
    assert {one.record.body for one in story.asked} == {b"ordinary"}
    newest = story.halves()[-1]
    assert newest.body == b"immune"
    names = properties.parse(newest.properties)
    assert names["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert "TRANSACTION_CHECK_TIMES" not in names
    story.at(T0 + 7_200_000 + ROUND)
    asked = story.asked[-1]
    assert asked.record.body == b"immune"
    assert properties.parse(asked.record.properties)["TRANSACTION_CHECK_TIMES"] == "1"
    story.commit(asked.as_sent(), check=True)
    assert story.delivered() == [b"immune"]


def test_decision_about_an_immune_message_applies_to_its_copies(story: TransactionStory) -> None:
    sent = story.half(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    story.through(*range(T0 + ROUND, T0 + 10 * ROUND, ROUND))
    assert len(story.halves()) == 10
    assert story.commit(sent).code == ResponseCode.SUCCESS
    story.through(*range(T0 + 10 * ROUND, T0 + 40 * ROUND, ROUND))
    assert (story.delivered(), story.asked, len(story.halves())) == ([b"immune"], [], 10)


def test_decided_messages_are_not_copied_and_do_not_end_the_scan(story: TransactionStory) -> None:
    sent = [story.half(b"%d" % number) for number in range(10)]
    for one in sent[::2]:
        story.commit(one)
    story.at(T0 + ROUND)
    assert [one.record.body for one in story.asked] == [b"1", b"3", b"5", b"7", b"9"]
    assert story.progress()[0] == 10


def test_scan_works_in_batches(story: TransactionStory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "BATCH", 4)
    for number in range(10):
        story.half(b"%d" % number)
    assert story.transactions.tick(T0 + ROUND)
    assert len(story.kit.told) == 0
    assert not story.transactions.tick(T0 + ROUND)  # not before what was copied can be read
    story.end_round()
    assert len(story.halves()) == 14
    story.at(T0 + ROUND + 100)
    assert len(story.asked) == 10
    assert len(story.halves()) == 20


def test_large_messages_are_checked_in_small_batches(story: TransactionStory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "MAX_PENDING_BYTES", 25_000)
    for _ in range(6):
        story.half(b"x" * 10_000)
    story.transactions.tick(T0 + ROUND)
    story.end_round()
    assert len(story.halves()) == 9
    story.at(T0 + ROUND + 100)
    assert len(story.asked) == 6


def test_no_scan_while_the_store_is_not_writable(story: TransactionStory, monkeypatch: pytest.MonkeyPatch) -> None:
    story.half(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(type(story.store), "writable", property(lambda store: False))
        story.at(T0 + ROUND)
        assert len(story.halves()) == 1
    story.at(T0 + ROUND + 100)
    assert len(story.asked) == 1


def test_checks_continue_after_the_clock_was_set_back(story: TransactionStory) -> None:
    story.through(T0 + 10 * HOUR, T0 - 10 * HOUR)
    story.half(b"x")
    story.at(T0 - 10 * HOUR + ROUND)
    assert len(story.asked) == 1


def test_nothing_is_read_or_written_between_scans(story: TransactionStory, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2_000):
        story.half(b"%d" % number)
    story.at(T0 + ROUND)
    end, reads = story.store.max_offset, 0

    def read(offset: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        return b""

    monkeypatch.setattr(story.store, "read", read)
    story.through(*range(T0 + ROUND + 100, T0 + 2 * ROUND - 1, 100))
    assert (story.store.max_offset, reads) == (end, 0)


def test_transaction_open_for_two_hours(story: TransactionStory) -> None:
    story.settings["transaction_check_max"] = 1_000
    story.context.settings.transaction_check_max = 1_000
    sent = story.half(b"slow")
    story.through(*range(T0, T0 + 2 * HOUR, 1_000))
    assert len(story.asked) == 2 * HOUR // ROUND - 1
    assert story.commit(sent).code == ResponseCode.SUCCESS
    story.through(*range(T0 + 2 * HOUR, T0 + 3 * HOUR, 1_000))
    assert story.delivered() == [b"slow"]
    assert len(story.asked) == 2 * HOUR // ROUND - 1
