"""The connection pool: one connection per address, lost and retired connections, and closing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from firearrow.client.connection.pool import Connections
from firearrow.client.errors import BrokerError, ConnectionLost, RequestTimeout
from firearrow.client.options import client_options
from firearrow.net.channel import Channel
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import encode_response
from tests.client.fake_broker import FakeBroker, nothing
from tests.support.waiting import run

CONFIG, RUNTIME_INFO = RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO


@asynccontextmanager
async def pool() -> AsyncIterator[tuple[Connections, FakeBroker, list[Channel]]]:
    """Yield a pool, a broker and the channels that the pool has opened."""
    broker = await FakeBroker().start()
    opened: list[Channel] = []
    connections = Connections(client_options(broker.address), lambda channel, request: None, opened.append)
    yield connections, broker, opened
    await connections.close()
    await broker.stop()


def test_requests_to_an_address_share_one_connection() -> None:
    async def story() -> None:
        async with pool() as (connections, broker, opened):
            order: list[int] = []
            connections.when_open(broker.address, lambda channel, error: order.append(1))
            connections.when_open(broker.address, lambda channel, error: order.append(2))
            assert (await connections.check(broker.address, CONFIG, b"", 10_000)).code == 0
            assert order == [1, 2]
            assert (len(opened), len(broker.conns)) == (1, 1)
            assert connections.open == {broker.address: opened[0]}

    run(story())


def test_error_response_raises_broker_error_only_in_check() -> None:
    async def story() -> None:
        async with pool() as (connections, broker, _):
            broker.other[CONFIG] = lambda conn, command: conn.write(encode_response(command, 26, "no such group", {}))
            assert (await connections.call(broker.address, CONFIG, b"", 10_000)).code == 26
            with pytest.raises(BrokerError, match="no such group"):
                await connections.check(broker.address, CONFIG, b"", 10_000)

    run(story())


def test_silent_connection_is_replaced() -> None:
    async def story() -> None:
        async with pool() as (connections, broker, opened):
            broker.other[RUNTIME_INFO] = nothing
            await connections.call(broker.address, CONFIG, b"", 10_000)
            before = broker.conns[0]
            with pytest.raises(RequestTimeout):
                await connections.call(broker.address, RUNTIME_INFO, b"", 30)
            await broker.until(lambda: before not in broker.conns)
            assert (await connections.call(broker.address, CONFIG, b"", 10_000)).code == 0
            assert len(opened) == 2

    run(story())


def test_request_answered_with_go_away_is_repeated_on_a_new_connection() -> None:
    async def story() -> None:
        async with pool() as (connections, broker, opened):
            codes = [int(ResponseCode.GO_AWAY), 0]
            broker.other[CONFIG] = lambda conn, command: conn.write(encode_response(command, codes.pop(0), None, {}))
            assert (await connections.call(broker.address, CONFIG, b"", 10_000)).code == 0
            assert connections.open == {broker.address: opened[1]}
            await broker.until(lambda: len(broker.conns) == 1)

    run(story())


def test_unreachable_address_is_reported_to_each_waiting_call() -> None:
    async def story() -> None:
        async with pool() as (connections, broker, opened):
            await broker.stop()
            errors: list[ConnectionLost | None] = []
            connections.when_open(broker.address, lambda channel, error: errors.append(error))
            with pytest.raises(ConnectionLost, match=broker.address):
                await connections.get(broker.address)
            assert [type(error) for error in errors] == [ConnectionLost]
            assert opened == []

    run(story())


def test_closed_pool_opens_no_connection() -> None:
    async def story() -> None:
        async with pool() as (connections, broker, opened):
            await connections.get(broker.address)
            await connections.close()
            assert opened[0].closed
            with pytest.raises(ConnectionLost, match="has been closed"):
                await connections.get(broker.address)

    run(story())
