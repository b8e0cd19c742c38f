"""The sync clients against running servers: what is derived, works."""

from __future__ import annotations

import inspect
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.client.consumer import pull_consumer, push_consumer
from firearrow.client.errors import ClosedError
from firearrow.client.message import Message, MessageQueue, ReceivedMessage
from firearrow.client.producer import producer, transaction
from firearrow.client.producer.transaction import LocalTransactionState
from firearrow.client.sync.clients import Producer, PullConsumer, PushConsumer, TransactionProducer
from firearrow.client.sync.derive import BlockingMethod, SyncClient
from tests.client.cluster import PATIENCE_S, ThreadedServers, servers_in_a_thread
from tests.client.sync.test_derive import in_child

Q0 = MessageQueue("T", "broker-a", 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreadedServers]:
    with servers_in_a_thread(tmp_path) as running:
        running.create("T")
        yield running


def test_producing_in_every_way(cluster: ThreadedServers) -> None:
    with Producer(cluster.name_server, group="p") as producer:
        assert producer.send(Message("T", b"1")).queue_offset == 0
        assert producer.send(Message("T", b"2"), sharding_key="k").queue == Q0
        assert [result.queue_offset for result in producer.send_batch([Message("T", b"3"), Message("T", b"4")])] == [2, 3]
        futures = [producer.send_nowait(Message("T", b"%d" % number)) for number in range(5, 8)]
        assert [future.result(PATIENCE_S).queue_offset for future in futures] == [4, 5, 6]
        producer.send_oneway(Message("T", b"8"))
        assert producer.queues("T") == [Q0]
    with PullConsumer(cluster.name_server, group="c", topics=["T"], start_from="earliest") as consumer:
        bodies = [message.body for message in itertools.islice(consumer, 8)]
    assert bodies == [b"%d" % number for number in range(1, 9)]


def test_iterating_commits_what_is_done(cluster: ThreadedServers) -> None:
    cluster.put("T", *(b"%d" % number for number in range(100)))
    seen = []

    def consume_and_fail() -> None:
        with PullConsumer(cluster.name_server, group="c", topics=["T"], start_from="earliest") as consumer:
            for message in consumer:
                seen.append(message.body)
                if len(seen) == 50:
                    raise KeyError

    with pytest.raises(KeyError):
        consume_and_fail()
    assert cluster.committed("c", "T") == 49
    with PullConsumer(cluster.name_server, group="c", topics=["T"]) as consumer:
        for message in consumer:
            seen.append(message.body)
            if message.body == b"99":
                break
    assert seen == [b"%d" % number for number in [*range(50), *range(49, 100)]]
    assert cluster.committed("c", "T") == 100


def test_pull_consumer_by_hand(cluster: ThreadedServers) -> None:
    cluster.put("T", b"0", b"1", b"2")
    with PullConsumer(cluster.name_server, group="c", auto_commit=False, start_from="earliest") as consumer:
        consumer.assign(consumer.queues("T"))
        assert consumer.assignment() == [Q0]
        assert [message.body for message in consumer.poll(10, max_messages=2)] == [b"0", b"1"]
        assert (consumer.position(Q0), consumer.lag()) == (2, {Q0: 1})
        consumer.commit()
        assert consumer.committed(Q0) == 2
        consumer.seek(Q0, "earliest")
        consumer.pause()
        assert consumer.poll(0.05) == []
        consumer.resume()
        assert len(consumer.poll(10)) == 3
        assert consumer.offset_at(Q0, "latest") == 3


def test_a_listener_runs_in_a_worker_thread_and_may_use_sync_clients(cluster: ThreadedServers) -> None:
    cluster.create("Out")
    cluster.put("T", b"x")
    done = threading.Event()
    threads = []

    with Producer(cluster.name_server, group="p") as producer:

        def handle(message: ReceivedMessage) -> None:
            threads.append(threading.current_thread())
            producer.send(Message("Out", message.body.upper()))
            done.set()

        with PushConsumer(
            cluster.name_server, group="c", subscribe={"T": "*"}, listener=handle, start_from="earliest"
        ) as consumer:
            assert done.wait(PATIENCE_S)
            consumer.run(timeout=0.01)
            assert Q0 in consumer.assignment()
    assert threads[0] not in (threading.main_thread(), None)
    assert threads[0].name != "firearrow-client"
    assert cluster.committed("c", "T") == 1
    with PullConsumer(cluster.name_server, group="c2", topics=["Out"], start_from="earliest") as pull:
        assert next(pull).body == b"X"


