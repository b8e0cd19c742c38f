"""Waiting for conditions and bounding tests in time.

The limits are far beyond what an idle machine needs: they end a test that hangs, they do not judge speed.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from firearrow.net import event_loop

T = TypeVar("T")

PATIENCE_S = 60.0
_POLL_S = 0.005


def run(scenario: Coroutine[Any, Any, T], timeout_s: float = 2 * PATIENCE_S) -> T:
    """Run a coroutine on the event loop of production; raise TimeoutError if it hangs.

    The limit is above that of `until`, which names the condition that did not hold.
    """

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await scenario

    return event_loop.run(bounded())


async def until(condition: Callable[[], Any], what: str = "the condition", timeout_s: float = PATIENCE_S) -> None:
    """Wait until `condition()`, a value or an awaitable, is true; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, f"{what} did not hold within {timeout_s:g} s"
        await asyncio.sleep(_POLL_S)


def wait_until(condition: Callable[[], Any], what: str = "the condition", timeout_s: float = PATIENCE_S) -> float:
    """Wait until `condition()` is true and return the seconds it took; fail after `timeout_s`."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < timeout_s, f"{what} did not hold within {timeout_s:g} s"
        time.sleep(_POLL_S)
    return time.monotonic() - start
