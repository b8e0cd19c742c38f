from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from firearrow.aio import Producer
from firearrow.client.connection.instance import acquire
from firearrow.client.errors import BrokerError, ClientError, ConnectionLost, NoRouteError, RequestTimeout
from firearrow.client.message import Message, MessageQueue, ReceivedMessage
from firearrow.client.options import client_options
from firearrow.net.server import Connection
from firearrow.wire.bodies.client import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    SubscriptionData,
)
from firearrow.wire.codes import VERSION, RequestCode
from firearrow.wire.fastjson import loads
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.record import Record, encode
from tests.client.cluster import instance_of, servers
from tests.client.fake_broker import FakeBroker, nothing, route_to
from tests.support.waiting import run


class Side:
    """A consumer that notes what is asked of it."""

    group = "g"

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.asked = asyncio.Event()

    def subscriptions(self) -> list[SubscriptionData]:
        return [SubscriptionData("T")]

    def heartbeat(self) -> ConsumerData:
        return ConsumerData("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", self.subscriptions())

    def rebalance_soon(self) -> None:
        self.notes.append("rebalance")
        self.asked.set()

    def route_changed(self, topic: str) -> None:
        self.notes.append(("route", topic))
        self.asked.set()

    async def reset_offsets(self, topic: str, offsets: Any) -> None:
        self.notes.append((topic, dict(offsets)))

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        self.notes.append((message.topic, message.body, message.queue.broker_name))
        return ConsumeMessageDirectlyResult(consume_result="CR_SUCCESS")

    async def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"who": "me"})

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return {MessageQueue(topic, "broker-a", 0): 42}


def test_clients_with_equal_options_share_an_instance_but_no_group() -> None:
    async def story() -> None:
        options = client_options("127.0.0.1:1")
        first = await acquire(options, producer_group="a")
        assert await acquire(client_options("127.0.0.1:1"), consumer_group="a") is first
        second = await acquire(options, producer_group="a")
        assert second is not first
        assert second.client_id != first.client_id
        other = await acquire(client_options("127.0.0.1:1", unit_name="u"), producer_group="z")
        assert other.client_id.endswith("@u")
        named = client_options("127.0.0.1:1", instance_name="me", client_ip="10.1.2.3")
        mine = await acquire(named, consumer_group="a")
        assert mine.client_id == "10.1.2.3@me"
        with pytest.raises(ClientError, match=r"10.1.2.3@me already has the consumer group 'a'"):
            await acquire(named, consumer_group="a")
        for one in (first, first, second, other, mine):
            await one.release()
        fresh = await acquire(options)
        assert fresh not in (first, second)  # a released instance is not used again
        await fresh.release()

    run(story())


def test_the_client_id_is_address_process_and_a_number() -> None:
    async def story() -> None:
        one = await acquire(client_options("127.0.0.1:1", client_ip="10.0.0.9"))
        ip, _, name = one.client_id.partition("@")
        pid, _, number = name.partition("#")
        assert (ip, pid, number.isdigit()) == ("10.0.0.9", str(os.getpid()), True)
        await one.release()

    run(story())


def test_a_new_connection_begins_with_a_heartbeat_also_after_a_restart() -> None:
    async def story() -> None:
        broker = await FakeBroker().start()
        async with Producer(broker.address, group="orders", retries=5) as producer:
            await producer.send(Message("T", b"x"))
            assert broker.codes == [105, 34, 310]
            heartbeat = loads(broker.seen[1].body)
            assert heartbeat["clientID"] == (await instance_of(producer.options)).client_id
            assert [p["groupName"] for p in heartbeat["producerDataSet"]] == ["CLIENT_INNER_PRODUCER", "orders"]
            assert broker.seen[2].language == "PYTHON"
            for conn in list(broker.conns):
                conn.abort()
            await broker.until(lambda: not broker.conns)
            await producer.send(Message("T", b"y"))
            assert [c for c in broker.codes if c != 105] == [34, 310, 34, 310]
            assert (await instance_of(producer.options)).broker_version(broker.address) == VERSION
        await broker.stop()

    run(story())


