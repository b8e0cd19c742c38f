"""A bare connection to a broker: requests go out at once, answers come back in whatever order, matched by their opaque."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping

from firearrow.wire import batch, properties, record
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, FrameDecoder, encode_request

TIMEOUT_S = 60.0


class Link(asyncio.Protocol):
    """One TCP connection. When it breaks, every open request fails with ConnectionError."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.closed = asyncio.Event()
        self._decoder = FrameDecoder()
        self._opaques = itertools.count(1)
        self._open: dict[int, asyncio.Future[Command]] = {}

    @classmethod
    async def connect(cls, address: str) -> Link:
        host, port = address.rsplit(":", 1)
        _, link = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return link

    def request(self, code: int, ext: Mapping[str, str], body: bytes = b"", *, binary: bool = False) -> asyncio.Future[Command]:
        """Sends at once; the future gets the answer."""
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if self.transport is None or self.transport.is_closing():
            future.set_exception(ConnectionError("closed"))
            return future
        opaque = next(self._opaques)
        self._open[opaque] = future
        self.transport.write(encode_request(code, ext, body, opaque=opaque, binary=binary))
        return future

    async def call(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> Command:
        return await asyncio.wait_for(self.request(code, ext, body), TIMEOUT_S)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for command in self._decoder.feed(data):
            future = self._open.pop(command.opaque, None) if command.is_response else None
            if future is not None and not future.done():
                future.set_result(command)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        for future in self._open.values():
            if not future.done():
                future.set_exception(ConnectionError("the broker is gone"))
        self._open.clear()


def send(link: Link, topic: str, queue_id: int, body: bytes, key: str) -> asyncio.Future[Command]:
    written = properties.encode({"KEYS": key, "TAGS": "T", "UNIQ_KEY": key}).decode()
    return link.request(RequestCode.SEND_MESSAGE_V2, send_ext(topic, queue_id, written, batched=False), body)


def send_batch(link: Link, topic: str, queue_id: int, messages: list[tuple[bytes, str]]) -> asyncio.Future[Command]:
    parts = [(0, body, properties.encode({"KEYS": key, "UNIQ_KEY": key})) for body, key in messages]
    return link.request(RequestCode.SEND_BATCH_MESSAGE, send_ext(topic, queue_id, "", batched=True), batch.join(parts))


async def patiently(link: Link, code: int, ext: Mapping[str, str], body: bytes = b"") -> Command:
    """A broker on a busy machine may refuse a send for a moment."""
    while (answer := await link.call(code, ext, body)).code == ResponseCode.SYSTEM_BUSY:
        await asyncio.sleep(0.05)
    assert answer.code == ResponseCode.SUCCESS, answer
    return answer


async def pull_all(link: Link, topic: str, queue_id: int, begin: int) -> tuple[int, int, list[record.Record]]:
    """The smallest offset, the largest, and every record from `begin` on."""
    found: list[record.Record] = []
    offset = begin
    while True:
        ext = {
            "consumerGroup": "reader",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
        }
        answer = await link.call(RequestCode.PULL_MESSAGE, ext)
        lowest, highest = int(answer.ext["minOffset"]), int(answer.ext["maxOffset"])
        if answer.code == 19 and offset == highest:
            return lowest, highest, found
        assert answer.code == 0, f"{topic}/{queue_id} at {offset}: {answer}"
        found += record.decode_all(answer.body)
        following = int(answer.ext["nextBeginOffset"])
        assert following > offset, answer
        offset = following


async def make_topic(link: Link, topic: str, queues: int) -> None:
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer = await link.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
    assert answer.code == 0, answer


def send_ext(topic: str, queue_id: int, written: str, *, batched: bool) -> dict[str, str]:
    return {
        "a": "loaders",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": written,
        "j": "0",
        "k": "false",
        "m": "true" if batched else "false",
    }
