"""Which code a pull consumer pulls with: 361 is known to brokers since 5.0 only."""

from __future__ import annotations

import asyncio

import pytest

from firearrow.client.connection import instance
from firearrow.client.consumer.pull import Puller, PullStatus
from firearrow.client.consumer.subscription import subscription
from firearrow.client.message import MessageQueue
from firearrow.client.options import client_options
from firearrow.net.server import Connection
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from tests.client.fake_broker import FakeBroker

V4_9_7, V5_5_0 = 405, 513
NOTHING = {"nextBeginOffset": 0, "minOffset": 0, "maxOffset": 0, "suggestWhichBrokerId": 0}


def answer_nothing(conn: Connection, command: Command) -> None:
    conn.write(encode_response(command, ResponseCode.PULL_NOT_FOUND, None, NOTHING))


@pytest.mark.parametrize(
    ("version", "lite", "code"),
    [
        (V5_5_0, True, RequestCode.LITE_PULL_MESSAGE),
        (V4_9_7, True, RequestCode.PULL_MESSAGE),
        (0, True, RequestCode.PULL_MESSAGE),
        (V5_5_0, False, RequestCode.PULL_MESSAGE),
    ],
    ids=["pull consumer, 5.5.0", "pull consumer, 4.9.7", "pull consumer, version unknown", "push consumer"],
)
def test_the_code_is_one_that_the_broker_knows(
    version: int, lite: bool, code: RequestCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        broker = await FakeBroker().start()
        broker.other = {RequestCode.LITE_PULL_MESSAGE: answer_nothing, RequestCode.PULL_MESSAGE: answer_nothing}
        ours = await instance.acquire(client_options(broker.address), consumer_group="g")
        await ours.route("T")
        monkeypatch.setattr(ours, "broker_version", lambda address: version)
        result = await Puller(ours, "g", lite=lite).pull(
            MessageQueue("T", "broker-a", 0), 0, subscription("T", "new", 1), suspend_ms=0
        )
        assert result.status is not PullStatus.FOUND
        (pull,) = [command for command in broker.seen if command.code in broker.other]
        assert (pull.code, pull.ext.get("subscription")) == (code, "new" if lite else None)
        await ours.release()
        await broker.stop()

    asyncio.run(asyncio.wait_for(story(), 20))
