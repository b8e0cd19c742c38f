"""Timer messages and their recall with the Java 5.5.0 client."""

from __future__ import annotations

import base64
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import rawcall, servers
from tests.conformance.agent import Agent, AgentError
from tests.conformance.conftest import MakeTopic, StartCluster, fresh
from tests.conformance.servers import TARGET, Cluster
from tests.support.waiting import wait_until

PRECISION_MS = 1_000
# Apache processes a slot after its end, through three threads; the rest is an allowance for a busy machine.
SLACK_MS = 2_000 if TARGET == "apache" else 300
FOREVER_MS = 259_200_000
LOCAL = {"recallMessageEnable": "true"}


class Producer:
    """A producer of timer messages in the 5.5.0 client and the messages of its topic."""

    def __init__(self, java: Agent, cluster: Cluster, topic: str) -> None:
        self.java, self.cluster, self.topic = java, cluster, topic
        self.name, self.puller = fresh("timer"), fresh("puller")
        java.call("timer.start", name=self.name, namesrv=cluster.namesrv)
        java.call("pull.start", name=self.puller, group=self.puller, namesrv=cluster.namesrv)

    def send(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return list(self.java.call("timer.send", name=self.name, topic=self.topic, messages=messages))

    def recall(self, handle: str) -> str:
        return str(self.java.call("timer.recall", name=self.name, topic=self.topic, handle=handle))

    def arrived(self) -> dict[str, dict[str, Any]]:
        found = self.java.call("pull.all", name=self.puller, topic=self.topic)
        messages = {one["body"]: one for one in found}
        assert len(messages) == len(found), "a message came twice"
        return messages

    def wait_for(self, bodies: set[str], timeout_s: float = 60.0) -> dict[str, dict[str, Any]]:
        wait_until(lambda: self.arrived().keys() >= bodies, f"the timer messages {sorted(bodies)[:5]}...", timeout_s)
        return self.arrived()

    def close(self) -> None:
        self.java.submit("timer.stop", name=self.name)
        self.java.submit("pull.stop", name=self.puller)


@pytest.fixture
def start_producer(newest: Agent) -> Iterator[Callable[[Cluster, str], Producer]]:
    started: list[Producer] = []

    def start(cluster: Cluster, topic: str) -> Producer:
        started.append(Producer(newest, cluster, topic))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def producer(cluster: Cluster, make_topic: MakeTopic, start_producer: Callable[[Cluster, str], Producer]) -> Producer:
    return start_producer(cluster, make_topic())


def test_they_come_in_time_and_never_early(producer: Producer) -> None:
    chance = random.Random(5)
    messages: list[dict[str, Any]] = []
    for number in range(300):
        due_ms = int(time.time() * 1000) + chance.randrange(3_000, 10_000)
        messages.append({"body": f"m{number}", "setDeliverTimeMs": due_ms})
    assert all(result["status"] == "SEND_OK" for result in producer.send(messages))

    arrived = producer.wait_for({one["body"] for one in messages})

    late = sorted(arrived[one["body"]]["storeTimestamp"] - one["setDeliverTimeMs"] for one in messages)
    assert late[0] >= 0
    assert late[-1] <= PRECISION_MS + SLACK_MS, late[-10:]


@pytest.mark.parametrize(("way", "amount", "unit_ms"), [("setDelayTimeSec", 2, 1000), ("setDelayTimeMs", 2_345, 1)])
def test_a_delay_counts_from_the_sending(producer: Producer, way: str, amount: int, unit_ms: int) -> None:
    (sent,) = producer.send([{"body": "x", way: amount, "tags": "T", "keys": "K", "properties": {"mine": "1"}}])
    message = producer.wait_for({"x"})["x"]
    assert message["storeTimestamp"] >= sent["sentAfter"] + amount * unit_ms
    assert message["storeTimestamp"] <= sent["sentBefore"] + amount * unit_ms + PRECISION_MS + SLACK_MS
    assert (message["tags"], message["keys"], message["queueId"]) == ("T", "K", sent["queueId"])
    known = message["properties"]
    assert (known["REAL_TOPIC"], known["REAL_QID"], known["mine"]) == (producer.topic, str(sent["queueId"]), "1")
    assert int(known["TIMER_ENQUEUE_MS"]) <= int(known["TIMER_DEQUEUE_MS"]) <= message["storeTimestamp"]
    assert int(known["TIMER_OUT_MS"]) % PRECISION_MS == 0


def test_a_time_that_is_past_is_now(producer: Producer) -> None:
    (sent,) = producer.send([{"body": "x", "setDeliverTimeMs": int(time.time() * 1000) - 5_000}])
    assert sent.get("recallHandle") is None
    message = producer.wait_for({"x"})["x"]
    assert message["storeTimestamp"] - sent["sentBefore"] < 1_000
    assert "TIMER_OUT_MS" not in message["properties"]


@pytest.mark.parametrize("fields", [{"setDelayTimeMs": FOREVER_MS + 60_000}, {"setDelayTimeSec": 1 << 40}])
def test_too_far_ahead_is_refused(producer: Producer, fields: dict[str, int]) -> None:
    (refused,) = producer.send([{"body": "x", **fields}])
    assert refused["code"] == 13, refused


def test_switched_off_is_refused(
    start_cluster: StartCluster, make_topic: MakeTopic, start_producer: Callable[[Cluster, str], Producer]
) -> None:
    cluster = start_cluster({"timerWheelEnable": "false"})
    producer = start_producer(cluster, make_topic(on=cluster))
    (refused,) = producer.send([{"body": "x", "setDelayTimeSec": 5}])
    assert refused["code"] == 1, refused
    (sent,) = producer.send([{"body": "plain"}])
    assert sent["status"] == "SEND_OK"


def test_a_recalled_message_does_not_come(
    start_cluster: StartCluster, make_topic: MakeTopic, start_producer: Callable[[Cluster, str], Producer]
) -> None:
    cluster = start_cluster(LOCAL)
    producer = start_producer(cluster, make_topic(on=cluster))
    results = producer.send([{"body": f"m{number}", "setDelayTimeSec": 5} for number in range(20)])
    for result in results[::2]:
        assert producer.recall(result["recallHandle"]) == result["msgId"]
    words = base64.urlsafe_b64decode(results[0]["recallHandle"]).decode().split(" ")
    assert (words[0], words[1], words[2], words[4]) == ("v1", producer.topic, cluster.broker_name, results[0]["msgId"])

    kept = {f"m{number}" for number in range(1, 20, 2)}
    producer.wait_for(kept)
    time.sleep(2)
    assert producer.arrived().keys() == kept
    with pytest.raises(AgentError) as late:
        producer.recall(results[1]["recallHandle"])
    assert late.value.code == 604


def test_recalls_that_cannot_be_are_refused(start_cluster: StartCluster, make_topic: MakeTopic) -> None:
    cluster = start_cluster(LOCAL)
    topic, now_ms = make_topic(on=cluster), int(time.time() * 1000)

    def ask(handle: str, topic: str = topic) -> int:
        answer, _ = rawcall.call(cluster.broker, 370, {"topic": topic, "recallHandle": handle})
        return int(answer["code"])

    def handle(*words: object) -> str:
        return base64.urlsafe_b64encode(" ".join(map(str, words)).encode()).decode()

    name = cluster.broker_name
    assert ask(handle("v1", topic, name, now_ms + 60_000, "KEY")) == 0
    assert ask(handle("v1", topic, name, now_ms + 60_000, "KEY"), "NoSuchTopic") == 17
    assert ask("no handle at all!") == 604
    assert ask(handle("v1", topic, name)) == 604
    assert ask(handle("v2", topic, name, now_ms + 60_000, "KEY")) == 604
    assert ask(handle("v1", "Other", name, now_ms + 60_000, "KEY")) == 604
    assert ask(handle("v1", topic, "broker-x", now_ms + 60_000, "KEY")) == 604
    assert ask(handle("v1", topic, name, now_ms - 1, "KEY")) == 604
    assert ask(handle("v1", topic, name, now_ms + FOREVER_MS + 60_000, "KEY")) == 604
    assert ask(handle("v1", topic, name, "soon", "KEY")) == 604


def test_recalling_can_be_forbidden(start_cluster: StartCluster, make_topic: MakeTopic) -> None:
    cluster = start_cluster({"recallMessageEnable": "false"})
    answer, _ = rawcall.call(cluster.broker, 370, {"topic": make_topic(on=cluster), "recallHandle": "x"})
    assert answer["code"] == 16


def test_a_finer_precision_and_many_rolls(
    start_cluster: StartCluster, make_topic: MakeTopic, start_producer: Callable[[Cluster, str], Producer]
) -> None:
    cluster = start_cluster({"timerPrecisionMs": "100", "timerRollWindowSlot": "30"})
    producer = start_producer(cluster, make_topic(on=cluster))
    now_ms = int(time.time() * 1000)
    messages: list[dict[str, Any]] = [
        {"body": f"m{number}", "setDeliverTimeMs": now_ms + 1_000 + number * 137} for number in range(60)
    ]
    producer.send(messages)
    arrived = producer.wait_for({one["body"] for one in messages})
    late = sorted(arrived[str(one["body"])]["storeTimestamp"] - int(str(one["setDeliverTimeMs"])) for one in messages)
    assert late[0] >= 0
    assert late[-1] <= 100 + SLACK_MS
    assert any("TIMER_ROLL_TIMES" in one["properties"] for one in arrived.values())


@pytest.mark.parametrize("end", ["clean stop", "kill -9"])
@pytest.mark.parametrize("kinds", [("firearrow", "firearrow"), ("apache", "firearrow"), ("firearrow", "apache")], ids="-".join)
@pytest.mark.skipif(TARGET == "apache", reason="both sides are chosen by the test")
def test_another_broker_goes_on(
    newest: Agent,
    tmp_path: Path,
    start_producer: Callable[[Cluster, str], Producer],
    make_topic: MakeTopic,
    kinds: tuple[str, str],
    end: str,
) -> None:
    """Pending timers, one that rolls and one that was recalled: the second broker opens the directory of the first."""
    first = servers.start_apart(tmp_path / "first", LOCAL, kinds[0])
    port = int(first.broker.rsplit(":", 1)[1])
    topic = make_topic(on=first)
    producer = start_producer(first, topic)
    now_ms = int(time.time() * 1000)
    soon = producer.send([{"body": "soon", "setDelayTimeMs": 1_500}])
    messages = [{"body": f"m{number}", "setDeliverTimeMs": now_ms + 20_000 + number * 200} for number in range(30)]
    results = producer.send(messages)
    producer.send([{"body": "far", "setDelayTimeSec": 250_000}])
    assert soon[0]["status"] == "SEND_OK"
    producer.wait_for({"soon"})
    producer.recall(results[7]["recallHandle"])
    time.sleep(2.5)  # both save their timer wheels every second
    if end == "clean stop":
        for process in first.processes:
            process.stop(60)
    else:
        first.kill()
    shutil.copytree(first.store, tmp_path / "second" / "store", ignore=shutil.ignore_patterns("lock", "*.lock"))

    second = servers.start_apart(tmp_path / "second", LOCAL, kinds[1], port)
    try:
        wait_until(lambda: rawcall.has_route(second.namesrv, topic), "the route")
        again = start_producer(second, topic)
        expected = {str(one["body"]) for one in messages} - {"m7"}
        arrived = again.wait_for(expected | {"soon"})
        assert arrived.keys() == expected | {"soon"}
        for one in messages:
            if one["body"] in arrived:
                assert arrived[str(one["body"])]["storeTimestamp"] >= int(str(one["setDeliverTimeMs"]))
        (sent,) = again.send([{"body": "new", "setDelayTimeMs": 1_500}])
        assert sent["status"] == "SEND_OK"
        again.wait_for({"new"})
    finally:
        second.kill()
