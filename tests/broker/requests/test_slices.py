"""Requests that take long: other connections get their turn, and the log names the request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from firearrow.broker.requests.dispatcher import RequestDispatcher
from firearrow.net.slow_requests import SLICE_MS, SLOW_MS
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command, encode_success
from tests.broker.fake_peer import FakeConnection

CODE = RequestCode.GET_CONSUMER_LIST_BY_GROUP


class Story:
    """A dispatcher whose only handler takes as many ms as the opaque number of the request."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        stats = SimpleNamespace(served=lambda code, response, took_ms: None)
        context: Any = SimpleNamespace(stats=stats)
        unused: Any = None
        handlers: Any = {CODE: self.handle}
        self.dispatcher = RequestDispatcher(context, handlers, unused, unused, unused, unused, lambda: self.now_ms)
        self.conn: Any = FakeConnection()

    def handle(self, conn: Any, request: Command, now_ms: int) -> bytes:
        self.now_ms += request.opaque
        return encode_success(request)

    def receive(self, *durations_ms: int) -> list[int]:
        """Pass requests of these durations. Return those that are left."""
        left = self.dispatcher.received(self.conn, [Command(CODE, opaque=duration) for duration in durations_ms])
        return [request.opaque for request in left or ()]


def test_requests_behind_a_long_one_are_left_for_the_next_turn() -> None:
    story = Story()
    assert story.receive(1, 1, SLICE_MS, 1, 2) == [1, 2]
    assert len(story.conn.written) == 3
    assert story.receive(1, 2) == []


def test_a_slow_request_is_logged_with_its_name_and_peer(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    story.receive(SLOW_MS - 1)
    assert caplog.messages == []
    story.receive(SLOW_MS + 23)
    [message] = caplog.messages
    assert "GET_CONSUMER_LIST_BY_GROUP from 10.0.0.9:40000 kept the event loop for 123 ms" in message


def test_slow_requests_are_logged_once_a_second_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    for _ in range(6):
        story.receive(SLOW_MS)
    assert len(caplog.messages) == 1
    story.now_ms += 1_000
    story.receive(SLOW_MS)
    assert "5 more since the last report" in caplog.messages[-1]
