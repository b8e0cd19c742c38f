"""Recovery of a log of 1 GiB after `kill -9`: time to be ready, with and without the files that can be rebuilt from the log.

Every acknowledged message is read back after each start; one that is missing fails the benchmark. Small messages make the most
records to a GiB, large ones the fewest; both are measured.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

from bench.load import run_load
from bench.loads import ASYNC
from bench.process import BenchError
from bench.report import Check, check_table
from bench.session import Session
from bench.targets import Running, Target

LOG_BYTES = 1 << 30
LOG_BYTES_QUICK = 1 << 27
RECORD_OVERHEAD = 230  # bytes of a stored record without its body, rounded down
QUEUES = 4
READY_AT_MOST_S = 10.0
READY_AFTER_LOSS_AT_MOST_S = 30.0
SETTINGS = {"flushDiskType": ASYNC}


def run(session: Session) -> bool:
    checks: list[Check] = []
    for target in reversed(session.targets):
        for size in (1024, 128):
            checks += _measure(session, target, size, judged=target is session.ours)
    print(check_table(checks))
    session.save("recovery", [asdict(check) for check in checks])
    return not any(check.missed for check in checks)


def _measure(session: Session, target: Target, size: int, *, judged: bool) -> list[Check]:
    log_bytes = LOG_BYTES_QUICK if session.quick else LOG_BYTES
    wanted = log_bytes // (size + RECORD_OVERHEAD)
    with session.store() as store:
        with session.started(target, store, SETTINGS) as running:
            session.say(f"{target.name}: storing {wanted:,} messages of {size} B")
            shape = {"size": size, "queues": QUEUES, "conns": 4, "messages": wanted}
            filled = run_load(running, "batch", topic="log", seconds=0, warm=0, **shape)
            running.kill()
        after_kill_s = _restart(session, target, store, filled.acknowledged)
        for directory in ("consumequeue", "index"):
            _remove_all(store, directory)
        after_loss_s = _restart(session, target, store, filled.acknowledged)
    label = f"{target.name}: {log_bytes >> 20} MiB of {size} B messages"
    return [
        Check(f"{label}, ready after kill -9", after_kill_s, "s", READY_AT_MOST_S if judged else None),
        Check(f"{label}, and queues and index deleted", after_loss_s, "s", READY_AFTER_LOSS_AT_MOST_S if judged else None),
    ]


def _restart(session: Session, target: Target, store: Path, acknowledged: int) -> float:
    with session.started(target, store, SETTINGS) as running:
        session.say(f"{target.name}: ready after {running.ready_s:.2f} s; reading everything back")
        _check_complete(running, acknowledged)
        running.kill()
        return running.ready_s


def _check_complete(running: Running, acknowledged: int) -> None:
    read = run_load(running, "pull", topic="log", queues=QUEUES, conns=QUEUES, passes=1, seconds=0, warm=0)
    if read.msgs < acknowledged or read.fault:
        found = f"{read.msgs:,} could be read back ({read.fault or 'no gaps'})"
        raise BenchError(f"{acknowledged:,} messages were acknowledged, {found}")


def _remove_all(store: Path, directory: str) -> None:
    found = [path for path in store.rglob(directory) if path.is_dir()]
    if not found:
        raise BenchError(f"no directory {directory} under {store}: is the store kept elsewhere?")
    for path in found:
        shutil.rmtree(path)
