"""Catch-up time of a follower that is 1 GiB behind, while the leader accepts messages.

The follower is stopped in order, the log grows by a gibibyte, and then the follower is started while a load (128 B, 64x1, at half
the rate that the group reached before) runs. Measured from the command that starts it to the moment when it has everything that
the leader had when it was asked a moment before.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import asdict, dataclass
from statistics import median

from bench.ha_groups import ASYNC_MASTER, DLEDGER, Group, Member, start_group
from bench.load import LoadResult
from bench.process import BenchError, wait_until
from bench.report import Check, check_table
from bench.session import Session
from bench.targets import Target

BEHIND_BYTES = 2**30
QUICK_BYTES = 2**28
LIMIT_S = 30.0
_SIZES = (1024, 128)  # of a message; records are some 200 bytes larger
_MOST_S = 120.0
_PORTION_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Catching:
    target: str
    topology: str
    size: int
    behind_mb: float
    start_s: float  # until it replied
    seconds: float
    rate_before: float
    loads: list[LoadResult]  # consecutive runs during the catch-up

    @property
    def name(self) -> str:
        return f"{self.target}, {self.topology}, messages of {self.size} B"

    def checks(self, limit_s: float | None) -> list[Check]:
        rate = median(load.msgs_per_s for load in self.loads)
        faults = sum(load.failed + load.unanswered + load.stray + load.gaps for load in self.loads)
        return [
            Check(f"{self.name}: {self.behind_mb:,.0f} MB behind, in step after", self.seconds, "s", limit_s),
            Check("   of that, until it answered", self.start_s, "s"),
            Check(f"   sends meanwhile, wanted are {self.rate_before / 2:,.0f}", rate, "msgs/s"),
            Check("   p99 of these", max(load.p99_ms for load in self.loads), "ms"),
            Check("   refused, unanswered or out of order", faults, "", 0 if limit_s else None),
        ]


def run(session: Session) -> bool:
    """Print the table; return True if every limit is met."""
    found: list[Catching] = []
    for target in session.targets:
        for topology in (ASYNC_MASTER, DLEDGER):
            for size in _SIZES[:1] if session.quick else _SIZES:
                name = f"{target.name}, {topology}, messages of {size} B"
                if not session.only or any(pattern in name for pattern in session.only):
                    session.say(name)
                    found.append(_catch_up(session, target, topology, size))
    if not found:
        raise BenchError(f"nothing has {' or '.join(session.only)} in its name; try slave, dledger or '128 B'")
    checks = [check for one in found for check in one.checks(LIMIT_S if one.target == session.ours.name else None)]
    print(check_table(checks))
    session.save("catchup", [asdict(one) for one in found])
    return not any(check.missed for check in checks)


def _catch_up(session: Session, target: Target, topology: str, size: int) -> Catching:
    with session.store() as store:
        group = start_group(target, topology, store)
        try:
            group.load("send", topic="bench-warm-up", conns=64, depth=1, seconds=3 if session.quick else 8, warm=0)
            rate = group.load("send", topic="bench-rate", conns=64, depth=1, seconds=session.seconds).msgs_per_s
            group.await_step()
            follower = next(member for member in group.members if member is not group.leader)
            follower.stop()
            begin = group.leader.log_end()
            _grow(group, begin + (QUICK_BYTES if session.quick else BEHIND_BYTES), size)
            os.sync()
            return _measure(session, group, follower, size, begin, rate)
        finally:
            group.kill()


def _grow(group: Group, end: int, size: int) -> None:
    count = _PORTION_BYTES // (size + 200) // 32 * 32
    while group.leader.log_end() < end:
        group.load("batch", topic="bench-backlog", size=size, conns=4, messages=count, seconds=0, warm=0, queues=4)


def _measure(session: Session, group: Group, follower: Member, size: int, begin: int, rate: float) -> Catching:
    behind = group.leader.log_end() - begin
    loads: list[LoadResult] = []
    over = threading.Event()

    def keep_sending() -> None:
        while not over.is_set():
            shape = {"conns": 64, "rate": round(rate / 2), "seconds": session.seconds, "warm": 0}
            loads.append(group.load("send", topic="bench-meanwhile", size=128, queues=4, **shape))

    sending = threading.Thread(target=keep_sending)
    sending.start()
    try:
        began = time.monotonic()
        follower.start()
        assert follower.process is not None
        wait_until(lambda: follower.log_end() >= 0, [follower.process], _MOST_S, "the follower answers")
        start_s = time.monotonic() - began
        wait_until(lambda: group.behind() == 0, [follower.process], _MOST_S, "the follower is in step")
        seconds = time.monotonic() - began
    finally:
        over.set()
        sending.join()
    session.say(f"  {behind / 2**20:,.0f} MB behind, in step after {seconds:.1f} s")
    return Catching(follower.target.name, group.topology, size, behind / 2**20, start_s, seconds, rate, loads)
