"""Topics: different read and write queue counts, permissions, automatic creation and its rejection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance import rawcall
from tests.conformance.agent import Agent, AgentError
from tests.conformance.conftest import MakeTopic, StartCluster, fresh
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until

Mqadmin = Callable[..., str]


def test_fewer_queues_to_write_than_to_read(java: Agent, producer: str, puller: str, make_topic: MakeTopic) -> None:
    topic = make_topic(read=6, write=3)
    results = java.call("producer.send", name=producer, topic=topic, messages=[{"body": f"{i}"} for i in range(12)])

    assert {result["queueId"] for result in results} == {0, 1, 2}
    assert [one["queueId"] for one in java.call("producer.queues", name=producer, topic=topic)] == [0, 1, 2]
    assert [one["queueId"] for one in java.call("pull.queues", name=puller, topic=topic)] == [0, 1, 2, 3, 4, 5]


def test_more_queues_to_write_than_to_read_hide_some(
    java: Agent, cluster: Cluster, producer: str, puller: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(read=2, write=4)
    results = java.call("producer.send", name=producer, topic=topic, messages=[{"body": f"{i}"} for i in range(8)])
    assert {result["queueId"] for result in results} == {0, 1, 2, 3}

    assert [one["queueId"] for one in java.call("pull.queues", name=puller, topic=topic)] == [0, 1]
    with pytest.raises(AgentError) as refused:
        java.call("pull.pull", name=puller, queue={"topic": topic, "broker": cluster.broker_name, "queueId": 3}, offset=0)
    assert refused.value.code == 29


def test_shrinking_keeps_what_is_in_the_queues(java: Agent, producer: str, puller: str, make_topic: MakeTopic) -> None:
    """Reducing the write queues, then the read queues, and growing again keeps the messages."""
    topic = make_topic(read=4, write=4)
    java.call("producer.send", name=producer, topic=topic, messages=[{"body": f"{i}"} for i in range(16)])

    make_topic(read=4, write=1, name=topic)
    assert len(java.call("pull.all", name=puller, topic=topic)) == 16
    make_topic(read=1, write=1, name=topic)
    assert len(java.call("pull.all", name=puller, topic=topic)) == 4
    make_topic(read=4, write=4, name=topic)
    assert len(java.call("pull.all", name=puller, topic=topic)) == 16


def test_a_topic_without_write_permission_takes_nothing(
    java: Agent, producer: str, puller: str, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic()
    java.call("producer.send", name=producer, topic=topic, messages=[{"body": "before"}])
    make_topic(perm=4, name=topic)

    late = fresh("late")
    java.call("producer.start", name=late, namesrv=cluster.namesrv, retries=0)
    refusal = java.call("producer.send", name=late, topic=topic, messages=[{"body": "after"}])[0]

    assert "error" in refusal
    assert [one["body"] for one in java.call("pull.all", name=puller, topic=topic)] == ["before"]
    java.submit("producer.stop", name=late)


def test_a_topic_without_read_permission_gives_nothing(
    java: Agent, cluster: Cluster, producer: str, puller: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    java.call("producer.send", name=producer, topic=topic, messages=[{"body": "before"}])
    queue = java.call("pull.queues", name=puller, topic=topic)[0]
    make_topic(perm=2, name=topic)

    with pytest.raises(AgentError) as refused:
        java.call("pull.pull", name=puller, queue=queue, offset=0)

    assert refused.value.code == 16
    assert java.call("producer.send", name=producer, topic=topic, messages=[{"body": "after"}])[0]["status"] == "SEND_OK"


def test_the_first_send_creates_the_topic(java: Agent, cluster: Cluster, producer: str, puller: str) -> None:
    topic = fresh("Auto")
    results = java.call("producer.send", name=producer, topic=topic, messages=[{"body": f"{i}"} for i in range(8)])

    assert {result.get("status") for result in results} == {"SEND_OK"}
    wait_until(lambda: rawcall.has_route(cluster.namesrv, topic), "the route")
    queues = rawcall.route(cluster.namesrv, topic)["queueDatas"]
    assert [(one["readQueueNums"], one["writeQueueNums"], one["perm"]) for one in queues] == [(4, 4, 6)]
    assert sorted(one["body"] for one in java.call("pull.all", name=puller, topic=topic)) == [str(i) for i in range(8)]


def test_the_producer_names_the_number_of_queues(java: Agent, cluster: Cluster) -> None:
    name = fresh("producer")
    topic = fresh("Auto")
    java.call("producer.start", name=name, namesrv=cluster.namesrv, defaultTopicQueueNums=7)
    java.call("producer.send", name=name, topic=topic, messages=[{"body": "x"}])

    wait_until(lambda: rawcall.has_route(cluster.namesrv, topic), "the route")
    assert rawcall.route(cluster.namesrv, topic)["queueDatas"][0]["writeQueueNums"] == 7
    java.submit("producer.stop", name=name)


def test_without_automatic_creation_the_refusal_says_what_to_do(
    java: Agent, mqadmin: Mqadmin, start_cluster: StartCluster
) -> None:
    own = start_cluster({"autoCreateTopicEnable": "false"})
    name = fresh("producer")
    java.call("producer.start", name=name, namesrv=own.namesrv, retries=0)
    topic = fresh("Forbidden")

    refusal = java.call("producer.send", name=name, topic=topic, messages=[{"body": "x"}])[0]

    assert "No route info" in refusal["message"], refusal
    assert not rawcall.has_route(own.namesrv, topic)
    # The broker's response names the setting and the command.
    ext = {
        "producerGroup": "g",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
    }
    answer, _ = rawcall.call(own.broker, 10, ext, b"body")
    assert answer["code"] == 17
    if own.kind == "firearrow":
        assert "autoCreateTopicEnable" in answer["remark"]
        assert "updateTopic" in answer["remark"] or "firearrow" in answer["remark"]

    printed = mqadmin("updateTopic", "-n", own.namesrv, "-b", own.broker, "-t", topic, "-r", "2", "-w", "2")
    assert "success" in printed
    wait_until(lambda: rawcall.has_route(own.namesrv, topic), "the route")
    assert java.call("producer.send", name=name, topic=topic, messages=[{"body": "x"}])[0].get("status") == "SEND_OK"
    java.submit("producer.stop", name=name)


def test_without_automatic_groups_an_unknown_group_is_refused(java: Agent, mqadmin: Mqadmin, start_cluster: StartCluster) -> None:
    own = start_cluster({"autoCreateSubscriptionGroup": "false"})
    topic = fresh("Topic")
    mqadmin("updateTopic", "-n", own.namesrv, "-b", own.broker, "-t", topic)
    wait_until(lambda: rawcall.has_route(own.namesrv, topic), "the route")
    name = fresh("puller")
    java.call("pull.start", name=name, group=name, namesrv=own.namesrv)
    queue = {"topic": topic, "broker": own.broker_name, "queueId": 0}

    with pytest.raises(AgentError) as refused:
        java.call("pull.pull", name=name, queue=queue, offset=0)
    assert refused.value.code == 26

    mqadmin("updateSubGroup", "-n", own.namesrv, "-b", own.broker, "-g", name)
    assert java.call("pull.pull", name=name, queue=queue, offset=0)["status"] == "NO_NEW_MSG"
    java.submit("pull.stop", name=name)


def test_a_deleted_topic_is_gone_and_starts_anew(
    java: Agent, cluster: Cluster, mqadmin: Mqadmin, producer: str, puller: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(read=1, write=1)
    java.call("producer.send", name=producer, topic=topic, messages=[{"body": "old"}] * 5)

    printed = mqadmin("deleteTopic", "-n", cluster.namesrv, "-c", cluster.cluster_name, "-t", topic)
    assert "success" in printed
    wait_until(lambda: not rawcall.has_route(cluster.namesrv, topic), "the route is gone")
    make_topic(read=1, write=1, name=topic)

    result = java.call("producer.send", name=producer, topic=topic, messages=[{"body": "new"}])[0]
    assert (result.get("status"), result.get("queueOffset")) == ("SEND_OK", 0), result
    assert [one["body"] for one in java.call("pull.all", name=puller, topic=topic)] == ["new"]


def test_a_disabled_group_is_refused(java: Agent, cluster: Cluster, mqadmin: Mqadmin, puller: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    mqadmin("updateSubGroup", "-n", cluster.namesrv, "-b", cluster.broker, "-g", puller, "-s", "false")

    with pytest.raises(AgentError) as refused:
        java.call("pull.pull", name=puller, queue={"topic": topic, "broker": cluster.broker_name, "queueId": 0}, offset=0)

    assert refused.value.code == 16
