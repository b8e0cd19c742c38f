"""A broker that stays awake for a moment looks again and again, and then goes to sleep."""

from __future__ import annotations

import asyncio
import time

import pytest

from firearrow.broker.send import busy_poll
from firearrow.broker.send.busy_poll import BusyPoller

CLIENT, OTHER = object(), object()


def test_it_looks_until_the_moment_is_over_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(busy_poll, "perf_counter", lambda: now)
    waiting: list[object] = []

    class Loop:
        def call_soon(self, callback: object) -> None:
            waiting.append(callback)

    awake = BusyPoller(Loop(), 100)  # type: ignore[arg-type]  # all that it asks of a loop
    awake.stay(CLIENT)
    awake.stay(OTHER)
    awake.stay(CLIENT)
    assert waiting == [], "clients that take turns"
    awake.stay(CLIENT)
    awake.stay(CLIENT)
    assert len(waiting) == 1, "one look at a time"

    def turn() -> int:
        callback = waiting.pop()
        assert callable(callback)
        callback()
        return len(waiting)

    now += 0.00005
    assert turn() == 1
    awake.stay(CLIENT)  # another answer: a moment from now
    now += 0.00007
    assert turn() == 1
    now += 0.00004
    assert turn() == 0, "asleep"
    awake.stay(CLIENT)
    assert len(waiting) == 1, "and awake again"


def test_others_have_their_turn_meanwhile() -> None:
    async def story() -> float:
        loop = asyncio.get_running_loop()
        awake = BusyPoller(loop, 1_000_000)
        awake.stay(CLIENT)
        awake.stay(CLIENT)
        began = time.perf_counter()
        await asyncio.sleep(0.01)
        return time.perf_counter() - began

    assert asyncio.run(story()) < 0.5
