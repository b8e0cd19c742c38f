"""The setting `messageDelayLevel`: "1s 5s 10s ... 2h" gives the delay of level 1, 2, 3, ..."""

from __future__ import annotations

import re
from typing import Final

from firearrow.config.fields import SettingError

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"([0-9]{1,9})([smhd])")


def parse_delay_levels(text: str) -> list[int]:
    """Return the delays in milliseconds; level n is at index n - 1. Raises SettingError."""
    matches = [_LEVEL.fullmatch(word) for word in text.split()]
    levels_ms = [int(match[1]) * _UNITS_MS[match[2]] for match in matches if match is not None]
    if not levels_ms or len(levels_ms) < len(matches):
        raise SettingError("messageDelayLevel", text, "numbers with s, m, h or d, for example '1s 5s 1m'")
    return levels_ms
