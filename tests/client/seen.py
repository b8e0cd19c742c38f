"""Helpers for push-consumer tests: a recording listener, and ways to wait."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from firearrow.client.message import ReceivedMessage
from firearrow.net.channel import Channel
from firearrow.wire.codes import ResponseCode
from tests.client.cluster import Servers
from tests.support.waiting import until


async def ask(cluster: Servers, code: int, ext: dict[str, Any]) -> bytes:
    """Send an operator request to the first broker."""
    channel = await Channel.connect(cluster.brokers[0].advertised)
    try:
        answer = await channel.request(code, ext, timeout_ms=60_000)
    finally:
        await channel.close()
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.body


class RecordingListener:
    """A listener that remembers, and lets a test wait for what it has seen."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.threads: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, message: ReceivedMessage) -> None:
        with self._lock:
            self.messages.append(message)
            self.threads.add(threading.current_thread().name)

    async def take(self, message: ReceivedMessage) -> None:
        self(message)

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def wait(self, count: int) -> list[bytes]:
        await until(lambda: len(self.messages) >= count)
        return self.bodies()


async def committed(cluster: Servers, group: str, topic: str, offset: int) -> None:
    while await cluster.committed(group, topic) != offset:
        await asyncio.sleep(0.02)
