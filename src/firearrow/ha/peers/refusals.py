"""The log of refused peers: every address and reason is logged, but a peer that tries again does not fill the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

REPEAT_MS = 60_000
MAX_KEYS = 256
_REST = ("other addresses", "various reasons")  # once MAX_KEYS have been refused within REPEAT_MS


class RefusalLog:
    """Logs the first refusal of an address for a reason at once, and then their number once per REPEAT_MS."""

    def __init__(self, log: logging.Logger, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}  # (time logged, refusals since)

    def add(self, peer: str, reason: str) -> None:
        """Note that the peer `host:port` was refused."""
        now = self._now_ms()
        key = (peer.rpartition(":")[0], reason)
        if key not in self._seen and len(self._seen) >= MAX_KEYS:
            self._forget_old(now)
            if len(self._seen) >= MAX_KEYS:
                key = _REST
        logged_ms, more = self._seen.get(key, (now - REPEAT_MS, 0))
        if now - logged_ms < REPEAT_MS:
            self._seen[key] = (logged_ms, more + 1)
            return
        self._seen[key] = (now, 0)
        repeated = f" ({more} more since the last such message)" if more else ""
        self._log.error("rejected a connection from %s: %s%s", peer, reason, repeated)

    def _forget_old(self, now: int) -> None:
        self._seen = {key: value for key, value in self._seen.items() if now - value[0] < REPEAT_MS}
