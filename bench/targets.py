"""Targets of benchmarks: a target starts a name server and a broker on a store directory."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from bench.process import Process, accepts, wait_until

START_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Running:
    """A started broker. `ready_s` is the time from the first command until all ports accepted connections."""

    broker: Process
    others: Sequence[Process]
    port: int
    ready_s: float

    def rss_mb(self) -> float:
        return self.broker.rss_mb() + sum(process.rss_mb() for process in self.others)

    def pause(self) -> None:
        """Suspend all processes; they keep their memory but use no CPU time."""
        for process in (self.broker, *self.others):
            process.signal(signal.SIGSTOP)

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """Resume after `pause`, and pause again at the end."""
        for process in (self.broker, *self.others):
            process.signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.pause()

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
