from __future__ import annotations

import asyncio
import socket

import pytest

from firearrow.net.channel import Channel
from firearrow.net.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from firearrow.net.server import Connection, serve
from firearrow.wire.frame import Command, encode_response
from tests.net.peer import Echo
from tests.support.waiting import run


def test_calls_receive_their_own_responses_in_any_order() -> None:
    class Backwards(Echo):
        def received(self, conn: Connection, commands: list[Command]) -> None:
            self.waiting = [*getattr(self, "waiting", []), *commands]
            if len(self.waiting) == 3:
                for command in reversed(self.waiting):
                    conn.write(encode_response(command, command.code, body=command.body))

    async def scenario() -> None:
        listener = await serve(Backwards())
        channel = await Channel.connect(f"127.0.0.1:{listener.port}")
        answers = await asyncio.gather(*(channel.request(code, {"n": "1"}, b"%d" % code) for code in (1, 2, 3)))
        assert [(a.code, a.body) for a in answers] == [(1, b"1"), (2, b"2"), (3, b"3")]
        await channel.close()
        await listener.close()

    run(scenario())


def test_oneway_request_awaits_no_response() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        channel = await Channel.connect(f"127.0.0.1:{listener.port}")
        channel.oneway(37, {"msgId": "x"})
        await channel.request(34, timeout_ms=60_000)
        assert [code for batch in service.batches for code in batch] == [37, 34]
        await channel.close()
        await listener.close()

    run(scenario())


def test_server_requests_go_to_the_callback() -> None:
    def on_request(channel: Channel, request: Command) -> None:
        channel.answer(encode_response(request, 0, body=b"at your service"))

    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        willing = await Channel.connect(f"127.0.0.1:{listener.port}", on_request=on_request)
        await willing.request(34)
        assert (await service.conns[0].request(307)).body == b"at your service"
        mute = await Channel.connect(f"127.0.0.1:{listener.port}")
        await mute.request(34)
        refused = await service.conns[1].request(307)
        assert (refused.code, refused.remark) == (3, "request type 307 not supported")
        await listener.close()

    run(scenario())


def test_missing_response_times_out_and_keeps_the_channel_open() -> None:
    class Mute(Echo):
        def received(self, conn: Connection, commands: list[Command]) -> None:
            super().received(conn, [c for c in commands if c.code == 34])

    async def scenario() -> None:
        listener = await serve(Mute())
        channel = await Channel.connect(f"127.0.0.1:{listener.port}")
        with pytest.raises(RequestTimeoutError, match="did not answer request 11 within 30 ms"):
            await channel.request(11, timeout_ms=30)
        assert (await channel.request(34)).code == 0
        await channel.close()
        await listener.close()

    run(scenario())


def test_closed_channel_fails_every_pending_call() -> None:
    class Mute(Echo):
        def received(self, conn: Connection, commands: list[Command]) -> None:
            conn.close("enough")

    async def scenario() -> None:
        closed: list[Channel] = []
        listener = await serve(Mute())
        address = f"127.0.0.1:{listener.port}"
        channel = await Channel.connect(address, on_close=closed.append)
        calls = [asyncio.ensure_future(channel.request(11, timeout_ms=60_000)) for _ in range(3)]
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, ConnectionLostError)
            assert address in str(result)
        assert closed == [channel]
        assert channel.closed
        with pytest.raises(ConnectionLostError, match="was not sent"):
            await channel.request(11)
        await channel.close()
        await listener.close()

    run(scenario())


def test_refused_connection_names_the_server() -> None:
    async def scenario() -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]  # bound but not listening
            with pytest.raises(ConnectError, match=f"no connection to 127.0.0.1:{port}"):
                await Channel.connect(f"127.0.0.1:{port}")
        with pytest.raises(ValueError, match="host:port"):
            await Channel.connect("nonsense")

    run(scenario())


def test_connect_timeout_names_the_server() -> None:
    async def scenario() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port = full.getsockname()[1]
            fillers: list[Channel] = []

            async def fill() -> None:
                for _ in range(8):  # the backlog is full after a few
                    fillers.append(await Channel.connect(f"127.0.0.1:{port}", timeout_ms=100))

            with pytest.raises(ConnectError, match=f"no connection to 127.0.0.1:{port} within 100 ms"):
                await fill()
            for filler in fillers:
                await filler.close()

    run(scenario())


def test_each_request_times_out_at_its_own_deadline() -> None:
    class Mute(Echo):
        def received(self, conn: Connection, commands: list[Command]) -> None:
            pass

    async def scenario() -> None:
        listener = await serve(Mute())
        channel = await Channel.connect(f"127.0.0.1:{listener.port}")
        loop = asyncio.get_running_loop()
        began = loop.time()
        order: list[int] = []

        async def ask(timeout_ms: int) -> None:
            with pytest.raises(RequestTimeoutError):
                await channel.request(11, timeout_ms=timeout_ms)
            assert loop.time() - began >= timeout_ms / 1000 - 0.001  # the event loop counts whole milliseconds
            order.append(timeout_ms)

        await asyncio.gather(*(ask(timeout_ms) for timeout_ms in (120, 30, 90, 60)))
        assert sorted(order) == [30, 60, 90, 120]
        assert channel.in_flight == 0
        await channel.close()
        await listener.close()

    run(scenario())


def test_cut_when_silent_closes_the_channel_to_a_silent_server() -> None:
    class Mute(Echo):
        def received(self, conn: Connection, commands: list[Command]) -> None:
            super().received(conn, [c for c in commands if c.code == 34])

    async def scenario() -> None:
        listener = await serve(Mute())
        channel = await Channel.connect(f"127.0.0.1:{listener.port}", cut_when_silent=True)
        busy = asyncio.ensure_future(channel.request(11, timeout_ms=500))
        while not busy.done():  # it answers other requests, so the connection works
            await channel.request(34, timeout_ms=60_000)
        assert isinstance(busy.exception(), RequestTimeoutError)
        assert not channel.closed
        async with asyncio.timeout(30):
            while not channel.closed:  # takes two attempts if a response arrived after the timeout of `busy`
                with pytest.raises(RequestTimeoutError):
                    await channel.request(11, timeout_ms=30)
        await channel.close()
        await listener.close()

    run(scenario())


def test_frames_of_one_iteration_are_written_together_before_the_close() -> None:
    async def scenario() -> None:
        service = Echo()
        listener = await serve(service)
        channel = await Channel.connect(f"127.0.0.1:{listener.port}")
        for code in (1, 2, 3):
            channel.oneway(code)
        channel.abandon("the test")
        await service.left.wait()
        assert service.batches == [[1, 2, 3]]
        await channel.close()
        await listener.close()

    run(scenario())


def test_invalid_frame_closes_the_channel() -> None:
    class Babble(Echo):
        def received(self, conn: Connection, commands: list[Command]) -> None:
            conn.write(encode_response(commands[0], 0) + b"\xff" * 16)

    async def scenario() -> None:
        listener = await serve(Babble())
        channel = await Channel.connect(f"127.0.0.1:{listener.port}")
        first, second = channel.request(34), channel.request(35)
        assert (await first).code == 0  # frames before the invalid one are handled
        with pytest.raises(ConnectionLostError, match="invalid frame"):
            await second
        await channel.close()
        await listener.close()

    run(scenario())
