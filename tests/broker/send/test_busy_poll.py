"""Busy-polling after single replies to one connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from firearrow.broker.send import busy_poll
from firearrow.broker.send.busy_poll import BusyPoller

CLIENT, OTHER = object(), object()


def test_polls_until_the_interval_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(busy_poll, "perf_counter", lambda: now)
    scheduled: list[Callable[[], None]] = []

    poller = BusyPoller(scheduled.append, 100)
    poller.replied(CLIENT)
    poller.replied(OTHER)
    poller.replied(CLIENT)
    assert scheduled == [], "clients that alternate"
    poller.replied(CLIENT)
    poller.replied(CLIENT)
    assert len(scheduled) == 1, "one poll at a time"

    def turn() -> int:
        scheduled.pop()()
        return len(scheduled)

    now += 0.00005
    assert turn() == 1
    poller.replied(CLIENT)  # another reply restarts the interval
    now += 0.00007
    assert turn() == 1
    now += 0.00004
    assert turn() == 0, "idle"
    poller.replied(CLIENT)
    assert len(scheduled) == 1, "polling again"


def test_other_callbacks_run_while_polling() -> None:
    async def story() -> float:
        loop = asyncio.get_running_loop()
        poller = BusyPoller(loop.call_soon, 1_000_000)
        poller.replied(CLIENT)
        poller.replied(CLIENT)
        began = time.perf_counter()
        await asyncio.sleep(0.01)
        return time.perf_counter() - began

    assert asyncio.run(story()) < 0.5
