"""CPU time per message of our broker under every load; with two checkouts, the ratio of the second to the first.

    scripts/bench alone --checkout ../before --checkout . --json

Both brokers run at the same time, and one is idle while the other is measured (`compare.py`). Every load runs in ABBA order, with
the same load program and the same settings, so that a change in the speed of the machine affects both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.compare import measure_loads, results_of, selected_loads
from bench.load import LoadResult
from bench.loads import Load
from bench.report import Comparison, number, table
from bench.session import Session

CPU_AT_MOST = 1.03  # ratio of the second checkout to the first
WARM_UP_S = 4.0


@dataclass(frozen=True)
class LoadCost:
    """Medians of one load, first checkout first; `ratio` compares CPU times turn by turn."""

    load: str
    cpu_us_per_msg: list[float]
    msgs_per_s: list[float]
    ratio: float | None
    faults: list[str]

    @property
    def missed(self) -> bool:
        return bool(self.faults) or (self.ratio is not None and self.ratio > CPU_AT_MOST)


def run(session: Session) -> bool:
    """Print a table, or JSON; return whether the second checkout needs at most 3 % more CPU time under every load."""
    loads = selected_loads(session)
    results = measure_loads(session, loads, WARM_UP_S)
    costs = [load_cost(load, *(results_of(session, target, load, results) for target in session.targets)) for load in loads]
    names = [target.name for target in session.targets]
    rows: list[dict[str, Any]] = [asdict(cost) for cost in costs]
    print(json.dumps({"checkouts": names, "loads": rows}, indent=1) if session.json else cost_table(costs, names))
    session.save("alone", {"checkouts": names, "loads": rows})
    return not any(cost.missed for cost in costs)


def load_cost(load: Load, *checkouts: Sequence[LoadResult]) -> LoadCost:
    """Summarise the turns of one or two checkouts."""
    ratio = Comparison(load, checkouts[1], checkouts[0]).ratio("cpu_us_per_msg") if len(checkouts) == 2 else None
    return LoadCost(
        load.name,
        [median(result.cpu_us_per_msg for result in turns) for turns in checkouts],
        [median(result.msgs_per_s for result in turns) for turns in checkouts],
        ratio,
        [result.fault for turns in checkouts for result in turns if result.fault],
    )


def cost_table(costs: Sequence[LoadCost], names: Sequence[str]) -> str:
    """Format the costs as a Markdown table."""
    head = ["load", *(f"{metric}, {name}" for metric in ("CPU us/msg", "msgs/s") for name in names), "CPU ratio", ""]
    rows = [
        [
            cost.load,
            *(number(value) for value in (*cost.cpu_us_per_msg, *cost.msgs_per_s)),
            "-" if cost.ratio is None else f"{cost.ratio:.3f}",
            "MISSED" if cost.missed else "ok",
        ]
        for cost in costs
    ]
    return table(head, rows)
