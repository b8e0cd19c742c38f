"""Our push consumer and those of the Java clients in one group: each queue has one owner, and nothing is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import firearrow as fa
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until

QUEUES = 8
PATIENCE_S = 60


class Seen:
    def __init__(self) -> None:
        self.messages: list[fa.ReceivedMessage] = []
        self._lock = threading.Lock()

    def __call__(self, message: fa.ReceivedMessage) -> None:
        with self._lock:
            self.messages.append(message)

    def texts(self) -> list[str]:
        return [message.body.decode() for message in self.messages]


def owned_by_java(java: Agent, member: str, topic: str) -> set[int]:
    return {one["queueId"] for one in java.call("push.owned", name=member) if one["topic"] == topic}


def owned_by_us(consumer: fa.PushConsumer, topic: str) -> set[int]:
    return {queue.queue_id for queue in consumer.assignment() if queue.topic == topic}


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_java_and_python_members_share_one_group(java: Agent, cluster: Cluster, make_topic: MakeTopic, orderly: bool) -> None:
    topic, group, member = make_topic(read=QUEUES, write=QUEUES), fresh("mixed"), fresh("member")
    seen = Seen()

    def send(producer: fa.Producer, first: int) -> set[str]:
        bodies = [f"{first}-{number}" for number in range(64)]
        for number, body in enumerate(bodies):
            producer.send(fa.Message(topic, body.encode()), queue=fa.MessageQueue(topic, queues[0].broker_name, number % QUEUES))
        return set(bodies)

    def shared() -> bool:
        theirs, ours = owned_by_java(java, member, topic), owned_by_us(consumer, topic)
        return theirs | ours == set(range(QUEUES)) and not theirs & ours and len(theirs) == len(ours)

    def texts_of_java() -> list[str]:
        return [one["body"] for one in java.call("push.messages", name=member)["messages"]]

    with (
        fa.Producer(cluster.namesrv, group=fresh("pg")) as producer,
        fa.PushConsumer(cluster.namesrv, group=group, subscribe={topic: "*"}, listener=seen, orderly=orderly) as consumer,
    ):
        queues = producer.queues(topic)
        wait_until(lambda: owned_by_us(consumer, topic) == set(range(QUEUES)), "we own all", PATIENCE_S)
        java.call("push.start", name=member, namesrv=cluster.namesrv, group=group, topics={topic: "*"}, orderly=orderly)
        wait_until(shared, "both own half", PATIENCE_S)
        sent = send(producer, 1)
        wait_until(lambda: set(seen.texts() + texts_of_java()) == sent, "all is consumed", PATIENCE_S)
        assert set(seen.texts()).isdisjoint(texts_of_java())
        left = [one["body"] for one in java.call("push.stop", name=member)]
        wait_until(lambda: owned_by_us(consumer, topic) == set(range(QUEUES)), "we own all again", PATIENCE_S)
        sent |= send(producer, 2)
        wait_until(lambda: set(seen.texts() + left) == sent, "all is consumed", PATIENCE_S)
    times = Counter(seen.texts() + left)
    assert set(times.values()) == {1}, "nobody was in the middle of anything when queues changed hands"


STRATEGIES: dict[str, Callable[[], fa.AllocationStrategy]] = {
    "AllocateMessageQueueAveragely": fa.Averagely,
    "AllocateMessageQueueAveragelyByCircle": fa.AveragelyByCircle,
    "AllocateMessageQueueConsistentHash": fa.ConsistentHash,
}


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_members_come_and_go(agents: dict[str, Agent], cluster: Cluster, make_topic: MakeTopic, strategy: str) -> None:
    """Two of our members and one of each Java client: after every change each queue has one owner, and nothing is lost."""
    topic, group = make_topic(read=QUEUES, write=QUEUES), fresh("mixed")
    javas = {version: fresh("member") for version in agents}
    online: set[str] = set()
    first, second = Seen(), Seen()

    def member(seen: Seen) -> fa.PushConsumer:
        return fa.PushConsumer(
            cluster.namesrv,
            group=group,
            subscribe={topic: "*"},
            listener=seen,
            start_from="earliest",
            allocation=STRATEGIES[strategy](),
        )  # fmt: skip

    def join(version: str) -> None:
        agents[version].call(
            "push.start", name=javas[version], namesrv=cluster.namesrv, group=group, topics={topic: "*"}, strategy=strategy
        )
        online.add(version)

    def shares() -> list[set[int]]:
        of_java = [owned_by_java(agents[version], javas[version], topic) for version in online]
        return of_java + [owned_by_us(consumer, topic) for consumer in ours]

    def settled() -> bool:
        found = shares()
        each_queue_once = sorted(queue for share in found for queue in share) == list(range(QUEUES))
        return each_queue_once and (strategy.endswith("ConsistentHash") or len({len(share) for share in found}) == 1)

    def consumed() -> set[str]:
        of_java = [
            one["body"] for version in online for one in agents[version].call("push.messages", name=javas[version])["messages"]
        ]
        return set(of_java + left + first.texts() + second.texts())

    left: list[str] = []
    sent: set[str] = set()
    with fa.Producer(cluster.namesrv) as producer, member(first) as one:

        def send(round_number: int) -> None:
            for queue in producer.queues(topic):
                for place in range(5):
                    body = f"{round_number} {queue.queue_id} {place}"
                    producer.send(fa.Message(topic, body.encode()), queue=queue)
                    sent.add(body)

        ours = [one]
        send(1)
        join("4.9.8")
        wait_until(settled, "two members share", PATIENCE_S)
        send(2)
        with member(second) as two:
            ours = [one, two]
            join("5.5.0")
            wait_until(settled, "four members share", PATIENCE_S)
            send(3)
            wait_until(lambda: consumed() == sent, "all is consumed", PATIENCE_S)
        ours = [one]
        online.remove("4.9.8")
        left += [message["body"] for message in agents["4.9.8"].call("push.stop", name=javas["4.9.8"])]
        wait_until(settled, "two members share again", PATIENCE_S)
        send(4)
        wait_until(lambda: consumed() == sent, "all is consumed", PATIENCE_S)
        agents["5.5.0"].call("push.stop", name=javas["5.5.0"])


def test_what_java_sends_is_what_we_consume(java: Agent, cluster: Cluster, make_topic: MakeTopic) -> None:
    topic, producer = make_topic(read=4, write=4), fresh("producer")
    seen = Seen()
    large = "x" * 20_000  # sent compressed
    java.call("producer.start", name=producer, namesrv=cluster.namesrv)
    sent: list[dict[str, Any]] = [
        {"body": "plain"},
        {"body": "full", "tags": "täg", "keys": "k1 k2", "properties": {"own": "größe", "n": "1"}},
        {"body": large, "tags": "large"},
    ]
    with fa.PushConsumer(cluster.namesrv, group=fresh("g"), subscribe={topic: "*"}, listener=seen, start_from="earliest"):
        results = java.call("producer.send", name=producer, topic=topic, messages=sent)
        wait_until(lambda: len(seen.messages) >= 3, "all is consumed", PATIENCE_S)
    java.call("producer.stop", name=producer)
    by_body = {message.body.decode(): message for message in seen.messages}
    assert set(by_body) == {"plain", "full", large}
    full = by_body["full"]
    assert (full.tags, full.keys, full.properties["own"], full.properties["n"]) == ("täg", ("k1", "k2"), "größe", "1")
    assert {message.msg_id for message in seen.messages} == {result["msgId"] for result in results}
    assert by_body["plain"].topic == topic


def test_what_we_give_back_java_consumes_again(java: Agent, cluster: Cluster, make_topic: MakeTopic) -> None:
    topic, group, member = make_topic(read=1, write=1), fresh("mixed"), fresh("member")
    seen = Seen()

    def fail(message: fa.ReceivedMessage) -> None:
        seen(message)
        raise fa.RetryLater(delay_level=1)

    with fa.Producer(cluster.namesrv) as producer:
        consumer = fa.PushConsumer(cluster.namesrv, group=group, subscribe={topic: "*"}, listener=fail, start_from="earliest")
        with consumer:
            producer.send(fa.Message(topic, b"again", tags="t", properties={"own": "x"}))
            wait_until(lambda: len(seen.messages) == 1, "it failed", PATIENCE_S)
        java.call("push.start", name=member, namesrv=cluster.namesrv, group=group, topics={topic: "*"})
        wait_until(lambda: bool(java.call("push.messages", name=member)["messages"]), "Java has it", PATIENCE_S)
        (message,) = java.call("push.messages", name=member)["messages"]
        java.call("push.stop", name=member)
    assert (message["body"], message["topic"], message["reconsumeTimes"]) == ("again", topic, 1)
    assert message["properties"]["own"] == "x"
