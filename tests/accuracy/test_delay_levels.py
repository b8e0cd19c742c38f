"""Delay levels in real time: no message is early, and hardly any is late.

With FIREARROW_ACCURACY=full, ten thousand messages over levels 1 to 3, 99.9 % within 200 ms, which requires an idle machine.
Otherwise fewer messages over two levels, with a limit for busy machines.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from firearrow.wire.names import SCHEDULE_TOPIC
from tests.accuracy.lateness import FULL, Lateness, trial

COUNT = 10_000 if FULL else 1_200
SENDING_S = 8.0 if FULL else 2.0
LEVELS_MS = {1: 1_000, 2: 5_000, 3: 10_000} if FULL else {1: 1_000, 2: 5_000}
LIMIT_MS = 200 if FULL else 2_000


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_delayed_messages_arrive_when_due(tmp_path: Path) -> None:
    levels = {f"key-{number}": 1 + number // 4 % len(LEVELS_MS) for number in range(COUNT)}  # every level to every queue

    async def scenario() -> Lateness:
        async with trial(tmp_path) as running:
            await running.send_over(SENDING_S, [{"UNIQ_KEY": key, "DELAY": str(level)} for key, level in levels.items()])
            await running.all_arrived(COUNT, max(LEVELS_MS.values()) / 1000 + 10)
            due_ms: dict[str, float] = {}
            for level, delay_ms in LEVELS_MS.items():
                stored_ms = await running.stored_ms(SCHEDULE_TOPIC, level - 1)
                assert {levels[key] for key in stored_ms} == {level}
                due_ms |= {key: stored + delay_ms for key, stored in stored_ms.items()}
            return Lateness.of(due_ms, running.arrived_ms)

    late = asyncio.run(scenario())
    print(late)
    assert late.values[0] >= 0, late
    assert late.share_within(LIMIT_MS) >= 0.999, late
