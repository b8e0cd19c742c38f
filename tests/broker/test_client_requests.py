"""34, 35, 38, 46, 14, 15, 41, 42 as clients of several languages send them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.tables import clients
from firearrow.wire import fastjson
from firearrow.wire.bodies.topic import SubscriptionGroupConfig
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import Kit, body_of

WIRE = Path(__file__).parent.parent / "fixtures" / "wire"


def captured(name: str, code: int) -> list[dict[str, Any]]:
    """Requests of one code from a captured session."""
    lines = [json.loads(line) for line in (WIRE / name).read_text().splitlines()]
    found = [
        line for line in lines if line.get("dir") == "c2s" and line.get("code") == code and not line["conn"].startswith("ns")
    ]
    assert found, f"no request {code} in {name}"
    return found


@pytest.mark.parametrize(
    ("session", "group", "tags"),
    [
        ("java-5.5.0-push.jsonl", "WPushG_55", {"WPush_55": {2598919, 2598920}}),
        ("java-4.9.8-push.jsonl", "WPushG_49", {"WPush_49": {2598919, 2598920}}),
        ("go-2.1.2-producer-push.jsonl", "GoG", {"WGo": {2598919, 2598920}}),
        ("node-ali-ons-3.12.0-producer-push.jsonl", "NodeG", {"WNode": {2598919, 2598920}}),
        ("cpp-pypi-0.4.4-producer-push.jsonl", "CppG", {"WCpp": None}),
    ],
)
def test_heartbeats_of_every_client_are_understood(kit: Kit, session: str, group: str, tags: dict[str, Any]) -> None:
    conn = FakeConnection()
    for line in captured(session, 34):
        header = line["header"]
        answer = kit.ask(
            34, base64.b64decode(line["body_b64"]), conn=conn, version=header["version"], language=header["language"]
        )
        assert answer.code == 0
        assert answer.version >= 401, "clients refuse SQL filters of brokers that look old"
        assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    consumers = kit.context.clients.consumer_group(group)
    assert consumers is not None
    assert consumers.message_model == "CLUSTERING"
    assert consumers.consume_type == "CONSUME_PASSIVELY"
    for topic, codes in tags.items():
        known = consumers.subscriptions.get(topic)
        assert known is not None
        assert kit.context.clients.tag_codes(group, known) == codes
    retry = kit.context.topics.find(f"%RETRY%{group}")
    assert retry is not None
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
    assert kit.told[0][1:3] == (40, {"consumerGroup": group})


def test_the_new_member_and_the_old_ones_are_told_at_once(kit: Kit) -> None:
    a, b = FakeConnection(1), FakeConnection(2)
    kit.beat(a, "a", "G", "T")
    assert [(conn, code) for conn, code, _, _ in kit.told] == [(a, 40)]
    kit.beat(b, "b", "G", "T")
    assert [conn for conn, _, _, _ in kit.told[1:]] == [a, b]
    kit.told.clear()
    kit.ask(35, conn=a, clientID="a", consumerGroup="G", producerGroup="")
    assert [conn for conn, _, _, _ in kit.told] == [b]
    kit.told.clear()
    clients.connection_closed(kit.context, b)  # type: ignore[arg-type]  # a stand-in for a connection
    assert kit.told == []
    assert kit.context.clients.consumer_group("G") is None


def test_groups_that_do_not_want_to_be_told_are_not(kit: Kit) -> None:
    kit.context.groups.update(SubscriptionGroupConfig("G", notify_consumer_ids_changed_enable=False), kit.now)
    kit.beat(FakeConnection(), "a", "G", "T")
    assert kit.told == []


def test_a_group_that_may_not_be_made_is_skipped_and_leaves_no_topic(kit: Kit) -> None:
    kit.settings.auto_create_subscription_group = False
    assert kit.beat(FakeConnection(), "a", "G", "T").code == 0
    assert kit.context.clients.consumer_group("G") is None
    assert kit.context.topics.find("%RETRY%G") is None


def test_the_retry_topic_has_as_many_queues_as_the_group_says(kit: Kit) -> None:
    kit.context.groups.update(SubscriptionGroupConfig("G", retry_queue_nums=3), kit.now)
    kit.beat(FakeConnection(), "a", "G", "T")
    retry = kit.context.topics.find("%RETRY%G")
    assert retry is not None
    assert retry.write_queue_nums == 3


@pytest.mark.parametrize("group", ["../../x", "a/b", "g" * 300, ""])
def test_a_group_that_is_no_name_registers_nothing(kit: Kit, group: str) -> None:
    before = set(kit.context.topics.all())
    assert kit.beat(FakeConnection(), "a", group, "T").code == 0
    assert set(kit.context.topics.all()) == before
    assert list(kit.context.clients.consumer_groups()) == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"clientID":7,"consumerDataSet":3}', b'{"consumerDataSet":[]}']
)
def test_a_heartbeat_that_is_none_is_refused(kit: Kit, body: bytes) -> None:
    assert kit.ask(34, body).code == 29


def test_consumer_ids(kit: Kit) -> None:
    missing = kit.ask(38, consumerGroup="G")
    assert (missing.code, missing.remark) == (1, "no consumer for this group, G")
    kit.beat(FakeConnection(1), "a", "G", "T")
    kit.beat(FakeConnection(2), "b", "G", "T")
    answer = kit.ask(38, consumerGroup="G")
    assert answer.body == b'{"consumerIdList":["a","b"]}'
    assert answer.ext == {}


def test_expired_clients_are_closed(kit: Kit) -> None:
    conn = FakeConnection()
    kit.beat(conn, "a", "G", "T")
    clients.expire(kit.context, kit.now + 120_001)
    assert conn.closed
    assert kit.context.clients.consumer_group("G") is None


def test_a_filter_that_the_broker_cannot_compute_is_refused_when_the_consumer_starts(kit: Kit) -> None:
    def check(**subscription: Any) -> int:
        body = {"clientId": "a", "group": "G", "subscriptionData": {"topic": "T", **subscription}}
        return kit.ask(46, body).code

    assert check(expressionType="TAG", subString="TagA") == 0
    assert check(subString="*") == 0
    assert check(expressionType="SQL92", subString="a > 1") == 0
    assert check(expressionType="SQL92", subString="a >") == 23
    assert check(expressionType="XPATH", subString="//a") == 1


# ---- offsets


def test_offsets_are_committed_and_queried(kit: Kit) -> None:
    kit.topic("T")
    assert kit.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=3).code == 26
    kit.context.groups.find_or_create("G", kit.now)
    assert kit.ask(15, consumerGroup="G", topic="Nope", queueId=0, commitOffset=3).code == 17
    assert kit.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset="3").code == 0
    answer = kit.ask(14, consumerGroup="G", topic="T", queueId="0")
    assert (answer.code, answer.ext) == (0, {"offset": "3"})


@pytest.mark.parametrize(
    "ext", [{"queueId": -1}, {"queueId": 1 << 30}, {"queueId": "x"}, {"commitOffset": ""}, {"commitOffset": 1 << 63}]
)
def test_commits_of_what_cannot_be_are_refused_and_not_kept(kit: Kit, ext: dict[str, Any]) -> None:
    kit.topic("T")
    kit.context.groups.find_or_create("G", kit.now)
    valid: dict[str, Any] = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 3}
    assert kit.ask(15, **valid | ext).code == 29
    assert kit.context.offsets.is_empty()


@pytest.mark.parametrize("known", [True, False])
def test_a_group_without_an_offset_starts_at_zero_while_the_first_message_is_there(kit: Kit, known: bool) -> None:
    """Also a group that the broker does not know yet: pull consumers of Java 4.9 query before their first heartbeat."""
    kit.topic("T")
    if known:
        kit.context.groups.find_or_create("G", kit.now)
    kit.put("T", 0, b"one")
    assert kit.ask(14, consumerGroup="G", topic="T", queueId=0).ext == {"offset": "0"}
    assert (kit.context.groups.find("G") is not None) is known
    assert kit.ask(14, consumerGroup="G", topic="T", queueId=0, setZeroIfNotFound="false").code == 22
    kit.context.store_settings.access_message_in_memory_max_ratio = 0  # no message counts as recent
    absent = kit.ask(14, consumerGroup="G", topic="T", queueId=0)
    assert (absent.code, absent.remark) == (22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
    assert absent.ext == {}


def test_a_group_without_an_offset_starts_at_zero_in_an_empty_queue(kit: Kit) -> None:
    """Otherwise the consumer asks for the end of the queue next, and skips a message stored in between."""
    kit.topic("T", queues=4)
    asked: dict[str, Any] = {"consumerGroup": "G", "topic": "T"}
    assert kit.ask(14, **asked, queueId=3).ext == {"offset": "0"}
    kit.store.queue("T", 3)  # created by a pull or by the first, still unconfirmed message
    assert kit.ask(14, **asked, queueId=3).ext == {"offset": "0"}
    assert kit.ask(14, **asked, queueId=3, setZeroIfNotFound="false").code == 22
    assert kit.ask(14, **asked, queueId=4).code == 22
    assert kit.ask(14, **asked | {"topic": "Nope"}, queueId=0).code == 22


# ---- locks


def test_queue_locks(kit: Kit) -> None:
    def body(client: str, *queues: int) -> dict[str, Any]:
        mqs = [{"brokerName": "broker-a", "queueId": queue, "topic": "T"} for queue in queues]
        return {"clientId": client, "consumerGroup": "G", "mqSet": mqs, "onlyThisBroker": False}

    first = kit.ask(41, body("a", 0, 1))
    assert first.body == (
        b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"T"},{"brokerName":"broker-a","queueId":1,"topic":"T"}]}'
    )
    assert body_of(kit.ask(41, body("b", 1, 2)))["lockOKMQSet"] == [{"brokerName": "broker-a", "queueId": 2, "topic": "T"}]
    assert kit.ask(42, body("a", 0, 1)).code == 0
    assert len(body_of(kit.ask(41, body("b", 0, 1)))["lockOKMQSet"]) == 2


def test_captured_lock_requests_get_the_captured_answer(kit: Kit) -> None:
    line = captured("java-5.5.0-orderly.jsonl", 41)[0]
    sent = base64.b64decode(line["body_b64"])
    assert body_of(kit.ask(41, sent))["lockOKMQSet"] == fastjson.loads(sent)["mqSet"]