def test_transactions(cluster: ThreadedServers) -> None:
    def execute(message: Message, argument: object) -> LocalTransactionState:
        assert threading.current_thread().name != "firearrow-client"
        return LocalTransactionState.COMMIT if argument == "good" else LocalTransactionState.ROLLBACK

    def check(message: ReceivedMessage) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    with TransactionProducer(cluster.name_server, group="tx", execute=execute, check=check) as producer:
        assert producer.send_in_transaction(Message("T", b"bad"), "bad").state is LocalTransactionState.ROLLBACK
        assert producer.send_in_transaction(Message("T", b"good"), "good").state is LocalTransactionState.COMMIT
        assert producer.send(Message("T", b"plain")).queue == Q0
    with PullConsumer(cluster.name_server, group="c", topics=["T"], start_from="earliest") as consumer:
        assert sorted(next(consumer).body for _ in range(2)) == [b"good", b"plain"]


def test_a_producer_works_on_both_sides_of_a_fork(cluster: ThreadedServers) -> None:
    with Producer(cluster.name_server, group="p") as producer:
        before = producer.send(Message("T", b"before"))

        def child() -> str:
            result = producer.send(Message("T", b"in the child"))
            producer.close()
            return result.msg_id

        in_the_child = in_child(child)
        after = producer.send(Message("T", b"after"))
    ids = [before.msg_id, in_the_child, after.msg_id]
    assert len(set(ids)) == 3
    with PullConsumer(cluster.name_server, group="c", topics=["T"], start_from="earliest") as consumer:
        assert [next(consumer).msg_id for _ in range(3)] == ids


def test_a_consumer_does_not_go_through_a_fork(cluster: ThreadedServers) -> None:
    with PullConsumer(cluster.name_server, group="c", topics=["T"], start_from="earliest") as consumer:
        answer = in_child(lambda: str(consumer.poll(0)))
        assert answer.startswith("ClosedError: this PullConsumer was created before the fork")
        assert str(os.getpid()) in answer
        cluster.put("T", b"x")
        assert next(consumer).body == b"x"


def test_use_before_and_after_is_refused(cluster: ThreadedServers) -> None:
    producer = Producer(cluster.name_server)
    with pytest.raises(ClosedError):
        producer.send(Message("T", b"x"))
    with producer:
        producer.send(Message("T", b"x"))
    producer.close()
    with pytest.raises(ClosedError):
        producer.send(Message("T", b"x"))


# What belongs to the inside of a client: to the instance, to subclasses, to the loop.
INSIDE = {
    "start", "close", "wait_for_capacity", "next_buffered",
    "group", "topics", "subscriptions", "heartbeat", "rebalance_soon", "route_changed", "reset_offsets", "consume_directly",
    "running_info", "consumed_offsets", "check_transaction",
}  # fmt: skip


@pytest.mark.parametrize(
    ("sync", "of"),
    [
        (Producer, producer.Producer),
        (TransactionProducer, transaction.TransactionProducer),
        (PushConsumer, push_consumer.PushConsumer),
        (PullConsumer, pull_consumer.PullConsumer),
    ],
)
def test_every_public_method_has_its_sync_one(sync: type[SyncClient[producer.Producer]], of: type) -> None:
    public = {name for name, value in inspect.getmembers(of) if not name.startswith("_") and callable(value)}
    derived = {name: value for name, value in inspect.getmembers(sync) if isinstance(value, BlockingMethod)}

    own = {"run"} & vars(sync).keys()  # it handles SIGTERM
    assert public - INSIDE == {name for name in derived if not name.startswith("_")} | own
    assert inspect.signature(sync).parameters.keys() == inspect.signature(of).parameters.keys()
    for name, value in derived.items():
        assert value.__doc__ or name.startswith("_"), f"{of.__name__}.{name} says nothing about itself"
