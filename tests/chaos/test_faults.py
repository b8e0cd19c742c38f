"""Clusters as real processes, broken under load: the faults of the catalogue, each FIREARROW_CHAOS_ROUNDS times (once)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos import catalogue
from tests.chaos.catalogue import ENTRIES
from tests.chaos.scenario import ROUNDS, rounds_of
from tests.chaos.workload import Verdict


@pytest.mark.timeout(180 + 120 * ROUNDS)
@pytest.mark.parametrize(
    ("form", "surroundings"),
    list(dict.fromkeys((entry.form, entry.surroundings) for entry in ENTRIES)),
    ids=lambda value: str(value),
)
def test_nothing_that_was_acknowledged_is_lost(form: str, surroundings: str, tmp_path: Path) -> None:
    reason = catalogue.missing(surroundings)
    if reason is not None:
        pytest.skip(reason)

    async def story() -> None:
        async with catalogue.scenery(form, surroundings, tmp_path) as (fleet, tools):
            for entry in (one for one in ENTRIES if (one.form, one.surroundings) == (form, surroundings)):
                if ROUNDS > 1 or not entry.only_long:
                    outcome = await rounds_of(fleet, entry.fault, entry.inject(tools))
                    assert outcome.wrong == Verdict()

    asyncio.run(story())
