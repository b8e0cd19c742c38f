"""A broker in this process on free loopback ports, and a client that speaks the raw protocol to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

from firearrow.broker.server import Broker
from firearrow.broker.settings import BrokerSettings
from firearrow.net.channel import Channel
from firearrow.store.settings import StoreSettings
from firearrow.wire import batch, properties
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command
from firearrow.wire.record import Record, decode_all

T = TypeVar("T")

COMMIT, SUSPEND, WITH_EXPRESSION = 1, 2, 4


@contextlib.asynccontextmanager
async def broker(
    directory: Path, *, flush: str = "ASYNC_FLUSH", store: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Broker]:
    broker_settings = BrokerSettings(broker_name="broker-a", bind_address="127.0.0.1", listen_port=0, **settings)
    store_settings = StoreSettings(
        store_path_root_dir=str(directory),
        flush_disk_type=flush,
        mapped_file_size_commit_log=8 * 1024 * 1024,
        max_hash_slot_num=1000,
        max_index_num=4000,
        **(store or {}),
    )
    running = Broker(broker_settings, store_settings, namesrv_addrs=[])
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


class Client:
    """One connection; each method is one request."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    async def call(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"") -> Command:
        return await self.channel.request(code, ext or {}, body, timeout_ms=60_000)

    async def send(
        self, topic: str, body: bytes, *, queue_id: int = 0, code: int = RequestCode.SEND_MESSAGE_V2, **names: str
    ) -> Command:
        return await self.call(code, send_header(topic, queue_id, properties.encode(names).decode()), body)

    async def send_batch(self, topic: str, messages: list[tuple[int, bytes, bytes]], *, queue_id: int = 0) -> Command:
        return await self.call(
            RequestCode.SEND_BATCH_MESSAGE, send_header(topic, queue_id, "", batch="true"), batch.join(messages)
        )

    async def pull(
        self,
        topic: str,
        offset: int,
        *,
        queue_id: int = 0,
        expression: str = "*",
        flags: int = WITH_EXPRESSION,
        hold_ms: int = 0,
        **more: Any,
    ) -> Command:
        ext = {
            "consumerGroup": "G", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": flags,
            "commitOffset": 0, "suspendTimeoutMillis": hold_ms, "subscription": expression, "subVersion": 1,
            "expressionType": "TAG",
        }  # fmt: skip
        return await self.call(RequestCode.PULL_MESSAGE, ext | more)


@contextlib.asynccontextmanager
async def client(running: Broker) -> AsyncIterator[Client]:
    channel = await Channel.connect(running.advertised)
    try:
        yield Client(channel)
    finally:
        await channel.close()


def send_header(topic: str, queue_id: int, properties_text: str, **more: str) -> dict[str, Any]:
    header = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1700000000000", "h": "7"}
    header |= {"i": properties_text, "j": "0", "k": "false", "m": more.pop("batch", "false")}
    return header | more


def records(response: Command) -> list[Record]:
    return decode_all(response.body)


def bodies(response: Command) -> list[bytes]:
    return [record.body for record in records(response)]
