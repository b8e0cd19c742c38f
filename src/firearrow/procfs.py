"""Resource usage of a process, from Linux's /proc."""

from __future__ import annotations

import os
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    open_files: int
    files_limit: int | None  # None: unlimited
    resident_bytes: int
    virtual_bytes: int
    start_time_s: float  # seconds since 1970


def read_usage(pid: int | None = None) -> ProcessUsage | None:
    """Return the usage of a process, by default this one; None if it is gone, not readable, or there is no /proc."""
    entry = PROC / ("self" if pid is None else str(pid))
    try:
        virtual, resident = (int(pages) * resource.getpagesize() for pages in (entry / "statm").read_text().split()[:2])
        limit = re.search(r"^Max open files\s+(\d+)", (entry / "limits").read_text(), re.MULTILINE)
        ticks = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
        running_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        open_files = len(os.listdir(entry / "fd"))
    except (OSError, ValueError, IndexError):
        return None
    return ProcessUsage(open_files, None if limit is None else int(limit[1]), resident, virtual, time.time() - running_s)


def read_memory(name: str) -> int | None:
    """Return a value of /proc/meminfo in bytes, such as MemTotal or MemAvailable; None if it is not available."""
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", (PROC / "meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
