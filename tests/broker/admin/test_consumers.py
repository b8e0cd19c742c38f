"""Questions passed on to consumers."""

from __future__ import annotations

import pytest

from firearrow.wire import fastjson, message_ids
from firearrow.wire.frame import Command
from tests.broker import captures
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import HOST, Kit, body_of, decode


def test_what_a_consumer_says_of_itself_is_relayed_as_bytes(kit: Kit) -> None:
    (line,) = captures.requests("mqadmin-5.5.0-consumerStatus", 307)
    recorded = captures.body(captures.answer("mqadmin-5.5.0-consumerStatus", "GET_CONSUMER_RUNNING_INFO"))
    conn = FakeConnection()
    kit.beat(conn, "127.0.0.1@WAdmG55", "WAdmG_55", "WAdm")

    assert kit.start(307, **captures.ext(line)) is None, "answered when the consumer answers"
    ((asked, code, ext, _, done),) = kit.called
    assert (asked, code, dict(ext)) == (conn, 307, captures.ext(line))
    done(Command(0, flag=1, remark="fine", body=recorded), "")
    answer = decode(kit.operator.written[0])
    assert (answer.code, answer.remark, answer.body) == (0, "fine", recorded)


def test_a_consumer_that_does_not_answer(kit: Kit) -> None:
    kit.beat(FakeConnection(), "a", "G", "T")
    kit.start(307, consumerGroup="G", clientId="a")
    kit.called[0][4](None, "no answer within 10000 ms")
    answer = decode(kit.operator.written[0])
    assert answer.code == 207
    assert "no answer within 10000 ms" in (answer.remark or "")


def test_nobody_is_answered_who_went_away(kit: Kit) -> None:
    kit.beat(FakeConnection(), "a", "G", "T")
    kit.start(307, consumerGroup="G", clientId="a")
    kit.operator.closed = True
    kit.called[0][4](Command(0, flag=1), "")
    assert kit.operator.written == []


@pytest.mark.parametrize("code", [307, 309])
def test_consumers_that_cannot_be_asked(kit: Kit, code: int) -> None:
    assert kit.ask(code, consumerGroup="G", clientId="a").code == 1
    body = {"clientID": "old", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": []}]}
    kit.ask(34, body, conn=FakeConnection(), version=61)
    answer = kit.ask(code, consumerGroup="G", clientId="old")
    assert answer.code == 1
    assert "too low" in (answer.remark or "")


def test_a_message_is_consumed_directly(kit: Kit) -> None:
    kit.topic("T", 1)
    kit.put("T", 0, b"first")
    offset = kit.put("T", 0, b"this one")
    conn = FakeConnection()
    kit.beat(conn, "a", "G", "T")
    msg_id = message_ids.offset_msg_id(HOST, offset)
    kit.start(309, consumerGroup="G", clientId="a", msgId=msg_id, topic="T")
    ((asked, code, ext, body, done),) = kit.called
    assert (asked, code) == (conn, 309)
    assert dict(ext) == {
        "brokerName": "broker-a",
        "clientId": "a",
        "consumerGroup": "G",
        "groupSysFlag": "0",
        "msgId": msg_id,
        "topic": "T",
        "topicSysFlag": "0",
    }
    assert body == kit.store.read_record(offset)
    done(Command(0, flag=1, body=b'{"consumeResult":"CR_SUCCESS"}'), "")
    assert decode(kit.operator.written[0]).body == b'{"consumeResult":"CR_SUCCESS"}'


@pytest.mark.parametrize("msg_id", ["", "zz", "7F00000100002A9F0000000000000007", "7F" * 100])
def test_an_id_that_leads_to_no_message(kit: Kit, msg_id: str) -> None:
    kit.beat(FakeConnection(), "a", "G", "T")
    assert kit.ask(309, consumerGroup="G", clientId="a", msgId=msg_id).code == 1
    assert kit.called == []


def test_the_state_of_all_consumers_is_gathered(kit: Kit) -> None:
    assert kit.ask(223, topic="T", group="G").code == 1
    kit.beat(FakeConnection(1), "a", "G", "T")
    kit.beat(FakeConnection(2), "b", "G", "T")
    assert kit.start(223, topic="T", group="G") is None
    (first, second) = kit.called
    assert [call[1] for call in kit.called] == [221, 221]
    first[4](
        Command(0, flag=1, body=b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}'), ""
    )
    assert kit.operator.written == []
    second[4](None, "no answer")
    assert decode(kit.operator.written[0]).body == (
        b'{"consumerTable":{"a":{{"brokerName":"b","queueId":0,"topic":"T"}:5}},"messageQueueTable":{}}'
    )


def test_the_state_of_one_consumer(kit: Kit) -> None:
    kit.beat(FakeConnection(1), "a", "G", "T")
    kit.beat(FakeConnection(2), "b", "G", "T")
    kit.start(223, topic="T", group="G", clientAddr="b")
    assert [call[0].peer_port for call in kit.called] == [2]
    kit.called[0][4](Command(0, flag=1, body=b"\xff"), "")  # malformed response
    assert body_of(decode(kit.operator.written[0])) == {"consumerTable": {}, "messageQueueTable": {}}
    assert fastjson.loads(decode(kit.operator.written[0]).body)
