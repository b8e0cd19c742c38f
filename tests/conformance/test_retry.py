"""Failed consumption with the Java clients: retry levels, the limit, dead letters, orderly consumers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance import builds, rawcall
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import PATIENCE_MS, TARGET, Cluster
from tests.support.waiting import wait_until

StartPush = Callable[..., str]
ALWAYS = 1_000_000


@pytest.fixture
def start_push(java: Agent, cluster: Cluster) -> Iterator[StartPush]:
    """Start push consumers in the agent `java`; they stop with the test."""
    started: list[str] = []

    def start(topic: str, **options: Any) -> str:
        name = fresh("push")
        # The retry topic of a new group has no route yet: make the client refresh its routes soon.
        options = {"group": fresh("group"), "pollNameServerMs": 1_000, **options}
        java.call("push.start", name=name, namesrv=cluster.namesrv, topics={topic: "*"}, **options)
        started.append(name)
        return name

    yield start
    for name in started:
        java.submit("push.stop", name=name)


def send(java: Agent, producer: str, topic: str, *bodies: str, **fields: Any) -> list[dict[str, Any]]:
    results = java.call("producer.send", name=producer, topic=topic, messages=[{"body": body, **fields} for body in bodies])
    assert all(result.get("status") == "SEND_OK" for result in results), results
    return list(results)


def dead_letters(java: Agent, start_push: StartPush, cluster: Cluster, group: str, count: int) -> list[dict[str, Any]]:
    topic = f"%DLQ%{group}"
    wait_until(lambda: rawcall.has_route(cluster.namesrv, topic), f"a route to {topic}", 60)
    return java.consumed(start_push(topic), count)


def test_a_message_comes_again_after_the_level_that_the_consumer_chose(
    java: Agent, producer: str, make_topic: MakeTopic, start_push: StartPush
) -> None:
    topic = make_topic()
    consumer = start_push(topic, delayLevel=1, fail=[{"body": "stubborn", "times": 3}])
    (sent,) = send(java, producer, topic, "stubborn", tags="T", keys="K", properties={"colour": "blue"})
    send(java, producer, topic, "easy")

    messages = [one for one in java.consumed(consumer, 2, PATIENCE_MS + 20_000) if one["body"] == "stubborn"]

    assert [one["reconsumeTimes"] for one in messages] == [0, 1, 2, 3]
    assert {one["topic"] for one in messages} == {topic}  # the client restores the original topic
    assert {one["msgId"] for one in messages} == {sent["msgId"]}
    assert {(one["tags"], one["keys"], one["properties"]["colour"]) for one in messages} == {("T", "K", "blue")}
    assert {one["bornTimestamp"] for one in messages} == {messages[0]["bornTimestamp"]}
    retries = messages[1:]
    assert {one["properties"]["RETRY_TOPIC"] for one in retries} == {topic}
    assert {one["properties"]["ORIGIN_MESSAGE_ID"] for one in retries} == {sent["offsetMsgId"]}
    for earlier, later in itertools.pairwise(messages):
        assert later["storeTimestamp"] - earlier["receivedAt"] >= 990  # one second; both timestamps come from the same clock


def test_without_a_choice_the_first_retry_comes_after_ten_seconds(
    java: Agent, producer: str, make_topic: MakeTopic, start_push: StartPush
) -> None:
    if java.version != builds.SERVER_VERSION:
        pytest.skip("ten seconds of waiting: one client is enough")
    topic = make_topic()
    consumer = start_push(topic, delayLevel=0, fail=[{"body": "x", "times": 1}])
    send(java, producer, topic, "x")

    first, second = java.consumed(consumer, 1, PATIENCE_MS + 20_000)

    assert (first["reconsumeTimes"], second["reconsumeTimes"]) == (0, 1)
    assert second["properties"]["DELAY"] == "3"
    assert 9_990 <= second["storeTimestamp"] - first["receivedAt"] <= 12_000


def test_when_the_limit_is_reached_the_message_becomes_a_dead_letter(
    java: Agent, cluster: Cluster, producer: str, make_topic: MakeTopic, start_push: StartPush
) -> None:
    topic, group = make_topic(), fresh("giving-up")
    consumer = start_push(topic, group=group, delayLevel=1, maxReconsumeTimes=2, fail=[{"body": "x", "times": ALWAYS}])
    (sent,) = send(java, producer, topic, "x", keys="K")

    (letter,) = dead_letters(java, start_push, cluster, group, 1)

    assert [one["reconsumeTimes"] for one in java.consumed(consumer, 0)] == [0, 1, 2]
    assert (letter["topic"], letter["queueId"], letter["reconsumeTimes"]) == (f"%DLQ%{group}", 0, 3)
    assert (letter["body"], letter["keys"], letter["msgId"]) == ("x", "K", sent["msgId"])
    assert (letter["properties"]["RETRY_TOPIC"], letter["properties"]["DELAY"]) == (topic, "0")
    assert letter["properties"]["ORIGIN_MESSAGE_ID"] == sent["offsetMsgId"]
    if TARGET == "firearrow":  # Apache's broker defines these names but does not write them
        assert letter["properties"]["DLQ_ORIGIN_TOPIC"] == topic
        assert letter["properties"]["DLQ_ORIGIN_MESSAGE_ID"] == sent["msgId"]
    (queues,) = rawcall.route(cluster.namesrv, f"%DLQ%{group}")["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (1, 1, 6)


def test_a_consumer_may_ask_for_the_dead_letters_at_once(
    java: Agent, cluster: Cluster, producer: str, make_topic: MakeTopic, start_push: StartPush
) -> None:
    topic, group = make_topic(), fresh("hopeless")
    consumer = start_push(topic, group=group, delayLevel=-1, fail=[{"body": "x", "times": ALWAYS}])
    send(java, producer, topic, "x")

    (letter,) = dead_letters(java, start_push, cluster, group, 1)

    assert (letter["body"], letter["reconsumeTimes"]) == ("x", 1)
    assert len(java.consumed(consumer, 0)) == 1


def test_an_orderly_consumer_tries_by_itself_then_gives_the_message_up_and_goes_on(
    java: Agent, cluster: Cluster, producer: str, make_topic: MakeTopic, start_push: StartPush
) -> None:
    topic, group = make_topic(read=1, write=1), fresh("orderly")
    (sent, _, _) = send(java, producer, topic, "bad", "good", "better")
    options = {"group": group, "orderly": True, "maxReconsumeTimes": 2}
    consumer = start_push(topic, fail=[{"body": "bad", "times": ALWAYS}], **options)

    messages = java.consumed(consumer, 2, PATIENCE_MS + 20_000)

    assert [(one["body"], one["reconsumeTimes"]) for one in messages] == [
        ("bad", 0), ("bad", 1), ("bad", 2), ("good", 0), ("better", 0),
    ]  # fmt: skip
    (letter,) = dead_letters(java, start_push, cluster, group, 1)
    assert (letter["topic"], letter["queueId"], letter["body"]) == (f"%DLQ%{group}", 0, "bad")
    assert (letter["reconsumeTimes"], letter["msgId"]) == ({"4.9.8": 2, "5.5.0": 3}[java.version], sent["msgId"])
    assert (letter["properties"]["RETRY_TOPIC"], letter["properties"]["ORIGIN_MESSAGE_ID"]) == (topic, sent["msgId"])
    if TARGET == "firearrow":
        assert letter["properties"]["DLQ_ORIGIN_TOPIC"] == topic
        assert letter["properties"]["DLQ_ORIGIN_MESSAGE_ID"] == sent["msgId"]


def test_send_backs_that_cannot_be_served_are_answered_with_apaches_codes(
    java: Agent, cluster: Cluster, producer: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(), fresh("raw")
    (sent,) = send(java, producer, topic, "x")
    offset = int(sent["offsetMsgId"][16:], 16)

    def send_back(**changes: str) -> int:
        ext = {"offset": str(offset), "group": group, "delayLevel": "0", "originTopic": topic, "maxReconsumeTimes": "16"}
        return int(rawcall.call(cluster.broker, 36, ext | changes)[0]["code"])

    def letters() -> int:
        answer, _ = rawcall.call(cluster.broker, 30, {"topic": f"%DLQ%{group}", "queueId": "0"})
        return int(answer["extFields"]["offset"]) if answer["code"] == 0 else 0

    def configure(**changes: Any) -> None:
        config = {"groupName": group, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16} | changes
        assert rawcall.call(cluster.broker, 200, {}, json.dumps(config).encode())[0]["code"] == 0

    assert send_back(group="no group") == 26
    assert send_back(group="") == 26
    assert send_back(offset=str(offset + 1_000_000_000)) == 1
    assert send_back(offset="-1") == 1
    assert send_back(offset=str(offset + 7)) == 1
    assert send_back(delayLevel="") == (29 if TARGET == "firearrow" else 1)
    assert letters() == 0
    assert send_back(delayLevel="-1") == 0
    wait_until(lambda: letters() == 1, "the dead letter")
    assert send_back(maxReconsumeTimes="0") == 0
    wait_until(lambda: letters() == 2, "the dead letter")
    configure(retryQueueNums=0)
    assert send_back(delayLevel="-1") == 0
    configure(retryMaxTimes=0)
    assert send_back(maxReconsumeTimes="1") == 0  # the limit of the client applies
    assert letters() == 2
