"""Progress of consumer groups."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from firearrow.wire import fastjson
from firearrow.wire.bodies.client import QueueBody
from firearrow.wire.bodies.topic import TopicConfig
from firearrow.wire.java_hash import tags_code
from tests.broker import captures
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import ADDRESS, T0, Kit, body_of
from tests.broker.running import broker, client
from tests.support.waiting import run


def commit(kit: Kit, group: str, topic: str, queue_id: int, offset: int) -> None:
    kit.context.groups.find_or_create(group, kit.now)
    assert kit.ask(15, consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=offset).code == 0


def filled(kit: Kit, topic: str = "T", queues: int = 2, each: int = 3) -> None:
    kit.topic(topic, queues)
    for _ in range(each):
        for queue_id in range(queues):
            kit.put(topic, queue_id, b"x", tags="TagA")
        kit.now += 1000


def test_progress_looks_as_apaches(kit: Kit) -> None:
    recorded = captures.json_body(captures.answer("mqadmin-5.5.0-consumerProgress", "GET_CONSUME_STATS"))
    filled(kit)
    commit(kit, "G", "T", 0, 2)
    kit.context.offsets.pulled("G", "T", 0, 3)
    body = body_of(kit.ask(208, consumerGroup="G"))
    assert captures.shape(body) == captures.shape(recorded)
    table = {QueueBody.from_json(mq).queue_id: row for mq, row in body["offsetTable"]}
    assert table == {
        0: {"brokerOffset": 3, "consumerOffset": 2, "lastTimestamp": T0 + 1000, "pullOffset": 3},
        1: {"brokerOffset": 3, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0},
    }


def test_topics_may_be_named_and_left_overs_of_an_online_group_are_not_shown(kit: Kit) -> None:
    filled(kit, "T", 1)
    filled(kit, "Old", 1)
    commit(kit, "G", "T", 0, 1)
    commit(kit, "G", "Old", 0, 1)

    def shown(**ext: Any) -> list[str]:
        return [mq["topic"] for mq, _ in body_of(kit.ask(208, consumerGroup="G", **ext))["offsetTable"] or []]

    assert sorted(shown()) == ["Old", "T"]
    assert shown(topic="T") == ["T"]
    assert shown(topicList="T;Old") == ["T", "Old"]
    assert shown(topic="Nope") == []
    kit.beat(FakeConnection(), "a", "G", "T")
    assert shown() == ["T"]


def test_all_groups_of_the_broker(kit: Kit) -> None:
    filled(kit, "T", 2)
    commit(kit, "G", "T", 0, 1)
    body = body_of(kit.ask(317, isOrder="false"))
    assert body["brokerAddr"] == ADDRESS
    assert [list(entry) for entry in body["consumeStatsList"]] == [["G"]]
    assert body["totalDiff"] == 2 + 3
    assert body_of(kit.ask(317, isOrder="true"))["consumeStatsList"] == []


def test_time_spans(kit: Kit) -> None:
    filled(kit, "T", 1)
    kit.topic("Empty", 1)
    commit(kit, "G", "T", 0, 1)
    (span,) = body_of(kit.ask(303, topic="T", group="G"))["consumeTimeSpanSet"]
    assert span == {
        "consumeTimeStamp": T0,
        "delayTime": kit.now - (T0 + 1000),
        "maxTimeStamp": T0 + 2000,
        "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
        "minTimeStamp": T0,
    }
    (empty,) = body_of(kit.ask(303, topic="Empty", group="G"))["consumeTimeSpanSet"]
    assert (empty["minTimeStamp"], empty["maxTimeStamp"], empty["delayTime"]) == (-1, -1, 0)
    assert kit.ask(303, topic="Nope", group="G").code == 17


def test_corrections_are_the_lowest_offsets_of_the_others(kit: Kit) -> None:
    filled(kit, "T", 2)
    for group, first, second in (("A", 1, 3), ("B", 2, 2), ("Left", 0, 0)):
        commit(kit, group, "T", 0, first)
        commit(kit, group, "T", 1, second)
    answer = kit.ask(308, topic="T", compareGroup="Nobody", filterGroups="Left")
    assert body_of(answer) == {"correctionOffsets": {"0": 1, "1": 2}}
    old = kit.ask(308, topic="T", compareGroup="Nobody", filterGroups="Left", version=399)
    assert old.body == b'{"correctionOffsets":{0:1,1:2}}', "clients before 4.9.4 want bare keys"
    ahead = body_of(kit.ask(308, topic="T", compareGroup="Left", filterGroups="Left"))
    assert ahead["correctionOffsets"] == {"0": 2**63 - 1, "1": 2**63 - 1}


def test_offsets_are_cloned_to_a_group_that_exists(kit: Kit) -> None:
    filled(kit, "T", 1)
    commit(kit, "From", "T", 0, 2)
    assert kit.ask(314, srcGroup="From", destGroup="To", offline="true").code == 26
    kit.context.groups.find_or_create("To", kit.now)
    assert kit.ask(314, srcGroup="From", destGroup="To", offline="true").code == 0
    assert kit.context.offsets.query("To", "T", 0) == 2


def test_all_offsets_for_a_replica(kit: Kit) -> None:
    assert kit.ask(43).code == 1
    filled(kit, "T", 1)
    commit(kit, "G", "T", 0, 2)
    body = body_of(kit.ask(43))
    assert (body["offsetTable"], body["groupTopicMap"]) == ({"T@G": {"0": 2}}, {"G": ["T"]})
    assert b'"T@G":{0:2}' in kit.ask(43, version=399).body
    assert body_of(kit.ask(45))["offsetTable"] == {}


def test_entries_of_a_queue(kit: Kit) -> None:
    filled(kit, "T", 1)
    body = body_of(kit.ask(321, topic="T", queueId=0, index=1, count=5))
    assert (body["minQueueIndex"], body["maxQueueIndex"], len(body["queueData"])) == (0, 3, 2)
    assert body["queueData"][0]["tagsCode"] == tags_code("TagA")
    kit.ask(
        34,
        {
            "clientID": "a",
            "consumerDataSet": [
                {"groupName": "G", "subscriptionDataSet": [{"topic": "T", "subString": "TagB", "subVersion": 1}]}
            ],
        },
        conn=FakeConnection(),
    )
    filtered = body_of(kit.ask(321, topic="T", queueId=0, index=0, count=1, consumerGroup="G"))
    assert filtered["subscriptionData"]["subString"] == "TagB"
    assert filtered["queueData"][0]["eval"] is False
    beyond = kit.ask(321, topic="T", queueId=0, index=9, count=5)
    assert (beyond.code, fastjson.loads(beyond.body)["queueData"]) == (0, [])
    assert "is not exist" in (beyond.remark or "")
    assert kit.ask(321, topic="T", queueId=7, index=0, count=5).code == 1
    assert body_of(kit.ask(321, topic="T", queueId=0, index=0, count=-1))["queueData"] == []


def test_a_topic_named_repeatedly_is_counted_once(kit: Kit) -> None:
    kit.topic("T", 1_000)
    started = time.process_time()
    body = body_of(kit.ask(208, consumerGroup="G", topicList=";".join(["T"] * 5_000)))
    assert len(body["offsetTable"]) == 1_000
    assert time.process_time() - started < 3.0


def test_progress_of_very_many_queues_is_rejected(kit: Kit) -> None:
    kit.settings.max_queues_per_topic = 65_535
    for name in "abcd":
        kit.topic(name, 60_000)
    answer = kit.ask(208, consumerGroup="G", topicList="a;b;c;d")
    assert "240000 queues; 200000 is the maximum" in (answer.remark or "")


def test_progress_of_many_queues_is_computed_in_slices(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, max_queues_per_topic=65_535) as running, client(running) as admin, client(running) as other:
            running.context.topics.update(TopicConfig(topic_name="Big", read_queue_nums=20_000), T0)
            waiting = [asyncio.ensure_future(admin.call(208, {"consumerGroup": "G", "topic": "Big"})) for _ in range(3)]
            await asyncio.sleep(0)
            await admin.call(999_999)  # answered after the first slice of each
            await other.call(999_999)
            assert not any(answer.done() for answer in waiting)
            for answer in waiting:
                assert len(fastjson.loads((await answer).body)["offsetTable"]) == 20_000

    run(story())
