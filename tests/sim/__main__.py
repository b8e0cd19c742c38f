"""Runs simulated groups: `python -m tests.sim [--seeds N] [--from SEED] [--jobs N]`, or `--seed SEED` to see one in full.

Each seed is run twice: over a small log that only keeps the promises of RaftLog, and over the broker's own store (`--log`).

Every run is a function of its seed and of this source tree. A seed that fails is printed with what was broken; it belongs into
failed_seeds.txt, which the ordinary tests run for ever after.
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
    """Seed, log, what was broken ("" when nothing), acknowledged messages, terms, events."""
    seed, log = run
    world = World(seed, real=log == "store")
    try:
        world.run()
        broken = ""
    except Exception as error:
        broken = f"{type(error).__name__}: {error}"
    return seed, log, broken, world.acknowledged, len(world.judge.leaders), world.events


def show(seed: int, log: str) -> int:
    world = World(seed, trace=True, real=log == "store")
    try:
        world.run()
    finally:
        print("\n".join(world.lines or []))
        print(f"seed {seed}, log {log}: {world.describe()}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Simulates elected groups under misfortune.")
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--from", dest="first", type=int, help="the first seed (a new one each time)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--seed", type=int, help="run this one and print everything that happens")
    parser.add_argument("--log", choices=LOGS, help="over this log only (both; with --seed: model)")
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
        print(f"see one with: scripts/sim --seed {seed} --log {log}; add it to tests/sim/failed_seeds.txt")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
