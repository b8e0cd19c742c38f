"""A cluster in this process with an admin client, for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from firearrow.admin.aio import Admin
from firearrow.client.message import Message, ReceivedMessage
from firearrow.testing.cluster import AsyncCluster


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[tuple[AsyncCluster, Admin]]:
    async with AsyncCluster(**options) as cluster, Admin(cluster.name_server) as admin:
        yield cluster, admin


async def send(cluster: AsyncCluster, topic: str, *bodies: bytes, **more: Any) -> list[str]:
    async with cluster.producer(group="senders") as producer:
        return [(await producer.send(Message(topic, body, **more))).msg_id for body in bodies]


@asynccontextmanager
async def consuming(cluster: AsyncCluster, group: str, topic: str, count: int, tags: str = "*") -> AsyncIterator[list[bytes]]:
    """A push consumer that has consumed so many messages."""
    taken: list[bytes] = []
    enough = asyncio.Event()

    async def take(message: ReceivedMessage) -> None:
        taken.append(message.body)
        if len(taken) >= count:
            enough.set()

    consumer = cluster.push_consumer(group=group, subscribe={topic: tags}, listener=take, start_from="earliest")
    async with consumer:
        if count:
            await asyncio.wait_for(enough.wait(), 60)
        yield taken
