"""The comparison: every load on Apache's broker and on ours, in several rounds that alternate who comes first.

In each round each broker is started on an empty store, warmed up, and given all loads of one flush mode one after the other. What
an earlier load left to be written to the disk is written before the next begins.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import asdict
from itertools import groupby

from bench.load import LoadResult, run_load
from bench.loads import KINDS, QUEUES, Load, all_loads, select
from bench.process import BenchError
from bench.report import Comparison, compare, comparison_table
from bench.session import Session
from bench.targets import Running, Target

BACKLOG_MESSAGES = {128: 400_000, 1024: 100_000}
WARM_UP_S = 12.0  # a JVM compiles its hot paths meanwhile
WARM_UP_QUICK_S = 4.0

Results = dict[tuple[str, str], list[LoadResult]]  # (target, load) -> one result for each round


def run(session: Session) -> bool:
    """Prints the table; returns whether every bar was kept."""
    loads = select(all_loads(), session.only)
    if not loads:
        names = ", ".join(load.name for load in all_loads())
        raise BenchError(f"no load has {' or '.join(session.only)} in its name; the names: {names}")
    results: Results = defaultdict(list)
    for number in range(session.rounds):
        for flush, group in groupby(loads, key=lambda load: load.flush):
            chosen = list(group)
            # The reference comes first in the first round, which finds the open-loop rate; then they take turns.
            for target in session.targets if number % 2 == 0 else reversed(session.targets):
                session.say(f"round {number + 1} of {session.rounds}: {target.name}, {flush}")
                _run_loads(session, target, flush, chosen, results)
    comparisons = [_compare(session, load, results) for load in loads]
    print(comparison_table(comparisons, session.ours.name, session.reference.name if session.reference else "not measured"))
    rows = [{"target": name, "load": load, "rounds": [asdict(r) for r in rounds]} for (name, load), rounds in results.items()]
    session.save("compare", rows)
    return not any(comparison.missed() for comparison in comparisons)


def _compare(session: Session, load: Load, results: Results) -> Comparison:
    reference = results[(_key(session, session.reference), load.name)] if session.reference else []
    return compare(load, results[(_key(session, session.ours), load.name)], reference)


def _key(session: Session, target: Target) -> str:
    # Apache may be measured against itself: then the two are told apart by their place.
    return ("ours: " if target is session.ours else "reference: ") + target.name


def _run_loads(session: Session, target: Target, flush: str, loads: list[Load], results: Results) -> None:
    with session.store() as store, session.started(target, store, {"flushDiskType": flush}) as running:
        _warm_up(session, running, {load.mode for load in loads})
        for size in sorted({load.size for load in loads if load.mode == "pull"}):
            topic = next(load.topic for load in loads if load.mode == "pull" and load.size == size)
            count = BACKLOG_MESSAGES[size]
            run_load(running, "batch", topic=topic, size=size, queues=QUEUES, conns=4, messages=count, seconds=0, warm=0)
        for load in loads:
            os.sync()
            result = _measure(session, target, running, load, results)
            results[(_key(session, target), load.name)].append(result)
            figures = f"{result.msgs_per_s:,.0f} msgs/s, {result.cpu_us_per_msg:.1f} us, p99.9 {result.p999_ms:.2f} ms"
            session.say(f"  {load.name}: {figures}" + (f" ({result.fault})" if result.fault else ""))
        running.kill()  # nobody will read this store again


def _warm_up(session: Session, running: Running, modes: set[str]) -> None:
    part_s = (WARM_UP_QUICK_S if session.quick else WARM_UP_S) / 4
    run_load(running, "send", topic="bench-warm-up", conns=16, depth=16, seconds=2 * part_s, warm=0)
    run_load(running, "batch", topic="bench-warm-up", conns=4, seconds=part_s, warm=0)
    run_load(running, "pull", topic="bench-warm-up", conns=16, seconds=part_s, warm=0)
    for kind in KINDS:
        if kind in modes:
            run_load(running, kind, topic=f"bench-warm-up-{kind}", conns=16, depth=16, seconds=part_s, warm=0)


def _measure(session: Session, target: Target, running: Running, load: Load, results: Results) -> LoadResult:
    shape: dict[str, str | float] = {"topic": load.topic, "size": load.size, "queues": QUEUES}
    shape |= {"conns": load.connections, "depth": load.depth, "seconds": session.seconds}
    if load.half_of:
        shape["rate"] = round(_reference_rate(session, running, load, results) / 2)
    return run_load(running, load.mode, **shape)


def _reference_rate(session: Session, running: Running, load: Load, results: Results) -> float:
    """What the reference reached in the first round under the full load; measured now if that was not selected."""
    assert load.half_of is not None
    key = (_key(session, session.targets[0]), load.half_of)
    if not results[key]:
        full = next(other for other in all_loads() if other.name == load.half_of)
        results[key].append(_measure(session, session.targets[0], running, full, results))
    return results[key][0].msgs_per_s
