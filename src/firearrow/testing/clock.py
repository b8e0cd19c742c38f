"""A virtual clock that stands still until a test moves it.

The brokers of a cluster use it for everything they time: delays, timers, retries, transaction checks, expiry. Clients use the
real clock, because their requests take real time. While the clock is moved, a connected client counts as having sent its
heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from firearrow.clock import wall_ms
from firearrow.store.settings import delete_hours

Mover = Callable[[int], Coroutine[Any, Any, None]]


class VirtualClock:
    """A clock that starts at `start`, by default at the current time."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now_ms = wall_ms() if start is None else int(start.timestamp() * 1000)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mover: Mover | None = None

    def __repr__(self) -> str:
        return f"<VirtualClock {self.now().isoformat(timespec='milliseconds')}>"

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return self._now_ms

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0) -> None:
        """Advance the clock, stopping whenever something is due until it is delivered and consumed.

        On the cluster's own event loop use `await cluster.advance(...)`.
        """
        duration_ms = milliseconds(days=days, hours=hours, minutes=minutes, seconds=seconds, ms=ms)
        if self._mover is None or self._loop is None:
            self._now_ms += duration_ms
            return
        if running_loop() is self._loop:
            raise RuntimeError("clock.advance() would block the event loop of the brokers; use `await cluster.advance(...)`")
        asyncio.run_coroutine_threadsafe(self._mover(duration_ms), self._loop).result()

    # For the cluster

    def bind(self, loop: asyncio.AbstractEventLoop, mover: Mover) -> None:
        if self._mover is not None:
            raise RuntimeError("this VirtualClock is in use by another cluster; give each cluster its own")
        self._loop, self._mover = loop, mover

    def unbind(self) -> None:
        self._loop = self._mover = None

    def move_to(self, now_ms: int) -> None:
        self._now_ms = max(self._now_ms, now_ms)


def milliseconds(*, days: float, hours: float, minutes: float, seconds: float, ms: float) -> int:
    duration = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms)
    duration_ms = duration // timedelta(milliseconds=1)
    if duration_ms < 0:
        raise ValueError(f"the clock cannot be moved by {duration}: the duration must not be negative")
    return duration_ms


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def next_deletion_ms(delete_when: str, now_ms: int) -> int:
    """Return when a broker next checks for expired files (`deleteWhen`, hours of the local day)."""
    hours = delete_hours(delete_when)
    hour = datetime.fromtimestamp(now_ms / 1000).replace(minute=0, second=0, microsecond=0)
    for _ in range(49):
        hour += timedelta(hours=1)
        if hour.hour in hours:
            return int(hour.timestamp() * 1000)
    return 1 << 62
