"""Listening and dialling for raw byte protocols."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from firearrow.net.event_loop import run
from firearrow.net.stream import StreamListener, dial


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Collector(asyncio.Protocol):
    def __init__(self) -> None:
        self.received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received.set_result(data)


def test_dialled_protocol_exchanges_bytes_with_the_listening_one() -> None:
    async def scenario() -> bytes:
        listener = StreamListener("127.0.0.1", 0)
        await listener.serve(Echo)
        transport, collector = await dial(Collector, f"127.0.0.1:{listener.port}", 10.0)
        transport.write(b"ping")
        received = await collector.received
        transport.close()
        listener.close()
        return received

    assert run(scenario()) == b"ping"


def test_closed_listener_releases_its_port_whether_it_served_or_not() -> None:
    async def scenario() -> None:
        first = StreamListener("127.0.0.1", 0)
        first.close()
        second = StreamListener("127.0.0.1", first.port)
        await second.serve(Echo)
        second.close()
        with pytest.raises(ConnectionRefusedError):
            await dial(Collector, f"127.0.0.1:{first.port}", 10.0)

    run(scenario())
