"""Start-up time, from the command until every port accepts, and memory of an idle broker."""

from __future__ import annotations

import time
from dataclasses import asdict
from statistics import median

from bench.report import Check, check_table
from bench.session import Session
from bench.targets import Target

READY_AT_MOST_S = 1.0
RSS_AT_MOST_MB = 80.0
SETTLE_S = 3.0  # for work that a process does after its start


def run(session: Session) -> bool:
    checks: list[Check] = []
    for target in reversed(session.targets):
        checks += _measure(session, target, judged=target is session.ours)
    print(check_table(checks))
    session.save("start", [asdict(check) for check in checks])
    return not any(check.missed for check in checks)


def _measure(session: Session, target: Target, *, judged: bool) -> list[Check]:
    ready_s: list[float] = []
    rss_mb: list[float] = []
    for number in range(1 + session.rounds):
        with session.store() as store, session.started(target, store, {}) as running:
            if number == 0:
                continue  # the first start after an installation writes the bytecode cache
            time.sleep(SETTLE_S)
            ready_s.append(running.ready_s)
            rss_mb.append(running.rss_mb())
            session.say(f"{target.name}: ready after {running.ready_s:.2f} s, {rss_mb[-1]:.0f} MB")
    return [
        Check(f"{target.name}: command to ports open", median(ready_s), "s", READY_AT_MOST_S if judged else None),
        Check(f"{target.name}: resident memory, idle", median(rss_mb), "MB", RSS_AT_MOST_MB if judged else None),
    ]
