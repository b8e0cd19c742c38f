"""Timers in real time: none is early, nearly all arrive within one step of `timerPrecisionMs`.

With FIREARROW_ACCURACY=full ten thousand timers over 30 s; otherwise fewer, with a limit for busy machines.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.accuracy.lateness import FULL, Lateness, now_ms, trial

COUNT = 10_000 if FULL else 1_200
SENDING_S = 4.0 if FULL else 1.0
AHEAD_MS, OVER_MS = (5_000, 30_000) if FULL else (4_000, 4_000)
LIMIT_MS = 1_000 if FULL else 3_000  # timerPrecisionMs is 1,000


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_timer_messages_arrive_when_due(tmp_path: Path) -> None:
    chance = random.Random(11)

    async def scenario() -> Lateness:
        async with trial(tmp_path) as running:
            first_ms = int(now_ms()) + AHEAD_MS
            due_ms = {f"key-{number}": first_ms + chance.randrange(OVER_MS) for number in range(COUNT)}
            messages = [{"UNIQ_KEY": key, "TIMER_DELIVER_MS": str(due)} for key, due in due_ms.items()]
            await running.send_over(SENDING_S, messages)
            assert now_ms() < first_ms, "sending took too long: the first timers were due before the end"
            await running.all_arrived(COUNT, OVER_MS / 1000 + 10)
            return Lateness.of(due_ms, running.arrived_ms)

    late = asyncio.run(scenario())
    print(late)
    assert late.values[0] >= 0, late
    assert late.share_within(LIMIT_MS) >= 0.999, late
