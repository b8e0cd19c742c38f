"""Comparison of two brokers: every load on the reference and on ours, in turns.

In each round both brokers are started on empty stores and warmed up. Then every load runs on both twice, in ABBA order. The
speed of a shared machine changes within a minute by more than the brokers differ, so the two runs of a turn are compared;
the ratio of a load is the median over its turns. A turn starts when both brokers are idle and the dirty pages of the last turn
are on disk: a broker may have work left after its last reply.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict
from itertools import groupby

from bench.load import LoadResult, run_load
from bench.loads import KINDS, QUEUES, Load, all_loads, select
from bench.process import BenchError
from bench.report import Comparison, comparison_table
from bench.session import Session
from bench.targets import Running, Target, await_quiet

BACKLOG_MESSAGES = {128: 400_000, 1024: 100_000}
WARM_UP_S = 12.0  # for the JIT compiler of a JVM
WARM_UP_QUICK_S = 4.0

TURNS = 2  # per load and round; they share its seconds

Results = dict[tuple[str, str], list[LoadResult]]  # (target, load) -> one result per turn


def run(session: Session) -> bool:
    """Print the table; return True if every limit is met."""
    loads = selected_loads(session)
    results = measure_loads(session, loads, WARM_UP_QUICK_S if session.quick else WARM_UP_S)
    comparisons = [_compare(session, load, results) for load in loads]
    print(comparison_table(comparisons, session.ours.name, session.reference.name if session.reference else "not measured"))
    rows = [{"target": name, "load": load, "turns": [asdict(r) for r in turns]} for (name, load), turns in results.items()]
    session.save("compare", rows)
    return not any(comparison.missed() for comparison in comparisons)


def selected_loads(session: Session) -> list[Load]:
    """Return the loads chosen with --only, or all."""
    loads = select(all_loads(), session.only)
    if not loads:
        names = ", ".join(load.name for load in all_loads())
        raise BenchError(f"no load has {' or '.join(session.only)} in its name; the names: {names}")
    return loads


def measure_loads(session: Session, loads: list[Load], warm_up_s: float) -> Results:
    """Run every load on every target, in ABBA order."""
    results: Results = defaultdict(list)
    for number in range(session.rounds):
        for flush, group in groupby(loads, key=lambda load: load.flush):
            session.say(f"round {number + 1} of {session.rounds}: {flush}")
            _run_loads(session, flush, list(group), results, warm_up_s)
    return results


def results_of(session: Session, target: Target, load: Load, results: Results) -> list[LoadResult]:
    return results[(_key(session, target), load.name)]


def _compare(session: Session, load: Load, results: Results) -> Comparison:
    reference = results_of(session, session.reference, load, results) if session.reference else []
    return Comparison(load, results_of(session, session.ours, load, results), reference)


def _key(session: Session, target: Target) -> str:
    # Both may have the same name: Apache can be measured against itself.
    return ("ours: " if target is session.ours else "reference: ") + target.name


def _run_loads(session: Session, flush: str, loads: list[Load], results: Results, warm_up_s: float) -> None:
    with ExitStack() as stack:
        brokers: list[tuple[Target, Running]] = []
        for target in session.targets:
            store = stack.enter_context(session.store())
            running = stack.enter_context(session.started(target, store, {"flushDiskType": flush}))
            stack.callback(running.kill)  # the store is not needed afterwards
            _warm_up(running, loads, warm_up_s)
            brokers.append((target, running))
        for load in loads:
            rate = _rate(session, brokers[0], load, results)
            for turn in range(TURNS):
                for target, running in brokers if turn % 2 == 0 else reversed(brokers):
                    os.sync()
                    await_quiet([each for _, each in brokers])
                    result = _measure(session, running, load, rate)
                    results[(_key(session, target), load.name)].append(result)
                    figures = f"{result.msgs_per_s:,.0f} msgs/s, {result.cpu_us_per_msg:.1f} us, p99.9 {result.p999_ms:.2f} ms"
                    session.say(f"  {load.name}, {target.name}: {figures}" + (f" ({result.fault})" if result.fault else ""))


def _warm_up(running: Running, loads: list[Load], seconds: float) -> None:
    """Exercise every code path of the loads, and store the backlog for pulls."""
    part_s = seconds / 4
    run_load(running, "send", topic="bench-warm-up", conns=16, depth=16, seconds=2 * part_s, warm=0)
    run_load(running, "batch", topic="bench-warm-up", conns=4, seconds=part_s, warm=0)
    run_load(running, "pull", topic="bench-warm-up", conns=16, seconds=part_s, warm=0)
    for kind in KINDS:
        if any(load.mode == kind for load in loads):
            run_load(running, kind, topic=f"bench-warm-up-{kind}", conns=16, depth=16, seconds=part_s, warm=0)
    for topic, size in sorted({(load.topic, load.size) for load in loads if load.mode == "pull"}):
        count = BACKLOG_MESSAGES[size]
        run_load(running, "batch", topic=topic, size=size, queues=QUEUES, conns=4, messages=count, seconds=0, warm=0)


def _measure(session: Session, running: Running, load: Load, rate: int | None) -> LoadResult:
    shape: dict[str, str | float] = {"topic": load.topic, "size": load.size, "queues": QUEUES}
    shape |= {"conns": load.connections, "depth": load.depth, "seconds": session.seconds / TURNS}
    if rate is not None:
        shape["rate"] = rate
    return run_load(running, load.mode, **shape)


def _rate(session: Session, first: tuple[Target, Running], load: Load, results: Results) -> int | None:
    """Return the rate of an open-loop load: half of the first target's rate under full load, measured now if necessary."""
    if load.half_of is None:
        return None
    target, running = first
    reached = results[(_key(session, target), load.half_of)]
    if not reached:
        full = next(other for other in all_loads() if other.name == load.half_of)
        reached.append(_measure(session, running, full, None))
    return round(reached[0].msgs_per_s / 2)
