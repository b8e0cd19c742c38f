"""Operators and groups."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.wire.bodies.topic import SubscriptionGroupConfig
from tests.broker import captures
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import Kit, body_of


def test_a_captured_wish_of_mqadmin_makes_the_group(kit: Kit) -> None:
    (line,) = captures.requests("mqadmin-5.5.0-updateSubGroup", 200)
    assert kit.ask(200, captures.body(line)).code == 0
    made = kit.context.groups.find("WAdmNewG")
    assert made is not None
    assert made.to_json() == captures.json_body(line)
    assert "WAdmNewG" in kit.saved["groups"]["subscriptionGroupTable"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"groupName":"a b"}', b'{"groupName":"../x"}', b"{}", b'{"groupName":"G","retryMaxTimes":"x"}']
)
def test_wishes_that_are_refused(kit: Kit, body: bytes) -> None:
    before = set(kit.context.groups.all())
    assert kit.ask(200, body).code == 29
    assert set(kit.context.groups.all()) == before


def test_several_groups_at_once(kit: Kit) -> None:
    configs = [SubscriptionGroupConfig(name).to_json() for name in ("G1", "G2")]
    assert kit.ask(225, {"groupConfigList": configs}).code == 0
    assert kit.context.groups.find("G2") is not None


def test_groups_are_described(kit: Kit) -> None:
    body = body_of(kit.ask(201))
    assert list(body) == ["dataVersion", "forbiddenTable", "subscriptionGroupTable"]
    assert body["subscriptionGroupTable"]["TOOLS_CONSUMER"]["retryMaxTimes"] == 16
    assert body_of(kit.ask(352, group="New"))["groupName"] == "New", "asking makes it, with defaults"
    kit.settings.auto_create_subscription_group = False
    assert kit.ask(352, group="Other").code == 26


@pytest.mark.parametrize("field", ["cleanOffset", "removeOffset"])
def test_a_group_is_deleted_with_or_without_its_offsets(kit: Kit, field: str) -> None:
    kit.topic("T", 1)
    for clean in ("false", "true"):
        kit.context.groups.find_or_create("G", kit.now)
        kit.context.offsets.commit("G", "T", 0, 5)
        ext: dict[str, Any] = {"groupName": "G", field: clean}
        assert kit.ask(207, **ext).code == 0
        assert kit.context.groups.find("G") is None
        assert kit.context.offsets.query("G", "T", 0) == (None if clean == "true" else 5)


def test_a_topic_can_be_forbidden_to_a_group(kit: Kit) -> None:
    kit.topic("T", 1)
    assert body_of(kit.ask(353, group="G", topic="T")) == {"group": "G", "readable": True, "topic": "T"}
    assert kit.context.groups.find("G") is None, "asking alone makes nothing"
    assert body_of(kit.ask(353, group="G", topic="T", readable="false"))["readable"] is False
    assert kit.context.groups.forbidden("G", "T")
    assert body_of(kit.ask(353, group="G", topic="T"))["readable"] is False
    assert body_of(kit.ask(353, group="G", topic="T", readable="true"))["readable"] is True
    assert kit.ask(353, group="G", topic="Nope", readable="false").code == 17


def test_connections_of_consumers_look_as_apaches(kit: Kit) -> None:
    recorded = captures.json_body(captures.answer("mqadmin-5.5.0-consumerConnection", "GET_CONSUMER_CONNECTION_LIST"))
    conn = FakeConnection(51874, "127.0.0.1")
    beats = captures.requests("java-5.5.0-consumer-under-admin", 34)
    for line in beats:
        if b"WAdmG55" in captures.body(line):
            kit.ask(34, captures.body(line), conn=conn)
    body = body_of(kit.ask(203, consumerGroup="WAdmG_55"))
    assert captures.shape(body) == captures.shape(recorded)
    assert body["connectionSet"] == [
        {"clientAddr": "127.0.0.1:51874", "clientId": "127.0.0.1@WAdmG55", "language": "JAVA", "version": 513}
    ]
    assert body["consumeFromWhere"] == recorded["consumeFromWhere"]
    assert set(body["subscriptionTable"]) == {"WAdm", "%RETRY%WAdmG_55"}
    offline = kit.ask(203, consumerGroup="Nobody")
    assert (offline.code, offline.remark) == (206, "the consumer group[Nobody] not online")


def test_connections_of_producers(kit: Kit) -> None:
    conn = FakeConnection(1234, "10.1.1.1")
    kit.ask(34, {"clientID": "p@1", "producerDataSet": [{"groupName": "P"}]}, conn=conn, version=317, language="GO")
    assert body_of(kit.ask(204, producerGroup="P")) == {
        "connectionSet": [{"clientAddr": "10.1.1.1:1234", "clientId": "p@1", "language": "GO", "version": 317}]
    }
    assert body_of(kit.ask(328)) == {
        "data": {
            "P": [{"clientId": "p@1", "language": "GO", "lastUpdateTimestamp": kit.now, "remoteIP": "10.1.1.1", "version": 317}]
        }
    }
    assert kit.ask(204, producerGroup="Nobody").code == 1
    kit.ask(35, conn=conn, clientID="p@1", producerGroup="P")
    assert kit.ask(204, producerGroup="P").code == 1
