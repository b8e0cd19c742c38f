"""The shared limits of a server's connections, over real sockets."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from firearrow.net import acceptor, budget
from firearrow.net.limits import Limits, ListenerSettings, descriptor_limit, limits_of
from firearrow.net.server import Connection, Listener, serve
from firearrow.wire.frame import Command, encode_request, encode_response
from tests.net.peer import Echo, Peer
from tests.support.waiting import run

MIB = 1 << 20


class Pulls(Echo):
    """A service that answers each request with a megabyte, and stops when the connection must wait."""

    def __init__(self) -> None:
        super().__init__()
        self.served = 0
        self.most_unsent = 0

    def received(self, conn: Connection, commands: list[Command]) -> list[Command] | None:
        rest = iter(commands)
        for command in rest:
            if conn.must_wait:
                return [command, *rest]
            self.served += 1
            response = encode_response(command, 0, body=bytes(MIB))
            conn.write(response)
            conn.note_response(len(response))
            self.most_unsent = max(self.most_unsent, sum(one.unsent_bytes for one in self.conns if not one.closed))
        return None


@asynccontextmanager
async def listening(service: Echo, **limits: int) -> AsyncIterator[Listener]:
    listener = await serve(service, limits=Limits(**limits))
    try:
        yield listener
    finally:
        await listener.close(abruptly=True)


def request(body: bytes = b"", opaque: int = 1) -> bytes:
    return encode_request(11, {}, body, opaque=opaque)


def stalled_socket(listener: Listener, data: bytes) -> socket.socket:
    """Return a client that sends as much as the system accepts and never reads."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", listener.port))
    client.setblocking(False)
    client.send(data)
    return client


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


# Responses that are not read.


def test_no_further_request_is_served_for_a_peer_that_does_not_read() -> None:
    async def scenario() -> None:
        service = Pulls()
        async with listening(service) as listener:
            with stalled_socket(listener, b"".join(request(opaque=n) for n in range(50))):
                await until(lambda: any(conn.full for conn in service.conns))
                other = await Peer.dial(listener)
                await other.ask(11)
                assert service.conns[0].unsent_bytes <= 3 * MIB
                assert service.served < 50

    run(scenario())


def test_requests_are_served_when_the_peer_reads_again() -> None:
    async def scenario() -> None:
        service = Pulls()
        async with listening(service) as listener:
            peer = await Peer.dial(listener)
            peer.send(b"".join(request(opaque=n) for n in range(100)))
            await until(lambda: service.conns != [] and service.conns[0].full)
            assert [(await peer.frame()).opaque for _ in range(100)] == list(range(100))
            assert (await peer.ask(11)).code == 0

    run(scenario())


def test_unread_responses_of_all_connections_are_limited_together() -> None:
    async def scenario() -> None:
        service = Pulls()
        async with listening(service, outgoing_bytes=32 * MIB) as listener:
            clients = [stalled_socket(listener, b"".join(request(opaque=n) for n in range(20))) for _ in range(60)]
            await until(lambda: listener.budget.closed["outgoing"] > 10)
            other = await Peer.dial(listener)
            assert (await other.ask(11)).code == 0
            assert service.most_unsent <= 34 * MIB  # the limit and one response
            for client in clients:
                client.close()

    run(scenario())


