"""Rounds of one fault under load, and their outcome."""

from __future__ import annotations

import logging
import os
import random
import statistics
import time
from dataclasses import dataclass, field

from tests.chaos.faults import Inject, Scene
from tests.chaos.fleet import Fleet
from tests.chaos.workload import Verdict, Workload, verdict

ROUNDS = int(os.environ.get("FIREARROW_CHAOS_ROUNDS", "1"))
SEED = int(os.environ.get("FIREARROW_CHAOS_SEED", str(random.randrange(10**6))))
STEADY = 100

log = logging.getLogger("chaos")


@dataclass
class Outcome:
    fault: str
    form: str
    rounds: int
    sent: int
    acknowledged: int
    wrong: Verdict
    refused: dict[str, int]
    gaps_s: list[float] = field(default_factory=list)

    @property
    def median_gap_s(self) -> float:
        return statistics.median(self.gaps_s)

    def line(self) -> str:
        return (
            f"{self.form}, {self.fault}: {self.rounds} rounds, {self.sent} sent, {self.acknowledged} acknowledged,"
            f" {len(self.wrong.lost)} lost, gap {self.median_gap_s:.2f} s, worst {max(self.gaps_s):.2f} s; {self.refused}"
            + ("" if self.wrong == Verdict() else f"; {self.wrong}")
        )


async def rounds_of(fleet: Fleet, fault: str, inject: Inject, rounds: int = ROUNDS) -> Outcome:
    """Inject the fault in rounds, restore the cluster and verify the acknowledged messages."""
    log.info("FIREARROW_CHAOS_SEED=%d", SEED)
    topic = f"chaos-{fault.replace(' ', '-')}"
    gaps: list[float] = []
    async with Workload(fleet, topic) as load:
        scene = Scene(fleet, load, random.Random(SEED))
        for _ in range(rounds):
            await load.acknowledged(STEADY)
            began = time.monotonic()
            await inject(scene)
            await load.acknowledged(STEADY)
            gaps.append(load.ledger.longest_gap_s(began, time.monotonic()))
    await fleet.complete()
    wrong = await verdict(load, await fleet.masters())
    ledger = load.ledger
    outcome = Outcome(fault, fleet.form, rounds, len(ledger.sent), len(ledger.acknowledged), wrong, ledger.refused, gaps)
    log.info("%s", outcome.line())
    return outcome
