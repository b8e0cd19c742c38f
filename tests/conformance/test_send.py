"""Every send method of the Java producer: the stored message matches the response."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.agent import Agent, AgentError
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until


def by_place(messages: list[dict[str, Any]]) -> dict[tuple[int, int], dict[str, Any]]:
    return {(one["queueId"], one["queueOffset"]): one for one in messages}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_acknowledged_messages_are_where_the_answer_says(
    java: Agent, producer: str, puller: str, make_topic: MakeTopic, mode: str
) -> None:
    topic = make_topic()
    sent: list[dict[str, Any]] = [
        {
            "body": f"body-{i} ü中🙂",
            "tags": f"Tag{i % 3}",
            "keys": f"key-{i} other-{i}",
            "flag": i,
            "properties": {"farbe": "grün", "n": str(i)},
        }
        for i in range(40)
    ]

    results = java.call("producer.send", name=producer, topic=topic, mode=mode, messages=sent)

    assert [result.get("status") for result in results] == ["SEND_OK"] * 40, results
    assert len({(result["queueId"], result["queueOffset"]) for result in results}) == 40
    stored = by_place(java.call("pull.all", name=puller, topic=topic))
    assert len(stored) == 40
    for message, result in zip(sent, results, strict=True):
        found = stored[result["queueId"], result["queueOffset"]]
        assert found["body"] == message["body"]
        assert found["tags"] == message["tags"]
        assert found["keys"] == message["keys"]
        assert found["flag"] == message["flag"]
        assert found["msgId"] == result["msgId"]
        assert found["offsetMsgId"] == result["offsetMsgId"]
        properties = found["properties"]
        assert message["properties"].items() <= properties.items()
        assert properties["CLUSTER"] == "DefaultCluster"
        assert found["bornHost"] == "127.0.0.1"
        assert abs(found["storeTimestamp"] - found["bornTimestamp"]) < 20_000


def test_one_way_messages_arrive(java: Agent, producer: str, puller: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    java.call("producer.send", name=producer, topic=topic, mode="oneway", messages=[{"body": f"one-way-{i}"} for i in range(20)])

    wait_until(lambda: len(java.call("pull.all", name=puller, topic=topic)) == 20, "20 one-way messages")

    bodies = {one["body"] for one in java.call("pull.all", name=puller, topic=topic)}
    assert bodies == {f"one-way-{i}" for i in range(20)}


def test_a_batch_lies_in_one_queue_in_order(java: Agent, producer: str, puller: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    messages = [{"body": f"part-{i}", "tags": "T", "keys": f"k{i}", "properties": {"i": str(i)}} for i in range(50)]

    result = java.call("producer.send", name=producer, topic=topic, mode="batch", messages=messages)

    assert result["status"] == "SEND_OK"
    ids = result["offsetMsgId"].split(",")
    assert len(ids) == len(result["msgId"].split(",")) == 50
    stored = java.call("pull.all", name=puller, topic=topic)
    assert [(one["queueId"], one["queueOffset"], one["body"], one["keys"]) for one in stored] == [
        (result["queueId"], result["queueOffset"] + i, f"part-{i}", f"k{i}") for i in range(50)
    ]
    assert [one["offsetMsgId"] for one in stored] == ids
    assert [one["msgId"] for one in stored] == result["msgId"].split(",")
    assert [one["properties"]["i"] for one in stored] == [str(i) for i in range(50)]


def test_a_chosen_queue_is_the_one_used(java: Agent, cluster: Cluster, producer: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    messages = [{"body": f"{i}", "queue": {"topic": topic, "broker": cluster.broker_name, "queueId": i % 4}} for i in range(12)]

    for mode in ("sync", "async"):
        results = java.call("producer.send", name=producer, topic=topic, mode=mode, messages=messages)
        assert [result["queueId"] for result in results] == [i % 4 for i in range(12)]

    batch = java.call(
        "producer.send",
        name=producer,
        topic=topic,
        mode="batch",
        messages=[{"body": "a"}, {"body": "b"}],
        queue={"topic": topic, "broker": cluster.broker_name, "queueId": 3},
    )
    assert (batch["queueId"], batch["queueOffset"]) == (3, 6)


def test_a_selector_keeps_what_belongs_together_in_one_queue_in_order(
    java: Agent, producer: str, puller: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    messages = [{"body": f"{shard}:{step}", "shard": shard} for step in range(5) for shard in ("anna", "bert", "carl")]

    results = java.call("producer.send", name=producer, topic=topic, messages=messages)

    assert all(result["status"] == "SEND_OK" for result in results)
    stored = java.call("pull.all", name=puller, topic=topic)
    for shard in ("anna", "bert", "carl"):
        mine = sorted((one for one in stored if one["body"].startswith(shard)), key=lambda one: one["queueOffset"])
        assert len({one["queueId"] for one in mine}) == 1
        assert [one["body"] for one in mine] == [f"{shard}:{step}" for step in range(5)]


def test_large_bodies_come_back_compressed_or_not(java: Agent, producer: str, puller: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    messages = [
        {"size": 4095},
        {"size": 4096},
        {"size": 1_000_000},
        {"size": 4096, "seed": 1},
        {"size": 200_000, "seed": 2},
        {"size": 4_100_000, "seed": 3},
    ]

    results = java.call("producer.send", name=producer, topic=topic, messages=messages)

    assert [result.get("status") for result in results] == ["SEND_OK"] * len(messages), results
    stored = by_place(java.call("pull.all", name=puller, topic=topic))
    for message, result in zip(messages, results, strict=True):
        assert stored[result["queueId"], result["queueOffset"]]["bodyLength"] == message["size"]
    # A repetitive body compresses well: the stored record is far smaller than the received body.
    squeezed = stored[results[2]["queueId"], results[2]["queueOffset"]]
    assert squeezed["storeSize"] < 20_000
    # The client generates the same random bytes for the same seed.
    again = java.call("producer.send", name=producer, topic=topic, messages=[{"size": 200_000, "seed": 2}])[0]
    stored = by_place(java.call("pull.all", name=puller, topic=topic))
    places = [(result["queueId"], result["queueOffset"]) for result in (results[4], again)]
    assert stored[places[0]]["sha256"] == stored[places[1]]["sha256"]


def test_a_body_over_the_limit_is_refused_with_its_reason(java: Agent, cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic()
    name = fresh("producer")
    java.call("producer.start", name=name, namesrv=cluster.namesrv, maxMessageSize=8 * 1024 * 1024, retries=0)

    result = java.call("producer.send", name=name, topic=topic, messages=[{"size": 4 * 1024 * 1024 + 50_000, "seed": 1}])[0]

    assert result["code"] == 13, result
    assert java.call("producer.send", name=name, topic=topic, messages=[{"body": "next"}])[0]["status"] == "SEND_OK"
    java.submit("producer.stop", name=name)


def test_properties_over_the_limit_are_refused(java: Agent, producer: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    result = java.call(
        "producer.send", name=producer, topic=topic, messages=[{"body": "b", "properties": {"big": "x" * 33_000}}]
    )[0]

    assert result["code"] == 13, result


def test_the_fast_port_takes_sends_and_offset_queries(java: Agent, cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic()
    name = fresh("fast")
    java.call("producer.start", name=name, namesrv=cluster.namesrv, vip=True)
    java.call("pull.start", name=name, group=name, namesrv=cluster.namesrv, vip=True)
    queue = {"topic": topic, "broker": cluster.broker_name, "queueId": 1}

    result = java.call("producer.send", name=name, topic=topic, messages=[{"body": "fast", "queue": queue}])[0]

    assert result["status"] == "SEND_OK", result
    assert java.call("pull.max", name=name, queue=queue) == 1
    java.submit("producer.stop", name=name)
    java.submit("pull.stop", name=name)


def test_a_queue_number_out_of_range_is_refused(java: Agent, cluster: Cluster, producer: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    queue = {"topic": topic, "broker": cluster.broker_name, "queueId": 9}

    result = java.call("producer.send", name=producer, topic=topic, messages=[{"body": "nowhere", "queue": queue}])[0]

    assert result["code"] == 29, result


def test_a_batch_that_is_too_large_is_refused_whole(java: Agent, cluster: Cluster, puller: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    name = fresh("producer")
    java.call("producer.start", name=name, namesrv=cluster.namesrv, maxMessageSize=16 * 1024 * 1024, retries=0)

    with pytest.raises(AgentError) as refused:
        java.call(
            "producer.send", name=name, topic=topic, mode="batch", messages=[{"size": 900_000, "seed": i} for i in range(6)]
        )

    assert refused.value.code in (1, 13)
    assert java.call("pull.all", name=puller, topic=topic) == []
    java.submit("producer.stop", name=name)