def test_large_responses_of_one_iteration_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that read as fast as they can do not keep others from their turn."""
    monkeypatch.setattr(budget, "RESPONSE_BYTES", 2 * MIB)

    async def scenario() -> None:
        service = Pulls()
        async with listening(service) as listener:
            peers = [await Peer.dial(listener) for _ in range(8)]
            turns: list[int] = []

            def watch() -> None:
                turns.append(service.served)
                asyncio.get_running_loop().call_soon(watch)

            watch()
            for peer in peers:
                peer.send(b"".join(request(opaque=n) for n in range(6)))
            for peer in peers:
                assert [(await peer.frame()).opaque for _ in range(6)] == list(range(6))
            assert max(after - before for before, after in pairwise(turns)) <= 6

    run(scenario())


def test_peer_that_never_reads_is_disconnected_after_the_write_timeout(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        service = Pulls()
        async with listening(service, write_timeout_ms=200) as listener:
            with stalled_socket(listener, b"".join(request(opaque=n) for n in range(20))):
                await service.left.wait()
            assert listener.budget.closed["deadline"] == 1
            assert listener.budget.outgoing.total == 0

    run(scenario())
    assert "bytes of responses were not read within 200 ms" in caplog.text


# Requests that do not arrive completely.


async def send_partial(listener: Listener, size: int, announced: int = 15 * MIB) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(request(bytes(announced))[:size])
    return writer


def test_incomplete_requests_of_all_connections_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "STALL_S", 3600.0)

    async def scenario() -> None:
        service = Echo()
        async with listening(service, incoming_bytes=32 * MIB) as listener:
            writers = [await send_partial(listener, 14 * MIB) for _ in range(8)]
            await until(lambda: listener.budget.closed["incoming"] >= 1)
            assert listener.budget.incoming.total <= 40 * MIB  # the limit and the reads of one iteration
            other = await Peer.dial(listener)
            assert (await other.ask(11, body=b"small")).body == b"small"
            for writer in writers:
                writer.transport.abort()
            await until(lambda: listener.budget.incoming.total == 0)

    run(scenario())


def test_stalled_requests_give_way_to_a_large_one() -> None:
    async def scenario() -> None:
        async with listening(Echo(), incoming_bytes=64 * MIB) as listener:
            writers = [await send_partial(listener, 5 * MIB) for _ in range(12)]
            await until(lambda: listener.budget.incoming.total > 32 * MIB)
            other = await Peer.dial(listener)
            assert len((await other.ask(11, body=bytes(4 * MIB))).body) == 4 * MIB
            for writer in writers:
                writer.transport.abort()

    run(scenario())


def test_many_large_requests_at_once_are_all_served() -> None:
    """Connections are throttled, not closed, as long as they make progress."""

    async def scenario() -> None:
        async with listening(Echo(), incoming_bytes=32 * MIB) as listener:
            peers = [await Peer.dial(listener) for _ in range(24)]
            answers = await asyncio.gather(*(peer.ask(11, body=bytes(3 * MIB)) for peer in peers))
            assert [len(answer.body) for answer in answers] == [3 * MIB] * 24
            assert listener.budget.incoming.total == 0

    run(scenario())


@pytest.mark.parametrize("size", [0, 3, 100, 100_000])
def test_request_that_does_not_arrive_in_time_closes_its_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        service = Echo()
        async with listening(service, frame_timeout_ms=300) as listener:
            working = await Peer.dial(listener)
            writer = await send_partial(listener, size)
            while not service.gone:
                await working.ask(11)
                await asyncio.sleep(0.02)
            assert [conn.peer_port for conn in service.gone] == [writer.get_extra_info("sockname")[1]]
            writer.close()

    run(scenario())
    assert "no complete request arrived within 300 ms" in caplog.text


def test_idle_connection_that_sent_a_request_outlives_the_frame_timeout() -> None:
    async def scenario() -> None:
        service = Echo()
        async with listening(service, frame_timeout_ms=100) as listener:
            peer = await Peer.dial(listener)
            await peer.ask(11)
            silent = await Peer.dial(listener)
            assert await silent.closed_by_server()
            assert (await peer.ask(11)).code == 0

    run(scenario())


# Connections.


def test_connection_beyond_the_limit_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening(Echo(), connections=3) as listener:
            peers = [await Peer.dial(listener) for _ in range(3)]
            for peer in peers:
                await peer.ask(11)
            refused = await Peer.dial(listener)
            assert await refused.closed_by_server()
            assert listener.budget.refused["total"] == 1
            await peers[0].close()
            await until(lambda: listener.budget.connections == 2)
            assert (await (await Peer.dial(listener)).ask(11)).code == 0

    run(scenario())
    assert "refusing connections: 3 connections are open; raise maxConnections" in caplog.text


def test_silent_connections_give_way_to_new_ones() -> None:
    async def scenario() -> None:
        async with listening(Echo(), connections=5) as listener:
            working = await Peer.dial(listener)
            await working.ask(11)
            silent = [await Peer.dial(listener) for _ in range(4)]
            await until(lambda: listener.budget.connections == 5)
            assert (await (await Peer.dial(listener)).ask(11)).code == 0
            assert await silent[0].closed_by_server()
            assert (await working.ask(11)).code == 0
            assert listener.budget.connections == 5

    run(scenario())


def test_connections_of_one_address_are_limited_except_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with listening(Echo(), connections=100, connections_per_address=2) as listener:
            for _ in range(4):
                assert (await (await Peer.dial(listener)).ask(11)).code == 0
            monkeypatch.setattr(acceptor, "unmapped", lambda address: "192.0.2.7")
            for _ in range(2):
                assert (await (await Peer.dial(listener)).ask(11)).code == 0
            assert await (await Peer.dial(listener)).closed_by_server()
            monkeypatch.setattr(acceptor, "unmapped", lambda address: "192.0.2.8")
            assert (await (await Peer.dial(listener)).ask(11)).code == 0
            assert listener.budget.refused == {"address": 1}
            assert listener.budget.busiest_address == 2

    run(scenario())


class ScarceSocket:
    """A listening socket whose `accept` fails for want of descriptors."""

    def __init__(self, sock: socket.socket, failures: int) -> None:
        self._sock = sock
        self.failures = failures
        self.calls = 0

    def accept(self) -> Any:
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._sock.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def test_port_without_descriptors_is_tried_again_without_spinning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor, "RETRY_S", 0.1)

    async def scenario() -> None:
        from firearrow.net.address import bind

        sock = ScarceSocket(bind("127.0.0.1", 0), failures=2)
        listener = await serve(Echo(), sock=sock)  # type: ignore[arg-type]
        peer = await Peer.dial(listener)
        assert (await peer.ask(11)).code == 0
        assert sock.failures == 0
        assert sock.calls <= 4  # two failures, the connection, and "no more"
        await listener.close()

    run(scenario())
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "cannot accept connections: [Errno 24] Too many open files" in errors[0]


# Settings.


def test_limits_follow_the_file_descriptors_unless_set() -> None:
    derived = limits_of(ListenerSettings(), 0.5)
    assert derived.connections == descriptor_limit() // 2
    assert derived.connections_per_address == derived.connections // 2
    fixed = limits_of(ListenerSettings(max_connections=100, max_connections_per_address=7, write_buffer_high_water_mark=0), 0.5)
    assert (fixed.connections, fixed.connections_per_address, fixed.write_high) == (100, 7, Limits().write_high)


def test_messages_that_a_client_can_cause_are_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        notices = budget.Notices()
        for _ in range(100):
            notices.warn("kind", "too many of something")
        notices.warn("other", "something else")

    run(scenario())
    assert [record.getMessage() for record in caplog.records] == ["too many of something", "something else"]
