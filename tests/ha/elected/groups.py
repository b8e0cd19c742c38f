"""An elected group of broker processes, a name server in this process, and producers that survive its leaders."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.signature import RequestSigner
from tests.broker.running import send_header
from tests.ha.pairs import name_server
from tests.ha.processes import QUEUES, Node
from tests.support.ports import reserve_addresses

NAME = "broker-a"


class Group:
    """`signer` signs the requests of the methods here, for members with access control."""

    def __init__(self, directory: Path, namesrv: str, size: int, signer: RequestSigner | None = None, **settings: str) -> None:
        self.namesrv = namesrv
        self._signer = signer
        self.directory = directory
        addresses = reserve_addresses(size)
        self.peers = ";".join(f"n{i}-{address}" for i, address in enumerate(addresses))
        self.raft_addresses = addresses
        self.nodes = [self._node(i, settings) for i in range(size)]

    def _node(self, number: int, settings: dict[str, str]) -> Node:
        values = {"enableDLegerCommitLog": "true", "dLegerGroup": "G", "dLegerPeers": self.peers, "dLegerSelfId": f"n{number}"}
        return Node(self.directory / f"n{number}", self.namesrv, self._signer, **(values | settings))

    def text(self, node: Node) -> str:
        """Return the log output of a member."""
        return node.log_path.read_text()

    async def leader(self, *, besides: Node | None = None) -> Node:
        """Return the member that is registered as the master."""
        for _ in range(3000):
            address = await self.master_address()
            for node in self.nodes:
                if node is not besides and node.address == address:
                    return node
            await asyncio.sleep(0.02)
        raise AssertionError("\n".join(self.text(node) for node in self.nodes))

    async def complete(self) -> None:
        """Wait until all members follow their leader, so that the group tolerates the loss of any one."""
        for _ in range(3000):
            leader = await self.leader()
            code, _, body = await leader.call(RequestCode.GET_BROKER_HA_STATUS)
            status = fastjson.loads(body) if code == ResponseCode.SUCCESS else {"refused with": code}
            if status.get("inSyncSlaveNums") == len(self.nodes) - 1:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(status)

    async def master_address(self) -> str | None:
        channel = await Channel.connect(self.namesrv, signer=self._signer)
        try:
            answer = await channel.request(RequestCode.GET_BROKER_CLUSTER_INFO, {}, b"", timeout_ms=30_000)
        finally:
            await channel.close()
        brokers = fastjson.loads(answer.body)["brokerAddrTable"]
        address = brokers.get(NAME, {}).get("brokerAddrs", {}).get("0")
        return str(address) if address is not None else None

    async def send(self, node: Node, topic: str, queue_id: int, body: bytes, properties: str = "", **more: str) -> dict[str, str]:
        channel = await Channel.connect(node.address)
        try:
            header = send_header(topic, queue_id, properties) | more
            answer = await channel.request(RequestCode.SEND_MESSAGE_V2, header, body, timeout_ms=30_000)
        finally:
            await channel.close()
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return {key: str(value) for key, value in answer.ext.items()}

    async def until_bodies(self, node: Node, hold: Callable[[list[list[bytes]]], bool]) -> None:
        """Poll the queues of T."""
        for _ in range(1200):
            bodies = await node.bodies()
            if hold(bodies):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{bodies}\n{self.text(node)}")

    async def in_step(self) -> int:
        """Wait until all members have the same log and show all of it."""
        for _ in range(3000):
            ends = [await node.end() for node in self.nodes]
            bodies = [await node.bodies() for node in self.nodes]
            if len(set(ends)) == 1 and all(other == bodies[0] for other in bodies):
                return ends[0]
            await asyncio.sleep(0.05)
        raise AssertionError(f"the logs end at {ends}")


@contextlib.asynccontextmanager
async def group(directory: Path, size: int = 3, **settings: str) -> AsyncIterator[Group]:
    async with name_server() as names:
        members = Group(directory, names.address, size, None, **settings)
        try:
            await asyncio.gather(*(node.start() for node in members.nodes))
            await members.complete()
            yield members
        finally:
            for node in members.nodes:
                node.signal(signal.SIGKILL)


class Producer:
    """A producer of numbered messages for one queue, each repeated until it is acknowledged."""

    def __init__(self, members: Group, lane: int) -> None:
        self.acknowledged: list[bytes] = []
        self._members = members
        self._lane = lane
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        channel: Channel | None = None
        number = 0
        while True:
            body = b"%d-%d" % (self._lane, number)
            try:
                if channel is None or channel.closed:
                    channel = await Channel.connect(await self._members.master_address() or self._members.nodes[0].address)
                header = send_header("T", self._lane, "")
                answer = await channel.request(RequestCode.SEND_MESSAGE_V2, header, body, timeout_ms=3_000)
                if answer.code == ResponseCode.SUCCESS:
                    self.acknowledged.append(body)
                    number += 1
                    continue
            except OSError:
                pass
            if channel is not None and not channel.closed:
                channel.abandon("it did not take the message")
            await asyncio.sleep(0.02)

    async def sent(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        while len(self.acknowledged) < wanted:
            assert not self._task.done(), self._task
            await asyncio.sleep(0.01)

    async def stop(self) -> list[bytes]:
        self._task.cancel()
        await asyncio.wait([self._task])
        return self.acknowledged


async def check(members: Group, producers: list[Producer]) -> None:
    """Check that every member has all acknowledged messages in order."""
    acknowledged = [await producer.stop() for producer in producers]
    end = await members.in_step()
    logs = [node.log(end) for node in members.nodes]
    assert all(log == logs[0] for log in logs)
    stored = await members.nodes[0].bodies()
    for lane in range(QUEUES):
        first_seen = list(dict.fromkeys(stored[lane]))
        assert [body for body in acknowledged[lane] if body not in set(first_seen)] == []
        assert first_seen == sorted(first_seen, key=lambda body: int(body.split(b"-")[1]))
