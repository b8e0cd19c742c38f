"""Delivery times of messages: a delay level, a delay, or a point in time.

Every broker knows the 18 levels, from one second to two hours unless its `messageDelayLevel` differs. Other delays need the
timers of 5.x; an older broker would silently deliver such a message at once. For older brokers a delay that equals a level is
sent as the level, and any other is rejected.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from firearrow.client.errors import InvalidMessageError
from firearrow.client.options import Duration
from firearrow.wire.codes import VERSION_5_0_0
from firearrow.wire.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
)

LEVELS_S: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

When = datetime | float


def delay_properties(delay: Duration | None, delay_level: int | None, deliver_at: When | None) -> dict[str, str]:
    """Return the properties that delay a message. InvalidMessageError unless at most one of the arguments is given."""
    given = [
        name for name, value in (("delay", delay), ("delay_level", delay_level), ("deliver_at", deliver_at)) if value is not None
    ]
    if len(given) > 1:
        raise InvalidMessageError(f"{' and '.join(given)} exclude each other: pass one of them")
    if delay_level is not None:
        if not isinstance(delay_level, int) or isinstance(delay_level, bool) or delay_level < 1:
            raise InvalidMessageError(f"delay_level is {delay_level!r}, expected a number from 1 (1 s) to 18 (2 h)")
        return {PROPERTY_DELAY_TIME_LEVEL: str(delay_level)}
    if delay is not None:
        delay_ms = round((delay.total_seconds() if isinstance(delay, timedelta) else float(delay)) * 1000)
        if delay_ms < 0:
            raise InvalidMessageError(f"delay is {delay!r}, expected seconds from 0 on, or a timedelta")
        if delay_ms == 0:
            return {}
        if delay_ms % 1000 == 0:
            return {PROPERTY_TIMER_DELAY_SEC: str(delay_ms // 1000)}
        return {PROPERTY_TIMER_DELAY_MS: str(delay_ms)}
    if deliver_at is not None:
        at_s = deliver_at.timestamp() if isinstance(deliver_at, datetime) else float(deliver_at)
        return {PROPERTY_TIMER_DELIVER_MS: str(round(at_s * 1000))}
    return {}


def for_version(properties: dict[str, str], version: int) -> dict[str, str]:
    """Return the properties for a broker of this version (0: unknown)."""
    if not version or version >= VERSION_5_0_0 or not any(name.startswith("TIMER_") for name in properties):
        return properties
    seconds = properties.get(PROPERTY_TIMER_DELAY_SEC)
    if seconds is not None and int(seconds) in LEVELS_S:
        return {PROPERTY_DELAY_TIME_LEVEL: str(LEVELS_S.index(int(seconds)) + 1)}
    raise InvalidMessageError(
        f"the broker is older than 5.0, does not know {' '.join(properties)} and would deliver at once; "
        f"use delay_level, or a delay of {', '.join(map(str, LEVELS_S))} seconds"
    )
