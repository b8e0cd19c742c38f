"""Wall and monotonic clocks in whole milliseconds.

Sans-IO code receives a clock or the current time as an argument; only the edges import this module.
"""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Return the wall-clock time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return the monotonic clock, for deadlines and intervals: it never goes backwards."""
    return time.monotonic_ns() // 1_000_000
