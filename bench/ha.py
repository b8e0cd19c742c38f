"""Replicated groups: the same loads on Apache's brokers and on ours, as a master with a slave and as an elected group of three.

All members share this machine. In each round every group is started on empty stores and warmed up, and runs the loads in
sequence; before each load every member has the complete log. The CPU time per message is that of all members together.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from statistics import median

from bench.ha_groups import ASYNC_MASTER, DLEDGER, SYNC_MASTER, TOPOLOGIES, Group, start_group
from bench.load import LoadResult
from bench.loads import ASYNC, QUEUES, Bars, Load
from bench.process import BenchError
from bench.report import Check, Comparison, check_table, comparison_table
from bench.session import Session
from bench.targets import Target

WARM_UP_S = 12.0
WARM_UP_QUICK_S = 6.0
SHAPES = ((64, 1), (16, 16))
SYNC_TO_ASYNC = 0.7  # of ours
BARS = {
    ASYNC_MASTER: Bars(rate_at_least=None, cpu_at_most=math.inf, p999_at_most=None),
    SYNC_MASTER: Bars(rate_at_least=1.3, cpu_at_most=math.inf, p999_at_most=None),
    DLEDGER: Bars(rate_at_least=3.0, cpu_at_most=math.inf, p999_at_most=None),
}

Results = dict[tuple[str, str], list[LoadResult]]  # (owner, load) -> one result per round


def run(session: Session) -> bool:
    """Print the tables; return True if every limit is met."""
    chosen = {topology: loads for topology in TOPOLOGIES if (loads := _loads(topology, session.only))}
    if not chosen:
        names = ", ".join(load.name for topology in TOPOLOGIES for load in _loads(topology, []))
        raise BenchError(f"nothing has {' or '.join(session.only)} in its name; the names: {names}")
    results: Results = defaultdict(list)
    for number in range(session.rounds):
        for topology, loads in chosen.items():
            for target in session.targets if number % 2 == 0 else reversed(session.targets):
                session.say(f"round {number + 1} of {session.rounds}: {target.name}, {topology}")
                _run_loads(session, target, topology, loads, results)
    comparisons = [_compare(session, load, results) for loads in chosen.values() for load in loads]
    checks = double_write(session, results)
    print("ASYNC_FLUSH on all members, which share this machine; CPU of all members together.")
    print(comparison_table(comparisons, session.ours.name, session.reference.name if session.reference else "not measured"))
    if checks:
        print("\n" + check_table(checks))
    rows = [{"whose": whose, "load": load, "rounds": [asdict(r) for r in rounds]} for (whose, load), rounds in results.items()]
    session.save("ha", rows)
    return not any(comparison.missed() for comparison in comparisons) and not any(check.missed for check in checks)


def _loads(topology: str, patterns: list[str]) -> list[Load]:
    loads = [_load(topology, connections, depth) for connections, depth in SHAPES]
    return [load for load in loads if not patterns or any(pattern in load.name for pattern in patterns)]


def _load(topology: str, connections: int, depth: int) -> Load:
    name = f"{topology}: send 128B {connections}x{depth}"
    return Load(name, ASYNC, "send", 128, connections, depth, BARS[topology])


def _run_loads(session: Session, target: Target, topology: str, loads: list[Load], results: Results) -> None:
    with session.store() as store:
        group = start_group(target, topology, store)
        try:
            _warm_up(session, group)
            for load in loads:
                os.sync()
                group.await_step()
                shape = {"conns": load.connections, "depth": load.depth, "seconds": session.seconds}
                topic = f"bench-{load.connections}x{load.depth}"
                result = group.load("send", topic=topic, size=load.size, queues=QUEUES, **shape)
                behind_mb = group.behind() / 2**20
                results[(_whose(session, target), load.name)].append(result)
                figures = f"{result.msgs_per_s:,.0f} msgs/s, {result.cpu_us_per_msg:.1f} us, p99.9 {result.p999_ms:.2f} ms"
                fault = f" ({result.fault})" if result.fault else ""
                session.say(f"  {load.name}: {figures}, then {behind_mb:.1f} MB behind{fault}")
        finally:
            group.kill()  # the stores are not needed afterwards


def _warm_up(session: Session, group: Group) -> None:
    part_s = (WARM_UP_QUICK_S if session.quick else WARM_UP_S) / 2
    for connections, depth in SHAPES:
        group.load("send", topic="bench-warm-up", conns=connections, depth=depth, seconds=part_s, warm=0)


def _whose(session: Session, target: Target) -> str:
    return ("ours: " if target is session.ours else "reference: ") + target.name


def _compare(session: Session, load: Load, results: Results) -> Comparison:
    reference = results[(_whose(session, session.reference), load.name)] if session.reference else []
    return Comparison(load, results[(_whose(session, session.ours), load.name)], reference)


def double_write(session: Session, results: Mapping[tuple[str, str], list[LoadResult]]) -> list[Check]:
    """Compare synchronous with asynchronous replication, where both were measured."""
    checks = []
    for connections, depth in SHAPES:
        rates = []
        for topology in (SYNC_MASTER, ASYNC_MASTER):
            rounds = results.get((_whose(session, session.ours), _load(topology, connections, depth).name), [])
            rates.append(median(result.msgs_per_s for result in rounds) if rounds else 0.0)
        if all(rates):
            what = f"{session.ours.name}: SYNC_MASTER compared with ASYNC_MASTER, 128B {connections}x{depth}"
            checks.append(Check(what, rates[0] / rates[1], "", SYNC_TO_ASYNC, at_least=True))
    return checks
