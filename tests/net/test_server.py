"""Listeners and connections over real sockets, tested with raw bytes."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import struct
from typing import cast

import pytest

from firearrow.net import connection
from firearrow.net.errors import ConnectionLostError, RequestTimeoutError
from firearrow.net.limits import Limits
from firearrow.net.server import Connection, serve
from firearrow.wire.frame import Command, encode_request, encode_response
from tests.net.peer import Echo, Peer
from tests.support.waiting import run


def request(code: int, body: bytes = b"", *, opaque: int = 1, binary: bool = False, oneway: bool = False) -> bytes:
    return encode_request(code, {"k": "v"}, body, opaque=opaque, binary=binary, oneway=oneway)


def test_all_frames_of_a_read_reach_the_service_together_in_order() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        peer.send(b"".join(request(code, b"%d" % code, opaque=code) for code in (11, 12, 13)))
        assert [(await peer.frame()).body for _ in range(3)] == [b"11", b"12", b"13"]
        assert service.batches == [[11, 12, 13]]
        await listener.close()

    run(scenario())


def test_frame_in_many_pieces_is_one_request() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        frame = request(310, b"x" * 3000)
        for at in range(0, len(frame), 500):
            peer.send(frame[at : at + 500])
            await asyncio.sleep(0)
        assert (await peer.frame()).body == b"x" * 3000
        assert service.batches == [[310]]
        await listener.close()

    run(scenario())


def test_connection_knows_the_peer_address_and_its_binary_form() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        await service.met.wait()
        conn = service.conns[0]
        assert (conn.peer_ip, conn.peer_port) == ("127.0.0.1", peer.port)
        assert conn.peer_host == bytes([127, 0, 0, 1]) + struct.pack(">i", peer.port)
        await listener.close()

    run(scenario())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_ipv4_peer_of_a_dual_stack_listener_is_an_ipv4_peer() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service, "::")
        peer = await Peer.dial(listener)
        await service.met.wait()
        assert service.conns[0].peer_ip == "127.0.0.1"
        assert len(service.conns[0].peer_host) == 8
        await peer.close()
        await listener.close()

    run(scenario())


@pytest.fixture
def transports(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Transport]:
    """The transports of the connections that the server accepts."""
    accepted: list[asyncio.Transport] = []
    connection_made = Connection.connection_made

    def record(self: Connection, transport: asyncio.BaseTransport) -> None:
        accepted.append(cast(asyncio.Transport, transport))
        connection_made(self, transport)

    monkeypatch.setattr(Connection, "connection_made", record)
    return accepted


def test_small_responses_are_sent_at_once(transports: list[asyncio.Transport]) -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        await service.met.wait()
        sock = transports[0].get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        await peer.close()
        await listener.close()

    run(scenario())


# Asking the peer.


def test_response_to_our_request_does_not_reach_the_service() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        await service.met.wait()
        asked = service.conns[0].request(307, {"clientId": "c"}, timeout_ms=60_000)
        heard = await peer.frame()
        assert (heard.code, heard.opaque, heard.ext) == (307, 1, {"clientId": "c"})
        # A request of the peer with the same opaque number arrives first: the directions are independent.
        peer.send(request(34, b"hb", opaque=1) + encode_response(heard, 0, body=b"info"))
        assert (await asked).body == b"info"
        assert (await peer.frame()).body == b"hb"
        assert service.batches == [[34]]
        await listener.close()

    run(scenario())


def test_unsolicited_responses_are_dropped() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        stray = Command(code=0, opaque=77, flag=1)
        peer.send(encode_response(stray, 0) + request(34, b"still here"))
        assert (await peer.frame()).body == b"still here"
        assert service.batches == [[34]]
        await listener.close()

    run(scenario())


def test_unanswered_request_times_out() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        await service.met.wait()
        asked = service.conns[0].request(307, timeout_ms=20)
        heard = await peer.frame()
        with pytest.raises(RequestTimeoutError, match=f"127.0.0.1:{peer.port} did not answer request 307 within 20 ms"):
            await asked
        peer.send(encode_response(heard, 0) + request(34, b"late is dropped"))
        assert (await peer.frame()).body == b"late is dropped"
        await listener.close()

    run(scenario())


def test_lost_connection_fails_its_requests() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        await service.met.wait()
        conn = service.conns[0]
        asked = conn.request(307, timeout_ms=60_000)
        await peer.frame()
        await peer.close()
        with pytest.raises(ConnectionLostError, match=f"127.0.0.1:{peer.port}"):
            await asked
        await service.left.wait()
        assert conn.closed
        with pytest.raises(ConnectionLostError, match="is closed"):
            await conn.request(307)
        conn.notify(40)  # does nothing on a closed connection
        conn.write(b"nobody reads this")
        await listener.close()

    run(scenario())


def test_our_requests_use_the_header_type_of_the_peer() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        await service.met.wait()
        service.conns[0].notify(40, {"consumerGroup": "g"})
        first = await peer.frame()
        assert (first.binary, first.is_oneway, first.opaque) == (False, True, 1)
        peer.send(request(34, binary=True))
        assert (await peer.frame()).binary
        service.conns[0].notify(40, {"consumerGroup": "g"})
        second = await peer.frame()
        assert (second.binary, second.opaque, second.ext) == (True, 2, {"consumerGroup": "g"})
        await listener.close()

    run(scenario())


# Bad input.

GOOD = request(34, b"good")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff" + b"x" * 64,  # a length of 4 GiB (or -1)
        b"\x7f\xff\xff\xff" + b"\0" * 64,  # 2 GiB
        b"\x01\x00\x00\x00" + b"\0" * 64,  # one more than the limit
        b"\0\0\0\0" + b"\0" * 64,
        struct.pack(">ii", 20, 4000) + b"{}" * 8,  # the header is longer than the frame
        struct.pack(">ii", 20, 7 << 24 | 16) + b"x" * 16,  # no such header type
        struct.pack(">ii", 20, 16) + b"{not json at all",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_invalid_frame_closes_its_connection_only(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        neighbour, bad = await Peer.dial(listener), await Peer.dial(listener)
        with caplog.at_level(logging.WARNING):
            bad.send(GOOD + garbage)
            assert (await bad.frame()).body == b"good"  # complete frames before it are served
            assert await bad.closed_by_server()
        assert [r.getMessage() for r in caplog.records if f":{bad.port}:" in r.getMessage()] != []
        assert len(caplog.records) == 1
        assert (await neighbour.ask(34, body=b"undisturbed")).body == b"undisturbed"
        await listener.close()

    run(scenario())


def test_random_bytes_do_not_affect_other_connections() -> None:
    async def scenario() -> None:
        rng = random.Random(20261115)
        service = Echo()
        listener = await serve(service)
        neighbour = await Peer.dial(listener)
        for _ in range(60):
            bad = await Peer.dial(listener)
            bad.send(rng.randbytes(rng.randint(1, 400)))
            bad.writer.write_eof()
            assert (await neighbour.ask(34, body=b"here")).body == b"here"
            await bad.close()
        for _ in range(100):
            if len(listener.connections) == 1:
                break
            service.left.clear()
            await service.left.wait()
        assert len(listener.connections) == 1
        await listener.close()

    run(scenario())


def test_incomplete_frame_is_discarded_with_its_connection() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        peer.send(request(310, b"x" * 1000)[:-1])
        await peer.close()
        await service.left.wait()
        assert service.batches == []
        await listener.close()

    run(scenario())


class Faulty(Echo):
    def received(self, conn: Connection, commands: list[Command]) -> None:
        raise ZeroDivisionError("a fault of ours")


def test_service_exception_is_logged_with_the_request_and_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        listener = await serve(Faulty())
        peer = await Peer.dial(listener)
        peer.send(GOOD)
        assert await peer.closed_by_server()
        await listener.close()

    run(scenario())
    assert "serving request codes [34] failed" in caplog.text
    assert "a fault of ours" in caplog.text


class OneAtATime(Echo):
    """A service that serves one request in each turn."""

    def received(self, conn: Connection, commands: list[Command]) -> list[Command]:
        super().received(conn, commands[:1])
        return commands[1:]


class LongRequests(Echo):
    """A service whose requests all take long; it counts the reads that it serves in each iteration of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = [0]

    def received(self, conn: Connection, commands: list[Command]) -> list[Command]:
        super().received(conn, commands)
        self.reads[-1] += 1
        return []

    async def count_iterations(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.reads.append(0)


def test_connection_whose_requests_take_long_is_read_once_in_a_turn() -> None:
    """uvloop reads on while its buffer of 256 KiB is full."""

    async def scenario() -> None:
        service = LongRequests()
        listener = await serve(service)
        counting = asyncio.create_task(service.count_iterations())
        peer = await Peer.dial(listener)
        peer.send(b"".join(request(11, bytes(100_000), opaque=n) for n in range(20)))
        assert [(await peer.frame()).opaque for _ in range(20)] == list(range(20))
        assert max(service.reads) == 1
        counting.cancel()
        await listener.close()

    run(scenario())


def test_requests_that_a_service_leaves_are_served_in_order_in_later_turns() -> None:
    async def scenario() -> None:
        service = OneAtATime()
        listener = await serve(service)
        peer, other = await Peer.dial(listener), await Peer.dial(listener)
        asked = 150
        peer.send(b"".join(request(11, opaque=n) for n in range(asked)))
        other.send(request(12, opaque=1))
        assert [(await peer.frame()).opaque for _ in range(asked)] == list(range(asked))
        await other.frame()
        assert service.batches.index([12]) < asked  # it did not wait for all of them
        peer.send(request(11, opaque=7))  # reading was resumed
        assert (await peer.frame()).opaque == 7
        await listener.close()

    run(scenario())


# Limits.


class Flood(Echo):
    """A service that answers each request with a megabyte."""

    def received(self, conn: Connection, commands: list[Command]) -> None:
        self.batches.append([c.code for c in commands])
        for command in commands:
            conn.write(encode_response(command, 0, body=bytes(1 << 20)))


def test_reading_from_a_peer_that_does_not_read_is_paused(transports: list[asyncio.Transport]) -> None:
    async def scenario() -> None:
        service = Flood()
        listener = await serve(service, limits=Limits(write_high=256 * 1024, write_low=64 * 1024, outgoing_bytes=1 << 30))
        peer = await Peer.dial(listener)
        asked = 200
        for n in range(asked):
            peer.send(request(11, opaque=n))
            await asyncio.sleep(0)
        before = 0
        while before != len(service.batches):  # until the server has paused reading
            before = len(service.batches)
            await asyncio.sleep(0.1)
        served = sum(map(len, service.batches))
        assert served < asked
        assert transports[0].get_write_buffer_size() < (connection.SLICE + 1) << 20
        got = [(await peer.frame()).opaque for _ in range(asked)]  # when the peer reads, everything arrives
        assert got == list(range(asked))
        await listener.close()

    run(scenario())


def test_peer_with_too_many_unread_bytes_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service, limits=Limits(write_high=64 * 1024, write_low=16 * 1024, outgoing_bytes=16 << 20))
        peer = await Peer.dial(listener)
        await service.met.wait()
        conn = service.conns[0]
        for _ in range(200):
            conn.write(bytes(1 << 20))
            await asyncio.sleep(0)
            if conn.closed:
                break
        assert conn.closed
        await service.left.wait()
        await peer.close()
        await listener.close()

    run(scenario())
    assert "more than 8388608 bytes, half of maxOutgoingBytes, wait" in caplog.text


