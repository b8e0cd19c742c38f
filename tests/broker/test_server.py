"""The broker as a whole: ports, dispatch, restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.wire.codes import RequestCode, ResponseCode
from tests.broker.running import COMMIT, WITH_EXPRESSION, bodies, broker, client
from tests.support.waiting import run


def test_unknown_request_code_is_answered_with_code_3(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            answer = await c.call(9999)
            assert (answer.code, answer.remark) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 9999 not supported")
            answer = await c.call(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)
            assert answer.remark == " request type 513 (UPDATE_AND_CREATE_STATIC_TOPIC) not supported"

    run(story())


def test_fast_port_serves_the_same_requests(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running:
            ip, port = running.advertised.split(":")
            running.advertised = f"{ip}:{int(port) - 2}"
            async with client(running) as c:
                assert (await c.send("Orders", b"x")).code == ResponseCode.SUCCESS

    run(story())


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_messages_and_offsets_survive_a_restart(tmp_path: Path, flush: str) -> None:
    async def story() -> None:
        async with broker(tmp_path, flush=flush) as running, client(running) as c:
            for number in range(10):
                await c.send("Orders", b"%d" % number, queue_id=number % 4, KEYS=f"key{number}")
            await c.pull("Orders", 2, flags=WITH_EXPRESSION | COMMIT, commitOffset=2)
        assert not (tmp_path / "abort").exists()
        async with broker(tmp_path, flush=flush) as running, client(running) as c:
            assert bodies(await c.pull("Orders", 0, queue_id=1)) == [b"1", b"5", b"9"]
            asked = {"consumerGroup": "G", "topic": "Orders", "queueId": 0}
            assert (await c.call(RequestCode.QUERY_CONSUMER_OFFSET, asked)).ext["offset"] == "2"
            by_key = {"topic": "Orders", "key": "key7", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**62}
            assert bodies(await c.call(RequestCode.QUERY_MESSAGE, by_key)) == [b"7"]
            sent = await c.send("Orders", b"next", queue_id=1)
            assert sent.ext["queueOffset"] == "3"

    run(story())
