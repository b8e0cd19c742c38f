"""The place of a moment in a queue: brokers before 5.0 name the message that is nearest, we want the first that is not older."""

from __future__ import annotations

import asyncio

import pytest

from firearrow.client.connection import instance
from firearrow.client.consumer import queue_offsets
from firearrow.client.message import MessageQueue
from firearrow.client.options import client_options
from firearrow.net.server import Connection
from firearrow.wire import record
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.message_ids import host_bytes
from tests.client.fake_broker import FakeBroker

HOST = host_bytes("127.0.0.1", 10911)
V4_9_7, V5_5_0 = 405, 513


@pytest.mark.parametrize(
    ("version", "store_ms", "place"),
    [
        (V4_9_7, 1_000, 8),  # the nearest is before the moment
        (V4_9_7, 2_000, 7),
        (V4_9_7, 3_000, 7),
        (V4_9_7, None, 7),  # there is no message
        (0, 1_000, 8),
        (V5_5_0, 1_000, 7),  # knows what it says
    ],
)
def test_a_moment_is_where_no_older_message_is(
    version: int, store_ms: int | None, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(conn: Connection, command: Command) -> None:
        assert (command.ext["topic"], command.ext["timestamp"]) == ("T", "2000")
        conn.write(encode_response(command, 0, None, {"offset": 7}))

    def pull(conn: Connection, command: Command) -> None:
        assert (command.ext["queueOffset"], command.ext["consumerGroup"]) == ("7", "TOOLS_CONSUMER")
        ext = {"nextBeginOffset": 8, "minOffset": 0, "maxOffset": 8, "suggestWhichBrokerId": 0}
        if store_ms is None:
            conn.write(encode_response(command, ResponseCode.PULL_NOT_FOUND, None, ext))
            return
        one = record.Record(
            topic="T", body=b"x", properties=b"", queue_offset=7, store_timestamp=store_ms, born_host=HOST, store_host=HOST
        )
        conn.write(encode_response(command, 0, None, ext, record.encode(one)))

    async def story() -> None:
        broker = await FakeBroker().start()
        broker.other = {RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: search, RequestCode.PULL_MESSAGE: pull}
        ours = await instance.acquire(client_options(broker.address), consumer_group="g")
        monkeypatch.setattr(ours, "broker_version", lambda address: version)
        assert await queue_offsets.offset_at(ours, MessageQueue("T", "broker-a", 0), 2_000) == place
        await ours.release()
        await broker.stop()

    asyncio.run(asyncio.wait_for(story(), 60))
