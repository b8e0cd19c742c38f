"""Event-loop lag and resource usage of this process.

The lag is measured with a 100 ms timer: it fires as late as every other callback of the loop.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator

from firearrow import procfs
from firearrow.broker.observability.stats import Histogram

INTERVAL_S = 0.1


class LoopLag(Histogram):
    """Histogram of the event loop's lag, in s."""

    def __init__(self) -> None:
        super().__init__((0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5))
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(loop.time() + INTERVAL_S, self._fired, loop, loop.time() + INTERVAL_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        now_s = loop.time()
        self.add(max(now_s - due_s, 0.0))
        self._timer = loop.call_at(now_s + INTERVAL_S, self._fired, loop, now_s + INTERVAL_S)


def process_figures() -> Iterator[tuple[str, str, str, float]]:
    """Yield (name, kind, help, value) under the names of the official Prometheus clients. Unavailable values are left out."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield "process_cpu_seconds_total", "counter", "Processor time", used.ru_utime + used.ru_stime
    usage = procfs.read_usage()
    if usage is None:
        yield "process_max_resident_memory_bytes", "gauge", "Peak memory use", used.ru_maxrss * 1024
    else:
        yield "process_resident_memory_bytes", "gauge", "Memory in use", usage.resident_bytes
        yield "process_virtual_memory_bytes", "gauge", "Address space in use", usage.virtual_bytes
        yield "process_open_fds", "gauge", "Open file descriptors", usage.open_files
        yield "process_start_time_seconds", "gauge", "Start of the process, seconds since 1970", usage.start_time_s
    yield "process_max_fds", "gauge", "Limit of open file descriptors", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
