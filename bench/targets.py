"""What can be measured: a target starts a name server and a broker on a store directory and says where they listen."""

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
    """A started broker. `ready_s` is the time from the first command to the moment when all its ports accepted."""

    broker: Process
    others: Sequence[Process]
    port: int
    ready_s: float

    def rss_mb(self) -> float:
        return self.broker.rss_mb() + sum(process.rss_mb() for process in self.others)

    def pause(self) -> None:
        """All of it stops where it is, and uses nothing but its memory."""
        for process in (self.broker, *self.others):
            process.signal(signal.SIGSTOP)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """It goes on meanwhile, after `pause`."""
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
        """Ends all of it as a crash would."""
        for process in (self.broker, *self.others):
            process.kill()


class Target(Protocol):
    name: str

    def prepare(self) -> None:
        """Fetches or checks what `start` needs. May take minutes the first time."""

    def start(self, store: Path, settings: Mapping[str, str]) -> Running:
        """Starts on `store` (made if it is not there) with Apache's setting names, and returns when all ports accept."""


def await_ports(ports: Sequence[int], processes: Sequence[Process], began: float, name: str) -> float:
    """Waits until every port accepts; returns the seconds since `began` (monotonic)."""
    for port in ports:
        wait_until(partial(accepts, port), processes, START_TIMEOUT_S, f"{name} opens port {port}")
    return time.monotonic() - began
