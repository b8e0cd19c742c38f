"""Commits of half messages that are remembered from their send: the same as of those that are read from the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from firearrow.broker.message import BrokerMessage
from firearrow.broker.transaction.service import CACHE_SLOTS, MAX_CACHED_BYTES, HalfMessageCache
from firearrow.net.connection import Connection
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.record import Record
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import T0
from tests.broker.transaction_story import COMMIT, GROUP, QUEUE, ROLLBACK, TOPIC, Sent, TransactionStory


@pytest.fixture
def story(tmp_path: Path) -> Iterator[TransactionStory]:
    story = TransactionStory(tmp_path)
    yield story
    story.close()


def placed(queue_offset: int, body: bytes = b"x", properties: bytes = b"") -> BrokerMessage:
    return BrokerMessage(TOPIC, QUEUE, body, properties, 0, 0, T0, b"12345678", queue_offset=queue_offset, physical_offset=99)


def remembered(story: TransactionStory, sent: Sent) -> bool:
    return story.transactions.half_cache.find(sent.queue_offset) is not None


def forget(story: TransactionStory, sent: Sent) -> None:
    story.transactions.half_cache.remove(sent.queue_offset)


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"TAGS": "TagA", "KEYS": "k1 k2"},
        {"TAGS": "", "MYTAGS": "a", "WAIT": "false"},
        {"PGROUP": "", "UNIQ_KEY": ""},
        {"REAL_TOPIC": "Forged", "REAL_QID": "77", "__transactionId__": "f", "TRAN_PREPARED_QUEUE_OFFSET": "0"},
        {"UREAL_TOPIC": "mine", "xTRAN_MSG": "false", "TRANSIT": "Größe"},
        {"DELAY": "0"},
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"},
    ],
)
def test_cached_half_is_committed_like_one_read_from_the_log(story: TransactionStory, names: dict[str, Any]) -> None:
    group = names.get("PGROUP", GROUP)
    quick, read = story.half(b"body", group=group, **names), story.half(b"body", group=group, **names)
    assert remembered(story, quick) == (not names.keys() & {"DELAY", "CHECK_IMMUNITY_TIME_IN_SECONDS"})
    forget(story, read)
    for sent in (quick, read):
        assert story.commit(sent).code == ResponseCode.SUCCESS
    one, other = story.messages(TOPIC, QUEUE)
    assert (one.prepared_transaction_offset, other.prepared_transaction_offset) == (quick.log_offset, read.log_offset)
    assert alike(one, quick) == alike(other, read)
    entries = [story.store.queue(TOPIC, QUEUE).entry(offset) for offset in (0, 1)]
    assert entries[0] is not None
    assert entries[1] is not None
    assert entries[0][1:] == entries[1][1:]  # size and tags code
    story.at(T0 + 3_000)
    assert story.ops() == [b"0,1,"]


def alike(record: Record, sent: Sent) -> tuple[object, ...]:
    """Return the common part of two messages that differ only in their unique keys."""
    raw = record.properties.replace(sent.transaction_id.encode(), b"KEY")
    return (
        record.topic, record.queue_id, record.body, raw, record.flag, record.sys_flag, record.born_timestamp, record.born_host,
        record.store_timestamp, record.store_host, record.reconsume_times, record.body_crc,
    )  # fmt: skip


def test_decided_half_leaves_the_cache_and_keeps_its_decision(story: TransactionStory) -> None:
    kept, gone = story.half(b"kept"), story.half(b"gone")
    assert story.commit(kept).code == story.rollback(gone).code == ResponseCode.SUCCESS
    assert not remembered(story, kept)
    assert not remembered(story, gone)
    assert story.commit(kept).code == story.rollback(gone).code == ResponseCode.SUCCESS
    assert "committed before" in (story.rollback(kept).remark or "")
    assert "rolled back before" in (story.commit(gone).remark or "")
    assert story.delivered() == [b"kept"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"producerGroup": "Q"}, "producer group wrong"), ({"commitLogOffset": "7"}, "commit log offset wrong")],
)
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_rejected_decision_keeps_the_half_cached(
    story: TransactionStory, wrong: dict[str, str], said: str, decision: int
) -> None:
    sent = story.half(b"x")
    answer = story.end(sent, decision, **wrong)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert said in (answer.remark or "")
    assert story.delivered() == []
    assert remembered(story, sent)
    assert story.commit(sent).code == ResponseCode.SUCCESS
    assert story.delivered() == [b"x"]


def test_a_half_that_is_not_durable_yet_cannot_be_committed(story: TransactionStory) -> None:
    story.half(b"first")
    log_offset = story.store.appended_offset
    raw = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01U\x02"
    ext = {"a": GROUP, "b": TOPIC, "c": "TBW102", "d": "4", "e": str(QUEUE), "f": "4", "g": str(T0), "h": "0", "i": raw}
    request = Command(RequestCode.SEND_MESSAGE_V2, opaque=1, ext=ext, body=b"x")
    story.sends.send(cast(Connection, story.producer), request, T0)
    sent = Sent(1, log_offset, "U")
    assert remembered(story, sent)
    guessed = story.start_end(sent, COMMIT, FakeConnection())
    assert guessed is not None
    assert b"there is no half message 1" in guessed
    story.end_round()
    assert story.commit(sent).code == ResponseCode.SUCCESS
    assert story.delivered() == [b"x"]


def test_a_half_that_was_copied_is_decided_by_its_copy(story: TransactionStory) -> None:
    sent = story.half(b"x")
    story.through(T0 + 1_000, T0 + 40_000)
    assert [record.queue_offset for record in story.halves()] == [0, 1]
    assert remembered(story, sent)
    assert story.commit(sent).code == ResponseCode.SUCCESS
    assert story.commit(sent).code == ResponseCode.SYSTEM_ERROR  # it knows only that the copy took its place
    assert story.delivered() == [b"x"]
    story.at(T0 + 43_000)
    assert story.ops() == [b"1,0,"]


def test_later_half_replaces_an_older_one_in_the_cache() -> None:
    recent = HalfMessageCache()
    recent.put(placed(5))
    recent.put(placed(6))
    recent.put(placed(5 + CACHE_SLOTS))
    assert recent.find(5) is None
    assert recent.find(6) == placed(6)
    assert recent.find(5 + CACHE_SLOTS) == placed(5 + CACHE_SLOTS)
    assert recent.find(-1) is None
    recent.remove(6)
    assert recent.find(6) is None


def test_large_messages_are_not_cached() -> None:
    recent = HalfMessageCache()
    recent.put(placed(1, bytes(MAX_CACHED_BYTES - 10), bytes(10)))
    recent.put(placed(2, bytes(MAX_CACHED_BYTES - 9), bytes(10)))
    assert recent.find(1) is not None
    assert recent.find(2) is None


@pytest.mark.parametrize("binary", [False, True])
def test_response_is_the_standard_success(story: TransactionStory, binary: bool) -> None:
    for opaque in (0, 7, -5, 2**31 - 1):
        sent = story.half(b"x")
        ext = {
            "producerGroup": GROUP, "tranStateTableOffset": str(sent.queue_offset), "commitLogOffset": str(sent.log_offset),
            "commitOrRollback": "12",
        }  # fmt: skip
        request = Command(RequestCode.END_TRANSACTION, opaque=opaque, ext=ext, binary=binary)
        handler = story.transactions.handlers()[RequestCode.END_TRANSACTION]
        answer = handler(cast(Connection, FakeConnection()), request, T0)
        assert answer == encode_response(request, ResponseCode.SUCCESS)
