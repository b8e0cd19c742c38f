"""Transactional producers: committed messages are delivered, rolled-back ones are not, undecided ones are checked."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import rawcall, servers
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until

SETTINGS = {
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1500",
    "transactionCheckMax": "6",
    "transactionOpBatchInterval": "200",  # Apache's broker also checks decisions that it has not written yet
}
# Apache's broker waits a second when it finds no new op messages.
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with short transaction check intervals."""
    running = servers.start(tmp_path_factory.mktemp("transactions"), SETTINGS)
    yield running
    running.dispose()


class Producer:
    """A transactional producer in an agent."""

    def __init__(self, java: Agent, cluster: Cluster, group: str) -> None:
        self.java = java
        self.name = fresh("transactional")
        self.group = group
        java.call("tran.start", name=self.name, group=group, namesrv=cluster.namesrv)

    def send(self, topic: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        return list(self.java.call("tran.send", name=self.name, topic=topic, messages=list(messages)))

    def answer(self, answer: str, body: str = "*") -> None:
        self.java.call("tran.answer", name=self.name, answer=answer, body=body)

    def checks(self) -> list[dict[str, Any]]:
        return list(self.java.call("tran.checks", name=self.name))

    def stop(self) -> None:
        self.java.call("tran.stop", name=self.name)


@pytest.fixture
def topic(make_topic: MakeTopic, asking: Cluster) -> str:
    return make_topic(on=asking)


@pytest.fixture
def producer(java: Agent, asking: Cluster) -> Iterator[Producer]:
    one = Producer(java, asking, fresh("group"))
    yield one
    one.stop()


@pytest.fixture
def puller(java: Agent, asking: Cluster) -> Iterator[str]:
    name = fresh("puller")
    java.call("pull.start", name=name, group=name, namesrv=asking.namesrv)
    yield name
    java.submit("pull.stop", name=name)


def bodies(java: Agent, puller: str, topic: str) -> list[str]:
    return sorted(one["body"] for one in java.call("pull.all", name=puller, topic=topic))


def wait_for(java: Agent, puller: str, topic: str, expected: list[str]) -> None:
    wait_until(lambda: len(bodies(java, puller, topic)) >= len(expected), f"{expected} in {topic}", PATIENCE_S)
    assert bodies(java, puller, topic) == expected


def test_what_is_committed_at_once_is_delivered(java: Agent, producer: Producer, puller: str, topic: str) -> None:
    message = {"body": "paid ü", "tags": "T", "keys": "k1 k2", "flag": 5, "properties": {"farbe": "grün"}, "local": "commit"}

    (result,) = producer.send(topic, message)

    assert (result["status"], result["state"]) == ("SEND_OK", "COMMIT_MESSAGE")
    assert result["transactionId"] == result["msgId"]
    wait_for(java, puller, topic, ["paid ü"])
    (found,) = java.call("pull.all", name=puller, topic=topic)
    assert (found["tags"], found["keys"], found["flag"], found["queueId"]) == ("T", "k1 k2", 5, result["queueId"])
    assert (found["msgId"], found["sysFlag"]) == (result["msgId"], 8)
    properties = found["properties"]
    assert properties.items() >= {"farbe": "grün", "TRAN_MSG": "true", "PGROUP": producer.group}.items()
    assert properties["__transactionId__"] == result["transactionId"]
    assert {"REAL_TOPIC", "REAL_QID", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"}.isdisjoint(properties)


def test_what_is_rolled_back_is_never_seen_nor_asked_about(java: Agent, producer: Producer, puller: str, topic: str) -> None:
    results = producer.send(topic, *({"body": f"{i}", "local": "rollback" if i % 2 else "commit"} for i in range(10)))

    assert {result["status"] for result in results} == {"SEND_OK"}
    wait_for(java, puller, topic, ["0", "2", "4", "6", "8"])
    time.sleep(4)
    assert bodies(java, puller, topic) == ["0", "2", "4", "6", "8"]
    assert producer.checks() == []


def test_an_open_transaction_is_invisible_until_the_producer_knows(
    java: Agent, producer: Producer, puller: str, topic: str
) -> None:
    sent = [{"body": body, "keys": body, "tags": "T", "properties": {"n": "1"}} for body in ("to commit", "to roll back")]
    results = producer.send(topic, *sent)
    asked = {"to commit": 0, "to roll back": 0}

    def asked_twice() -> bool:
        for body in asked:
            asked[body] = sum(check["body"] == body for check in producer.checks())
        return min(asked.values()) >= 2

    wait_until(asked_twice, "two checks of each", PATIENCE_S)
    assert bodies(java, puller, topic) == []
    queue_of = {body["body"]: result["queueId"] for body, result in zip(sent, results, strict=True)}
    ids = {body["body"]: result["transactionId"] for body, result in zip(sent, results, strict=True)}
    for check in producer.checks():
        assert (check["topic"], check["queueId"]) == (topic, queue_of[check["body"]])
        assert (check["transactionId"], check["keys"], check["tags"]) == (ids[check["body"]], check["body"], "T")
        assert check["properties"]["n"] == "1"
        assert int(check["properties"]["TRANSACTION_CHECK_TIMES"]) >= 1

    producer.answer("commit", "to commit")
    producer.answer("rollback", "to roll back")
    wait_for(java, puller, topic, ["to commit"])
    settled = len(producer.checks())
    time.sleep(4)
    assert bodies(java, puller, topic) == ["to commit"]
    assert len(producer.checks()) <= settled + 1  # one check may have been in flight


def test_another_producer_of_the_group_answers(
    java: Agent, agents: dict[str, Agent], asking: Cluster, puller: str, topic: str
) -> None:
    group = fresh("group")
    first = Producer(java, asking, group)
    first.send(topic, {"body": "orphan"})
    first.stop()
    (other_agent,) = [agent for agent in agents.values() if agent is not java]
    second = Producer(other_agent, asking, group)
    second.answer("commit")
    second.send(topic, {"body": "its own", "local": "commit"})  # makes it known to the broker

    wait_for(java, puller, topic, ["its own", "orphan"])

    assert {check["body"] for check in second.checks()} == {"orphan"}
    second.stop()


def test_immunity_puts_the_question_off(java: Agent, producer: Producer, puller: str, topic: str) -> None:
    producer.answer("commit")
    began = time.monotonic()
    producer.send(topic, {"body": "x", "properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "4"}})

    wait_for(java, puller, topic, ["x"])

    assert time.monotonic() - began > 3.9
    assert len(producer.checks()) == 1


def test_a_transaction_that_nobody_decides_is_given_up(
    java: Agent, producer: Producer, asking: Cluster, puller: str, topic: str
) -> None:
    def given_up() -> int:
        answer, _ = rawcall.call(asking.broker, 30, {"topic": "TRANS_CHECK_MAX_TIME_TOPIC", "queueId": "0"})
        return int(answer["extFields"]["offset"]) if answer["code"] == 0 else 0

    before = given_up()
    producer.send(topic, {"body": "nobody knows"})

    wait_until(lambda: given_up() > before, "the message among those given up", PATIENCE_S)

    assert len(producer.checks()) == 6
    assert bodies(java, puller, topic) == []


def test_decisions_about_something_else_are_refused(newest: Agent, asking: Cluster, topic: str) -> None:
    """Uses the raw protocol, because the clients prevent it."""
    names = {"TRAN_MSG": "true", "PGROUP": "raw", "UNIQ_KEY": fresh("KEY")}
    half = {
        "a": "raw", "b": topic, "c": "TBW102", "d": "4", "e": "1", "f": "4", "g": str(int(time.time() * 1000)), "h": "0",
        "i": "".join(f"{name}\x01{value}\x02" for name, value in names.items()), "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    sent, _ = rawcall.call(asking.broker, 310, half, b"x")
    assert sent["code"] == 0, sent
    told = sent["extFields"]
    assert (told["queueId"], told["transactionId"]) == ("1", names["UNIQ_KEY"])
    good = {
        "producerGroup": "raw", "commitOrRollback": "8", "msgId": names["UNIQ_KEY"],
        "tranStateTableOffset": told["queueOffset"], "commitLogOffset": str(int(told["msgId"][16:], 16)),
    }  # fmt: skip
    wrong = [
        {"producerGroup": "another"},
        {"tranStateTableOffset": str(int(told["queueOffset"]) + 1000)},
        {"commitLogOffset": "999999999"},
    ]

    for change in wrong:
        for decision in ("8", "12"):
            answer, _ = rawcall.call(asking.broker, 37, good | change | {"commitOrRollback": decision})
            assert answer["code"] == 1, (change, answer)

    def stored() -> int:
        return int(rawcall.call(asking.broker, 30, {"topic": topic, "queueId": "1"})[0]["extFields"]["offset"])

    assert stored() == 0
    answer, _ = rawcall.call(asking.broker, 37, good)
    assert answer["code"] == 0, answer
    wait_until(lambda: stored() == 1, "the committed message")


@pytest.mark.skipif(servers.TARGET == "apache", reason="both sides are chosen by the test")
@pytest.mark.parametrize("kinds", [("firearrow", "apache"), ("apache", "firearrow")], ids=" then ".join)
def test_the_other_broker_goes_on_with_open_transactions(newest: Agent, tmp_path: Path, kinds: tuple[str, str]) -> None:
    """The directory contains copies, decisions and undecided transactions."""
    # Leave time to save the progress: Apache's broker relies on it alone.
    settings = SETTINGS | {"transactionCheckInterval": "3000", "flushConsumerOffsetInterval": "200"}
    running: list[Cluster] = []
    try:
        first = servers.start_apart(tmp_path / "first", settings, kinds[0])
        running.append(first)
        topic = make_topic_on(first)
        before = Producer(newest, first, "exchange")
        before.send(topic, *({"body": f"{local} {i}", "local": local} for i in range(3) for local in ("commit", "rollback")))
        before.send(topic, {"body": "open, to commit"}, {"body": "open, to roll back"})
        wait_until(lambda: len(before.checks()) >= 4, "two checks of each", PATIENCE_S)
        time.sleep(1)
        before.stop()
        first.kill()

        shutil.copytree(first.store, tmp_path / "second" / "store", ignore=shutil.ignore_patterns("lock", "*.lock"))
        port = int(first.broker.rsplit(":", 1)[1])
        second = servers.start_apart(tmp_path / "second", settings, kinds[1], port)
        running.append(second)
        after = Producer(newest, second, "exchange")
        after.answer("commit", "open, to commit")
        after.answer("rollback", "open, to roll back")
        puller = fresh("puller")
        newest.call("pull.start", name=puller, group=puller, namesrv=second.namesrv)
        wait_until(lambda: rawcall.has_route(second.namesrv, topic), "the route")
        after.send(topic, {"body": "new", "local": "commit"})
        expected = ["commit 0", "commit 1", "commit 2", "new", "open, to commit"]
        wait_until(lambda: len(bodies(newest, puller, topic)) >= len(expected), "the committed messages", 60)
        time.sleep(4)
        assert bodies(newest, puller, topic) == expected
        assert {check["body"] for check in after.checks()} == {"open, to commit", "open, to roll back"}
        after.stop()
        newest.submit("pull.stop", name=puller)
    finally:
        for cluster in running:
            cluster.kill()


def make_topic_on(cluster: Cluster) -> str:
    topic = fresh("Topic")
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    assert rawcall.call(cluster.broker, 17, ext)[0]["code"] == 0
    wait_until(lambda: rawcall.has_route(cluster.namesrv, topic), "the route")
    return topic
