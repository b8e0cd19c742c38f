"""Push consumers: concurrent, orderly, broadcasting; tags; long polling; resuming at the committed offset."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance import builds
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import PATIENCE_MS, Cluster
from tests.support.waiting import wait_until

StartPush = Callable[..., str]


@pytest.fixture
def start_push(java: Agent, cluster: Cluster) -> Iterator[StartPush]:
    """Start push consumers in the agent `java`; they stop with the test."""
    started: list[str] = []

    def start(topic: str, expression: str = "*", **options: Any) -> str:
        name = fresh("push")
        options.setdefault("group", f"group-of-{name}")
        java.call("push.start", name=name, namesrv=cluster.namesrv, topics={topic: expression}, **options)
        started.append(name)
        return name

    yield start
    for name in started:
        java.submit("push.stop", name=name)


def send(java: Agent, producer: str, topic: str, bodies: list[str], **fields: Any) -> list[dict[str, Any]]:
    results = java.call("producer.send", name=producer, topic=topic, messages=[{"body": body, **fields} for body in bodies])
    assert all(result.get("status") == "SEND_OK" for result in results), results
    return list(results)


def test_concurrent_consumers_get_every_message_once(
    java: Agent, producer: str, make_topic: MakeTopic, start_push: StartPush
) -> None:
    topic = make_topic()
    before = [f"before-{i}" for i in range(100)]
    send(java, producer, topic, before)
    consumer = start_push(topic)
    after = [f"after-{i}" for i in range(100)]
    send(java, producer, topic, after)

    messages = java.consumed(consumer, 200)

    assert sorted(one["body"] for one in messages) == sorted(before + after)


def test_a_waiting_consumer_gets_a_message_at_once(
    java: Agent, producer: str, make_topic: MakeTopic, start_push: StartPush
) -> None:
    topic = make_topic()
    consumer = start_push(topic)
    send(java, producer, topic, ["warm-up"])
    java.consumed(consumer, 1)
    for i in range(8):
        send(java, producer, topic, [f"m{i}"])
        time.sleep(0.1)

    messages = java.consumed(consumer, 9)

    delays = sorted(one["receivedAt"] - one["storeTimestamp"] for one in messages if one["body"] != "warm-up")
    assert len(delays) == 8
    assert delays[4] < 200, delays
    assert delays[-1] < 2_000, delays


def test_orderly_consumers_keep_every_queue_in_order(
    java: Agent, cluster: Cluster, producer: str, make_topic: MakeTopic, start_push: StartPush
) -> None:
    topic = make_topic()
    messages = [{"body": f"{shard}:{step:02}", "shard": f"shard-{shard}"} for step in range(20) for shard in range(8)]
    results = java.call("producer.send", name=producer, topic=topic, messages=messages)
    assert all(result["status"] == "SEND_OK" for result in results)

    consumer = start_push(topic, orderly=True, threads=8, fail=[{"body": "3:05", "times": 2}])
    answer = java.call("push.messages", name=consumer, count=160, timeoutMs=PATIENCE_MS)

    assert answer["entangled"] == []
    places: dict[int, list[int]] = defaultdict(list)
    for one in answer["messages"]:
        if not one["refused"]:
            places[one["queueId"]].append(one["queueOffset"])
    assert sum(map(len, places.values())) == 160
    for queue_id, offsets in places.items():
        assert offsets == list(range(len(offsets))), f"queue {queue_id}"
    refused = [one["body"] for one in answer["messages"] if one["refused"]]
    assert refused == ["3:05", "3:05"]


def test_every_broadcasting_consumer_gets_everything(
    java: Agent, producer: str, make_topic: MakeTopic, start_push: StartPush
) -> None:
    topic = make_topic()
    group = fresh("broadcast")
    consumers = [start_push(topic, group=group, model="BROADCASTING") for _ in range(2)]
    bodies = [f"b{i}" for i in range(40)]
    send(java, producer, topic, bodies)

    for consumer in consumers:
        assert sorted(one["body"] for one in java.consumed(consumer, 40)) == sorted(bodies)


def test_tags_select(java: Agent, producer: str, make_topic: MakeTopic, start_push: StartPush) -> None:
    topic = make_topic()
    some = start_push(topic, "TagA || TagC")
    other = start_push(topic, "Straße")
    for tag in ("TagA", "TagB", "TagC", "Straße"):
        send(java, producer, topic, [f"{tag}-{i}" for i in range(10)], tags=tag)
    send(java, producer, topic, ["none"])

    assert sorted(one["body"] for one in java.consumed(some, 20)) == sorted(
        f"{tag}-{i}" for tag in ("TagA", "TagC") for i in range(10)
    )
    assert sorted(one["body"] for one in java.consumed(other, 10)) == [f"Straße-{i}" for i in range(10)]
    # Nothing else can arrive: the last tag was received, and queues are read in order.
    send(java, producer, topic, ["end"], tags="TagA")
    assert [one["body"] for one in java.consumed(some, 21)][-1] == "end"
    assert len(java.consumed(other, 0)) == 10


def test_a_changed_subscription_counts_at_once(java: Agent, producer: str, make_topic: MakeTopic, start_push: StartPush) -> None:
    topic = make_topic()
    group = fresh("changing")
    first = start_push(topic, "TagA", group=group)
    send(java, producer, topic, ["a1"], tags="TagA")
    java.consumed(first, 1)
    java.call("push.stop", name=first)

    second = start_push(topic, "TagB", group=group)
    send(java, producer, topic, ["b1"], tags="TagB")
    send(java, producer, topic, ["a2"], tags="TagA")
    send(java, producer, topic, ["b2"], tags="TagB")

    assert sorted(one["body"] for one in java.consumed(second, 2)) == ["b1", "b2"]


def test_a_group_goes_on_where_it_stopped(java: Agent, producer: str, make_topic: MakeTopic, start_push: StartPush) -> None:
    topic = make_topic()
    group = fresh("resuming")
    send(java, producer, topic, [f"first-{i}" for i in range(20)])
    consumer = start_push(topic, group=group)
    java.consumed(consumer, 20)
    java.call("push.stop", name=consumer)
    send(java, producer, topic, [f"second-{i}" for i in range(20)])

    again = start_push(topic, group=group)

    assert sorted(one["body"] for one in java.consumed(again, 20)) == sorted(f"second-{i}" for i in range(20))


def test_batches_of_messages_are_handed_over(java: Agent, producer: str, make_topic: MakeTopic, start_push: StartPush) -> None:
    topic = make_topic()
    java.call("producer.send", name=producer, topic=topic, mode="batch", messages=[{"body": f"{i}"} for i in range(100)])

    consumer = start_push(topic, batch=16, pullBatch=64)

    assert sorted(int(one["body"]) for one in java.consumed(consumer, 100)) == list(range(100))


def test_a_consumer_that_starts_before_the_topic_finds_it(java: Agent, producer: str, start_push: StartPush) -> None:
    """The first send creates the topic; the consumer discovers it with its next route refresh."""
    if java.version != builds.SERVER_VERSION:
        pytest.skip("takes 20 s (the client's own pace): one client is enough")
    topic = fresh("Later")
    consumer = start_push(topic, pollNameServerMs=1_000)
    send(java, producer, topic, ["hello"])

    assert [one["body"] for one in java.consumed(consumer, 1, 45_000)] == ["hello"]


def test_consumed_offsets_reach_the_broker_while_running(
    java: Agent, cluster: Cluster, producer: str, puller: str, make_topic: MakeTopic, start_push: StartPush
) -> None:
    topic = make_topic(read=1, write=1)
    group = fresh("committing")
    consumer = start_push(topic, group=group, persistMs=500)
    send(java, producer, topic, [f"{i}" for i in range(10)])
    java.consumed(consumer, 10)
    reader = fresh("reader")
    java.call("pull.start", name=reader, group=group, namesrv=cluster.namesrv)
    queue = {"topic": topic, "broker": cluster.broker_name, "queueId": 0}

    wait_until(lambda: java.call("pull.committed", name=reader, queue=queue) == 10, "the committed offset")

    java.submit("pull.stop", name=reader)
