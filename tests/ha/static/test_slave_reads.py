"""Consumers at a slave: redirection to it and back, and failure of the master."""

from __future__ import annotations

import asyncio
from pathlib import Path

from firearrow.client.consumer.push_consumer import PushConsumer
from firearrow.client.message import ReceivedMessage
from firearrow.wire.codes import ResponseCode
from tests.broker.running import SUSPEND, WITH_EXPRESSION, bodies, client
from tests.ha.pairs import fixed_ports, ha_of_slave, in_step, make, master, name_server, slave
from tests.support.waiting import run, until


def test_consumer_far_behind_is_redirected_to_the_slave_and_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"slave_read_enable": True, "store": {"access_message_in_memory_max_ratio": 0}}
        async with (
            name_server() as names,
            master(tmp_path / "m", names, **settings) as one,
            slave(tmp_path / "s", names, slave_read_enable=True) as other,
            client(one) as at_master,
            client(other) as at_slave,
        ):
            for number in range(40):
                await at_master.send("T", b"%d" % number)
            await in_step(one, other)
            await ha_of_slave(other).copied.wait()
            await until(lambda: other.context.topics.find("T") is not None)
            answer = await at_master.pull("T", 0)
            assert answer.ext["suggestWhichBrokerId"] == "1"
            answer = await at_slave.pull("T", int(answer.ext["nextBeginOffset"]))
            assert bodies(answer) == [b"%d" % number for number in range(8, 40)]  # old messages are read eight at a time
            assert answer.ext["suggestWhichBrokerId"] == "0"
            answer = await at_slave.pull("T", 40, flags=WITH_EXPRESSION | SUSPEND, hold_ms=20_000)
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY  # the master has the next messages
            assert (answer.ext["suggestWhichBrokerId"], answer.ext["nextBeginOffset"]) == ("0", "40")

    run(scenario())


def test_slave_does_not_reset_a_consumer_that_is_ahead_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server() as names:
            async with master(tmp_path / "m", names) as one:
                async with client(one) as sender:
                    await sender.send("T", b"x")
                other = make(tmp_path / "s", names, broker_role="SLAVE", broker_id=1)
                await other.start()
                await in_step(one, other)
                await until(lambda: other.context.topics.find("T") is not None)
                async with client(other) as reader:
                    answer = await reader.pull("T", 50)
                    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
                    assert answer.ext["nextBeginOffset"] == "50"
            try:
                await until(lambda: not ha_of_slave(other).master_alive)
                async with client(other) as reader:
                    answer = await reader.pull("T", 50, flags=WITH_EXPRESSION | SUSPEND, hold_ms=200)
                    assert answer.code == ResponseCode.PULL_NOT_FOUND
                    assert answer.ext["nextBeginOffset"] == "50"
                    assert bodies(await reader.pull("T", 0)) == [b"x"]
            finally:
                await other.stop()

    run(scenario())


def test_parked_pull_at_a_slave_is_answered_when_the_master_sends_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server() as names:
            ports = fixed_ports()
            async with master(tmp_path / "m", names, **ports) as one:
                async with client(one) as sender:
                    await sender.send("T", b"x")
                other = make(tmp_path / "s", names, broker_role="SLAVE", broker_id=1)
                await other.start()
                await in_step(one, other)
                await until(lambda: other.context.topics.find("T") is not None)
            try:
                await until(lambda: not ha_of_slave(other).master_alive)
                async with client(other) as reader:
                    waiting = asyncio.ensure_future(reader.pull("T", 1, flags=WITH_EXPRESSION | SUSPEND, hold_ms=20_000))
                    await asyncio.sleep(0.05)
                    assert not waiting.done()
                    async with master(tmp_path / "m", names, **ports) as one, client(one) as sender:
                        await sender.send("T", b"y")
                        assert bodies(await waiting) == [b"y"]
            finally:
                await other.stop()

    run(scenario())


def test_consumer_continues_at_the_slave_and_back_at_the_master(tmp_path: Path) -> None:
    """All messages arrive, whichever broker is running."""

    async def scenario() -> None:
        got: list[bytes] = []

        async def take(message: ReceivedMessage) -> None:
            got.append(message.body)

        async with name_server() as names:
            consumer = PushConsumer(
                names.address, group="G", subscribe={"T": "*"}, listener=take, start_from="earliest", route_interval=0.2
            )
            ports = fixed_ports()
            async with master(tmp_path / "m", names, **ports) as one:
                other = make(tmp_path / "s", names, broker_role="SLAVE", broker_id=1)
                await other.start()
                async with client(one) as sender:
                    await sender.send("T", b"0")
                    await until(lambda: other.context.topics.find("T") is not None)
                    await consumer.start()
                    await until(lambda: got == [b"0"])
                    sent = [b"%d" % number for number in range(1, 200)]
                    for body in sent:
                        await sender.send("T", body)
                    await in_step(one, other)
            try:
                await until(lambda: len(set(got)) == 200)
                async with master(tmp_path / "m", names, **ports) as one, client(one) as sender:
                    for number in range(200, 210):
                        await sender.send("T", b"%d" % number)
                    await until(lambda: len(set(got)) == 210)
                    await consumer.close()
            finally:
                await other.stop()

    run(scenario())
