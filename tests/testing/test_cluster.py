"""Test clusters: start, use by blocking and async clients, stop, kill."""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import socket
import threading
import time

import pytest

import firearrow as fa
from firearrow import aio
from firearrow.net import in_process
from firearrow.net.address import parse_address
from firearrow.testing import AsyncCluster, Cluster, VirtualClock
from tests.support.waiting import run
from tests.testing.kit import bodies


def test_sent_message_is_visible() -> None:
    with Cluster() as cluster:
        with cluster.producer(group="orders") as producer:
            result = producer.send(fa.Message("Orders", b"hello", tags="new", keys=["A1"], properties={"n": "1"}))
        (message,) = cluster.messages("Orders")
        assert (message.body, message.tags, message.keys, message.properties["n"]) == (b"hello", "new", ("A1",), "1")
        assert message.msg_id == result.msg_id
        assert message.queue == result.queue
        assert cluster.messages("Others") == []


def test_messages_are_returned_in_storage_order() -> None:
    with Cluster(brokers=2) as cluster:
        with cluster.producer() as producer:
            for number in range(30):
                producer.send(fa.Message("Orders", b"%d" % number))
                cluster.clock.advance(ms=1)
        messages = cluster.messages("Orders")
        assert bodies(messages) == [b"%d" % number for number in range(30)]
        assert {message.queue.broker_name for message in messages} == {"broker-a", "broker-b"}


def test_consumers_receive_sent_messages() -> None:
    seen: queue.Queue[bytes] = queue.Queue()
    with Cluster() as cluster:
        cluster.create_topic("Orders", queues=2)
        with cluster.push_consumer(group="billing", subscribe={"Orders": "*"}, listener=lambda message: seen.put(message.body)):
            with cluster.producer() as producer:
                for number in range(20):
                    producer.send(fa.Message("Orders", b"%d" % number))
            assert cluster.settle()
            assert sorted(seen.get_nowait() for _ in range(20)) == sorted(b"%d" % number for number in range(20))
        with cluster.pull_consumer(group="audit", topics=["Orders"], start_from="earliest") as consumer:
            found: list[bytes] = []
            for _ in range(100):
                found += bodies(consumer.poll(timeout=1))
                if len(found) == 20:
                    break
            assert sorted(found) == sorted(b"%d" % number for number in range(20))


def test_settle_reports_a_listener_that_does_not_finish() -> None:
    go_on = threading.Event()
    with Cluster() as cluster:
        cluster.create_topic("Orders", queues=1)
        with cluster.push_consumer(group="billing", subscribe={"Orders": "*"}, listener=lambda message: go_on.wait(10)):
            with cluster.producer() as producer:
                producer.send(fa.Message("Orders", b"slow"))
            assert not cluster.settle(patience_s=0.1)
            go_on.set()
            assert cluster.settle()


def test_application_needs_only_the_address() -> None:
    with Cluster() as cluster, fa.Producer(cluster.name_server) as producer:
        producer.send(fa.Message("Orders", b"hello"))
        assert bodies(cluster.messages("Orders")) == [b"hello"]


def test_async_cluster() -> None:
    async def scenario() -> None:
        async with AsyncCluster() as cluster:
            await cluster.create_topic("Orders")
            seen: list[bytes] = []

            async def listen(message: fa.ReceivedMessage) -> None:
                seen.append(message.body)

            async with cluster.push_consumer(group="billing", subscribe={"Orders": "*"}, listener=listen):
                async with cluster.producer() as producer:
                    await producer.send(fa.Message("Orders", b"hello"))
                assert await cluster.settle()
            assert seen == bodies(await cluster.messages("Orders")) == [b"hello"]
        async with Cluster() as cluster, aio.Producer(cluster.name_server) as producer:
            await producer.send(fa.Message("Orders", b"hello"))
            assert bodies(await cluster.messages("Orders")) == [b"hello"]

    run(scenario())


def test_blocking_cluster_with_coroutines_of_another_loop(firearrow_broker: Cluster) -> None:
    async def scenario() -> None:
        async with firearrow_broker.aio.producer() as producer:
            await producer.send(fa.Message("Orders", b"hello"), delay_level=1)
            await firearrow_broker.aio.advance(seconds=1)
            assert bodies(await firearrow_broker.aio.messages("Orders")) == [b"hello"]

    run(scenario())


