"""Long chaos runs: every fault for many rounds, with a table of the results.

python -m tests.chaos [--rounds N] [--only TEXT] [--list]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.chaos import catalogue
from tests.chaos.catalogue import Entry
from tests.chaos.scenario import Outcome, rounds_of
from tests.chaos.workload import Verdict

COLUMNS = ("form", "fault", "rounds", "sent", "acknowledged", "lost", "wrong", "median gap", "worst gap")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description="Breaks clusters of real processes under load.")
    parser.add_argument("--rounds", metavar="N", type=int, default=10, help="of each fault (default: %(default)s)")
    parser.add_argument("--only", metavar="TEXT", default="", help="faults whose form and name contain this")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    options = parser.parse_args()
    chosen = [entry for entry in catalogue.ENTRIES if options.only in f"{entry.form}, {entry.fault}"]
    if options.list or not chosen:
        print("\n".join(f"{entry.form}, {entry.fault}" for entry in chosen) or f"no fault has {options.only!r} in its name")
        return 0 if chosen else 2
    outcomes = asyncio.run(_all(chosen, options.rounds))
    _print(outcomes)
    return int(any(outcome.wrong != Verdict() for outcome in outcomes))


async def _all(entries: list[Entry], rounds: int) -> list[Outcome]:
    by_setting: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        by_setting[entry.form, entry.environment].append(entry)
    outcomes: list[Outcome] = []
    for (form, environment), group in by_setting.items():
        reason = catalogue.missing(environment)
        if reason is not None:
            print(f"left out, {', '.join(entry.fault for entry in group)}: {reason}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="firearrow-chaos-") as directory:
            async with catalogue.cluster_in(form, environment, Path(directory)) as (fleet, tools):
                for entry in group:
                    outcomes.append(await rounds_of(fleet, entry.fault, entry.inject(tools), rounds))
                    print(outcomes[-1].line(), file=sys.stderr)
    return outcomes


def _print(outcomes: list[Outcome]) -> None:
    rows: list[tuple[str, ...]] = [COLUMNS]
    for one in outcomes:
        wrong = len(one.wrong.doubled) + len(one.wrong.foreign) + len(one.wrong.out_of_order)
        numbers = (one.rounds, one.sent, one.acknowledged, len(one.wrong.lost), wrong)
        rows.append((one.form, one.fault, *map(str, numbers), f"{one.median_gap_s:.2f} s", f"{max(one.gaps_s):.2f} s"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
