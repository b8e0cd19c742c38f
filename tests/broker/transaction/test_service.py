"""Transactions from the producer's side: half, commit, rollback, checks, refusals; and nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firearrow.wire import properties
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import FrameDecoder
from firearrow.wire.java_hash import tags_code
from firearrow.wire.message_ids import host_bytes, offset_msg_id
from firearrow.wire.names import SCHEDULE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import ADDRESS, T0
from tests.broker.transaction_story import COMMIT, GROUP, QUEUE, ROLLBACK, TOPIC, UNKNOWN, Sent, TransactionStory

ROUND = 30_000


@pytest.fixture
def story(tmp_path: Path) -> Iterator[TransactionStory]:
    told = TransactionStory(tmp_path)
    yield told
    told.close()


# Half messages.


def test_half_message_is_stored_in_the_half_topic_like_apache(story: TransactionStory) -> None:
    sent = story.half(b"x", TAGS="new", KEYS="k", UNIQ_KEY="U")

    (half,) = story.halves()
    assert (sent.queue_offset, sent.log_offset, sent.transaction_id) == (0, half.physical_offset, "U")
    assert (half.body, half.flag, half.sys_flag, half.queue_id) == (b"x", 7, 0, 0)
    names = properties.parse(half.properties)
    assert names.items() >= {
        "TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "U", "TAGS": "new", "KEYS": "k", "__transactionId__": "U",
        "REAL_TOPIC": TOPIC, "REAL_QID": "2",
    }.items()  # fmt: skip
    entry = story.store.queue(TRANS_HALF_TOPIC, 0).entry(0)
    assert entry is not None
    assert entry[2] == tags_code("new")
    assert story.delivered() == []


def test_half_message_is_acknowledged_once_it_is_readable(story: TransactionStory, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[tuple[int, int]] = []
    end_round = story.end_round

    def count_and_end() -> None:
        waiting.append((len(story.replies.on_ack), len(story.replies.on_write)))
        end_round()

    monkeypatch.setattr(story, "end_round", count_and_end)
    story.half(b"x", WAIT="false")
    story.send(b"y", WAIT="false", TRAN_MSG="", sys_flag=0)
    assert waiting == [(1, 0), (0, 1)]


@pytest.mark.parametrize(("text", "half"), [("true", True), ("TRUE", True), ("false", False), ("1", False), ("", False)])
def test_tran_msg_is_parsed_like_java(story: TransactionStory, text: str, half: bool) -> None:
    assert story.send(b"x", TRAN_MSG=text, sys_flag=0).code == ResponseCode.SUCCESS
    assert len(story.halves()) == half
    assert len(story.delivered()) == (not half)


def test_a_delayed_retry_of_a_committed_message_is_no_half_message(story: TransactionStory) -> None:
    story.send(b"again", reconsume_times=1, DELAY="1", sys_flag=0)
    story.send(b"no retry", reconsume_times=1, DELAY="0", sys_flag=0)
    assert [record.body for record in story.messages(SCHEDULE_TOPIC, 0)] == [b"again"]
    assert [record.body for record in story.halves()] == [b"no retry"]


def test_a_half_message_with_a_delay_is_delayed_when_it_is_committed(story: TransactionStory) -> None:
    sent = story.half(b"later", DELAY="2")
    story.at(T0 + 1_000)
    assert story.messages(SCHEDULE_TOPIC, 1) == []
    assert story.commit(sent).code == ResponseCode.SUCCESS
    (waiting,) = story.messages(SCHEDULE_TOPIC, 1)
    assert waiting.prepared_transaction_offset == sent.log_offset
    story.at(T0 + 5_999)
    assert story.delivered() == []
    story.at(T0 + 6_000)
    assert story.delivered() == [b"later"]
    story.at(T0 + 10 * ROUND)
    assert story.delivered() == [b"later"]


def test_half_messages_can_be_rejected_by_setting(tmp_path: Path) -> None:
    story = TransactionStory(tmp_path, reject_transaction_message=True)
    answer = story.send(b"x")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "rejectTransactionMessage" in (answer.remark or "")
    assert (story.halves(), story.delivered()) == ([], [])
    assert story.send(b"x", TRAN_MSG="false", sys_flag=0).code == ResponseCode.SUCCESS
    story.close()


def test_properties_that_leave_no_room_are_refused(story: TransactionStory) -> None:
    answer = story.send(b"x", big="y" * 32_600)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "properties" in (answer.remark or "")
    assert story.halves() == []


# Decisions.


def test_committed_message_keeps_everything_it_was_sent_with(story: TransactionStory) -> None:
    sent = story.half(b"x", TAGS="new", UNIQ_KEY="U", born_ms=T0 - 5)
    story.kit.now = T0 + 50

    assert story.commit(sent).code == ResponseCode.SUCCESS

    (record,) = story.messages(TOPIC, QUEUE)
    (half,) = story.halves()
    names = properties.parse(half.properties)
    del names["REAL_TOPIC"], names["REAL_QID"]
    assert properties.parse(record.properties) == names
    assert names["TRAN_MSG"] == "true"
    assert names["__transactionId__"] == "U"
    assert (record.body, record.flag, record.sys_flag, record.prepared_transaction_offset) == (b"x", 7, 8, sent.log_offset)
    assert (record.born_timestamp, record.born_host) == (T0 - 5, story.producer.peer_host)
    assert record.store_timestamp == T0 + 50
    entry = story.store.queue(TOPIC, QUEUE).entry(0)
    assert entry is not None
    assert entry[2] == tags_code("new")


def test_rolled_back_message_is_never_delivered(story: TransactionStory) -> None:
    story.connect(story.producer)
    assert story.rollback(story.half(b"x")).code == ResponseCode.SUCCESS
    story.through(*range(T0, T0 + 3 * ROUND, 1_000))
    assert (story.delivered(), story.asked) == ([], [])


def test_decisions_are_written_in_batches(story: TransactionStory) -> None:
    sent = [story.half(b"%d" % number) for number in range(4)]
    story.commit(sent[2])
    story.rollback(sent[0])
    story.at(T0 + 2_999)
    assert story.ops() == []
    story.at(T0 + 3_000)
    assert story.ops() == [b"2,0,"]
    (op,) = story.messages("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
    assert properties.parse(op.properties) == {"TAGS": "d", "WAIT": "true"}
    assert op.born_host == host_bytes("127.0.0.1", 10911)
    story.commit(sent[1])
    story.at(T0 + 5_999)
    assert story.ops() == [b"2,0,"]
    story.at(T0 + 6_000)
    assert story.ops() == [b"2,0,", b"1,"]


def test_many_decisions_do_not_wait_for_the_interval(tmp_path: Path) -> None:
    story = TransactionStory(tmp_path, transaction_op_msg_max_size=6)
    for number in range(4):
        story.commit(story.half(b"%d" % number))
    assert story.ops() == [b"0,1,2,"]
    story.close()


def test_unknown_decision_gets_no_response(story: TransactionStory) -> None:
    sent = story.half(b"x")
    assert story.start_end(sent, UNKNOWN, FakeConnection()) is None
    for decision in (4, 1, 99, -1):  # are no decisions either, but the producer hears so
        answer = story.start_end(sent, decision, FakeConnection())
        assert answer is not None
        assert b'"code":1,' in answer
        assert b"commitOrRollback field wrong: it is %d; expected 8" % decision in answer
    story.at(T0 + 3_000)
    assert (story.delivered(), story.ops()) == ([], [])
    story.commit(sent)
    assert story.delivered() == [b"x"]


def test_the_answer_to_a_commit_leaves_when_the_message_is_stored(story: TransactionStory) -> None:
    conn = FakeConnection()
    kept = story.kit.held_answers = []
    assert story.start_end(story.half(b"x"), COMMIT, conn) is None
    assert len(kept) == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tranStateTableOffset": "1"}, ResponseCode.SYSTEM_ERROR),
        ({"tranStateTableOffset": "-1"}, ResponseCode.SYSTEM_ERROR),
        ({"tranStateTableOffset": str(2**62)}, ResponseCode.SYSTEM_ERROR),
        ({"commitLogOffset": "77"}, ResponseCode.SYSTEM_ERROR),
        ({"commitLogOffset": str(2**63 - 1)}, ResponseCode.SYSTEM_ERROR),
        ({"producerGroup": "Other"}, ResponseCode.SYSTEM_ERROR),
        ({"commitLogOffset": "much"}, ResponseCode.INVALID_PARAMETER),
        ({"tranStateTableOffset": str(2**63)}, ResponseCode.INVALID_PARAMETER),
        ({"producerGroup": None}, ResponseCode.INVALID_PARAMETER),
        ({"commitOrRollback": "yes"}, ResponseCode.INVALID_PARAMETER),
    ],
)
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_a_decision_about_something_else_changes_nothing(
    story: TransactionStory, change: dict[str, Any], code: int, decision: int
) -> None:
    sent = story.half(b"x")
    end = story.store.max_offset
    answer = story.end(sent, decision, **change)
    assert answer.code == code
    assert answer.remark
    assert story.store.max_offset == end
    story.commit(sent)
    assert story.delivered() == [b"x"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_malformed_decision_is_rejected_and_stores_nothing(story: TransactionStory, data: Any) -> None:
    if not story.halves():
        story.kit.put(TOPIC, 0, b"y" * 100_000)  # the half message is where no number drawn below points to
        story.half(b"x")
    ext = {
        name: data.draw(
            st.one_of(st.sampled_from(values), st.integers(max_value=9_999), st.text(max_size=4), st.none(), st.booleans()), name
        )
        for name, values in {
            "producerGroup": [GROUP, "Q", ""],
            "tranStateTableOffset": ["0", "1", "-1", str(2**63 - 1), str(2**63), ""],
            "commitLogOffset": ["1", "-1", "999", str(2**63 - 1), str(-(2**63)), ""],
            "commitOrRollback": ["8", "12", "0", "16", ""],
            "fromTransactionCheck": ["true", "false", "1"],
        }.items()
    }
    end = story.store.appended_offset
    response = story.kit.start_raw(RequestCode.END_TRANSACTION, ext, b"", conn=FakeConnection())
    if response is not None:
        (answer,) = FrameDecoder().feed(response)
        assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
    assert story.store.appended_offset == end


def test_a_half_without_a_producer_group_cannot_be_decided(story: TransactionStory) -> None:
    sent = story.half(b"x", PGROUP="")
    assert story.commit(sent).code == ResponseCode.SYSTEM_ERROR
    assert story.delivered() == []


def test_an_ordinary_message_is_no_half_message_whatever_its_properties_say(story: TransactionStory) -> None:
    answer = story.send(b"x", TRAN_MSG="false", sys_flag=0, REAL_TOPIC="Other", REAL_QID="0")
    sent = Sent(0, int(answer.ext["msgId"][16:], 16), "")
    assert story.commit(sent).code == ResponseCode.SYSTEM_ERROR
    story.half(b"half")
    assert story.commit(sent).code == ResponseCode.SYSTEM_ERROR
    assert story.messages("Other", 0) == []


def test_no_commit_while_the_store_is_not_writable(story: TransactionStory, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = story.half(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(type(story.store), "writable", property(lambda store: False))
        assert story.commit(sent).code == ResponseCode.SERVICE_NOT_AVAILABLE
        story.at(T0 + ROUND)
        assert (story.delivered(), story.ops()) == ([], [])
    assert story.commit(sent).code == ResponseCode.SUCCESS
    assert story.delivered() == [b"x"]


# Twice.


def test_repeated_decision_has_no_effect(story: TransactionStory) -> None:
    sent, other = story.half(b"x"), story.half(b"y")
    story.rollback(other)
    for _ in range(3):
        assert story.commit(sent).code == ResponseCode.SUCCESS
        assert story.rollback(other).code == ResponseCode.SUCCESS
        assert story.rollback(sent).code == ResponseCode.SYSTEM_ERROR
        assert story.commit(other).code == ResponseCode.SYSTEM_ERROR
    assert story.delivered() == [b"x"]


@pytest.mark.parametrize("first", ["the first", "the copy"])
def test_decision_about_one_copy_applies_to_all(story: TransactionStory, first: str) -> None:
    story.connect(story.producer)
    sent = story.half(b"x")
    story.at(T0)
    story.through(T0 + ROUND, T0 + 2 * ROUND)
    copies = [sent, *(asked.as_sent() for asked in story.asked)]
    assert [copy.queue_offset for copy in copies] == [0, 1, 2]
    for copy in copies if first == "the first" else copies[::-1]:
        story.commit(copy, check=copy is not sent)
    story.through(*range(T0 + 2 * ROUND, T0 + 20 * ROUND, ROUND))
    assert story.delivered() == [b"x"]
    assert len(story.asked) == 2


def test_a_rollback_after_a_crossing_check_holds(story: TransactionStory) -> None:
    story.connect(story.producer)
    sent = story.half(b"x")
    story.through(T0, T0 + ROUND)
    assert story.rollback(sent).code == ResponseCode.SUCCESS
    assert story.commit(story.asked[0].as_sent(), check=True).code == ResponseCode.SYSTEM_ERROR
    story.through(*range(T0 + ROUND, T0 + 20 * ROUND, ROUND))
    assert (story.delivered(), len(story.asked)) == ([], 1)


# Given up.


def test_a_decision_after_giving_up_is_carried_out_once(tmp_path: Path) -> None:
    story = TransactionStory(tmp_path, transaction_check_max=1)
    sent = story.half(b"x")
    other = story.half(b"y")
    story.through(T0, T0 + ROUND, T0 + 2 * ROUND, T0 + 3 * ROUND)
    assert [record.body for record in story.messages(TRANS_CHECK_MAX_TIME_TOPIC, 0)] == [b"x", b"y"]
    assert story.commit(sent).code == ResponseCode.SUCCESS
    assert story.commit(sent).code == ResponseCode.SYSTEM_ERROR
    assert story.rollback(other).code == ResponseCode.SUCCESS
    assert story.commit(other).code == ResponseCode.SYSTEM_ERROR
    assert story.delivered() == [b"x"]
    story.close()


def test_given_up_message_can_be_resumed(tmp_path: Path) -> None:
    story = TransactionStory(tmp_path, transaction_check_max=1)
    sent = story.half(b"x")
    story.through(T0, T0 + ROUND, T0 + 2 * ROUND)
    (given_up,) = story.messages(TRANS_CHECK_MAX_TIME_TOPIC, 0)
    msg_id = offset_msg_id(host_bytes(*_address()), given_up.physical_offset)

    conn = FakeConnection()
    assert story.kit.start(RequestCode.RESUME_CHECK_HALF_MESSAGE, conn=conn, msgId=msg_id) is None
    story.end_round()
    assert conn.written

    story.connect(story.producer)
    story.at(T0 + 3 * ROUND + 5_000)
    (asked,) = story.asked
    assert properties.parse(asked.record.properties)["TRANSACTION_CHECK_TIMES"] == "1"
    assert story.commit(sent).code == ResponseCode.SYSTEM_ERROR
    assert story.commit(asked.as_sent(), check=True).code == ResponseCode.SUCCESS
    assert story.delivered() == [b"x"]
    story.close()


def test_only_given_up_messages_can_be_resumed(story: TransactionStory) -> None:
    sent = story.half(b"x")
    msg_id = offset_msg_id(host_bytes(*_address()), sent.log_offset)
    assert story.kit.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=msg_id).code == ResponseCode.SYSTEM_ERROR
    assert len(story.halves()) == 1


def _address() -> tuple[str, int]:
    ip, _, port = ADDRESS.rpartition(":")
    return ip, int(port)


# Immunity.


def test_decision_after_the_immunity_time_requires_a_check(story: TransactionStory) -> None:
    story.connect(story.producer)
    early = story.half(b"early", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    late = story.half(b"late", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    story.at(T0)
    story.at(T0 + 60_000)
    assert story.commit(early).code == ResponseCode.SUCCESS
    story.kit.now = T0 + 60_001
    assert story.commit(late).code == ResponseCode.ILLEGAL_OPERATION
    assert story.delivered() == [b"early"]
    story.at(T0 + 90_001)
    (asked,) = story.asked
    assert story.commit(asked.as_sent(), check=True).code == ResponseCode.SUCCESS
    assert story.delivered() == [b"early", b"late"]


@pytest.mark.parametrize("text", ["-1", "soon", "1.5"])
def test_malformed_immunity_means_the_default_timeout(story: TransactionStory, text: str) -> None:
    sent = story.half(b"x", CHECK_IMMUNITY_TIME_IN_SECONDS=text)
    story.kit.now = T0 + 6_001
    assert story.commit(sent).code == ResponseCode.ILLEGAL_OPERATION
    story.kit.now = T0 + 6_000
    assert story.commit(sent).code == ResponseCode.SUCCESS
