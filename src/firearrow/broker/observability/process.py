"""How the process is: how late its event loop runs, and what it takes of the machine.

The loop's lag is measured by a timer that should go off every 100 ms: it is as late as everything else in the loop.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from bisect import bisect_left
from collections.abc import Iterator

EVERY_S = 0.1


class LoopLag:
    edges_s = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

    def __init__(self) -> None:
        self.counts = [0] * (len(self.edges_s) + 1)
        self.total_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(loop.time() + EVERY_S, self._went_off, loop, loop.time() + EVERY_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, late_s: float) -> None:
        self.counts[bisect_left(self.edges_s, late_s)] += 1
        self.total_s += late_s

    def _went_off(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        now_s = loop.time()
        self.note(max(now_s - due_s, 0.0))
        self._timer = loop.call_at(now_s + EVERY_S, self._went_off, loop, now_s + EVERY_S)


def process_figures() -> Iterator[tuple[str, str, str, float]]:
    """(name, kind, text, value), under the names that Prometheus's own clients use. What the system does not tell is left out."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield "process_cpu_seconds_total", "counter", "Processor time", used.ru_utime + used.ru_stime
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            virtual, resident = (int(pages) * resource.getpagesize() for pages in file.read().split()[:2])
        yield "process_resident_memory_bytes", "gauge", "Memory in use", resident
        yield "process_virtual_memory_bytes", "gauge", "Address space in use", virtual
        yield "process_open_fds", "gauge", "Open descriptors", len(os.listdir("/proc/self/fd"))
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        running_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        yield "process_start_time_seconds", "gauge", "When the process was started, seconds since 1970", time.time() - running_s
    except (OSError, ValueError, IndexError):  # no such files here
        yield "process_max_resident_memory_bytes", "gauge", "The most memory that was in use", used.ru_maxrss * 1024
    yield "process_max_fds", "gauge", "Descriptors that may be open", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
