"""Queries for single messages: by key, unique key and offset id."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.agent import Agent, AgentError
from tests.conformance.conftest import MakeTopic, fresh
from tests.support.waiting import wait_until


def query(java: Agent, puller: str, topic: str, key: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the messages found; the client reports an empty result as error 208."""
    try:
        return list(java.call("pull.query", name=puller, topic=topic, key=key, **fields))
    except AgentError as error:
        if error.code == 208:
            return []
        raise


def test_messages_are_found_by_each_of_their_keys(java: Agent, producer: str, puller: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    messages = [{"body": f"{i}", "keys": f"order-{i} customer-{i % 3} 中文-{i}"} for i in range(30)]
    java.call("producer.send", name=producer, topic=topic, messages=messages)
    wait_until(lambda: bool(query(java, puller, topic, "order-29")), "the index")

    assert [one["body"] for one in query(java, puller, topic, "order-7")] == ["7"]
    assert [one["body"] for one in query(java, puller, topic, "中文-8")] == ["8"]
    assert sorted(int(one["body"]) for one in query(java, puller, topic, "customer-1")) == list(range(1, 30, 3))
    assert len(query(java, puller, topic, "customer-1", max=4)) == 4
    assert query(java, puller, topic, "order-77") == []
    assert query(java, puller, make_topic(), "order-7") == []


def test_a_query_keeps_to_its_time_span(java: Agent, producer: str, puller: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    java.call("producer.send", name=producer, topic=topic, messages=[{"body": "early", "keys": "same"}])
    time.sleep(2.2)
    java.call("producer.send", name=producer, topic=topic, messages=[{"body": "late", "keys": "same"}])
    wait_until(lambda: len(query(java, puller, topic, "same")) == 2, "the index")
    early, late = sorted(query(java, puller, topic, "same"), key=lambda one: one["storeTimestamp"])

    # The index truncates timestamps to seconds.
    until = query(java, puller, topic, "same", begin=early["storeTimestamp"] - 5_000, end=early["storeTimestamp"] + 200)
    since = query(java, puller, topic, "same", begin=late["storeTimestamp"] - 1_100, end=late["storeTimestamp"] + 5_000)

    assert [one["body"] for one in until] == ["early"]
    assert [one["body"] for one in since] == ["late"]


def test_messages_are_found_by_both_kinds_of_id(java: Agent, producer: str, puller: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    results = java.call(
        "producer.send", name=producer, topic=topic, messages=[{"body": f"{i}", "keys": f"k{i}"} for i in range(5)]
    )

    for i, result in enumerate(results):
        by_place = java.call("pull.view", name=puller, topic=topic, msgId=result["offsetMsgId"])
        assert (by_place["body"], by_place["queueId"], by_place["queueOffset"]) == (
            str(i),
            result["queueId"],
            result["queueOffset"],
        )

    def by_unique_key(result: dict[str, Any]) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = java.call("pull.view", name=puller, topic=topic, msgId=result["msgId"])
        except AgentError:
            return None
        return found

    wait_until(lambda: by_unique_key(results[-1]) is not None, "the index")
    for i, result in enumerate(results):
        found = by_unique_key(result)
        assert found is not None
        assert (found["body"], found["queueOffset"]) == (str(i), result["queueOffset"])


def test_an_id_nobody_has_is_not_found(java: Agent, producer: str, puller: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    result = java.call("producer.send", name=producer, topic=topic, messages=[{"body": "x"}])[0]
    beyond = result["offsetMsgId"][:-16] + f"{10**15:016X}"
    for unknown in (beyond, "7F" + result["msgId"][2:-4] + "FFFF", fresh("no-id")):
        with pytest.raises(AgentError):
            java.call("pull.view", name=puller, topic=topic, msgId=unknown)
