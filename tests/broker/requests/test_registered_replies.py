"""Requests that create a topic are answered when the name servers know it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from firearrow.broker.server import Broker
from firearrow.broker.settings import BrokerSettings
from firearrow.store.settings import StoreSettings
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command
from tests.broker.running import Client
from tests.broker.running import client as connect
from tests.broker.test_registration import HesitantNamesrv
from tests.support.waiting import run

Ask = Callable[[Client], Awaitable[Command]]


def beat(group: str) -> Ask:
    subscription = {"topic": "T", "subString": "*", "subVersion": 1}
    consumer = {"groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription]}
    body = fastjson.dumps({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []})
    return lambda client: client.call(RequestCode.HEART_BEAT, {}, body)


def create(topic: str) -> Ask:
    ext = {"topic": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG", "order": False}
    return lambda client: client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ext | {"defaultTopic": "TBW102", "topicSysFlag": 0})


def send(topic: str) -> Ask:
    return lambda client: client.send(topic, b"first")


@contextlib.asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[tuple[HesitantNamesrv, Client]]:
    server = await HesitantNamesrv().start()
    settings = BrokerSettings(broker_name="broker-a", bind_address="127.0.0.1", listen_port=0)
    broker = Broker(settings, StoreSettings(store_path_root_dir=str(directory)), namesrv_addrs=[server.address])
    await broker.start()
    try:
        async with connect(broker) as client:
            yield server, client
    finally:
        server.go_on()
        await broker.stop()
        await server.stop()


@pytest.mark.parametrize(
    ("topic", "ask"),
    [("%RETRY%G", beat("G")), ("Created", create("Created")), ("Sent", send("Sent"))],
    ids=["heartbeat", "operator", "send"],
)
def test_reply_to_a_request_that_creates_a_topic_waits_for_the_name_server(tmp_path: Path, topic: str, ask: Ask) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as (server, client):
            server.hesitate()
            answer = asyncio.ensure_future(ask(client))
            # Later requests are served meanwhile. An answer to the first one would have arrived before theirs.
            for _ in range(3):
                assert (await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0
            assert not answer.done()
            assert not server.knows(topic)
            server.go_on()
            assert (await answer).code == 0
            assert server.knows(topic)
            # The second request creates nothing, and does not wait.
            server.hesitate()
            assert (await ask(client)).code == 0

    run(story())


def test_reply_leaves_although_the_name_server_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firearrow.broker.registration.REGISTER_WAIT_MS", 20)

    async def story() -> None:
        async with cluster(tmp_path) as (server, client):
            server.hesitate()
            for ask in (beat("G"), create("Created"), send("Sent")):
                assert (await ask(client)).code == 0

    run(story())
