"""The event loop of the blocking clients: results, errors, order and the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from firearrow.client.errors import ClientError, ClosedError
from firearrow.client.sync.loop_thread import Background, background


@pytest.fixture
def own() -> Iterator[Background]:
    """A loop of the test, which may be ended."""
    made = Background()
    yield made
    if not made.ended:
        made.end()


def test_coroutine_runs_in_the_thread_of_the_loop_and_its_result_is_returned(own: Background) -> None:
    async def name() -> str:
        return threading.current_thread().name

    assert own.wait_for(name) == "firearrow-client"


def test_error_of_a_coroutine_is_raised_in_the_calling_thread(own: Background) -> None:
    async def fail() -> None:
        raise KeyError("lost")

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(KeyError, match="lost"):
        own.wait_for(fail)
    with pytest.raises(ClosedError, match="its client was closed"):
        own.wait_for(cancelled)


def test_waiting_on_the_loop_itself_is_refused(own: Background) -> None:
    async def nothing() -> None: ...

    async def wait() -> None:
        own.wait_for(nothing)

    with pytest.raises(ClientError, match="would deadlock"):
        own.wait_for(wait)


def test_submitted_calls_run_in_order_before_a_later_coroutine(own: Background) -> None:
    ran: list[int] = []
    for number in range(100):
        own.submit(partial(ran.append, number))

    async def seen() -> list[int]:
        return list(ran)

    assert own.wait_for(seen) == list(range(100))


def test_end_runs_the_closing_coroutine_cancels_tasks_and_refuses_calls(own: Background) -> None:
    events: list[str] = []

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.append("cancelled")

    async def begin() -> None:
        tasks.append(asyncio.ensure_future(never()))
        await asyncio.sleep(0)

    async def close() -> None:
        events.append("closed")

    tasks: list[asyncio.Future[None]] = []
    own.wait_for(begin)
    own.end(close)
    assert events == ["closed", "cancelled"]
    assert own.loop.is_closed()
    with pytest.raises(ClosedError, match="has stopped"):
        own.submit(lambda: None)


def test_process_has_one_shared_loop() -> None:
    assert background() is background()
