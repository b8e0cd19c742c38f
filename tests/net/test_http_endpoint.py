"""The HTTP page: responses, rejected requests, limits and shared rendering."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from firearrow.net import http_endpoint
from firearrow.net.http_endpoint import MAX_CONNECTIONS, HttpPage
from tests.support.waiting import run

GET = b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"


async def rendered() -> list[bytes]:
    return [b"one\n", b"two\n"]


@asynccontextmanager
async def serving(make: Callable[[], Awaitable[list[bytes]]] = rendered) -> AsyncIterator[HttpPage]:
    page = HttpPage("/metrics", "text/plain", make)
    await page.start("127.0.0.1", 0)
    yield page
    await page.stop()


async def http(page: HttpPage, request: bytes) -> tuple[bytes, bytes]:
    """Return head and body of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
    writer.write(request)
    response = await reader.read()
    writer.close()
    head, _, body = response.partition(b"\r\n\r\n")
    return head, body


def test_page_is_returned_with_type_and_length() -> None:
    async def story() -> None:
        async with serving() as page:
            head, body = await http(page, GET)
        assert head.split(b"\r\n") == [
            b"HTTP/1.1 200 OK",
            b"Content-Type: text/plain",
            b"Content-Length: 8",
            b"Connection: close",
        ]
        assert body == b"one\ntwo\n"

    run(story())


def test_head_request_gets_no_body() -> None:
    async def story() -> None:
        async with serving() as page:
            head, body = await http(page, b"HEAD / HTTP/1.1\r\n\r\n")
        assert (head[:15], b"Content-Length: 8" in head, body) == (b"HTTP/1.1 200 OK", True, b"")

    run(story())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\r\n\r\n", b"400"),
    ],
)
def test_other_requests_are_rejected(request_bytes: bytes, status: bytes) -> None:
    async def story() -> None:
        async with serving() as page:
            assert (await http(page, request_bytes))[0][9:12] == status

    run(story())


def test_oversized_request_is_not_served() -> None:
    async def story() -> None:
        async with serving() as page:
            head, _ = await http(page, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")
        assert head[:12] in (b"HTTP/1.1 400", b""), "empty if the connection was reset"

    run(story())


async def stalled(page: HttpPage, request: bytes) -> asyncio.StreamWriter:
    """Open a connection that sends a request, or part of one, and never reads."""
    _, writer = await asyncio.open_connection("127.0.0.1", page.port, limit=1)
    writer.write(request)
    await writer.drain()
    return writer


@pytest.mark.parametrize("request_bytes", [b"", b"GET /met", GET])
def test_stalled_clients_do_not_keep_a_scraper_out(request_bytes: bytes) -> None:
    async def large() -> list[bytes]:
        return [bytes(1 << 20)] * 16

    async def story() -> None:
        async with serving(large) as page:
            writers = [await stalled(page, request_bytes) for _ in range(MAX_CONNECTIONS + 1)]
            head, body = await http(page, GET)
            assert head.startswith(b"HTTP/1.1 200")
            assert len(body) == 16 << 20
            for writer in writers:
                writer.transport.abort()

    run(story())


async def send_until_reset(client: socket.socket) -> None:
    """Send single bytes: a closed connection answers with a reset."""
    while True:
        await asyncio.get_running_loop().sock_sendall(client, b"x")
        await asyncio.sleep(0.01)


def test_client_that_does_not_read_is_disconnected_after_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "EXCHANGE_TIMEOUT_S", 0.2)

    async def large() -> list[bytes]:
        return [bytes(1 << 20)] * 64

    async def story() -> None:
        async with serving(large) as page:
            loop = asyncio.get_running_loop()
            with socket.create_connection(("127.0.0.1", page.port)) as client:
                client.setblocking(False)
                await loop.sock_sendall(client, GET)
                with pytest.raises(ConnectionError):
                    await send_until_reset(client)

    run(story())


def test_concurrent_requests_share_one_rendering() -> None:
    async def story() -> None:
        started, release = asyncio.Event(), asyncio.Event()
        renderings = 0

        async def make() -> list[bytes]:
            nonlocal renderings
            renderings += 1
            started.set()
            await release.wait()
            return [b"page"]

        async with serving(make) as page:
            first = asyncio.ensure_future(http(page, GET))
            await started.wait()
            reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
            writer.write(GET)
            await http(page, b"GET /other HTTP/1.1\r\n\r\n")  # when this is answered, the request before it has arrived
            release.set()
            assert (await first)[1] == b"page"
            assert (await reader.read()).endswith(b"page")
            writer.close()
            assert renderings == 1

    run(story())
