"""Cost of metrics: our broker with metrics that are scraped every second, and one without, in turns.

On a shared machine the rate drifts by more than metrics could cost, so many short loads are compared in pairs: one run of
each broker, in alternating order. The limit applies to the median ratio of the pairs; if the quartiles are too far apart,
the result is not evaluated. The cost of a single scrape is measured on an idle broker, as CPU time reported by the broker.
Messages have 128 bytes.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from statistics import median, quantiles

from bench.load import LoadResult, run_load
from bench.loads import ASYNC
from bench.process import BenchError, free_base_port
from bench.report import Check, check_table
from bench.session import Session
from bench.targets import Running

RATIO_AT_LEAST = 0.97
SPREAD_AT_MOST = 0.1  # between the quartiles of 16 pairs; the median is then accurate to about 2 %
PAGE_CPU_MS_AT_MOST = 3.0
EVERY_S = 1.0
PAIRS, QUICK_PAIRS = 16, 4
PAIR_S = 1.0
WARM_UP_S = 3.0
PAGES = 50
SHAPES = ((64, 1), (16, 16))  # connections, sends in flight on each
BODY = 128


def run(session: Session) -> bool:
    port = free_base_port()
    page = f"http://127.0.0.1:{port}/metrics"
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
            for running in (off, on):
                _load(running, conns, depth, WARM_UP_S)
            checks += _measure(session, off, on, page, conns, depth)
        checks.append(Check("processor time of one page", page_cpu_ms(page), "ms", PAGE_CPU_MS_AT_MOST))
    print(check_table(checks))
    session.save("metrics", [asdict(check) for check in checks])
    return not any(check.missed for check in checks)


def _measure(session: Session, off: Running, on: Running, page: str, conns: int, depth: int) -> list[Check]:
    pairs: list[tuple[LoadResult, LoadResult]] = []
    for turn in range(QUICK_PAIRS if session.quick else max(PAIRS, session.rounds)):
        if turn % 2 == 0:
            without = _load(off, conns, depth, PAIR_S)
        with scraped(page):
            with_ = _load(on, conns, depth, PAIR_S)
        if turn % 2:
            without = _load(off, conns, depth, PAIR_S)
        pairs.append((without, with_))
        session.say(f"{conns}x{depth}: {without.msgs_per_s:,.0f} msgs/s without, {with_.msgs_per_s:,.0f} with metrics")
    return judged(f"{conns} connections, {depth} under way on each", pairs)


def judged(name: str, pairs: Sequence[tuple[LoadResult, LoadResult]]) -> list[Check]:
    """Evaluate pairs of rates (without metrics, with metrics)."""
    rates = [median(pair[which].msgs_per_s for pair in pairs) for which in (0, 1)]
    low, middle, high = quantiles([with_.msgs_per_s / without.msgs_per_s for without, with_ in pairs], n=4)
    cpu = median(with_.cpu_us_per_msg / without.cpu_us_per_msg for without, with_ in pairs)
    ratio = f"{name}: the second by the first, median of {len(pairs)} pairs"
    judgement = Check(ratio, middle, "x", RATIO_AT_LEAST, at_least=True)
    if high - low > SPREAD_AT_MOST:
        judgement = Check(f"{ratio} (they differ too much to judge it)", middle, "x")
    return [
        Check(f"{name}: without metrics", rates[0], "msgs/s"),
        Check(f"{name}: with metrics, asked for every {EVERY_S:.0f} s", rates[1], "msgs/s"),
        judgement,
        Check(f"{name}: its lower quartile", low, "x"),
        Check(f"{name}: its upper quartile", high, "x"),
        Check(f"{name}: CPU of a message, with by without", cpu, "x"),
    ]


def _load(running: Running, conns: int, depth: int, seconds: float) -> LoadResult:
    return run_load(running, "send", topic="T", size=BODY, conns=conns, depth=depth, queues=4, seconds=seconds)


def page_cpu_ms(page: str, pages: int = PAGES) -> float:
    """Return the CPU time of the idle broker per scrape."""
    cpu_s = [_cpu_s(read_page(page)) for _ in range(pages + 1)]
    return (cpu_s[-1] - cpu_s[0]) / pages * 1000


def _cpu_s(text: str) -> float:
    for line in text.splitlines():
        if line.startswith("process_cpu_seconds_total{"):
            return float(line.rpartition(" ")[2])
    raise BenchError("the metrics do not say how much processor time the broker has used (process_cpu_seconds_total)")


def read_page(page: str) -> str:
    with urllib.request.urlopen(page, timeout=30) as answer:
        return str(answer.read().decode())


@contextmanager
def scraped(page: str) -> Iterator[None]:
    """Scrape the page now and every second. BenchError if a scrape fails."""
    over = threading.Event()
    problems: list[Exception] = []

    def read() -> None:
        while True:
            try:
                read_page(page)
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