def test_restarted_broker_has_its_messages() -> None:
    with Cluster() as cluster, cluster.producer(send_timeout=0.5) as producer:
        broker = cluster.brokers[0]
        producer.send(fa.Message("Orders", b"before"), timeout=30)
        broker.stop()
        assert not broker.running
        with pytest.raises(fa.FirearrowError):
            producer.send(fa.Message("Orders", b"meanwhile"))
        assert cluster.messages("Orders") == []
        broker.start()
        producer.send(fa.Message("Orders", b"after"), timeout=30)
        assert bodies(cluster.messages("Orders")) == [b"before", b"after"]


@pytest.mark.parametrize("power_cut", [False, True])
def test_acknowledged_messages_survive_a_kill(power_cut: bool) -> None:
    with Cluster() as cluster, cluster.producer(retries=10, send_timeout=30) as producer:
        for number in range(5):
            producer.send(fa.Message("Orders", b"%d" % number), delay_level=1)
        cluster.brokers[0].kill(power_cut=power_cut)
        cluster.brokers[0].start()
        cluster.clock.advance(seconds=1)
        assert sorted(bodies(cluster.messages("Orders"))) == [b"0", b"1", b"2", b"3", b"4"]
        producer.send(fa.Message("Orders", b"5"))
        assert len(cluster.messages("Orders")) == 6


@pytest.mark.parametrize("power_cut", [False, True])
def test_deferred_messages_are_delivered_once_despite_kills(power_cut: bool) -> None:
    with Cluster(properties={"timerPrecisionMs": "100"}) as cluster, cluster.producer(retries=10, send_timeout=30) as producer:
        producer.send(fa.Message("Others", b"not held"))
        sent = [b"%d" % number for number in range(40)]
        for number, body in enumerate(sent):
            wait = {"delay": 1.0 + number / 20} if number % 2 else {"delay_level": 1}
            producer.send(fa.Message("Orders", body), **wait)
            cluster.clock.advance(ms=50)
        for _ in range(8):
            cluster.clock.advance(ms=270)
            cluster.brokers[0].kill(power_cut=power_cut)
            cluster.brokers[0].start()
        cluster.clock.advance(seconds=10)
        assert sorted(bodies(cluster.messages("Orders"))) == sorted(sent)


