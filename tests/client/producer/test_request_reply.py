from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from firearrow.aio import Producer
from firearrow.client.errors import InvalidMessageError, RequestTimeout
from firearrow.client.message import Message, ReceivedMessage
from firearrow.client.producer.request_reply import reply_message
from tests.client.cluster import Servers, servers
from tests.client.producer.test_producer import all_stored
from tests.support.waiting import run


async def consumed(cluster: Servers, topic: str, broker: int = 0) -> ReceivedMessage:
    """The first message of a topic, as a consumer would get it."""
    while True:
        for candidate in cluster.brokers:
            found = await all_stored(candidate, topic)
            if found:
                return found[0]
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_request_gets_its_reply(tmp_path: Path, brokers: int) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, brokers=brokers) as cluster,
            Producer(cluster.name_server, group="asking") as asking,
            Producer(cluster.name_server, group="answering") as answering,
        ):
            await cluster.create("Questions")
            request = asyncio.ensure_future(asking.request(Message("Questions", b"6 x 7?"), timeout=60))
            message = await consumed(cluster, "Questions")
            assert message.body == b"6 x 7?"
            await answering.reply(message, b"42" * 3000)
            reply = await request
            assert reply.body == b"42" * 3000
            assert reply.topic.endswith("_REPLY_TOPIC")
            assert reply.get("CORRELATION_ID") == message.get("CORRELATION_ID")

    run(story())


def test_request_without_reply_times_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server) as producer:
            with pytest.raises(RequestTimeout, match=r"no reply to the request .* to 'Questions' within 0.3 s"):
                await producer.request(Message("Questions", b"?"), timeout=0.3)
            late = await consumed(cluster, "Questions")
            await producer.reply(late, b"too late")  # is taken, and nobody waits for it

    run(story())


def test_reply_to_a_plain_message_is_rejected(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server) as producer:
            await producer.send(Message("Plain", b"x"))
            message = await consumed(cluster, "Plain")
            with pytest.raises(InvalidMessageError, match="is not a request"):
                reply_message(message, b"y")

    run(story())
