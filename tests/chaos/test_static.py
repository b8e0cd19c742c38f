"""Static clusters whose master, or the master's disk, is lost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from firearrow.client.consumer.push_consumer import PushConsumer
from firearrow.client.message import Message, MessageQueue, ReceivedMessage, SendStatus
from firearrow.client.producer.producer import Producer
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode
from tests.chaos.fleet import Machine, on_loopback, running
from tests.chaos.workload import Verdict, Workload, verdict
from tests.support.raw_client import Link
from tests.support.waiting import until

ROUTE_REFRESH_S = 1.0


@pytest.mark.slow
def test_acknowledged_messages_of_a_lost_sync_master_are_on_its_slave(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(on_loopback("2m-2s-sync", tmp_path)) as fleet:
            async with Workload(fleet, "disk-lost") as load:
                await load.acknowledged(300)
                fleet["broker-a"].kill()
                fleet["broker-a"].lose_disk()
                await load.acknowledged(100)
            assert await verdict(load, {"broker-a": fleet["broker-a-slave"], "broker-b": fleet["broker-b"]}) == Verdict()
            assert any(broker == "broker-a" for broker, _ in load.ledger.acknowledged.values())

    asyncio.run(scenario())


@pytest.mark.slow
def test_consumers_continue_at_the_slave_while_the_master_is_down(tmp_path: Path) -> None:
    """They read what the slave has after the next route refresh, and the rest when the master is back."""

    async def scenario() -> None:
        async with running(on_loopback("2m-2s-async", tmp_path)) as fleet:
            async with Workload(fleet, "read-on") as load:
                await load.acknowledged(300)
            consumed: list[str] = []
            slow = asyncio.Event()

            async def listener(message: ReceivedMessage) -> None:
                consumed.append(message.body.partition(b" ")[0].decode())
                if len(consumed) > 20:
                    await slow.wait()

            await until(lambda: level(fleet["broker-a"], fleet["broker-a-slave"]), "the slave has all")
            consumer = PushConsumer(
                fleet.namesrv.address,
                group="readers",
                subscribe={load.topic: "*"},
                listener=listener,
                start_from="earliest",
                pull_batch=8,
                max_held_messages=16,  # so that most messages are still at the brokers when the master is killed
                route_interval=ROUTE_REFRESH_S,
            )
            async with consumer:
                await until(lambda: len(consumed) > 20, "the consumer is at work")
                fleet["broker-a"].kill()
                killed = time.monotonic()
                slow.set()
                wanted = set(load.ledger.acknowledged)
                await until(lambda: wanted <= set(consumed), "everything is consumed, at the slave what the master had")
                took_s = time.monotonic() - killed
                print(f"2m-2s-async, master killed: consumed {len(wanted)} messages, the last {took_s:.2f} s after the kill")
                async with Producer(fleet.namesrv.address, group="later") as producer:
                    await fleet.restore()
                    last = await producer.send(Message(load.topic, b"last"), queue=MessageQueue(load.topic, "broker-a", 0))
                assert last.status is SendStatus.OK
                await until(lambda: "last" in consumed, "what comes after the master's return is consumed")

    asyncio.run(scenario())


async def level(master: Machine, slave: Machine) -> bool:
    return await end_of_log(master) == await end_of_log(slave)


async def end_of_log(machine: Machine) -> int:
    link = await Link.connect(machine.address)
    try:
        answer = await link.call(RequestCode.GET_BROKER_RUNTIME_INFO, {})
        return int(fastjson.loads(answer.body)["table"]["commitLogMaxOffset"])
    finally:
        link.close()
