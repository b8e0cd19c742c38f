"""Killed processes: acknowledged messages of a SYNC_MASTER are on its slave, and both continue with one log."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from tests.broker.running import send_header
from tests.ha.pairs import name_server
from tests.ha.processes import QUEUES, Node
from tests.support.waiting import run


@contextlib.asynccontextmanager
async def pair(directory: Path) -> AsyncIterator[tuple[Node, Node]]:
    async with name_server() as names:
        master = Node(directory / "m", names.address, brokerRole="SYNC_MASTER", brokerId="0", slaveTimeout="20000")
        slave = Node(directory / "s", names.address, brokerRole="SLAVE", brokerId="1")
        try:
            await master.start()
            await slave.start()
            for _ in range(3000):
                if fastjson.loads((await master.call(RequestCode.GET_BROKER_HA_STATUS))[2])["inSyncSlaveNums"] == 1:
                    break
                await asyncio.sleep(0.02)
            yield master, slave
        finally:
            for node in (master, slave):
                node.signal(signal.SIGKILL)


async def send_until_cut(node: Node, lane: int, acknowledged: list[bytes]) -> None:
    """Send messages sequentially to one queue until the broker is killed."""
    channel = await Channel.connect(node.address)
    number = 0
    try:
        while True:
            body = b"%d-%d" % (lane, number)
            answer = await channel.request(RequestCode.SEND_MESSAGE_V2, send_header("T", lane, ""), body, timeout_ms=60_000)
            if answer.code == ResponseCode.SUCCESS:
                acknowledged.append(body)
            number += 1
    except OSError:
        pass
    finally:
        channel.abandon("cut")


async def same_end(one: Node, other: Node) -> int:
    for _ in range(3000):
        ends = await one.end(), await other.end()
        if ends[0] == ends[1]:
            return ends[0]
        await asyncio.sleep(0.02)
    raise AssertionError(f"the logs end at {ends}")


def test_master_is_killed_under_load_and_restarted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (master, slave):
            acknowledged: list[list[bytes]] = [[] for _ in range(QUEUES)]
            senders = [asyncio.ensure_future(send_until_cut(master, lane, acknowledged[lane])) for lane in range(QUEUES)]
            while sum(map(len, acknowledged)) < 300:
                await asyncio.sleep(0.01)
            master.signal(signal.SIGKILL)
            await asyncio.gather(*senders)
            stored = await slave.bodies()
            for _ in range(3000):  # received messages become readable shortly afterwards
                if all(set(lane) <= set(stored[at]) for at, lane in enumerate(acknowledged)):
                    break
                await asyncio.sleep(0.01)
                stored = await slave.bodies()
            for lane in range(QUEUES):
                kept = set(stored[lane])
                assert [body for body in acknowledged[lane] if body not in kept] == []
                assert stored[lane] == sorted(stored[lane], key=lambda body: int(body.split(b"-")[1]))
            await master.start()
            end = await same_end(master, slave)
            assert master.log(end) == slave.log(end)
            assert await master.bodies() == await slave.bodies()

    run(scenario())


def test_slave_is_killed_under_load_and_restarted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (master, slave):
            acknowledged: list[list[bytes]] = [[] for _ in range(QUEUES)]
            senders = [asyncio.ensure_future(send_until_cut(master, lane, acknowledged[lane])) for lane in range(QUEUES)]
            while sum(map(len, acknowledged)) < 200:
                await asyncio.sleep(0.01)
            slave.signal(signal.SIGKILL)
            await slave.start()
            before = sum(map(len, acknowledged))
            while sum(map(len, acknowledged)) < before + 100:
                await asyncio.sleep(0.01)
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
            end = await same_end(master, slave)
            assert master.log(end) == slave.log(end)
            assert await master.bodies() == await slave.bodies()

    run(scenario())
