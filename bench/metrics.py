"""What metrics cost: our broker with metrics, asked for every two seconds, and one without, in turns.

The rate is that of the sends; the bar is on the ratio of the medians. Messages have 128 bytes.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from statistics import median

from bench.load import LoadResult, run_load
from bench.loads import ASYNC
from bench.process import BenchError, free_base_port
from bench.report import Check, check_table
from bench.session import Session
from bench.targets import Running

RATIO_AT_LEAST = 0.97
EVERY_S = 2.0
SHAPES = ((64, 1), (16, 16))  # connections, sends under way on each
BODY = 128


def run(session: Session) -> bool:
    port = free_base_port()
    with_metrics = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
    checks: list[Check] = []
    with ExitStack() as stack:
        off, on = (
            stack.enter_context(
                session.started(session.ours, stack.enter_context(session.store()), {"flushDiskType": ASYNC, **settings})
            )
            for settings in ({}, with_metrics)
        )
        for conns, depth in SHAPES:
            checks += _measure(session, off, on, f"http://127.0.0.1:{port}/metrics", conns, depth)
    print(check_table(checks))
    session.save("metrics", [asdict(check) for check in checks])
    return not any(check.missed for check in checks)


def _measure(session: Session, off: Running, on: Running, page: str, conns: int, depth: int) -> list[Check]:
    """Both brokers have the same neighbours and age; which is first changes from round to round."""
    without: list[LoadResult] = []
    with_: list[LoadResult] = []
    for turn in range(session.rounds):
        for running in (off, on) if turn % 2 == 0 else (on, off):
            if running is off:
                without.append(_load(session, off, conns, depth))
            else:
                with scraped(page):
                    with_.append(_load(session, on, conns, depth))
        session.say(f"{conns}x{depth}: {without[-1].msgs_per_s:,.0f} msgs/s without, {with_[-1].msgs_per_s:,.0f} with metrics")
    rates = [median(one.msgs_per_s for one in results) for results in (without, with_)]
    costs = [median(one.cpu_us_per_msg for one in results) for results in (without, with_)]
    name = f"{conns} connections, {depth} under way on each"
    return [
        Check(f"{name}: without metrics", rates[0], "msgs/s"),
        Check(f"{name}: with metrics, asked for every {EVERY_S:.0f} s", rates[1], "msgs/s"),
        Check(f"{name}: the second by the first", rates[1] / rates[0], "x", RATIO_AT_LEAST, at_least=True),
        Check(f"{name}: CPU of a message, with by without", costs[1] / costs[0], "x"),
    ]


def _load(session: Session, running: Running, conns: int, depth: int) -> LoadResult:
    return run_load(running, "send", topic="T", size=BODY, conns=conns, depth=depth, queues=4, seconds=session.seconds)


@contextmanager
def scraped(page: str) -> Iterator[None]:
    """Somebody reads the page now, and every two seconds. BenchError if he was not answered."""
    over = threading.Event()
    problems: list[Exception] = []

    def read() -> None:
        while True:
            try:
                with urllib.request.urlopen(page, timeout=30) as answer:
                    answer.read()
            except OSError as problem:
                problems.append(problem)
                return
            if over.wait(EVERY_S):
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()
    if problems:
        raise BenchError(f"the metrics could not be read from {page}: {problems[0]}")