def test_power_cut_loses_unsynced_messages() -> None:
    with Cluster(properties={"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "3600000"}) as cluster:
        with cluster.producer() as producer:
            producer.send(fa.Message("Orders", b"acknowledged"))
        cluster.brokers[0].kill()
        cluster.brokers[0].start()
        assert bodies(cluster.messages("Orders")) == [b"acknowledged"]
        with cluster.producer() as producer:
            producer.send(fa.Message("Others", b"acknowledged"))
        cluster.brokers[0].kill(power_cut=True)
        cluster.brokers[0].start()
        assert cluster.messages("Others") == []


def test_producer_switches_to_the_other_broker() -> None:
    with Cluster(brokers=2) as cluster, cluster.producer() as producer:
        cluster.create_topic("Orders", queues=1)
        cluster.brokers[0].kill()
        for number in range(4):
            assert producer.send(fa.Message("Orders", b"%d" % number)).queue.broker_name == "broker-b"
        assert len(cluster.messages("Orders")) == 4


def test_clients_continue_without_name_servers() -> None:
    with Cluster(name_servers=2) as cluster, cluster.producer() as producer:
        producer.send(fa.Message("Orders", b"1"))
        cluster.stop_name_server(0)
        producer.send(fa.Message("Others", b"asks the second"))
        cluster.stop_name_server(1)
        producer.send(fa.Message("Orders", b"2"))
        with pytest.raises(fa.FirearrowError), cluster.producer(send_timeout=0.5) as another:
            another.send(fa.Message("Orders", b"3"))
        cluster.start_name_server(0)
        assert bodies(cluster.messages("Orders")) == [b"1", b"2"]


def test_real_ports_and_real_time() -> None:
    with Cluster(sockets=True, clock=None) as cluster:
        with socket.create_connection(parse_address(cluster.name_server), timeout=5):
            pass
        with cluster.producer() as producer:
            producer.send(fa.Message("Orders", b"later"), delay_level=1)
            assert cluster.messages("Orders") == []
            for _ in range(500):
                if cluster.messages("Orders"):
                    break
                time.sleep(0.01)
        assert bodies(cluster.messages("Orders")) == [b"later"]
        with pytest.raises(RuntimeError, match="real time"):
            _ = cluster.clock
        with pytest.raises(RuntimeError, match="sockets"):
            cluster.faults.duplicate()
        port = cluster.brokers[0].address
        cluster.brokers[0].stop()
        cluster.brokers[0].start()
        assert cluster.brokers[0].address == port
        assert bodies(cluster.messages("Orders")) == [b"later"]


def test_settings_with_apache_names() -> None:
    with Cluster(properties={"messageDelayLevel": "7s"}) as cluster, cluster.producer() as producer:
        producer.send(fa.Message("Orders", b"seven"), delay_level=1)
        cluster.clock.advance(ms=6_999)
        assert cluster.messages("Orders") == []
        cluster.clock.advance(ms=1)
        assert bodies(cluster.messages("Orders")) == [b"seven"]
    with pytest.raises(ValueError, match="messageDelayLevel"):
        Cluster(properties={"messageDelayLevel": "soon"})
    with pytest.raises(ValueError, match="nosuchthing"):
        Cluster(properties={"nosuchthing": "1"})
    with pytest.raises(ValueError, match="0 brokers"):
        Cluster(brokers=0)


def test_use_before_start_and_after_close_is_rejected() -> None:
    cluster = Cluster()
    with pytest.raises(RuntimeError, match="not running"):
        cluster.messages("Orders")
    with cluster:
        pass
    with pytest.raises(RuntimeError, match="not running"):
        cluster.messages("Orders")
    cluster.close()


def test_clock_belongs_to_one_cluster_at_a_time() -> None:
    clock = VirtualClock()
    with Cluster(clock=clock), pytest.raises(RuntimeError, match="another cluster"), Cluster(clock=clock):
        pass
    with Cluster(clock=clock):
        pass


def test_open_clients_are_closed_with_the_cluster() -> None:
    with Cluster() as cluster:
        producer = cluster.producer()
        producer.start()
        producer.send(fa.Message("Orders", b"hello"))
    with pytest.raises(fa.ClosedError):
        producer.send(fa.Message("Orders", b"too late"))


def test_cluster_start_is_cheap() -> None:
    """One cluster takes 50 ms, a thousand tests 60 s. CPU time is measured, so that a busy machine passes, too."""
    with Cluster():
        pass
    times = []
    for _ in range(20):
        begun = time.process_time()
        with Cluster() as cluster:
            ready = time.process_time()
            with cluster.producer() as producer:
                producer.send(fa.Message("Orders", b"hello"))
            assert len(cluster.messages("Orders")) == 1
        times.append((ready - begun, time.process_time() - begun))
    assert min(start for start, _ in times) < 0.05
    assert min(whole for _, whole in times) < 0.06


def test_two_hundred_clusters_leak_nothing() -> None:
    def left() -> tuple[int, int, int]:
        gc.collect()
        alive = sum(isinstance(thing, (AsyncCluster, in_process.MemoryTransport)) for thing in gc.get_objects())
        return threading.active_count(), len(os.listdir("/proc/self/fd")), alive

    addresses: list[str] = []

    def scenario(number: int) -> None:
        with Cluster(sockets=number % 10 == 0) as cluster:
            addresses.append(cluster.name_server)
            with cluster.producer() as producer:
                producer.send(fa.Message("Orders", b"hello"), delay_level=3)
            if number % 5 == 0:
                cluster.create_topic("Orders")
                with cluster.push_consumer(group="g", subscribe={"Orders": "*"}, listener=lambda message: None):
                    cluster.clock.advance(minutes=1)
            if number % 7 == 0:
                cluster.brokers[0].kill()
                cluster.brokers[0].start()

    for number in range(10):
        scenario(number)
    before = left()
    for number in range(200):
        scenario(number)
    # The timer of a send that had to dial holds its client until the send timeout, three seconds.
    for _ in range(100):
        threads, descriptors, alive = left()
        if alive <= 5:
            break
        time.sleep(0.1)
    assert (threads, descriptors) == before[:2]
    assert alive <= 5
    assert not any(isinstance(in_process.listener(address), in_process.MemoryListener) for address in addresses)


def test_no_task_is_left_on_the_loop() -> None:
    async def scenario() -> None:
        async with AsyncCluster() as cluster, cluster.producer() as producer:
            await producer.send(fa.Message("Orders", b"hello"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())
