"""Requests from the broker to a client: every outcome reaches the callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from firearrow.broker.requests.client_calls import call_client, notify
from firearrow.net.connection import Connection
from firearrow.net.errors import RequestTimeoutError
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command
from firearrow.wire.headers.client import NotifyConsumerIdsChangedRequestHeader
from tests.support.waiting import run

HEADER = NotifyConsumerIdsChangedRequestHeader(consumer_group="G")
SENT = (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "G"}, b"body")


class Peer:
    """A client connection whose pending response the test controls."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any, bytes]] = []
        self.timeout_ms = 0

    def notify(self, code: int, ext: Any, body: bytes) -> None:
        self.sent.append((code, ext, body))

    def request(self, code: int, ext: Any, body: bytes, *, timeout_ms: int) -> asyncio.Future[Command]:
        self.sent.append((code, ext, body))
        self.timeout_ms = timeout_ms
        self.response: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        return self.response


def test_notification_carries_code_fields_and_body() -> None:
    peer = Peer()
    notify(cast(Connection, peer), HEADER, b"body")
    assert peer.sent == [SENT]


ANSWER = Command(0, opaque=5)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (lambda response: response.set_result(ANSWER), (ANSWER, "")),
        (lambda response: response.set_exception(RequestTimeoutError("no response in 50 ms")), (None, "no response in 50 ms")),
        (lambda response: response.cancel(), (None, "the broker is stopping")),
    ],
    ids=["answered", "timed out", "cancelled"],
)
def test_outcome_of_a_call_is_reported_once(
    end: Callable[[asyncio.Future[Command]], Any], outcome: tuple[Command | None, str]
) -> None:
    reported: list[tuple[Command | None, str]] = []

    async def story() -> None:
        peer = Peer()
        call_client(cast(Connection, peer), HEADER, b"body", 50, lambda answer, reason: reported.append((answer, reason)))
        assert (peer.sent, peer.timeout_ms, reported) == ([SENT], 50, [])
        end(peer.response)
        await asyncio.wait([peer.response])
        await asyncio.sleep(0)

    run(story())
    assert reported == [outcome]
