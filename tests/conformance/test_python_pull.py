"""Our pull consumer and traces together with Apache's client and tools."""

from __future__ import annotations

import firearrow as fa
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until

PATIENCE_S = 60


def polled(consumer: fa.PullConsumer, count: int) -> list[str]:
    bodies: list[str] = []
    while len(bodies) < count:
        messages = consumer.poll(PATIENCE_S)
        assert messages, f"only {bodies} came"
        bodies += [message.body.decode() for message in messages]
    return bodies


def test_one_group_goes_from_our_consumer_to_javas_and_back(cluster: Cluster, java: Agent, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), fresh("group")
    with fa.Producer(cluster.namesrv) as producer:
        producer.send_batch([fa.Message(topic, f"first-{number}".encode(), tags="TagA") for number in range(10)])
        producer.send(fa.Message(topic, b"not wanted", tags="TagB"))
        with fa.PullConsumer(cluster.namesrv, group=group, subscribe={topic: "TagA"}, start_from="earliest") as consumer:
            assert sorted(polled(consumer, 10)) == [f"first-{number}" for number in range(10)]

        producer.send_batch([fa.Message(topic, f"second-{number}".encode(), tags="TagA") for number in range(5)])
        name = fresh("lite")
        java.call("lite.start", name=name, group=group, namesrv=cluster.namesrv, topic=topic, expression="TagA")
        polled_by_java = java.call("lite.poll", name=name, count=5)
        assert sorted(one["body"] for one in polled_by_java) == [f"second-{number}" for number in range(5)]
        java.call("lite.commit", name=name)
        java.call("lite.stop", name=name)

        producer.send(fa.Message(topic, b"third", tags="TagA"))
        with fa.PullConsumer(cluster.namesrv, group=group, subscribe={topic: "TagA"}) as consumer:
            assert polled(consumer, 1) == ["third"]


def test_our_consumer_and_javas_share_the_queues_of_a_group(cluster: Cluster, java: Agent, make_topic: MakeTopic) -> None:
    topic, group, name = make_topic(), fresh("group"), fresh("lite")
    with fa.PullConsumer(cluster.namesrv, group=group, topics=[topic]) as consumer:
        assert len(consumer.assignment()) == 4
        java.call("lite.start", name=name, group=group, namesrv=cluster.namesrv, topic=topic, expression="*")
        wait_until(lambda: len(consumer.assignment()) == 2, "half of the queues is the Java client's")
        ours = consumer.assignment()
        with fa.Producer(cluster.namesrv) as producer:
            for queue in producer.queues(topic):
                producer.send(fa.Message(topic, str(queue.queue_id).encode()), queue=queue)
        assert sorted(polled(consumer, 2)) == sorted(str(queue.queue_id) for queue in ours)
        theirs = sorted(one["body"] for one in java.call("lite.poll", name=name, count=2))
        assert theirs == sorted({"0", "1", "2", "3"} - {str(queue.queue_id) for queue in ours})
        java.call("lite.stop", name=name)
        wait_until(lambda: len(consumer.assignment()) == 4, "all queues are ours again")


def test_apaches_tool_reads_our_traces(cluster: Cluster, newest: Agent, make_topic: MakeTopic) -> None:
    topic = make_topic()
    group = fresh("traced")
    with fa.Producer(cluster.namesrv, group="traced-producers", trace=True) as producer:
        sent = producer.send(fa.Message(topic, b"hello", tags="new", keys=["A1"]))
    with fa.PullConsumer(cluster.namesrv, group=group, topics=[topic], start_from="earliest", trace=True) as consumer:
        assert polled(consumer, 1) == ["hello"]

    def printed() -> str:
        words = ["queryMsgTraceById", "-n", cluster.namesrv, "-i", sent.msg_id, "-t", "RMQ_SYS_TRACE_TOPIC"]
        return newest.mqadmin([words])[0]

    wait_until(lambda: group in printed(), "both traces are found by the message's id")
    lines = [line.split() for line in printed().splitlines() if line and not line.startswith("#")]
    (pub,) = [line for line in lines if line[0] == "Pub"]
    assert (pub[1], pub[-1]) == ("traced-producers", "success")
    (sub,) = [line for line in lines if line[0] == "Sub"]
    assert (sub[1], sub[-1]) == (group, "success")
