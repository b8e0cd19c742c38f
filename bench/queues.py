"""Ten thousand queues (2,500 topics of 4): send rate relative to 4 queues, memory, and restart time."""

from __future__ import annotations

from dataclasses import asdict
from statistics import median

from bench.load import run_load
from bench.loads import ASYNC
from bench.report import Check, check_table
from bench.session import Session
from bench.targets import Running, Target

TOPICS = 2500
QUEUES = 4
RATE_AT_LEAST = 0.8
RSS_AT_MOST_MB = 300.0
RESTART_AT_MOST_S = 5.0
SETTINGS = {"flushDiskType": ASYNC}


def run(session: Session) -> bool:
    checks: list[Check] = []
    for target in reversed(session.targets):
        checks += _measure(session, target, judged=target is session.ours)
    print(check_table(checks))
    session.save("queues", [asdict(check) for check in checks])
    return not any(check.missed for check in checks)


def _measure(session: Session, target: Target, *, judged: bool) -> list[Check]:
    """Measure few and many queues in turns on one broker, under equal conditions."""
    few: list[float] = []
    many: list[float] = []
    with session.store() as store:
        with session.started(target, store, SETTINGS) as running:
            session.say(f"{target.name}: making {TOPICS} topics of {QUEUES} queues")
            run_load(running, "send", topic="many", topics=TOPICS, conns=4, seconds=0, warm=0, messages=2 * TOPICS * QUEUES)
            for _ in range(session.rounds):
                few.append(_rate(session, running, "few", 1))
                many.append(_rate(session, running, "many", TOPICS))
                session.say(f"{target.name}: {few[-1]:,.0f} msgs/s to 4 queues, {many[-1]:,.0f} to {TOPICS * QUEUES}")
            rss_mb = running.rss_mb()
        with session.started(target, store, SETTINGS) as restarted:
            restart_s = restarted.ready_s
    ratio = median(many) / median(few)
    return [
        Check(f"{target.name}: send rate with 4 queues", median(few), "msgs/s"),
        Check(f"{target.name}: send rate with {TOPICS * QUEUES:,} queues", median(many), "msgs/s"),
        Check(f"{target.name}: the second by the first", ratio, "x", RATE_AT_LEAST if judged else None, at_least=True),
        Check(f"{target.name}: resident memory after the load", rss_mb, "MB", RSS_AT_MOST_MB if judged else None),
        Check(f"{target.name}: restart, command to ports open", restart_s, "s", RESTART_AT_MOST_S if judged else None),
    ]


def _rate(session: Session, running: Running, topic: str, topics: int) -> float:
    shape = {"topics": topics, "queues": QUEUES, "conns": 16, "depth": 16, "seconds": session.seconds}
    return run_load(running, "send", topic=topic, **shape).msgs_per_s
