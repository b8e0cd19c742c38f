"""An elected group as real processes, broken under load. FIREARROW_CHAOS_ROUNDS says how often each fault is injected."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos import faults
from tests.chaos.faults import Inject
from tests.chaos.fleet import on_loopback, running
from tests.chaos.story import ROUNDS, rounds_of
from tests.chaos.workload import Verdict

pytestmark = pytest.mark.timeout(120 + 60 * ROUNDS)

FAULTS: dict[str, Inject] = {
    "leader killed": faults.kill_leader,
    "follower killed": faults.kill_follower,
    "leader frozen": faults.freeze_leader,
    "follower frozen": faults.freeze_follower,
    "majority killed": faults.kill_majority,
    "followers killed": faults.kill_followers,
    "rolling restart": faults.rolling_restart,
}


def test_nothing_that_the_group_acknowledged_is_lost(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(on_loopback("dledger-3", tmp_path)) as fleet:
            for fault, inject in FAULTS.items():
                outcome = await rounds_of(fleet, fault, inject)
                assert outcome.wrong == Verdict()

    asyncio.run(story())
