"""Pull consumers: every pull result, offsets by time, commits, the polling consumer."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.agent import Agent, AgentError
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until


@pytest.fixture
def queue(java: Agent, cluster: Cluster, make_topic: MakeTopic) -> dict[str, Any]:
    """The only queue of a new topic."""
    return {"topic": make_topic(read=1, write=1), "broker": cluster.broker_name, "queueId": 0}


def fill(java: Agent, producer: str, queue: dict[str, Any], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    results = java.call("producer.send", name=producer, topic=queue["topic"], messages=messages)
    assert all(result.get("status") == "SEND_OK" for result in results), results
    return list(results)


def test_every_kind_of_pull_result(java: Agent, producer: str, puller: str, queue: dict[str, Any]) -> None:
    empty = java.call("pull.pull", name=puller, queue=queue, offset=0)
    assert (empty["status"], empty["nextBeginOffset"]) == ("NO_NEW_MSG", 0)
    fill(java, producer, queue, [{"body": f"{i}", "tags": "TagA"} for i in range(50)])

    some = java.call("pull.pull", name=puller, queue=queue, offset=10, max=20)
    assert some["status"] == "FOUND"
    assert [one["body"] for one in some["messages"]] == [str(i) for i in range(10, 30)]
    assert (some["nextBeginOffset"], some["minOffset"], some["maxOffset"]) == (30, 0, 50)

    no_match = java.call("pull.pull", name=puller, queue=queue, offset=0, expression="TagZ")
    assert no_match["status"] == "NO_MATCHED_MSG"
    assert no_match["nextBeginOffset"] > 0

    at_the_end = java.call("pull.pull", name=puller, queue=queue, offset=50)
    assert (at_the_end["status"], at_the_end["nextBeginOffset"]) == ("NO_NEW_MSG", 50)

    beyond = java.call("pull.pull", name=puller, queue=queue, offset=1000)
    assert (beyond["status"], beyond["nextBeginOffset"]) == ("OFFSET_ILLEGAL", 50)


def test_a_blocking_pull_answers_when_a_message_comes(java: Agent, producer: str, puller: str, queue: dict[str, Any]) -> None:
    fill(java, producer, queue, [{"body": "first"}])
    waiting = java.submit("pull.pull", name=puller, queue=queue, offset=1, block=True)
    time.sleep(1.0)
    assert not waiting.done()

    fill(java, producer, queue, [{"body": "second"}])

    result = waiting.result(15)
    assert result["status"] == "FOUND"
    assert [one["body"] for one in result["messages"]] == ["second"]


def test_a_blocking_pull_waits_only_for_its_tag(java: Agent, producer: str, puller: str, queue: dict[str, Any]) -> None:
    waiting = java.submit("pull.pull", name=puller, queue=queue, offset=0, block=True, expression="TagB")
    time.sleep(0.5)
    fill(java, producer, queue, [{"body": "not mine", "tags": "TagA"}])
    time.sleep(1.0)
    assert not waiting.done()

    fill(java, producer, queue, [{"body": "mine", "tags": "TagB"}])

    result = waiting.result(15)
    assert [one["body"] for one in result["messages"]] == ["mine"]
    assert result["nextBeginOffset"] == 2


def test_offsets_by_time_minimum_maximum_and_earliest(java: Agent, producer: str, puller: str, queue: dict[str, Any]) -> None:
    for i in range(5):
        fill(java, producer, queue, [{"body": f"{i}"}])
        time.sleep(0.02)
    stored = java.call("pull.all", name=puller, topic=queue["topic"])
    times = [one["storeTimestamp"] for one in stored]

    def search(timestamp: int) -> int:
        return int(java.call("pull.search", name=puller, queue=queue, timestamp=timestamp))

    assert java.call("pull.min", name=puller, queue=queue) == 0
    assert java.call("pull.max", name=puller, queue=queue) == 5
    assert java.call("pull.earliest", name=puller, queue=queue) == times[0]
    assert [search(at) for at in times] == [0, 1, 2, 3, 4]
    assert [search(at + 1) for at in times] == [1, 2, 3, 4, 5]
    assert search(times[0] - 1_000_000) == 0
    assert search(times[-1] + 1_000_000) == 5


def test_an_unused_queue_has_no_time_and_no_offsets(java: Agent, puller: str, queue: dict[str, Any]) -> None:
    assert java.call("pull.min", name=puller, queue=queue) == 0
    assert java.call("pull.max", name=puller, queue=queue) == 0
    assert java.call("pull.earliest", name=puller, queue=queue) == -1
    assert java.call("pull.search", name=puller, queue=queue, timestamp=int(time.time() * 1000)) == 0


def test_committed_offsets_come_back(java: Agent, cluster: Cluster, producer: str, puller: str, queue: dict[str, Any]) -> None:
    fill(java, producer, queue, [{"body": f"{i}"} for i in range(10)])

    # The first pull makes the group known.
    java.call("pull.pull", name=puller, queue=queue, offset=0)
    java.call("pull.commit", name=puller, queue=queue, offset=7)

    # Another member of the group queries the broker. The commit was one-way and may still be in flight.
    other = fresh("other")
    java.call("pull.start", name=other, group=puller, namesrv=cluster.namesrv)
    wait_until(lambda: java.call("pull.committed", name=other, queue=queue) == 7, "the committed offset")
    java.submit("pull.stop", name=other)


def test_a_new_group_gets_the_existing_messages(java: Agent, cluster: Cluster, producer: str, queue: dict[str, Any]) -> None:
    """These consumers ask for their offset before the first heartbeat, when the broker does not know the group."""
    fill(java, producer, queue, [{"body": f"{i}"} for i in range(16)])
    expected = [str(i) for i in range(16)]

    pulling = fresh("puller")
    java.call("pull.start", name=pulling, group=pulling, namesrv=cluster.namesrv)
    offset = java.call("pull.committed", name=pulling, queue=queue)
    assert offset == 0
    pulled = java.call("pull.pull", name=pulling, queue=queue, offset=offset)
    assert [one["body"] for one in pulled["messages"]] == expected

    polling = fresh("lite")
    start: dict[str, Any] = {"from": "LAST_OFFSET"}
    java.call("lite.start", name=polling, group=polling, namesrv=cluster.namesrv, topic=queue["topic"], assign=True, **start)
    assert [one["body"] for one in java.call("lite.poll", name=polling, count=16)] == expected
    java.submit("pull.stop", name=pulling)
    java.submit("lite.stop", name=polling)


def test_pulling_an_unknown_topic_says_so(java: Agent, cluster: Cluster, puller: str) -> None:
    nowhere = {"topic": fresh("Nowhere"), "broker": cluster.broker_name, "queueId": 0}
    with pytest.raises(AgentError):
        java.call("pull.queues", name=puller, topic=nowhere["topic"])


def test_the_polling_consumer_subscribes_commits_and_goes_on(
    java: Agent, cluster: Cluster, producer: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    group = fresh("polling")
    fill(java, producer, {"topic": topic}, [{"body": f"first-{i}", "tags": "TagA"} for i in range(20)])
    fill(java, producer, {"topic": topic}, [{"body": "not for us", "tags": "TagB"}])
    name = fresh("lite")
    java.call("lite.start", name=name, group=group, namesrv=cluster.namesrv, topic=topic, expression="TagA")
    assert sorted(one["body"] for one in java.call("lite.poll", name=name, count=20)) == sorted(f"first-{i}" for i in range(20))
    java.call("lite.commit", name=name)
    java.submit("lite.stop", name=name)

    fill(java, producer, {"topic": topic}, [{"body": f"second-{i}", "tags": "TagA"} for i in range(5)])
    again = fresh("lite")
    java.call("lite.start", name=again, group=group, namesrv=cluster.namesrv, topic=topic, expression="TagA")
    assert sorted(one["body"] for one in java.call("lite.poll", name=again, count=5)) == [f"second-{i}" for i in range(5)]
    java.submit("lite.stop", name=again)


def test_the_polling_consumer_seeks_in_assigned_queues(
    java: Agent, cluster: Cluster, producer: str, queue: dict[str, Any]
) -> None:
    fill(java, producer, queue, [{"body": f"{i}"} for i in range(30)])
    name = fresh("lite")
    java.call("lite.start", name=name, group=fresh("assigned"), namesrv=cluster.namesrv, topic=queue["topic"], assign=True)
    assert [one["body"] for one in java.call("lite.poll", name=name, count=30)] == [str(i) for i in range(30)]

    java.call("lite.seek", name=name, queue=queue, offset=12)

    assert [one["body"] for one in java.call("lite.poll", name=name, count=18)] == [str(i) for i in range(12, 30)]
    java.call("lite.commit", name=name)
    assert java.call("lite.committed", name=name, queue=queue) == 30
    assert java.call("lite.offsetForTimestamp", name=name, queue=queue, timestamp=0) == 0
    java.submit("lite.stop", name=name)
