"""Targets of benchmarks: a target starts a name server and a broker on a store directory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from bench.process import Process, accepts, wait_until

START_TIMEOUT_S = 180.0
QUIET_CPU = 0.05  # of a core
QUIET_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Running:
    """A started broker. `ready_s` is the time from the first command until all ports accepted connections."""

    broker: Process
    others: Sequence[Process]
    port: int
    ready_s: float

    def rss_mb(self) -> float:
        return self.broker.rss_mb() + sum(process.rss_mb() for process in self.others)

    def cpu_s(self) -> float:
        return self.broker.cpu_s() + sum(process.cpu_s() for process in self.others)

    def stop(self) -> None:
        for process in (self.broker, *self.others):
            process.stop()

    def kill(self) -> None:
        """Kill all processes, as a crash would."""
        for process in (self.broker, *self.others):
            process.kill()


class Target(Protocol):
    """A kind of broker."""

    name: str

    def prepare(self) -> None:
        """Fetch or check what `start` needs. May take minutes the first time."""

    def start(self, store: Path, settings: Mapping[str, str]) -> Running:
        """Start on `store` (created if missing) with Apache's setting names; return when all ports accept."""


def await_ports(ports: Sequence[int], processes: Sequence[Process], began: float, name: str) -> float:
    """Wait until every port accepts; return the seconds since `began` (monotonic)."""
    for port in ports:
        wait_until(partial(accepts, port), processes, START_TIMEOUT_S, f"{name} opens port {port}")
    return time.monotonic() - began


def await_quiet(running: Sequence[Running]) -> None:
    """Wait until the brokers together use less than 5 % of a core, or 30 s have passed."""
    deadline = time.monotonic() + QUIET_TIMEOUT_S
    interval_s = 0.5
    before = sum(each.cpu_s() for each in running)
    while time.monotonic() < deadline:
        time.sleep(interval_s)
        after = sum(each.cpu_s() for each in running)
        if after - before < QUIET_CPU * interval_s:
            return
        before = after
