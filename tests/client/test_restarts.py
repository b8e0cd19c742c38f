"""Brokers that come and go under load: what was acknowledged is there, and what failed was told."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from firearrow.aio import Producer
from firearrow.broker.server import Broker
from firearrow.broker.settings import BrokerSettings
from firearrow.client.errors import FirearrowError
from firearrow.client.message import Message, SendResult
from firearrow.namesrv.server import NameServer
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.store.settings import StoreSettings
from tests.client.producer.test_producer import all_stored
from tests.support.ports import reserve_port
from tests.support.waiting import run

MESSAGES = 3000


def new_broker(directory: Path, name_server: NameServer, port: int) -> Broker:
    store = StoreSettings(
        store_path_root_dir=str(directory), mapped_file_size_commit_log=8 * 1024 * 1024, flush_disk_type="ASYNC_FLUSH"
    )
    settings = BrokerSettings(broker_name="broker-a", bind_address="127.0.0.1", listen_port=port)
    return Broker(settings, store, namesrv_addrs=[name_server.address])


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_broker_is_restarted_while_messages_are_sent(tmp_path: Path, idempotent: bool) -> None:
    async def story() -> None:
        name_server = NameServer(NamesrvSettings(bind_address="127.0.0.1", listen_port=0))
        await name_server.start()
        broker = new_broker(tmp_path, name_server, reserve_port(-2, 1))
        await broker.start()
        acknowledged: dict[bytes, SendResult] = {}
        refused: dict[bytes, BaseException] = {}

        def settle(body: bytes, done: asyncio.Future[SendResult]) -> None:
            error = done.exception()
            if error is None:
                acknowledged[body] = done.result()
            else:
                refused[body] = error

        async with Producer(name_server.address, idempotent=idempotent, send_timeout=60, max_in_flight=64) as producer:

            async def send_all() -> None:
                for n in range(MESSAGES):
                    body = b"%d" % n
                    await producer.wait_for_capacity()
                    producer.send_nowait(Message("Orders", body)).add_done_callback(partial(settle, body))
                    if n % 10 == 0:
                        await asyncio.sleep(0.001)

            sending = asyncio.ensure_future(send_all())
            for _ in range(3):
                while len(acknowledged) < MESSAGES // 10 and not sending.done():
                    await asyncio.sleep(0.005)
                await broker.stop()
                broker = new_broker(tmp_path, name_server, broker.listen_port)
                await broker.start()
                await producer.send(Message("Orders", b"restarted"), timeout=60)
            await sending
        found = [message.body for message in await all_stored(broker, "Orders")]
        assert len(acknowledged) + len(refused) == MESSAGES
        assert acknowledged.keys() <= set(found)
        assert all(isinstance(error, FirearrowError) for error in refused.values())
        if idempotent:
            assert not refused
            assert len(found) == len(set(found)) + 2  # "restarted" is there three times
        await broker.stop()
        await name_server.stop()

    run(story())
