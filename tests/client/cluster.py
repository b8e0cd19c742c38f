"""A name server and brokers in this process on free loopback ports, and a raw way to put messages into them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeVar

from firearrow.broker.server import Broker
from firearrow.broker.settings import BrokerSettings
from firearrow.client.connection.instance import ClientInstance, acquire
from firearrow.client.options import ClientOptions
from firearrow.namesrv.server import NameServer
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.channel import Channel
from firearrow.net.event_loop import run as run_loop
from firearrow.store.settings import StoreSettings
from firearrow.wire import properties
from firearrow.wire.codes import RequestCode, ResponseCode

T = TypeVar("T")
PATIENCE_S = 60.0


async def instance_of(options: ClientOptions) -> ClientInstance:
    """Return the instance that the clients with these options share on this event loop."""
    instance = await acquire(options)
    assert instance.users > 1, "no client with these options is running"
    await instance.release()
    return instance


class Servers:
    def __init__(self, name_server: NameServer, brokers: list[Broker]) -> None:
        self.name_server = name_server.address
        self.brokers = brokers

    async def create(self, topic: str, queues: int = 1) -> None:
        for broker in self.brokers:
            ext = {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
            }  # fmt: skip
            await self._call(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)

    async def put(self, topic: str, *bodies: bytes, queue_id: int = 0, broker: int = 0, **names: str) -> None:
        """Messages of one queue, in order."""
        header = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": queue_id, "f": 0, "g": 1700000000000, "h": 0}
        header |= {"i": properties.encode(names).decode(), "j": 0, "k": "false", "m": "false"}
        for body in bodies:
            await self._call(self.brokers[broker], RequestCode.SEND_MESSAGE_V2, header, body)

    async def committed(self, group: str, topic: str, queue_id: int = 0, broker: int = 0) -> int | None:
        """Return the committed offset, without the broker's default for young queues."""
        ext = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": "false"}
        channel = await Channel.connect(self.brokers[broker].advertised)
        try:
            answer = await channel.request(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        finally:
            await channel.close()
        return int(answer.ext["offset"]) if answer.code == ResponseCode.SUCCESS else None

    @staticmethod
    async def _call(broker: Broker, code: int, ext: dict[str, Any], body: bytes = b"") -> None:
        channel = await Channel.connect(broker.advertised)
        try:
            answer = await channel.request(code, ext, body)
            while answer.code == ResponseCode.SYSTEM_BUSY:  # on a machine with much else to do
                await asyncio.sleep(0.05)
                answer = await channel.request(code, ext, body)
        finally:
            await channel.close()
        assert answer.code == ResponseCode.SUCCESS, answer.remark


@contextlib.asynccontextmanager
async def servers(directory: Path, brokers: int = 1, **settings: Any) -> AsyncIterator[Servers]:
    name_server = NameServer(NamesrvSettings(bind_address="127.0.0.1", listen_port=0))
    await name_server.start()
    running: list[Broker] = []
    try:
        for name in [f"broker-{letter}" for letter in "abcdef"[:brokers]]:
            store = StoreSettings(
                store_path_root_dir=str(directory / name),
                flush_disk_type="ASYNC_FLUSH",
                mapped_file_size_commit_log=8 * 1024 * 1024,
                max_hash_slot_num=1000,
                max_index_num=4000,
            )
            broker = Broker(
                BrokerSettings(broker_name=name, bind_address="127.0.0.1", listen_port=0, **settings),
                store,
                namesrv_addrs=[name_server.address],
            )
            await broker.start()
            running.append(broker)
        yield Servers(name_server, running)
    finally:
        for broker in running:
            await broker.stop()
        await name_server.stop()


@contextlib.contextmanager
def servers_in_a_thread(directory: Path, brokers: int = 1, **settings: Any) -> Iterator[ThreadedServers]:
    """For blocking clients."""
    runner = ThreadedServers()
    thread = threading.Thread(target=runner.run, args=(directory, brokers, settings), name="servers", daemon=True)
    thread.start()
    try:
        assert runner.ready.wait(PATIENCE_S)
        yield runner
    finally:
        runner.stop()
        thread.join(PATIENCE_S)


class ThreadedServers:
    def __init__(self) -> None:
        self.ready = threading.Event()
        self.name_server = ""

    def run(self, directory: Path, brokers: int, settings: dict[str, Any]) -> None:
        run_loop(self._serve(directory, brokers, settings))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)

    def create(self, topic: str, queues: int = 1) -> None:
        asyncio.run_coroutine_threadsafe(self._servers.create(topic, queues), self._loop).result(PATIENCE_S)

    def put(self, topic: str, *bodies: bytes, **more: Any) -> None:
        asyncio.run_coroutine_threadsafe(self._servers.put(topic, *bodies, **more), self._loop).result(PATIENCE_S)

    def committed(self, group: str, topic: str, queue_id: int = 0) -> int | None:
        return asyncio.run_coroutine_threadsafe(self._servers.committed(group, topic, queue_id), self._loop).result(PATIENCE_S)

    async def _serve(self, directory: Path, brokers: int, settings: dict[str, Any]) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with servers(directory, brokers, **settings) as self._servers:
            self.name_server = self._servers.name_server
            self.ready.set()
            await self._end.wait()
