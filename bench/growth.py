"""Cost per message with ten thousand, a hundred thousand, a million and ten million stored messages.

The store is filled with batches. At each size single sends are measured, enough of them for the 10 ms resolution of the CPU
clock, and pulls from the oldest message on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bench.load import LoadResult, run_load
from bench.loads import ASYNC
from bench.report import number, table
from bench.session import Session
from bench.targets import Running, Target

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
SENDS = {10_000: 50_000, 100_000: 100_000}  # 300,000 from there on
FLAT = 1.2  # limit of the cost at any size relative to the smallest
QUEUES = 4
SETTINGS = {"flushDiskType": ASYNC}


@dataclass(frozen=True)
class Point:
    target: str
    stored: int
    send_cpu_us: float
    send_msgs_per_s: float
    pull_cpu_us: float
    rss_mb: float


def run(session: Session) -> bool:
    sizes = SIZES[:-1] if session.quick else SIZES
    curves = [_measure(session, target, sizes) for target in reversed(session.targets)]
    print(growth_table(curves))
    session.save("growth", [asdict(point) for curve in curves for point in curve])
    return is_flat(curves[0])


def is_flat(curve: list[Point]) -> bool:
    first = curve[0]
    return all(p.send_cpu_us <= FLAT * first.send_cpu_us and p.pull_cpu_us <= FLAT * first.pull_cpu_us for p in curve)


def growth_table(curves: list[list[Point]]) -> str:
    head = ["broker", "stored", "send CPU us/msg", "send msgs/s", "pull CPU us/msg", "resident MB", f"flat (<= {FLAT}x)"]
    rows = []
    for curve in curves:
        for point in curve:
            verdict = "ok" if is_flat([curve[0], point]) else "MISSED"
            values = (point.send_cpu_us, point.send_msgs_per_s, point.pull_cpu_us, point.rss_mb)
            rows.append([point.target, f"{point.stored:,}", *(number(value) for value in values), verdict])
    return table(head, rows)


def _measure(session: Session, target: Target, sizes: tuple[int, ...]) -> list[Point]:
    curve: list[Point] = []
    stored = 0
    with session.store() as store, session.started(target, store, SETTINGS) as running:
        # Exclude one-time costs of the first requests.
        run_load(running, "send", topic="warm-up", conns=16, depth=16, seconds=session.seconds, warm=0)
        run_load(running, "pull", topic="warm-up", conns=16, seconds=session.seconds, warm=0)
        for size in sizes:
            stored += _send(running, "batch", size - stored).acknowledged
            sent = _send(running, "send", SENDS.get(size, 300_000))
            pulled = run_load(running, "pull", topic="growth", queues=QUEUES, conns=16, seconds=session.seconds)
            stored += sent.acknowledged
            curve.append(Point(target.name, size, sent.cpu_us_per_msg, sent.msgs_per_s, pulled.cpu_us_per_msg, running.rss_mb()))
            costs = f"{sent.cpu_us_per_msg:.1f} us to send, {pulled.cpu_us_per_msg:.2f} us to pull"
            session.say(f"{target.name}: {size:,} stored, {costs}")
    return curve


def _send(running: Running, mode: str, messages: int) -> LoadResult:
    return run_load(running, mode, topic="growth", queues=QUEUES, conns=16, depth=16, seconds=0, warm=0, messages=messages)
