"""Real processes, killed: what a SYNC_MASTER has acknowledged is at its slave, and both go on with one log afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from firearrow.net.address import bind_pair
from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.record import decode_all
from tests.broker.running import send_header
from tests.ha.pairs import name_server
from tests.support.waiting import run

QUEUES = 4
COMMAND = [str(Path(sys.executable).parent / "firearrow"), "broker"]


class Node:
    """A broker in a process of its own, at a port that it keeps."""

    def __init__(self, directory: Path, namesrv: str, **settings: str) -> None:
        first, second = bind_pair("127.0.0.1", 0)
        port = first.getsockname()[1]
        first.close()
        second.close()
        self.address = f"127.0.0.1:{port}"
        self._store = directory / "store"
        values = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", "listenPort": str(port), "namesrvAddr": namesrv}
        values |= {"storePathRootDir": str(self._store), "mappedFileSizeCommitLog": "1048576", "slaveSyncInterval": "200"}
        directory.mkdir()
        self._config = directory / "broker.conf"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in (values | settings).items()))
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*COMMAND, "-c", str(self._config)], stdout=log, stderr=log)
        for _ in range(1500):
            with contextlib.suppress(OSError):
                await self.end()
                return
            await asyncio.sleep(0.02)
        raise AssertionError(self._log.read_text())

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
            if number != signal.SIGSTOP:
                self._process.wait(20)
                self._process = None

    async def call(self, code: int, ext: dict[str, object] | None = None) -> tuple[int, dict[str, str], bytes]:
        channel = await Channel.connect(self.address)
        try:
            answer = await channel.request(code, ext or {}, b"", timeout_ms=5_000)
        finally:
            await channel.close()
        return answer.code, {key: str(value) for key, value in answer.ext.items()}, answer.body

    async def end(self) -> int:
        _, _, body = await self.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(fastjson.loads(body)["table"]["commitLogMaxOffset"])

    async def bodies(self) -> list[list[bytes]]:
        """The messages of every queue of T."""
        found: list[list[bytes]] = []
        for queue_id in range(QUEUES):
            queue: list[bytes] = []
            while True:
                ext = {"consumerGroup": "G", "topic": "T", "queueId": queue_id, "queueOffset": len(queue), "maxMsgNums": 32}
                ext |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1}
                code, _, body = await self.call(RequestCode.PULL_MESSAGE, ext)
                if code != ResponseCode.SUCCESS:
                    break
                queue += [record.body for record in decode_all(body)]
            found.append(queue)
        return found

    def log(self, end: int) -> bytes:
        return b"".join(path.read_bytes() for path in sorted((self._store / "commitlog").iterdir()))[:end]


@contextlib.asynccontextmanager
async def pair(directory: Path) -> AsyncIterator[tuple[Node, Node]]:
    async with name_server() as names:
        master = Node(directory / "m", names.address, brokerRole="SYNC_MASTER", brokerId="0", slaveTimeout="20000")
        slave = Node(directory / "s", names.address, brokerRole="SLAVE", brokerId="1")
        try:
            await master.start()
            await slave.start()
            for _ in range(1000):
                if fastjson.loads((await master.call(RequestCode.GET_BROKER_HA_STATUS))[2])["inSyncSlaveNums"] == 1:
                    break
                await asyncio.sleep(0.02)
            yield master, slave
        finally:
            for node in (master, slave):
                node.signal(signal.SIGKILL)


async def send_until_cut(node: Node, lane: int, acknowledged: list[bytes]) -> None:
    """One connection sends to one queue, one message after the other, until the broker is gone."""
    channel = await Channel.connect(node.address)
    number = 0
    try:
        while True:
            body = b"%d-%d" % (lane, number)
            answer = await channel.request(RequestCode.SEND_MESSAGE_V2, send_header("T", lane, ""), body, timeout_ms=20_000)
            if answer.code == ResponseCode.SUCCESS:
                acknowledged.append(body)
            number += 1
    except OSError:
        pass
    finally:
        channel.abandon("cut")


async def same_end(one: Node, other: Node) -> int:
    for _ in range(1500):
        ends = await one.end(), await other.end()
        if ends[0] == ends[1]:
            return ends[0]
        await asyncio.sleep(0.02)
    raise AssertionError(f"the logs end at {ends}")


def test_the_master_is_killed_under_load_and_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with pair(tmp_path) as (master, slave):
            acknowledged: list[list[bytes]] = [[] for _ in range(QUEUES)]
            senders = [asyncio.ensure_future(send_until_cut(master, lane, acknowledged[lane])) for lane in range(QUEUES)]
            while sum(map(len, acknowledged)) < 300:
                await asyncio.sleep(0.01)
            master.signal(signal.SIGKILL)
            await asyncio.gather(*senders)
            stored = await slave.bodies()
            for _ in range(200):  # what it has it shows a moment later
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

    run(story())


def test_the_slave_is_killed_under_load_and_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
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

    run(story())
