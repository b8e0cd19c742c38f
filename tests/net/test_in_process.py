"""In-process connections behave like connections over sockets."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from firearrow.net import in_process
from firearrow.net.connection import Connection
from firearrow.net.in_process import MemoryListener, MemoryTransport
from firearrow.net.limits import Limits
from firearrow.wire.frame import Command, encode_response
from tests.support.waiting import run


class Echo:
    """A service that answers with the request body and counts what it receives."""

    def __init__(self) -> None:
        self.requests: list[Command] = []
        self.connections: list[Connection] = []
        self.gone = 0

    def connected(self, conn: Connection) -> None:
        self.connections.append(conn)

    def received(self, conn: Connection, commands: list[Command]) -> None:
        for command in commands:
            self.requests.append(command)
            if not command.is_oneway:
                conn.write(encode_response(command, 0, body=command.body))

    def disconnected(self, conn: Connection) -> None:
        self.gone += 1


class Asker:
    """The client side of a connection."""

    def __init__(self) -> None:
        self.conn: Connection | None = None
        self.ended = asyncio.Event()

    def connected(self, conn: Connection) -> None:
        self.conn = conn

    def received(self, conn: Connection, commands: list[Command]) -> None: ...

    def disconnected(self, conn: Connection) -> None:
        self.ended.set()

    async def ask(self, body: bytes = b"", **more: Any) -> Command:
        assert self.conn is not None
        return await self.conn.request(1, {}, body, **more)


async def dial(address: str) -> Asker:
    asker = Asker()
    found = in_process.listener(address)
    assert found is not None
    await found.connect(lambda: Connection(asker))
    return asker


def serve(service: Echo) -> MemoryListener:
    return in_process.listen(service, f"{in_process.free_host()}:9876")


def test_requests_are_answered_in_order_and_peers_know_their_addresses() -> None:
    async def scenario() -> None:
        echo = Echo()
        listener = serve(echo)
        asker = await dial(listener.address)
        answers = await asyncio.gather(*(asker.ask(b"%d" % n) for n in range(300)))
        assert [answer.body for answer in answers] == [b"%d" % n for n in range(300)]
        assert asker.conn is not None
        assert asker.conn.peer == listener.address
        assert echo.connections[0].peer_ip == listener.host
        assert echo.connections[0].peer_port >= 1024
        await listener.close()

    run(scenario())


def test_close_delivers_written_bytes_and_ends_both_sides() -> None:
    async def scenario() -> None:
        echo = Echo()
        listener = serve(echo)
        asker = await dial(listener.address)
        assert asker.conn is not None
        asker.conn.notify(7, {}, b"last words")
        asker.conn.close("done")
        await asker.ended.wait()
        await listener.close()
        assert [request.body for request in echo.requests] == [b"last words"]
        assert echo.gone == 1
        assert listener.connections == set()
        assert listener.transports == set()

    run(scenario())


def test_connection_to_a_closed_listener_is_refused() -> None:
    async def scenario() -> None:
        listener = serve(Echo())
        asker = await dial(listener.address)
        await listener.close()
        await asker.ended.wait()
        with pytest.raises(ConnectionRefusedError, match=listener.address):
            await dial(listener.address)

    run(scenario())
    assert in_process.listener("127.0.0.1:9876") is None  # may be a real server


def test_address_has_one_listener() -> None:
    async def scenario() -> None:
        listener = serve(Echo())
        with pytest.raises(OSError, match="in use"):
            in_process.listen(Echo(), listener.address)
        await listener.close()
        again = in_process.listen(Echo(), listener.address)
        await again.close()

    run(scenario())


def test_cut_fails_pending_requests_and_keeps_the_listener() -> None:
    async def scenario() -> None:
        class Silent(Echo):
            def received(self, conn: Connection, commands: list[Command]) -> None:
                asked.set()

        asked = asyncio.Event()
        silent = Silent()
        listener = serve(silent)
        asker = await dial(listener.address)
        waiting = asyncio.ensure_future(asker.ask())
        await asked.wait()
        assert listener.cut() == 1
        with pytest.raises(ConnectionError):
            await waiting
        assert silent.gone == 1
        again = await dial(listener.address)
        assert again.conn is not None
        assert not again.conn.closed
        await listener.close()

    run(scenario())


def test_peer_that_does_not_read_pauses_the_writer() -> None:
    """The limits are those of sockets: reading pauses at `write_high` and resumes when the peer has caught up."""

    async def scenario() -> None:
        echo = Echo()
        listener = serve(echo)
        asker = await dial(listener.address)
        assert asker.conn is not None
        near = next(transport for transport in listener.transports if transport.to_server)
        near.pause_reading()
        body = b"x" * (1024 * 1024)
        asking = [asyncio.ensure_future(asker.ask(body, timeout_ms=60_000)) for _ in range(30)]
        for _ in range(200):
            await asyncio.sleep(0)
        assert 0 < len(echo.requests) < 30
        far = next(transport for transport in listener.transports if not transport.to_server)
        high = Limits().write_high
        assert high < far.get_write_buffer_size() < high + 4 * 1024 * 1024
        near.resume_reading()
        assert all(answer.body == body for answer in await asyncio.gather(*asking))
        assert len(echo.requests) == 30
        assert far.get_write_buffer_size() == 0
        await listener.close()

    run(scenario())


def test_delayed_bytes_arrive_later_and_in_order() -> None:
    async def scenario() -> None:
        echo = Echo()
        listener = serve(echo)
        asker = await dial(listener.address)
        loop = asyncio.get_running_loop()
        listener.delay_s[True] = 0.05
        start = loop.time()
        first = asyncio.ensure_future(asker.ask(b"1"))
        await asyncio.sleep(0)
        listener.delay_s[True] = 0.0
        second = asyncio.ensure_future(asker.ask(b"2"))
        assert (await second).body == b"2"
        assert loop.time() - start >= 0.045
        assert (await first).body == b"1"
        assert [request.body for request in echo.requests] == [b"1", b"2"]
        await listener.close()

    run(scenario())


def test_tap_sees_both_directions_and_decides() -> None:
    async def scenario() -> None:
        def tap(transport: MemoryTransport, data: bytes) -> None:
            seen.append(transport.to_server)
            if transport.to_server:
                transport.deliver(data)
                transport.deliver(data)
            else:
                transport.abort()

        seen: list[bool] = []
        echo = Echo()
        listener = serve(echo)
        asker = await dial(listener.address)
        listener.tap = tap
        with pytest.raises(ConnectionError):
            await asker.ask(b"twice")
        assert [request.body for request in echo.requests] == [b"twice", b"twice"]
        assert seen[:2] == [True, False]
        await listener.close()

    run(scenario())


def test_peers_may_live_in_two_threads() -> None:
    ready, done = threading.Event(), threading.Event()
    where: list[MemoryListener] = []
    echo = Echo()

    def server() -> None:
        async def scenario() -> None:
            listener = serve(echo)
            where.append(listener)
            ready.set()
            while not done.is_set():
                await asyncio.sleep(0.005)
            await listener.close()

        run(scenario())

    thread = threading.Thread(target=server)
    thread.start()
    assert ready.wait(60)

    async def client() -> None:
        asker = await dial(where[0].address)
        bodies = [b"%d" % n * 1000 for n in range(500)]
        answers = await asyncio.gather(*(asker.ask(body) for body in bodies))
        assert [answer.body for answer in answers] == bodies
        done.set()
        await asker.ended.wait()

    try:
        run(client())
    finally:
        done.set()
        thread.join(60)
    assert not thread.is_alive()
    assert len(echo.requests) == 500


def test_hosts_in_use_are_not_returned_again() -> None:
    async def scenario() -> None:
        listeners = [serve(Echo()) for _ in range(300)]
        assert len({listener.host for listener in listeners}) == 300
        for listener in listeners:
            await listener.close()

    run(scenario())
