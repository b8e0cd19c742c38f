"""Pulls over sockets: response codes, offsets and long polling."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.record import decode_all
from tests.broker.running import COMMIT, SUSPEND, WITH_EXPRESSION, bodies, broker, client
from tests.support.waiting import run, until


@pytest.mark.parametrize("size", [200, 5_000])
def test_messages_are_pulled_as_sent(tmp_path: Path, size: int) -> None:
    """Records that follow one another in the log go from its file to the socket; those with others between them are read."""

    async def story() -> None:
        async with broker(tmp_path) as b, client(b) as c:
            alone = [b"%d " % n * (size // 4) for n in range(40)]
            await c.send_batch("Orders", [(0, body, b"") for body in alone])
            mixed = [b"%d/" % n * (size // 4) for n in range(40)]
            for n, body in enumerate(mixed):
                await c.send("Orders", body, queue_id=1 + n % 2)
            first, second = await asyncio.gather(c.pull("Orders", 0), c.pull("Orders", 32))
            assert bodies(first) + bodies(second) == alone
            assert (first.ext["nextBeginOffset"], second.ext["nextBeginOffset"]) == ("32", "40")
            assert bodies(await c.pull("Orders", 0, queue_id=1)) == mixed[::2]
            assert bodies(await c.pull("Orders", 0, queue_id=2)) == mixed[1::2]

    run(story())


def test_parked_pull_is_answered_when_a_matching_message_is_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as consumer, client(running) as producer:
            await producer.send("Orders", b"0", TAGS="old")
            pull = consumer.pull("Orders", 1, expression="paid", flags=WITH_EXPRESSION | SUSPEND, hold_ms=15_000)
            waiting = asyncio.ensure_future(pull)
            await asyncio.sleep(0)  # the pull is on its way; the next answer on this connection shows that it was served
            assert (await consumer.pull("Orders", 0, expression="nobody")).code == ResponseCode.PULL_RETRY_IMMEDIATELY
            await producer.send("Orders", b"1", TAGS="new")
            assert not waiting.done()
            await producer.send("Orders", b"2", TAGS="paid")
            answer = await asyncio.wait_for(waiting, 10)
            assert answer.code == ResponseCode.SUCCESS
            assert bodies(answer) == [b"2"]
            assert answer.ext["nextBeginOffset"] == "3"

    run(story())


def test_expired_pull_is_answered_with_pull_not_found(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            await c.send("Orders", b"0")
            answer = await c.pull("Orders", 1, flags=WITH_EXPRESSION | SUSPEND, hold_ms=200)
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert (answer.ext["nextBeginOffset"], answer.ext["maxOffset"]) == ("1", "1")

    run(story())


@pytest.mark.parametrize(
    ("offset", "code", "next_begin"),
    [
        (0, ResponseCode.SUCCESS, 3),
        (2, ResponseCode.SUCCESS, 3),
        (3, ResponseCode.PULL_NOT_FOUND, 3),
        (4, ResponseCode.PULL_OFFSET_MOVED, 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
def test_next_offset_of_a_pull(tmp_path: Path, offset: int, code: int, next_begin: int) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            for number in range(3):
                await c.send("Orders", b"%d" % number)
            answer = await c.pull("Orders", offset)
            assert (answer.code, int(answer.ext["nextBeginOffset"])) == (code, next_begin)
            empty = await c.pull("Orders", offset, queue_id=3)
            assert empty.code == (ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED)

    run(story())


def test_pull_commits_its_offset(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            for number in range(5):
                await c.send("Orders", b"%d" % number)
            await c.pull("Orders", 4, flags=WITH_EXPRESSION | COMMIT, commitOffset=4)
            asked = {"consumerGroup": "G", "topic": "Orders", "queueId": 0}
            assert (await c.call(RequestCode.QUERY_CONSUMER_OFFSET, asked)).ext["offset"] == "4"

    run(story())


def test_bulk_pull_returns_as_many_messages_as_requested(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running, client(running) as one:
            await one.send_batch("Orders", [(0, b"%d" % number, b"") for number in range(300)])
            usual = await one.pull("Orders", 0, maxMsgNums=1000)
            bulk = await one.pull("Orders", 0, maxMsgNums=1000, bulk="true")
            some = await one.pull("Orders", 10, maxMsgNums=50, bulk="true")
        for answer in (usual, bulk, some):
            assert answer.code == ResponseCode.SUCCESS
        assert len(decode_all(usual.body)) == 32
        assert [record.body for record in decode_all(bulk.body)] == [b"%d" % number for number in range(300)]
        assert bulk.ext["nextBeginOffset"] == "300"
        assert [record.queue_offset for record in decode_all(some.body)] == list(range(10, 60))

    run(scenario())


def test_parked_pulls_end_with_their_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as producer:
            await producer.send("Orders", b"0")
            async with client(running) as consumer:
                flags = WITH_EXPRESSION | SUSPEND
                pulls = [asyncio.ensure_future(consumer.pull("Orders", 1, flags=flags, hold_ms=30_000)) for _ in range(10)]
                await until(lambda: running.long_polling.count == 10)
            await until(lambda: running.long_polling.count == 0)  # long before their time is up
            await asyncio.gather(*pulls, return_exceptions=True)

    run(story())


@pytest.mark.parametrize("limit", ["pull_thread_pool_queue_capacity", "max_parked_pulls_per_queue", "max_parked_pulls"])
def test_pull_beyond_a_limit_of_parked_pulls_is_rejected(tmp_path: Path, limit: str) -> None:
    async def story() -> None:
        limits: dict[str, Any] = {limit: 1}
        async with broker(tmp_path, **limits) as running, client(running) as c:
            await c.send("Orders", b"0")
            flags = WITH_EXPRESSION | SUSPEND
            first = asyncio.ensure_future(c.pull("Orders", 1, flags=flags, hold_ms=30_000))
            await until(lambda: running.long_polling.count == 1)
            second = await c.pull("Orders", 1, flags=flags, hold_ms=30_000)
            assert second.code == ResponseCode.SYSTEM_BUSY
            assert f"{_camel(limit)}" in (second.remark or "")
            assert not first.done()
            await c.send("Orders", b"1")
            assert (await first).code == ResponseCode.SUCCESS

    run(story())


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
