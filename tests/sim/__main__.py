"""Runner for simulated groups: `python -m tests.sim [--seeds N] [--from SEED] [--jobs N]`, or `--seed SEED` to trace one run.

Each seed is run twice: over the model log and over the broker's store (`--log`).

A run is a function of its seed and of the source tree. A failing seed is printed with the violated invariant. Add it to
failed_seeds.txt, whose seeds are part of the ordinary tests.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import secrets
import sys
import time

from tests.sim.world import World

LOGS = ("model", "store")


def outcome(run: tuple[int, str]) -> tuple[int, str, str, int, int, int]:
    """Return seed, log, violated invariant ("" if none), acknowledged messages, terms, events."""
    seed, log = run
    world = World(seed, real=log == "store")
    try:
        world.run()
        broken = ""
    except Exception as error:
        broken = f"{type(error).__name__}: {error}"
    return seed, log, broken, world.acknowledged, len(world.invariants.leaders), world.events


def show(seed: int, log: str) -> int:
    world = World(seed, trace=True, real=log == "store")
    try:
        world.run()
    finally:
        print("\n".join(world.lines or []))
        print(f"seed {seed}, log {log}: {world.describe()}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Simulate elected groups with faults.")
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds (100)")
    parser.add_argument("--from", dest="first", type=int, help="first seed (random)")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (1)")
    parser.add_argument("--seed", type=int, help="run one seed and print its trace")
    parser.add_argument("--log", choices=LOGS, help="use only this log (both; with --seed: model)")
    options = parser.parse_args()
    logging.getLogger("firearrow.broker").setLevel(logging.ERROR)
    if options.seed is not None:
        return show(options.seed, options.log or "model")
    first = options.first if options.first is not None else secrets.randbelow(10**9)
    seeds = range(first, first + options.seeds)
    began = time.monotonic()
    runs = [(seed, log) for seed in seeds for log in LOGS if options.log in (None, log)]
    failed, acknowledged, terms, events = [], 0, 0, 0
    with multiprocessing.Pool(options.jobs) as pool:
        for seed, log, broken, acked, led, happened in pool.imap_unordered(outcome, runs, chunksize=5):
            acknowledged, terms, events = acknowledged + acked, terms + led, events + happened
            if broken:
                failed.append((seed, log))
                print(f"seed {seed} --log {log}: {broken}", flush=True)
    print(
        f"{len(seeds)} seeds from {first}: {len(failed)} failed; {acknowledged} acknowledged messages, {terms} terms, "
        f"{events} events in {time.monotonic() - began:.0f} s"
    )
    if failed:
        seed, log = failed[0]
        print(f"trace one with: scripts/sim --seed {seed} --log {log}; add it to tests/sim/failed_seeds.txt")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
