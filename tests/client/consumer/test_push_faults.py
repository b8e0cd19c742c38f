"""The push consumer while connections are cut and brokers go and come: every acknowledged message is consumed at least once."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from firearrow.client.consumer.listener import RetryLater
from firearrow.client.errors import FirearrowError
from firearrow.client.message import Message, ReceivedMessage
from firearrow.testing import AsyncCluster
from firearrow.wire.codes import RequestCode as Code
from tests.support.waiting import run, until


class Load:
    """Sends until it is stopped, and records what was acknowledged."""

    def __init__(self, producer: Any) -> None:
        self.acknowledged: list[bytes] = []
        self._producer = producer
        self._stopped = False
        self._task = asyncio.get_running_loop().create_task(self._send())

    async def stop(self) -> None:
        self._stopped = True
        await self._task

    async def _send(self) -> None:
        number = 0
        while not self._stopped:
            body = b"%d" % number
            number += 1
            try:
                await self._producer.send(Message("T", body), timeout=0.5)
            except FirearrowError:
                await asyncio.sleep(0.01)
            else:
                self.acknowledged.append(body)
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_nothing_acknowledged_is_missed_through_cuts_and_restarts(orderly: bool) -> None:
    async def story() -> None:
        seen: Counter[bytes] = Counter()
        order: dict[tuple[str, int], list[int]] = {}

        async def consume(message: ReceivedMessage) -> None:
            seen[message.body] += 1
            order.setdefault((message.queue.broker_name, message.queue_id), []).append(message.queue_offset)
            if seen[message.body] == 1 and message.body.endswith(b"7"):
                raise RetryLater(1, suspend_time=0.01)

        async with AsyncCluster(brokers=2) as cluster:
            await cluster.create_topic("T", queues=2)
            async with (
                cluster.producer(route_interval=0.2) as producer,
                cluster.push_consumer(
                    group="g", subscribe={"T": "*"}, listener=consume, start_from="earliest", orderly=orderly,
                    persist_offset_interval=0.05, route_interval=0.2,
                ),
            ):  # fmt: skip
                load = Load(producer)
                for _ in range(2):
                    await asyncio.sleep(0.2)
                    cluster.faults.cut()
                    await asyncio.sleep(0.1)
                    cluster.faults.half_frame(towards="client", codes=[Code.PULL_MESSAGE])
                    await asyncio.sleep(0.2)
                    await cluster.brokers[0].stop()
                    await asyncio.sleep(0.2)
                    await cluster.brokers[0].start()
                    await asyncio.sleep(0.3)
                    await cluster.brokers[1].kill()
                    await asyncio.sleep(0.1)
                    await cluster.brokers[1].start()
                await load.stop()
                assert len(load.acknowledged) > 100
                # What was given back comes when the clock of the brokers says so.
                while not set(load.acknowledged) <= {body for body, times in seen.items() if times > (body[-1:] == b"7")}:
                    await cluster.advance(seconds=2)
                    await asyncio.sleep(0.1)
            if orderly:
                for offsets in order.values():
                    jumps = [after - before for before, after in pairwise(offsets)]
                    assert all(jump <= 1 for jump in jumps), "back after a restart perhaps, but never past a message"

    run(story())


def test_a_name_server_that_is_gone_does_not_stop_consumption() -> None:
    async def story() -> None:
        seen: list[bytes] = []

        async def consume(message: ReceivedMessage) -> None:
            seen.append(message.body)

        async with AsyncCluster() as cluster:
            await cluster.create_topic("T", queues=2)
            async with (
                cluster.producer(route_interval=0.05) as producer,
                cluster.push_consumer(
                    group="g", subscribe={"T": "*"}, listener=consume, start_from="earliest", route_interval=0.05
                ),
            ):
                await producer.send(Message("T", b"before"))
                await cluster.stop_name_server()
                await asyncio.sleep(0.2)
                await producer.send(Message("T", b"during"))
                await until(lambda: seen == [b"before", b"during"])
                await cluster.start_name_server()
                await producer.send(Message("T", b"after"))
                await until(lambda: seen == [b"before", b"during", b"after"])

    run(story())


def test_interrupted_send_back_uses_the_retry_topic() -> None:
    async def story() -> None:
        tries: list[int] = []

        async def consume(message: ReceivedMessage) -> None:
            tries.append(message.reconsume_times)
            if message.reconsume_times == 0:
                raise RetryLater(1)

        async with AsyncCluster() as cluster:
            await cluster.create_topic("T", queues=1)
            async with (
                cluster.producer() as producer,
                cluster.push_consumer(group="g", subscribe={"T": "*"}, listener=consume, start_from="earliest"),
            ):
                cluster.faults.half_frame(towards="server", codes=[Code.CONSUMER_SEND_MSG_BACK])
                await producer.send(Message("T", b"x"))
                while 1 not in tries:
                    await cluster.advance(seconds=1)
                    await asyncio.sleep(0.05)
            assert tries.count(0) == 1

    run(story())


def test_message_accepted_by_no_broker_is_delivered_again_locally(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firearrow.client.consumer.concurrent.KEPT_RETRY_MS", 20)

    async def story() -> None:
        tries: list[int] = []

        async def consume(message: ReceivedMessage) -> None:
            tries.append(message.reconsume_times)
            if message.reconsume_times < 2:
                raise RuntimeError("not yet")

        async with AsyncCluster() as cluster:
            await cluster.create_topic("T", queues=1)
            consumer = cluster.push_consumer(group="g", subscribe={"T": "*"}, listener=consume, start_from="earliest")

            async def refuses(*_: Any) -> bool:
                return False

            monkeypatch.setattr("firearrow.client.consumer.send_back.SendBack.to_broker", refuses)
            async with cluster.producer() as producer, consumer:
                await producer.send(Message("T", b"x"))
                await until(lambda: tries == [0, 1, 2])

    run(story())
