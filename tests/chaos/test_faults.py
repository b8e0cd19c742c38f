"""Clusters of real processes under load: each fault of the catalogue, FIREARROW_CHAOS_ROUNDS times (once)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos import catalogue
from tests.chaos.catalogue import ENTRIES
from tests.chaos.scenario import ROUNDS, rounds_of
from tests.chaos.workload import Verdict

QUICK = {("2m", "loopback"), ("2m", "clocks"), ("dledger-3", "clocks")}


@pytest.mark.timeout(180 + 120 * ROUNDS)
@pytest.mark.parametrize(
    ("form", "environment"),
    [
        pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow)
        for pair in dict.fromkeys((entry.form, entry.environment) for entry in ENTRIES)
    ],
    ids=str,
)
def test_no_acknowledged_message_is_lost(form: str, environment: str, tmp_path: Path) -> None:
    reason = catalogue.missing(environment)
    if reason is not None:
        pytest.skip(reason)

    async def scenario() -> None:
        async with catalogue.cluster_in(form, environment, tmp_path) as (fleet, tools):
            for entry in (one for one in ENTRIES if (one.form, one.environment) == (form, environment)):
                if ROUNDS > 1 or not entry.only_long:
                    outcome = await rounds_of(fleet, entry.fault, entry.inject(tools))
                    assert outcome.wrong == Verdict()

    asyncio.run(scenario())