def test_heartbeats_and_routes_are_repeated() -> None:
    async def story() -> None:
        broker = await FakeBroker().start()
        async with Producer(broker.address, heartbeat_interval=0.02, route_interval=0.02) as producer:
            await producer.send(Message("T", b"x"))
            await broker.until(lambda: broker.codes.count(34) >= 4 and broker.codes.count(105) >= 4)
        assert broker.codes[-1] == 35
        assert broker.seen[-1].ext["producerGroup"] == "DEFAULT_PRODUCER"
        await broker.stop()

    run(story())


def test_broker_without_route_is_disconnected() -> None:
    async def story() -> None:
        one, other = await FakeBroker("broker-a").start(), await FakeBroker("broker-b").start()
        one.route = route_to(one, other)
        async with Producer(one.address, route_interval=0.02) as producer:
            for queue in await producer.queues("T"):
                await producer.send(Message("T", b"x"), queue=queue)
            assert other.conns
            one.route = route_to(one)
            await other.until(lambda: not other.conns)
            assert await producer.queues("T") == [MessageQueue("T", "broker-a", 0)]
        await one.stop()
        await other.stop()

    run(story())


def test_connection_is_kept_when_its_topics_are_no_longer_used() -> None:
    async def story() -> None:
        broker = await FakeBroker().start()
        broker.route = route_to(broker)
        questions: list[tuple[Connection, Command]] = []
        broker.other[28] = lambda conn, command: questions.append((conn, command))
        one = await acquire(client_options(broker.address))
        await one.route("T")
        asked = asyncio.create_task(one.call(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO))
        await broker.until(lambda: bool(questions))
        await one.refresh_routes()
        assert one.known_route("T") is None
        conn, question = questions[0]
        conn.write(encode_response(question, 0, None, {}))
        assert (await asked).code == 0
        await one.release()
        await broker.stop()

    run(story())


def test_routes_outlive_name_servers() -> None:
    async def story() -> None:
        name_server, broker = await FakeBroker().start(), await FakeBroker().start()
        name_server.route = route_to(broker)
        async with Producer(name_server.address, route_interval=0.02) as producer:
            await producer.send(Message("T", b"x"))
            await name_server.stop()
            await (await instance_of(producer.options)).refresh_routes()
            await producer.send(Message("T", b"y"))
            assert len(broker.sends) == 2
        await broker.stop()

    run(story())


def test_broker_requests_reach_consumers_and_are_answered() -> None:
    async def story() -> None:
        broker = await FakeBroker().start()
        side = Side()
        one = await acquire(client_options(broker.address), consumer_group="g")
        await one.register_consumer("g", side)
        beat = next(command for command in broker.seen if command.code == 34)
        assert loads(beat.body)["consumerDataSet"][0]["groupName"] == "g"
        conn = next(c for c in broker.conns if c is not broker.conns[0]) if len(broker.conns) > 1 else broker.conns[0]
        side.notes.clear()
        side.asked.clear()
        conn.notify(40, {"consumerGroup": "g"})
        await side.asked.wait()
        assert side.notes == ["rebalance"]
        body = b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:17}}'
        assert (await conn.request(220, {"topic": "T", "group": "g", "timestamp": "0"}, body)).code == 0
        assert side.notes[-1] == ("T", {MessageQueue("T", "broker-a", 3): 17})
        status = await conn.request(221, {"topic": "T", "group": "g"})
        assert status.body == (b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:42}}')
        assert loads((await conn.request(307, {"consumerGroup": "g", "clientId": "x"})).body)["properties"] == {"who": "me"}
        record = encode(Record("%RETRY%g", b"body", b"RETRY_TOPIC\x01T\x02"))
        done = await conn.request(309, {"consumerGroup": "g", "brokerName": "broker-a"}, record)
        assert loads(done.body)["consumeResult"] == "CR_SUCCESS"
        assert side.notes[-1] == ("T", b"body", "broker-a")
        assert (await conn.request(307, {"consumerGroup": "other", "clientId": "x"})).code == 1
        assert (await conn.request(4711)).code == 3
        await one.unregister_consumer("g")
        assert (broker.codes[-1], broker.seen[-1].ext["consumerGroup"]) == (35, "g")
        await one.release()
        await broker.stop()

    run(story())


