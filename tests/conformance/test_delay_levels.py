"""Delay levels with the Java clients: on time and never early, in order, and unchanged."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import rawcall, servers
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, StartCluster, fresh
from tests.conformance.servers import PATIENCE_MS, TARGET, Cluster
from tests.support.waiting import wait_until

LEVELS_MS = {1: 1_000, 2: 5_000, 3: 10_000}
# Apache polls every level ten times a second; the rest is an allowance for a busy machine.
SLACK_MS = 1_500 if TARGET == "apache" else 300


class Delays:
    """A producer in one of the clients and the messages of its topic."""

    def __init__(self, java: Agent, cluster: Cluster, topic: str) -> None:
        self.java, self.cluster, self.topic = java, cluster, topic
        self.producer, self.puller = fresh("producer"), fresh("puller")
        java.call("producer.start", name=self.producer, namesrv=cluster.namesrv)
        java.call("pull.start", name=self.puller, group=self.puller, namesrv=cluster.namesrv)

    def send(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        results = self.java.call("producer.send", name=self.producer, topic=self.topic, messages=list(messages))
        assert all(result.get("status") == "SEND_OK" for result in results), results
        return list(results)

    def arrived(self) -> dict[str, dict[str, Any]]:
        found = self.java.call("pull.all", name=self.puller, topic=self.topic)
        messages = {one["body"]: one for one in found}
        assert len(messages) == len(found), "a message came twice"
        return messages

    def wait_for(self, *bodies: str, timeout_s: float = 60.0) -> dict[str, dict[str, Any]]:
        wait_until(lambda: self.arrived().keys() >= {*bodies}, f"the delayed messages {bodies[:5]}", timeout_s)
        return self.arrived()

    def close(self) -> None:
        self.java.submit("producer.stop", name=self.producer)
        self.java.submit("pull.stop", name=self.puller)


@pytest.fixture
def delays(java: Agent, cluster: Cluster, make_topic: MakeTopic) -> Iterator[Delays]:
    made = Delays(java, cluster, make_topic())
    yield made
    made.close()


@pytest.fixture(scope="module")
def few_levels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with custom delay levels."""
    running = servers.start(tmp_path_factory.mktemp("levels"), {"messageDelayLevel": "1s 2s 3s"})
    yield running
    running.dispose()


def waits(message: dict[str, Any]) -> int:
    """Return the milliseconds from the send to the delivery; all processes share one clock."""
    return int(message["storeTimestamp"]) - int(message["bornTimestamp"])


def test_each_level_comes_in_time_and_never_early(delays: Delays) -> None:
    bodies = {f"level-{level}-{number}": level for number in range(20) for level in LEVELS_MS}
    before = time.time() * 1000
    delays.send(*({"body": body, "delayLevel": level} for body, level in bodies.items()))
    took_ms = time.time() * 1000 - before

    arrived = delays.wait_for(*bodies)

    late = sorted(waits(arrived[body]) - LEVELS_MS[level] for body, level in bodies.items())
    assert late[0] >= 0
    assert late[-1] <= SLACK_MS + min(took_ms, 1_000), late[-5:]


def test_it_comes_as_it_was_sent(delays: Delays) -> None:
    sent = {"body": "x", "tags": "T", "keys": "K1 K2", "flag": 7, "properties": {"colour": "grün", "n": "1"}, "delayLevel": 1}
    (result,) = delays.send(sent)
    message = delays.wait_for("x")["x"]

    assert (message["topic"], message["queueId"], message["msgId"]) == (delays.topic, result["queueId"], result["msgId"])
    assert (message["tags"], message["keys"], message["flag"]) == ("T", "K1 K2", 7)
    assert (message["sysFlag"] & 0xC, message["reconsumeTimes"], message["bornHost"]) == (0, 0, "127.0.0.1")
    known = message["properties"]
    assert {name: known[name] for name in ("colour", "n", "DELAY", "REAL_TOPIC", "REAL_QID", "WAIT", "UNIQ_KEY")} == {
        "colour": "grün", "n": "1", "DELAY": "1", "REAL_TOPIC": delays.topic, "REAL_QID": str(result["queueId"]),
        "WAIT": "true", "UNIQ_KEY": result["msgId"],
    }  # fmt: skip


