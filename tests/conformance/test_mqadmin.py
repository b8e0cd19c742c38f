"""Apache's administration tool: its output and its changes.

`tool` is its process; test_mqadmin_49.py runs the same tests with an older release.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conformance import rawcall
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until

Mqadmin = Callable[..., str]


@dataclass
class Scene:
    """A topic with eight messages, a group that consumed them, and the output of every read-only command."""

    topic: str
    group: str
    producer_group: str
    version: str  # of the clients, as the tool prints it
    sent: list[dict[str, Any]]
    printed: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def tool(newest: Agent) -> Agent:
    return newest


@pytest.fixture(scope="module")
def mqadmin(tool: Agent) -> Mqadmin:
    """Run one command and return its output."""
    return lambda *words: tool.mqadmin([words])[0]


@pytest.fixture(scope="module")
def scene(cluster: Cluster, tool: Agent) -> Iterator[Scene]:
    topic, group, producer = fresh("Scene"), fresh("watchers"), fresh("senders")
    tool.mqadmin([["updateTopic", "-n", cluster.namesrv, "-b", cluster.broker, "-t", topic, "-r", "4", "-w", "4"]])
    wait_until(lambda: rawcall.has_route(cluster.namesrv, topic), "the route")
    tool.call("producer.start", name=producer, group=producer, namesrv=cluster.namesrv, heartbeatMs=500)
    tool.call("push.start", name=group, group=group, namesrv=cluster.namesrv, topics={topic: "TagA || TagB"}, persistMs=500)
    messages = [{"body": f"hello {i}", "tags": "TagA", "keys": f"key-{i} shared"} for i in range(8)]
    sent = tool.call("producer.send", name=producer, topic=topic, messages=messages)
    assert len(tool.consumed(group, 8)) == 8
    tool.call("push.persist", name=group)
    # 4.9 clients register at a broker with their next heartbeat only.
    known = {"producerGroup": producer}
    wait_until(lambda: rawcall.call(cluster.broker, 204, known)[0]["code"] == 0, "the producer is known")
    one = Scene(topic, group, producer, "V" + tool.version.replace(".", "_"), sent)
    commands = looking_commands(cluster, one)
    printed = tool.mqadmin([*words, "-n", cluster.namesrv] for words in commands.values())
    one.printed = dict(zip(commands, printed, strict=True))
    yield one
    tool.submit("push.stop", name=group)
    tool.submit("producer.stop", name=producer)


def looking_commands(cluster: Cluster, scene: Scene) -> dict[str, list[str]]:
    """The read-only commands, run in parallel."""
    topic, broker, first = scene.topic, cluster.broker, scene.sent[0]
    # 4.9 has no topic option here and exits on unknown options.
    by_id = ["queryMsgById"] if scene.version.startswith("V4") else ["queryMsgById", "-t", topic]
    return {
        "clusterList": ["clusterList"],
        "clusterList -m": ["clusterList", "-m"],
        "topicList": ["topicList"],
        "topicList -c": ["topicList", "-c"],
        "topicRoute": ["topicRoute", "-t", topic],
        "topicStatus": ["topicStatus", "-t", topic],
        "topicClusterList": ["topicClusterList", "-t", topic],
        "consumerProgress": ["consumerProgress", "-g", scene.group],
        "consumerProgress all": ["consumerProgress"],
        "consumerConnection": ["consumerConnection", "-g", scene.group],
        "consumerStatus": ["consumerStatus", "-g", scene.group],
        "producerConnection": ["producerConnection", "-g", scene.producer_group, "-t", topic],
        "producer": ["producer", "-b", broker],
        "brokerStatus": ["brokerStatus", "-b", broker],
        "brokerConsumeStats": ["brokerConsumeStats", "-b", broker],
        "getBrokerConfig": ["getBrokerConfig", "-b", broker],
        "getNamesrvConfig": ["getNamesrvConfig"],
        "getConsumerConfig": ["getConsumerConfig", "-g", scene.group],
        "statsAll": ["statsAll", "-t", topic],
        "queryMsgById": [*by_id, "-i", first["offsetMsgId"]],
        "queryMsgByKey": ["queryMsgByKey", "-t", topic, "-k", "shared"],
        "queryMsgByUniqueKey": ["queryMsgByUniqueKey", "-t", topic, "-i", first["msgId"]],
        "queryMsgByOffset": ["queryMsgByOffset", "-t", topic, "-b", cluster.broker_name, "-i", str(first["queueId"]), "-o", "0"],
        "queryCq": ["queryCq", "-t", topic, "-q", "0", "-i", "0", "-c", "5", "-b", broker],
        "printMsg": ["printMsg", "-t", topic, "-d", "true"],
        "allocateMQ": ["allocateMQ", "-t", topic, "-i", "a,b"],
        "queryMsgById unknown": [*by_id, "-i", first["offsetMsgId"][:-16] + f"{10**15:016X}"],
        "topicRoute unknown": ["topicRoute", "-t", "NoSuchTopic"],
        "consumerConnection unknown": ["consumerConnection", "-g", "NoSuchGroup"],
    }


def test_no_command_failed(scene: Scene) -> None:
    failed = {name: text for name, text in scene.printed.items() if "Exception" in text and not name.endswith("unknown")}
    assert failed == {}


def test_cluster_list(scene: Scene, cluster: Cluster) -> None:
    line = next(one for one in scene.printed["clusterList"].splitlines() if cluster.broker_name in one)
    cluster_name, broker_name, broker_id, address, version = line.split()[:5]
    assert (cluster_name, broker_name, broker_id, address) == (cluster.cluster_name, cluster.broker_name, "0", cluster.broker)
    assert re.fullmatch(r"V[45]_\d+_\d+", version)
    if not scene.version.startswith("V4"):
        assert line.split()[-1] == "true"
    totals = next(one for one in scene.printed["clusterList -m"].splitlines() if cluster.broker_name in one).split()
    assert int(totals[-2]) >= 8
    assert int(totals[-1]) >= 8


def test_topic_list(scene: Scene, cluster: Cluster) -> None:
    names = scene.printed["topicList"].split()
    assert scene.topic in names
    assert f"%RETRY%{scene.group}" in names
    assert {"TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", cluster.cluster_name, cluster.broker_name} <= set(
        names
    )
    assert re.search(rf"^{cluster.cluster_name}\s+{scene.topic}\s+{scene.group}\s*$", scene.printed["topicList -c"], re.MULTILINE)


def test_topic_route(scene: Scene, cluster: Cluster) -> None:
    text = scene.printed["topicRoute"]
    assert f'"{cluster.broker}"' in text
    for part in ('"perm":6', '"readQueueNums":4', '"writeQueueNums":4', f'"brokerName":"{cluster.broker_name}"'):
        assert part in text
    assert "CODE: 17" in scene.printed["topicRoute unknown"]
    assert cluster.cluster_name in scene.printed["topicClusterList"]


def test_topic_status(scene: Scene, cluster: Cluster) -> None:
    rows = re.findall(rf"^{cluster.broker_name}\s+(\d+)\s+(\d+)\s+(\d+)\s+20\d\d-", scene.printed["topicStatus"], re.MULTILINE)
    assert rows == [(str(queue), "0", "2") for queue in range(4)]


def test_consumer_progress(scene: Scene, cluster: Cluster) -> None:
    rows = re.findall(
        rf"^{scene.topic}\s+{cluster.broker_name}\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)",
        scene.printed["consumerProgress"],
        re.MULTILINE,
    )
    assert rows == [(str(queue), "2", "2", "0") for queue in range(4)]
    assert "Diff Total: 0" in scene.printed["consumerProgress"]
    assert re.search(
        rf"^{scene.group}\s+1\s+{scene.version}\s+PUSH\s+CLUSTERING", scene.printed["consumerProgress all"], re.MULTILINE
    )


def test_connections(scene: Scene) -> None:
    text = scene.printed["consumerConnection"]
    assert re.search(rf"@{scene.group}\s+127\.0\.0\.1:\d+\s+JAVA\s+{scene.version}", text)
    assert re.search(rf"^{scene.topic}\s+TagA \|\| TagB", text, re.MULTILINE)
    assert "ConsumeType: CONSUME_PASSIVELY" in text
    assert "MessageModel: CLUSTERING" in text
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in text
    assert "CODE: 17" in scene.printed["consumerConnection unknown"], "no route to the group's retry topic"
    assert re.search(rf"@{scene.producer_group}\s+127\.0\.0\.1:\d+\s+JAVA\s+{scene.version}", scene.printed["producerConnection"])
    assert scene.producer_group in scene.printed["producer"]


def test_consumer_status_asks_the_consumer_itself(scene: Scene) -> None:
    text = scene.printed["consumerStatus"]
    assert "Same subscription in the same group of consumer" in text
    assert "Rebalance OK" in text


def test_broker_status(scene: Scene) -> None:
    values = dict(re.findall(r"^(\w+)\s*: (.*)$", scene.printed["brokerStatus"], re.MULTILINE))
    needed = {"brokerVersionDesc", "putTps", "sendThreadPoolQueueSize", "pullThreadPoolQueueSize"}
    needed |= {"getTransferedTps"} if scene.version.startswith("V4") else {"getTransferredTps", "brokerActive"}
    needed |= {
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "commitLogDiskRatio",
        "commitLogMaxOffset",
        "commitLogMinOffset",
    }
    needed |= {"msgPutTotalTodayNow", "msgGetTotalTodayNow", "bootTimestamp", "runtime", "putMessageTimesTotal"}
    assert needed - values.keys() == set()
    assert int(values["commitLogMaxOffset"]) > 0
    assert int(values["msgPutTotalTodayNow"]) >= 8


def test_broker_consume_stats(scene: Scene, cluster: Cluster) -> None:
    pattern = rf"^{scene.topic}\s+{scene.group}\s+{cluster.broker_name}\s+\d\s+2\s+2\s+0\s"
    assert len(re.findall(pattern, scene.printed["brokerConsumeStats"], re.MULTILINE)) == 4


def test_configurations(scene: Scene, cluster: Cluster) -> None:
    broker = dict(re.findall(r"^(\w+)\s+=  (.*)$", scene.printed["getBrokerConfig"], re.MULTILINE))
    assert (broker["brokerName"], broker["brokerClusterName"]) == (cluster.broker_name, cluster.cluster_name)
    assert broker["listenPort"] == cluster.broker.rsplit(":", 1)[1]
    assert {"flushDiskType", "autoCreateTopicEnable", "fileReservedTime", "deleteWhen", "maxMessageSize"} <= broker.keys()
    namesrv = dict(re.findall(r"^(\w+)\s+=  (.*)$", scene.printed["getNamesrvConfig"], re.MULTILINE))
    assert namesrv["listenPort"] == cluster.namesrv.rsplit(":", 1)[1]
    assert re.search(rf"^groupName\s+=  {scene.group}", scene.printed["getConsumerConfig"], re.MULTILINE)


def test_stats_all(scene: Scene) -> None:
    row = re.search(rf"^{scene.topic}\s+{scene.group}\s+0\s+\S+\s+\S+\s+(\d+)\s+(\d+)", scene.printed["statsAll"], re.MULTILINE)
    assert row is not None, scene.printed["statsAll"]


@pytest.mark.parametrize("command", ["queryMsgById", "queryMsgByUniqueKey", "queryMsgByOffset"])
def test_single_messages(scene: Scene, cluster: Cluster, command: str) -> None:
    text = scene.printed[command]
    first = scene.sent[0]
    for pattern in (
        rf"Topic:\s+{scene.topic}",
        r"Tags:\s+\[TagA\]",
        r"Keys:\s+\[key-0 shared\]",
        rf"Queue ID:\s+{first['queueId']}",
        r"Queue Offset:\s+0",
        rf"Store Host:\s+{cluster.broker}",
        rf"UNIQ_KEY={first['msgId']}",
        rf"MessageTrack \[consumerGroup={scene.group}, trackType=CONSUMED",
    ):
        assert re.search(pattern, text), (pattern, text)


def test_messages_by_key(scene: Scene) -> None:
    text = scene.printed["queryMsgByKey"]
    assert [one["msgId"] for one in scene.sent if one["msgId"] not in text] == []
    assert "CODE" in scene.printed["queryMsgById unknown"] or "Exception" in scene.printed["queryMsgById unknown"]


def test_queue_entries_and_bodies(scene: Scene) -> None:
    text = scene.printed["queryCq"]
    assert "max: 2, min: 0" in text
    # Java's hash code of "TagA".
    assert text.count("tagsCode=2598919") == 2
    assert sorted(re.findall(r"BODY: (hello \d)", scene.printed["printMsg"])) == [f"hello {i}" for i in range(8)]
    assert scene.printed["allocateMQ"].count('"queueId"') == 4


def test_topic_is_made_changed_and_deleted(cluster: Cluster, mqadmin: Mqadmin) -> None:
    topic = fresh("Made")
    where = ["-n", cluster.namesrv, "-b", cluster.broker, "-t", topic]

    assert "success" in mqadmin("updateTopic", *where, "-r", "3", "-w", "2", "-p", "6")
    wait_until(lambda: rawcall.has_route(cluster.namesrv, topic), "the route")
    queues = rawcall.route(cluster.namesrv, topic)["queueDatas"]
    assert [(one["readQueueNums"], one["writeQueueNums"], one["perm"]) for one in queues] == [(3, 2, 6)]

    assert "success" in mqadmin("updateTopicPerm", *where, "-p", "4")
    wait_until(lambda: rawcall.route(cluster.namesrv, topic)["queueDatas"][0]["perm"] == 4, "the permission")

    assert "success" in mqadmin("deleteTopic", "-n", cluster.namesrv, "-c", cluster.cluster_name, "-t", topic)
    wait_until(lambda: not rawcall.has_route(cluster.namesrv, topic), "the route is gone")


def test_bad_topics_are_refused(cluster: Cluster, tool: Agent) -> None:
    bad = ["bad/name", "../../x", "SELF_TEST_TOPIC", "x" * 128]
    where = ["-n", cluster.namesrv, "-b", cluster.broker]
    printed = tool.mqadmin(["updateTopic", *where, "-t", name] for name in bad)
    assert [name for name, text in zip(bad, printed, strict=True) if "success" in text] == []


def test_groups_are_made_and_deleted(cluster: Cluster, mqadmin: Mqadmin) -> None:
    group = fresh("made")
    where = ["-n", cluster.namesrv, "-b", cluster.broker, "-g", group]

    assert "success" in mqadmin("updateSubGroup", *where, "-q", "2", "-r", "5")
    text = mqadmin("getConsumerConfig", "-n", cluster.namesrv, "-g", group)
    assert re.search(r"retryQueueNums\s+=  2", text)
    assert re.search(r"retryMaxTimes\s+=  5", text)

    assert "success" in mqadmin("deleteSubGroup", *where, "-r", "true")


def test_write_permission_of_a_broker_is_wiped_and_added(cluster: Cluster, mqadmin: Mqadmin, make_topic: MakeTopic) -> None:
    topic = make_topic()
    where = ["-n", cluster.namesrv, "-b", cluster.broker_name]

    assert re.search(r"OK, [1-9]\d*", mqadmin("wipeWritePerm", *where))
    assert rawcall.route(cluster.namesrv, topic)["queueDatas"][0]["perm"] == 4
    assert re.search(r"OK, [1-9]\d*", mqadmin("addWritePerm", *where))
    assert rawcall.route(cluster.namesrv, topic)["queueDatas"][0]["perm"] == 6


def test_key_value_configuration(cluster: Cluster, mqadmin: Mqadmin) -> None:
    ext = {"namespace": fresh("space"), "key": "key"}
    words = ["-n", cluster.namesrv, "-s", ext["namespace"], "-k", ext["key"]]

    assert "success" in mqadmin("updateKvConfig", *words, "-v", "wert-ü")
    answer, _ = rawcall.call(cluster.namesrv, 101, ext)
    assert (answer["code"], answer["extFields"]["value"]) == (0, "wert-ü")
    assert "success" in mqadmin("deleteKvConfig", *words)
    assert rawcall.call(cluster.namesrv, 101, ext)[0]["code"] == 22


def test_order_configuration(cluster: Cluster, mqadmin: Mqadmin, make_topic: MakeTopic) -> None:
    words = ["-n", cluster.namesrv, "-t", make_topic()]
    value = f"{cluster.broker_name}:4"
    assert "success" in mqadmin("updateOrderConf", *words, "-m", "put", "-v", value)
    assert f"orderConf=[{value}]" in mqadmin("updateOrderConf", *words, "-m", "get")
    assert "success" in mqadmin("updateOrderConf", *words, "-m", "delete")


def test_messages_are_sent_and_consumed_by_the_tool(cluster: Cluster, tool: Agent, make_topic: MakeTopic) -> None:
    topic = make_topic(read=1, write=1)
    where = ["-n", cluster.namesrv, "-t", topic]
    (sent,) = tool.mqadmin([["sendMessage", *where, "-p", "by the tool", "-k", "k", "-c", "TagT"]])
    assert "SEND_OK" in sent

    (got, round_trips) = tool.mqadmin(
        [
            ["consumeMessage", *where, "-i", "0", "-b", cluster.broker_name, "-o", "0", "-c", "1"],
            ["checkMsgSendRT", *where, "-a", "3", "-s", "10"],
        ]
    )
    assert "BODY: by the tool" in got
    assert round_trips.count("true") == 3


def test_housekeeping_commands(cluster: Cluster, tool: Agent) -> None:
    commands = [
        [name, "-n", cluster.namesrv, "-b", cluster.broker]
        for name in ("cleanUnusedTopic", "cleanExpiredCQ", "deleteExpiredCommitLog")
    ]
    printed = tool.mqadmin(commands)
    assert ["success" in text for text in printed] == [True] * 3, printed


def test_a_setting_is_changed_at_run_time(cluster: Cluster, mqadmin: Mqadmin) -> None:
    where = ["-n", cluster.namesrv, "-b", cluster.broker]
    assert "success" in mqadmin("updateBrokerConfig", *where, "-k", "fileReservedTime", "-v", "48")
    assert re.search(r"^fileReservedTime\s+=  48", mqadmin("getBrokerConfig", *where), re.MULTILINE)
    mqadmin("updateBrokerConfig", *where, "-k", "fileReservedTime", "-v", "72")


def test_offsets_are_cloned_and_skipped(cluster: Cluster, scene: Scene, mqadmin: Mqadmin) -> None:
    copy = fresh("copy")
    mqadmin("updateSubGroup", "-n", cluster.namesrv, "-b", cluster.broker, "-g", copy)
    printed = mqadmin("cloneGroupOffset", "-n", cluster.namesrv, "-s", scene.group, "-d", copy, "-t", scene.topic, "-o", "true")
    assert "Exception" not in printed, printed
    ext = {"consumerGroup": copy, "topic": scene.topic, "queueId": "0"}
    assert rawcall.call(cluster.broker, 14, ext)[0]["extFields"]["offset"] == "2"

    skipped = mqadmin("skipAccumulatedMessage", "-n", cluster.namesrv, "-g", copy, "-t", scene.topic)
    assert len(re.findall(rf"^{cluster.broker_name}\s+\d\s+2", skipped, re.MULTILINE)) == 4, skipped