def test_idle_connection_is_closed_and_an_active_one_is_not() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service, idle_timeout_ms=1000)
        silent, talking, listening = await Peer.dial(listener), await Peer.dial(listener), await Peer.dial(listener)
        await talking.ask(34)
        by_port = {conn.peer_port: conn for conn in service.conns}
        closed = asyncio.ensure_future(silent.closed_by_server())
        while not closed.done():
            assert (await talking.ask(34)).code == 0
            by_port[listening.port].write(request(40, oneway=True))  # it only receives
            await asyncio.sleep(0.05)
        assert closed.result()
        assert [conn.peer_port for conn in service.gone] == [silent.port]
        await listener.close()

    run(scenario())


def test_close_sends_written_bytes_and_notifies_the_service() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        peers = [await Peer.dial(listener) for _ in range(3)]
        for peer in peers:
            await peer.ask(34)
        for conn in service.conns:
            conn.write(request(40, b"last words", oneway=True))
        await listener.close()
        assert [(await peer.frame()).body for peer in peers] == [b"last words"] * 3
        assert len(service.gone) == 3
        with pytest.raises(ConnectionRefusedError):
            await Peer.dial(listener)
        await listener.close()  # closing twice is allowed

    run(scenario())


def test_close_does_not_wait_for_a_peer_that_never_reads() -> None:
    async def scenario() -> None:
        service = Flood()
        listener = await serve(service)
        peer = await Peer.dial(listener)
        for n in range(16):
            peer.send(request(11, opaque=n))
        await peer.frame()
        await listener.close()  # otherwise `run` fails
        assert len(service.gone) == 1

    run(scenario())