def test_consumers_get_only_the_tags_they_asked_for(java: Agent, cluster: Cluster, delays: Delays) -> None:
    """A held message has its due time in place of the tag hash; the delivered one must have the tag."""
    consumer = fresh("push")
    topics = {delays.topic: "Wanted"}
    java.call("push.start", name=consumer, group=fresh("group"), namesrv=cluster.namesrv, topics=topics)
    delays.send(*({"body": f"{tag}-{n}", "tags": tag, "delayLevel": 1} for n in range(5) for tag in ("Wanted", "Other")))
    delays.wait_for(*(f"{tag}-{n}" for n in range(5) for tag in ("Wanted", "Other")))
    messages = java.consumed(consumer, 5, PATIENCE_MS)
    java.submit("push.stop", name=consumer)
    assert {one["body"] for one in messages} == {f"Wanted-{n}" for n in range(5)}
    assert {one["topic"] for one in messages} == {delays.topic}


@pytest.mark.parametrize("level", [0, -1])
def test_no_level_is_no_delay(delays: Delays, level: int) -> None:
    (result,) = delays.send({"body": "now", "delayLevel": level})
    message = delays.wait_for("now")["now"]
    assert (message["queueId"], message["queueOffset"]) == (result["queueId"], result["queueOffset"])
    assert waits(message) < 1_000
    assert "REAL_TOPIC" not in message["properties"]
    assert message["properties"].get("DELAY", "0") in ("0", "-1")


def test_a_level_above_the_highest_is_the_highest(java: Agent, few_levels: Cluster, make_topic: MakeTopic) -> None:
    delays = Delays(java, few_levels, make_topic(on=few_levels))
    delays.send({"body": "x", "delayLevel": 4}, {"body": "y", "delayLevel": 2_147_483_647})
    arrived = delays.wait_for("x", "y")
    delays.close()
    for message in arrived.values():
        assert message["properties"]["DELAY"] == "3"
        assert 3_000 <= waits(message) <= 3_000 + SLACK_MS + 200


def test_they_come_in_the_order_in_which_they_are_due(java: Agent, few_levels: Cluster, make_topic: MakeTopic) -> None:
    delays = Delays(java, few_levels, make_topic(read=1, write=1, on=few_levels))
    for level in (3, 2, 1):
        delays.send(*({"body": f"{level}-{number}", "delayLevel": level} for number in range(20)))
    delays.send({"body": "0-0"})
    arrived = delays.wait_for(*(f"{level}-{number}" for level in (1, 2, 3) for number in range(20)))
    delays.close()
    in_order = sorted(arrived.values(), key=lambda one: int(one["queueOffset"]))
    bodies = [[int(number) for number in one["body"].split("-")] for one in in_order]
    assert bodies == [[0, 0], *([level, number] for level in (1, 2, 3) for number in range(20))]
    assert all(earlier["storeTimestamp"] <= later["storeTimestamp"] for earlier, later in itertools.pairwise(in_order))


def test_the_reply_names_the_queue_that_was_asked_for(delays: Delays) -> None:
    """The response contains the offset in the queue where the message is held."""
    broker = delays.cluster.broker_name
    results = delays.send(
        *({"body": str(number), "delayLevel": 1, "queue": {"topic": delays.topic, "broker": broker, "queueId": number}}
          for number in range(4))
    )  # fmt: skip
    assert [result["queueId"] for result in results] == [0, 1, 2, 3]
    offsets = [int(result["queueOffset"]) for result in results]
    assert offsets == list(range(offsets[0], offsets[0] + 4))
    arrived = delays.wait_for("0", "1", "2", "3")
    assert {int(body): one["queueId"] for body, one in arrived.items()} == {number: number for number in range(4)}


def test_levels_can_be_days(start_cluster: StartCluster, make_topic: MakeTopic, java: Agent) -> None:
    if java.version != "5.5.0":
        pytest.skip("the client has no part in it: one is enough")
    cluster = start_cluster({"messageDelayLevel": "2d 1s"})
    delays = Delays(java, cluster, make_topic(on=cluster))
    delays.send({"body": "days", "delayLevel": 1}, {"body": "seconds", "delayLevel": 2})
    assert delays.wait_for("seconds").keys() == {"seconds"}
    delays.close()
    answer, _ = rawcall.call(cluster.broker, 30, {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": "0"})
    assert answer["extFields"]["offset"] == "1"
