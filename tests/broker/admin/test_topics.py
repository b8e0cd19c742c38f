"""Operators and topics."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.wire.bodies.client import QueueBody
from firearrow.wire.bodies.topic import TopicConfig
from firearrow.wire.fastjson import ObjectMap
from tests.broker import captures
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import ADDRESS, Kit, body_of

WISH: dict[str, Any] = {
    "topic": "Orders",
    "defaultTopic": "TBW102",
    "readQueueNums": 6,
    "writeQueueNums": 5,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
}


def test_a_captured_wish_of_mqadmin_makes_the_topic(kit: Kit) -> None:
    (line,) = captures.requests("mqadmin-5.5.0-updateTopic", 17)
    assert kit.ask(17, **captures.ext(line)).code == 0
    made = kit.context.topics.find("WAdmNew")
    assert made == TopicConfig("WAdmNew", 6, 5, 6, order=True, attributes={"message.type": "FIFO"})
    assert "WAdmNew" in kit.saved["topics"]["topicConfigTable"]


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"topic": "a b"}, 29, "illegal characters"),
        ({"topic": "../../x"}, 29, "illegal characters"),
        ({"topic": "x" * 128}, 29, "longer"),
        ({"topic": "TBW102"}, 29, "conflict with system topic"),
        ({"topic": "DefaultCluster"}, 29, "conflict with system topic"),
        ({"attributes": "+colour=red"}, 1, "unsupported key: colour"),
        ({"perm": 9}, 29, "perm"),
        ({"readQueueNums": -1}, 29, "readQueueNums"),
        ({"readQueueNums": "many"}, 29, "readQueueNums"),
        ({"writeQueueNums": 1 << 20}, 29, "writeQueueNums"),
        ({"topicFilterType": "SOME"}, 29, "topicFilterType"),
        ({"topic": ["x"]}, 29, "topic"),
    ],
)
def test_wishes_that_are_refused(kit: Kit, changes: dict[str, Any], code: int, named: str) -> None:
    before = dict(kit.context.topics.all())
    answer = kit.ask(17, **WISH | changes)
    assert answer.code == code
    assert named in (answer.remark or "")
    assert dict(kit.context.topics.all()) == before


def test_several_topics_at_once(kit: Kit) -> None:
    configs = [TopicConfig(f"T{number}", 2, 2, 6).to_json() for number in range(3)]
    assert kit.ask(18, {"topicConfigList": configs}).code == 0
    assert kit.context.topics.find("T2") == TopicConfig("T2", 2, 2, 6)
    assert kit.ask(18, {"topicConfigList": [TopicConfig("New", 2, 2, 6).to_json(), {"topicName": "a b"}]}).code == 29
    assert kit.context.topics.find("New") is None
    assert kit.ask(18, {"topicConfigList": 3}).code == 29


def test_a_deleted_topic_is_gone_everywhere_and_starts_anew(kit: Kit) -> None:
    kit.topic("T", 2)
    kit.topic("%RETRY%G_T", 1)
    kit.put("T", 1, b"x")
    kit.context.groups.find_or_create("G", kit.now)
    kit.ask(15, consumerGroup="G", topic="T", queueId=1, commitOffset=1)
    assert kit.ask(215, topic="T").code == 0
    assert kit.context.topics.find("T") is None
    assert kit.context.topics.find("%RETRY%G_T") is None
    assert kit.context.offsets.is_empty()
    assert kit.woken == [("T", 1)]
    assert kit.store.topics() == set()
    kit.topic("T", 2)
    kit.put("T", 1, b"y")
    assert kit.ask(30, topic="T", queueId=1).ext == {"offset": "1"}


def test_deleting(kit: Kit) -> None:
    assert kit.ask(215, topic="Unknown").code == 0
    assert kit.ask(215, topic=" ").code == 29
    assert kit.ask(215, topic="SCHEDULE_TOPIC_XXXX").code == 29
    assert kit.ask(215).code == 29


def test_all_topics_in_one_answer(kit: Kit) -> None:
    kit.topic("T", 3)
    pages: list[dict[str, Any]] = [{}, {"topicSeq": "0", "dataVersion": "", "maxTopicNum": "2"}]
    for ext in pages:
        answer = kit.ask(21, **ext)
        body = body_of(answer)
        assert answer.ext == {}, "a number of topics would announce more pages"
        assert list(body) == [
            "dataVersion",
            "mappingDataVersion",
            "topicConfigTable",
            "topicQueueMappingDetailMap",
            "topicQueueMappingInfoMap",
        ]
        assert body["topicConfigTable"]["T"]["readQueueNums"] == 3
        assert body["dataVersion"] == kit.context.topics.data_version.to_json()


def test_one_topic_looks_as_apaches(kit: Kit) -> None:
    recorded = captures.answer("mqadmin-5.5.0-topicStatus", "GET_TOPIC_CONFIG")
    kit.topic("WAdm", 4)
    assert kit.ask(351, topic="WAdm", lo="true").body == captures.body(recorded)
    missing = kit.ask(351, topic="Nope")
    assert (missing.code, missing.remark) == (17, "topic[Nope] not exist")


def test_topic_statistics_look_as_apaches(kit: Kit) -> None:
    recorded = captures.json_body(captures.answer("mqadmin-5.5.0-topicStatus", "GET_TOPIC_STATS_INFO"))
    kit.context.topics.update(TopicConfig("WAdm", 4, 2, 6), kit.now)
    kit.put("WAdm", 1, b"x")
    body = body_of(kit.ask(202, topic="WAdm"))
    assert captures.shape(body) == captures.shape(recorded)
    table = {QueueBody.from_json(mq): row for mq, row in body["offsetTable"]}
    assert len(table) == 4, "read queues count where there are more of them"
    assert table[QueueBody("WAdm", "broker-a", 1)] == {"lastUpdateTimestamp": kit.now, "maxOffset": 1, "minOffset": 0}
    assert kit.ask(202, topic="Nope").code == 17


def test_message_queues_as_keys_are_written_bare(kit: Kit) -> None:
    kit.topic("T", 1)
    assert b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"last' in kit.ask(202, topic="T").body
    assert isinstance(body_of(kit.ask(202, topic="T"))["offsetTable"], ObjectMap)


def test_who_consumes_and_what_is_consumed(kit: Kit) -> None:
    kit.topic("T", 1)
    for group in ("Online", "Offline"):
        kit.context.groups.find_or_create(group, kit.now)
    kit.ask(15, consumerGroup="Offline", topic="T", queueId=0, commitOffset=1)
    kit.beat(FakeConnection(), "a", "Online", "T")
    assert body_of(kit.ask(300, topic="T")) == {"groupList": ["Online", "Offline"]}
    assert kit.ask(300, topic="Nobody").body == b'{"groupList":[]}'
    assert body_of(kit.ask(343, group="Offline")) == {"brokerAddr": ADDRESS, "topicList": ["T"]}
    online = body_of(kit.ask(345, group="Online", topic="T"))
    assert online["subscriptionData"]["subString"] == "*"
    assert body_of(kit.ask(345, group="Offline", topic="T")) == {"group": "Offline", "topic": "T"}


def test_system_topics_are_listed(kit: Kit) -> None:
    listed = body_of(kit.ask(305))["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"} <= set(listed)


def test_queues_that_no_topic_owns_are_cleaned(kit: Kit) -> None:
    kit.topic("T", 1)
    kit.put("T", 0, b"x")
    kit.put("Gone", 0, b"x")
    assert kit.ask(316).code == 0
    assert kit.store.topics() == {"T"}
    assert kit.ask(306).code == 0
