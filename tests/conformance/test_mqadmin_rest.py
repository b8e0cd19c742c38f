"""Rarer commands of Apache's administration tool, and unsupported ones, which are rejected with the name of the request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance import builds, rawcall, test_mqadmin_49
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import TARGET, Cluster
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
Mqadmin = Callable[..., str]
Printed = dict[str, str]

# Unsupported request of each command.
REFUSED = {
    "updateStaticTopic": "UPDATE_AND_CREATE_STATIC_TOPIC",
    "getColdDataFlowCtrInfo": "GET_COLD_DATA_FLOW_CTR_INFO",
    "updateColdDataFlowCtrGroupConfig": "UPDATE_COLD_DATA_FLOW_CTR_CONFIG",
    "removeColdDataFlowCtrGroupConfig": "REMOVE_COLD_DATA_FLOW_CTR_CONFIG",
    "setCommitLogReadAheadMode": "SET_COMMITLOG_READ_MODE",
    "resetMasterFlushOffset": "RESET_MASTER_FLUSH_OFFSET",
    "switchTimerEngine": "SWITCH_TIMER_ENGINE",
    "getBrokerLiteInfo": "GET_BROKER_LITE_INFO",
    "checkRocksdbCqWriteProgress": "CHECK_ROCKSDB_CQ_WRITE_PROGRESS",
    "addBroker": "ADD_BROKER",
    "removeBroker": "REMOVE_BROKER",
}


@pytest.fixture(scope="module")
def consumed(cluster: Cluster, newest: Agent) -> tuple[str, str, list[dict[str, str]]]:
    """A topic with eight messages, its consumer group, and the send results."""
    topic, group = fresh("Rest"), fresh("rest")
    where = ["-n", cluster.namesrv, "-b", cluster.broker]
    newest.mqadmin([["updateTopic", *where, "-t", topic, "-r", "4", "-w", "4"]])
    wait_until(lambda: rawcall.has_route(cluster.namesrv, topic), "the route")
    newest.call("producer.start", name=group, group=f"{group}-p", namesrv=cluster.namesrv)
    newest.call("push.start", name=group, group=group, namesrv=cluster.namesrv, topics={topic: "*"}, persistMs=500)
    messages = [{"body": f"hello {i}", "tags": "TagA", "keys": f"key-{i}"} for i in range(8)]
    sent = newest.call("producer.send", name=group, topic=topic, messages=messages)
    assert len(newest.consumed(group, 8)) == 8
    newest.call("push.persist", name=group)
    return topic, group, sent


@pytest.fixture(scope="module")
def printed(
    cluster: Cluster, newest: Agent, consumed: tuple[str, str, list[dict[str, str]]], tmp_path_factory: pytest.TempPathFactory
) -> Printed:
    """The output of the commands that are read-only or change only their own topics."""
    topic, group, sent = consumed
    broker, out = cluster.broker, tmp_path_factory.mktemp("exported")
    connections = newest.mqadmin([["consumerConnection", "-n", cluster.namesrv, "-g", group]])[0]
    client = re.search(rf"^(\S+@{group})\s", connections, re.MULTILINE)
    assert client is not None, connections
    commands = {
        "setConsumeMode": ["setConsumeMode", "-b", broker, "-t", topic, "-g", group, "-m", "PULL"],
        "printMsgByQueue": ["printMsgByQueue", "-t", topic, "-a", cluster.broker_name, "-i", "0", "-p", "true", "-d", "true"],
        "sendMsgStatus": ["sendMsgStatus", "-b", cluster.broker_name, "-s", "20", "-c", "2"],
        "updateNamesrvConfig": ["updateNamesrvConfig", "-k", "enableTopicList", "-v", "true"],
        "updateNamesrvConfig path": ["updateNamesrvConfig", "-k", "kvConfigPath", "-v", "/tmp/elsewhere"],
        "exportMetadata": ["exportMetadata", "-c", cluster.cluster_name, "-f", str(out)],
        "exportConfigs": ["exportConfigs", "-c", cluster.cluster_name, "-f", str(out)],
        "exportMetrics": ["exportMetrics", "-c", cluster.cluster_name, "-f", str(out)],
        "haStatus": ["haStatus", "-b", broker],
        "cleanExpiredCQ": ["cleanExpiredCQ"],
        "statsAll": ["statsAll", "-t", topic],
    }
    texts = newest.mqadmin([*words, "-n", cluster.namesrv] for words in commands.values())
    exported = {path.name: path.read_text() for path in out.iterdir()}
    # Commands that ask the consumer run one at a time. Apache's client has one thread for each core to serve such requests and to
    # complete its own calls. Requests on all of these threads, each with a call to the broker, wait until the calls time out.
    asking = {
        "consumerStatus": ["consumerStatus", "-g", group, "-i", client[1], "-s"],
        "consumerProgress": ["consumerProgress", "-g", group, "-t", topic, "-s", "true"],
        "queryMsgById": ["queryMsgById", "-t", topic, "-i", sent[0]["offsetMsgId"], "-g", group, "-d", client[1]],
        "queryMsgByUniqueKey": ["queryMsgByUniqueKey", "-t", topic, "-i", sent[1]["msgId"], "-g", group, "-d", client[1]],
    }
    asked = {name: newest.mqadmin([[*words, "-n", cluster.namesrv]])[0] for name, words in asking.items()}
    return dict(zip(commands, texts, strict=True)) | exported | asked


def test_a_consumer_is_asked_and_given_a_message(printed: Printed) -> None:
    assert "ConsumeMessageThread" in printed["consumerStatus"]
    assert "CONSUME_PASSIVELY" in printed["consumerStatus"]
    for command in ("queryMsgById", "queryMsgByUniqueKey"):
        assert "consumeResult=CR_SUCCESS" in printed[command], printed[command]


def test_queues_and_progress(printed: Printed, consumed: tuple[str, str, list[dict[str, str]]], cluster: Cluster) -> None:
    topic, _, _ = consumed
    assert printed["printMsgByQueue"].count("MSGID:") == 2
    rows = re.findall(
        rf"^{topic}\s+{cluster.broker_name}\s+(\d)\s+2\s+(\d)\s+\S+\s+(\d)", printed["consumerProgress"], re.MULTILINE
    )
    assert [row[0] for row in rows] == ["0", "1", "2", "3"], printed["consumerProgress"]
    assert "set consume mode" in printed["setConsumeMode"]
    assert "success" in printed["setConsumeMode"]


def test_sends_of_the_tool(printed: Printed) -> None:
    assert printed["sendMsgStatus"].count("SEND_OK") >= 2
    assert "success" in printed["cleanExpiredCQ"]


def test_settings_of_the_name_server(printed: Printed) -> None:
    assert "success" in printed["updateNamesrvConfig"]
    assert "CODE: 16" in printed["updateNamesrvConfig path"]


def test_an_unreplicated_broker_says_so(printed: Printed, cluster: Cluster) -> None:
    text = printed["haStatus"]
    assert re.search(rf"#MasterAddr\s+{cluster.broker}", text)
    assert re.search(r"#SlaveNum\s+0", text)
    assert int(re.search(r"#MasterCommitLogMaxOffset\s+(\d+)", text)[1]) > 0  # type: ignore[index]  # the test fails if it is not there


def test_exports(printed: Printed, consumed: tuple[str, str, list[dict[str, str]]], cluster: Cluster) -> None:
    topic, group, _ = consumed
    metadata = json.loads(printed["metadata.json"])
    assert metadata["topicConfigTable"][topic]["readQueueNums"] == 4
    assert metadata["subscriptionGroupTable"][group]["retryMaxTimes"] == 16
    configs = json.loads(printed["configs.json"])
    assert configs["clusterScale"] == {"namesrvSize": 1, "slaveBrokerSize": 0, "masterBrokerSize": 1}
    assert configs["brokerConfigs"][cluster.broker_name]["brokerClusterName"] == cluster.cluster_name
    metrics = json.loads(printed["metrics.json"])
    assert cluster.broker_name in metrics["evaluateReport"]
    assert metrics["totalData"]["totalOneDayNum"]["normalOneDayInNum"] >= 0


def test_topics_and_groups_from_files(cluster: Cluster, newest: Agent, tmp_path: Path) -> None:
    topics, groups = [fresh("Listed") for _ in range(2)], [fresh("listed") for _ in range(2)]
    topic_file, group_file = tmp_path / "topics.json", tmp_path / "groups.json"
    topic_file.write_text(
        json.dumps([{"topicName": topics[0], "readQueueNums": 2, "writeQueueNums": 3}, {"topicName": topics[1]}])
    )
    group_file.write_text(json.dumps([{"groupName": groups[0], "retryMaxTimes": 5}, {"groupName": groups[1]}]))
    where = ["-n", cluster.namesrv, "-b", cluster.broker]
    commands = [["updateTopicList", *where, "-f", str(topic_file)], ["updateSubGroupList", *where, "-f", str(group_file)]]
    printed = newest.mqadmin(commands)
    assert ["success" in text for text in printed] == [True, True], printed
    shapes = []
    for topic in topics:
        config = json.loads(rawcall.call(cluster.broker, 351, {"topic": topic, "lo": "true"})[1])
        shapes.append((config["readQueueNums"], config["writeQueueNums"]))
    assert shapes == [(2, 3), (16, 16)]
    retries = [json.loads(rawcall.call(cluster.broker, 352, {"group": group})[1])["retryMaxTimes"] for group in groups]
    assert retries == [5, 16]


def test_offsets_are_reset_by_time_and_queue(cluster: Cluster, mqadmin: Mqadmin, make_topic: MakeTopic) -> None:
    topic, group = make_topic(read=2, write=2), fresh("reset")
    where = ["-n", cluster.namesrv, "-g", group, "-t", topic]
    mqadmin("updateSubGroup", "-n", cluster.namesrv, "-b", cluster.broker, "-g", group)
    header = {"a": "p", "b": topic, "c": "TBW102", "d": "2", "e": "0", "f": "0", "g": "0", "h": "0", "j": "0", "k": "false"}
    for _ in range(3):
        assert rawcall.call(cluster.broker, 310, {**header, "i": "", "m": "false"}, b"x")[0]["code"] == 0
    skipped = mqadmin("resetOffsetByTime", *where, "-s", "-1")
    assert re.search(rf"^{cluster.broker_name}\s+0\s+3", skipped, re.MULTILINE), skipped
    one = mqadmin("resetOffsetByTime", *where, "-s", "-1", "-b", cluster.broker, "-q", "0", "-o", "1")
    assert "reset consumer offset to 1" in one
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    assert rawcall.call(cluster.broker, 14, ext)[0]["extFields"]["offset"] == "1"


@pytest.mark.skipif(TARGET == "apache", reason="Apache has what we have not")
def test_what_is_not_there_is_refused_by_name(cluster: Cluster, newest: Agent) -> None:
    broker = ["-b", cluster.broker]
    words = {
        "updateStaticTopic": ["-t", fresh("Static"), "-qn", "2", "-c", cluster.cluster_name],
        "updateColdDataFlowCtrGroupConfig": [*broker, "-g", "g", "-v", "1000"],
        "removeColdDataFlowCtrGroupConfig": [*broker, "-g", "g"],
        "setCommitLogReadAheadMode": [*broker, "-m", "1"],
        "resetMasterFlushOffset": [*broker, "-o", "0"],
        "switchTimerEngine": [*broker, "-e", "F"],
        "checkRocksdbCqWriteProgress": ["-c", cluster.cluster_name],
        "addBroker": ["-c", cluster.broker, "-b", "x.conf"],
        "removeBroker": ["-c", cluster.broker, "-b", f"{cluster.cluster_name}:{cluster.broker_name}:0"],
    }
    commands = [[name, *words.get(name, broker), "-n", cluster.namesrv] for name in REFUSED]
    printed = newest.mqadmin(commands)
    missing = {name: text for name, text in zip(REFUSED, printed, strict=True) if f"({REFUSED[name]}) not supported" not in text}
    assert missing == {}


def test_every_subcommand_is_tried_or_left_out_for_a_reason(agents: dict[str, Agent]) -> None:
    """The documentation lists exactly the commands that are not tested."""
    known: set[str] = set()
    for agent in agents.values():
        text = agent.mqadmin([[]])[0]
        known |= set(re.findall(r"^   (\w+) ", text, re.MULTILINE))
    assert {"updateTopic", "updateAclConfig", "getBrokerLiteInfo"} <= known
    files = [*HERE.glob("test_mqadmin*.py"), *HERE.glob("test_access_control*.py"), HERE / "test_traces.py"]
    programs = "".join(path.read_text() for path in files)
    tried = {name for name in known if f'"{name}"' in programs} - REFUSED.keys() - test_mqadmin_49.REFUSED.keys()
    page = (builds.ROOT / "docs" / "operate" / "mqadmin.md").read_text()
    table = page.partition("| not supported |")[2].partition("\n\n")[0]
    left_out = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert left_out == known - tried
