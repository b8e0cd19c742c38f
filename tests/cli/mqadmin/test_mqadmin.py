"""mqadmin's subcommands and options: the same patterns that tests/conformance checks on Apache's tool."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from firearrow.admin.sync import Admin
from firearrow.cli.main import run as run_command
from firearrow.client.message import Message, SendResult
from firearrow.testing.sync import Cluster

Mqadmin = Callable[..., str]


class Scene:
    """A topic of four queues with eight messages, and a group that consumed them and is connected."""

    def __init__(self, cluster: Cluster) -> None:
        self.name_server = cluster.name_server
        with Admin(cluster.name_server) as admin:
            self.broker = admin.list_brokers()[0].address
            admin.create_topic("T", queues=4)
        self.consumer = cluster.push_consumer(group="g", subscribe={"T": "TagA || TagB"}, listener=lambda message: None)
        self.consumer.start()
        self.producer = cluster.producer(group="p")
        self.producer.start()
        self.sent: list[SendResult] = [
            self.producer.send(Message("T", f"hello {number}".encode(), "TagA", (f"key-{number}", "shared")))
            for number in range(8)
        ]
        with Admin(cluster.name_server) as admin:
            admin.reset_offset("g", "T", "latest")


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with Cluster(sockets=True, clock=None) as cluster:
        scene = Scene(cluster)
        yield scene
        scene.consumer.close()
        scene.producer.close()


@pytest.fixture
def mqadmin(scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mqadmin:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    def run(*words: Any, code: int = 0) -> str:
        found = run_command(["mqadmin", *map(str, words), "-n", scene.name_server])
        out, err = capsys.readouterr()
        assert found == code, err
        return out + err

    return run


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("topicLst", "firearrow mqadmin: no such subcommand 'topicLst'; did you mean topicList?"),
        ("nonsense", "firearrow mqadmin: no such subcommand 'nonsense'; expected one of updateTopic,"),
        ("sendMessage", "firearrow mqadmin: no such subcommand 'sendMessage'; use firearrow send"),
        ("topicStatus", "firearrow mqadmin topicStatus: missing option '-t' / '--topic'"),
        ("updateTopic -t T", "firearrow mqadmin updateTopic: no broker given; expected -b ADDRESS or -c CLUSTER"),
    ],
)
def test_invalid_usage_is_one_line_with_exit_code_2(mqadmin: Mqadmin, words: str, error: str) -> None:
    text = mqadmin(*words.split(), code=2)
    assert text.startswith(error)
    assert text.count("\n") == 1


def test_help_lists_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["mqadmin", "help"]) == 0
    assert "\n  topicStatus " in capsys.readouterr().out


def test_clusters_and_topics(scene: Scene, mqadmin: Mqadmin) -> None:
    line = next(one for one in mqadmin("clusterList").splitlines() if "broker-a" in one)
    assert line.split()[:5] == ["DefaultCluster", "broker-a", "0", scene.broker, "V5_5_0"]
    assert line.split()[-1] == "true"
    totals = next(one for one in mqadmin("clusterList", "-m").splitlines() if "broker-a" in one).split()
    assert int(totals[-2]) >= 8
    names = mqadmin("topicList").split()
    assert {"T", "%RETRY%g", "TBW102", "DefaultCluster", "broker-a"} <= set(names)
    assert re.search(r"^DefaultCluster\s+T\s+g\s*$", mqadmin("topicList", "-c"), re.MULTILINE)
    text = mqadmin("topicRoute", "-t", "T")
    for part in (f'"{scene.broker}"', '"perm":6', '"readQueueNums":4', '"writeQueueNums":4', '"brokerName":"broker-a"'):
        assert part in text
    mqadmin("topicRoute", "-t", "NoSuchTopic", code=1)
    rows = re.findall(r"^broker-a\s+(\d+)\s+(\d+)\s+(\d+)\s+20\d\d-", mqadmin("topicStatus", "-t", "T"), re.MULTILINE)
    assert rows == [(str(queue), "0", "2") for queue in range(4)]
    assert mqadmin("topicClusterList", "-t", "T") == "DefaultCluster\n"
    assert re.search(r"^T\s+g\s+0\s+\S+\s+\S+\s+(\d+)\s+(\d+)", mqadmin("statsAll", "-t", "T"), re.MULTILINE)


def test_order_configuration(mqadmin: Mqadmin) -> None:
    words = ("updateOrderConf", "-t", "T", "--yes", "-m")
    mqadmin(*words, "get", code=1)
    assert mqadmin(*words, "put", "-v", "broker-a:4") == "update orderConf success. topic=[T], orderConf=[broker-a:4]\n"
    assert "orderConf=[broker-a:4]" in mqadmin(*words, "get")
    assert "success" in mqadmin(*words, "delete")
    for wrong in (("put",), ("put", "-v", "nonsense"), ("turn",)):
        assert mqadmin(*words, *wrong, code=2).count("\n") == 1


def test_consumers_and_producers(scene: Scene, mqadmin: Mqadmin) -> None:
    text = mqadmin("consumerProgress", "-g", "g", "-t", "T")
    assert re.findall(r"^T\s+broker-a\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", text, re.MULTILINE) == [
        (str(queue), "2", "2", "0") for queue in range(4)
    ]
    assert "Consume Diff Total: 0" in text
    assert re.search(r"^g\s+1\s+V5_5_0\s+PUSH\s+CLUSTERING", mqadmin("consumerProgress"), re.MULTILINE)
    text = mqadmin("consumerConnection", "-g", "g")
    assert re.search(r"\S+@\S+\s+127\.0\.0\.1:\d+\s+PYTHON\s+V5_5_0", text)
    assert re.search(r"^T\s+TagA \|\| TagB", text, re.MULTILINE)
    assert "ConsumeType: CONSUME_PASSIVELY" in text
    assert "MessageModel: CLUSTERING" in text
    mqadmin("consumerConnection", "-g", "NoSuchGroup", code=1)
    assert re.search(r"\S+@\S+\s+127\.0\.0\.1:\d+\s+PYTHON\s+V5_5_0", mqadmin("producerConnection", "-g", "p", "-t", "T"))
    assert "(p)" in mqadmin("producer", "-b", scene.broker)
    assert (
        len(re.findall(r"^T\s+g\s+broker-a\s+\d\s+2\s+2\s+0\s", mqadmin("brokerConsumeStats", "-b", scene.broker), re.MULTILINE))
        == 4
    )


def test_messages(scene: Scene, mqadmin: Mqadmin) -> None:
    first = scene.sent[0]
    by_offset = ["queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", first.queue_id, "-o", first.queue_offset]
    for words in (
        ["queryMsgById", "-i", first.offset_msg_id],
        ["queryMsgByUniqueKey", "-t", "T", "-i", first.msg_id],
        by_offset,
    ):
        text = mqadmin(*words)
        for pattern in (
            r"Topic:\s+T",
            r"Tags:\s+\[TagA\]",
            r"Keys:\s+\[key-0 shared\]",
            rf"Queue ID:\s+{first.queue_id}",
            rf"Store Host:\s+{scene.broker}",
            rf"UNIQ_KEY={first.msg_id}",
            r"MessageTrack \[consumerGroup=g, trackType=CONSUMED",
        ):
            assert re.search(pattern, text), (pattern, text)
    text = mqadmin("queryMsgByKey", "-t", "T", "-k", "shared")
    assert [one.msg_id for one in scene.sent if one.msg_id not in text] == []
    assert sorted(re.findall(r"BODY: (hello \d)", mqadmin("printMsg", "-t", "T"))) == [f"hello {number}" for number in range(8)]
    mqadmin("queryMsgById", "-i", "7F000001" + "0" * 24, code=1)


def test_configurations(scene: Scene, mqadmin: Mqadmin) -> None:
    status = dict(re.findall(r"^(\w+)\s*: (.*)$", mqadmin("brokerStatus", "-b", scene.broker), re.MULTILINE))
    assert {"brokerVersionDesc", "putTps", "commitLogDiskRatio", "msgPutTotalTodayNow"} <= status.keys()
    where = ["-b", scene.broker]
    assert "success" in mqadmin("updateBrokerConfig", *where, "-k", "fileReservedTime", "-v", "48", "--yes")
    assert re.search(r"^fileReservedTime\s+=  48", mqadmin("getBrokerConfig", *where), re.MULTILINE)
    assert re.search(r"^listenPort\s+=  \d+", mqadmin("getNamesrvConfig"), re.MULTILINE)
    assert "success" in mqadmin("updateKvConfig", "-s", "n", "-k", "k", "-v", "v")
    assert "success" in mqadmin("deleteKvConfig", "-s", "n", "-k", "k", "--yes")
    assert re.search(r"OK, [1-9]\d*", mqadmin("wipeWritePerm", "-b", "broker-a", "--yes"))
    assert re.search(r"OK, [1-9]\d*", mqadmin("addWritePerm", "-b", "broker-a"))
    for name in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in mqadmin(name, *where, "--yes")


def test_topics_and_groups_are_created_and_deleted(scene: Scene, mqadmin: Mqadmin) -> None:
    where = ["-b", scene.broker, "-t", "Made"]
    assert "success" in mqadmin("updateTopic", *where, "-r", "3", "-w", "2", "-a", "+message.type=FIFO")
    assert "success" in mqadmin("updateTopic", *where, "-r", "4", "-w", "4"), "it is created or changed"
    assert "update topic perm from 6 to 4" in mqadmin("updateTopicPerm", *where, "-p", "4")
    assert "expected 2, 4 or 6" in mqadmin("updateTopicPerm", *where, "-p", "9", code=2)
    assert "success" in mqadmin("deleteTopic", "-t", "Made", "-c", "DefaultCluster", "--yes")
    group = ["-c", "DefaultCluster", "-g", "made"]
    assert "success" in mqadmin("updateSubGroup", *group, "-q", "2", "-r", "5")
    text = mqadmin("getConsumerConfig", "-g", "made")
    assert re.search(r"retryQueueNums\s+=  2", text)
    assert re.search(r"retryMaxTimes\s+=  5", text)
    assert "success" in mqadmin("cloneGroupOffset", "-s", "g", "-d", "made", "-t", "T", "--yes")
    text = mqadmin("resetOffsetByTime", "-g", "made", "-t", "T", "-s", "2020-01-31#12:00:00:000", "--yes")
    assert re.findall(r"^broker-a\s+(\d)\s+(\d)", text, re.MULTILINE) == [(str(queue), "0") for queue in range(4)]
    text = mqadmin("skipAccumulatedMessage", "-g", "made", "-t", "T", "--yes")
    assert re.findall(r"^broker-a\s+(\d)\s+(\d)", text, re.MULTILINE) == [(str(queue), "2") for queue in range(4)]
    assert "expected now, milliseconds" in mqadmin("resetOffsetByTime", "-g", "made", "-t", "T", "-s", "soon", "--yes", code=2)
    assert "success" in mqadmin("deleteSubGroup", *group, "-r", "true", "--yes")