def test_calls_and_their_errors() -> None:
    async def story() -> None:
        broker = await FakeBroker().start()
        one = await acquire(client_options(broker.address))
        broker.other[RequestCode.GET_BROKER_CONFIG] = lambda conn, command: conn.write(
            encode_response(command, 26, "no such group", {})
        )
        broker.other[RequestCode.GET_BROKER_RUNTIME_INFO] = nothing
        assert (await one.call(broker.address, RequestCode.GET_BROKER_CONFIG)).code == 26
        with pytest.raises(BrokerError, match="refused with 26 SUBSCRIPTION_GROUP_NOT_EXIST: no such group"):
            await one.check(broker.address, RequestCode.GET_BROKER_CONFIG)
        with pytest.raises(RequestTimeout, match="did not answer request 28 within 30 ms"):
            await one.call(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=30)
        await one.oneway(broker.address, RequestCode.CLEAN_UNUSED_TOPIC)
        await broker.until(lambda: RequestCode.CLEAN_UNUSED_TOPIC in broker.codes)
        assert broker.seen[-1].is_oneway
        with pytest.raises(NoRouteError, match="has no such topic"):
            await one.route("missing")
        route = await one.route("T")
        assert await one.route("T") is route
        assert one.broker_address("broker-a") == (broker.address, False)
        assert one.broker_address("broker-a", 1) == (broker.address, False)
        assert one.broker_address("broker-a", 1, only_this=True) is None
        assert one.broker_address("broker-z") is None
        await broker.stop()
        with pytest.raises(ConnectionLost, match=broker.address):
            await one.call(broker.address, RequestCode.GET_BROKER_CONFIG)
        await one.release()

    run(story())


def test_released_instances_leave_nothing_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:

            async def live() -> None:
                async with Producer(cluster.name_server) as producer:
                    await producer.send(Message("T", b"x"))

            await live()
            await asyncio.sleep(0.05)
            descriptors, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
            for _ in range(30):
                await live()
            await asyncio.sleep(0.05)
            assert len(os.listdir("/proc/self/fd")) <= descriptors + 2
            assert len(asyncio.all_tasks()) == tasks

    run(story())


def test_a_forked_process_starts_from_nothing_and_leaves_its_parent_alone(tmp_path: Path) -> None:
    async def in_child(name_server: str, parents_client_id: str) -> None:
        async with Producer(name_server) as producer:
            result = await producer.send(Message("T", b"child"))
            assert (await instance_of(producer.options)).client_id != parents_client_id
            os.write(1, result.msg_id.encode())

    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server) as producer:
            await producer.send(Message("T", b"before"))
            client_id = (await instance_of(producer.options)).client_id
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:  # the parent's loop runs in this copy, too; a thread gets one of its own
                import threading

                os.dup2(write, 1)
                from firearrow.net.event_loop import run as run_loop

                thread = threading.Thread(target=lambda: run_loop(in_child(cluster.name_server, client_id)))
                thread.start()
                thread.join(60)
                os._exit(0)
            os.close(write)
            loop = asyncio.get_running_loop()
            childs_id = (await loop.run_in_executor(None, os.read, read, 100)).decode()
            await loop.run_in_executor(None, os.waitpid, pid, 0)
            os.close(read)
            result = await producer.send(Message("T", b"after"))
            assert len(childs_id) == 32
            assert childs_id[:20] != result.msg_id[:20]

    run(story())
