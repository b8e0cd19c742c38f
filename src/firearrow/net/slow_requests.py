"""Log of requests that kept the event loop too long.

All other clients wait while one request is served. A request that takes longer than SLOW_MS is logged with its name and its peer,
at most once in LOG_EVERY_MS, so that a client that causes many of them does not fill the log.
"""

from __future__ import annotations

import logging
from typing import Final

from firearrow.net.connection import Connection
from firearrow.wire.codes import code_name
from firearrow.wire.frame import Command

SLICE_MS: Final = 20  # a service that has worked this long on the requests of a connection lets other connections have a turn
SLOW_MS: Final = 100
LOG_EVERY_MS: Final = 1_000


class SlowRequestLog:
    def __init__(self, log: logging.Logger) -> None:
        self.count = 0
        self._log = log
        self._suppressed = 0
        self._next_ms = 0

    def served(self, conn: Connection, request: Command, took_ms: int, now_ms: int) -> None:
        """Record that a request, the last of those served together, kept the event loop for `took_ms`."""
        if took_ms < SLOW_MS:
            return
        self.count += 1
        if now_ms < self._next_ms:
            self._suppressed += 1
            return
        more = f" ({self._suppressed} more since the last report)" if self._suppressed else ""
        self._next_ms, self._suppressed = now_ms + LOG_EVERY_MS, 0
        self._log.warning(
            "request %s from %s kept the event loop for %d ms; other clients waited%s",
            code_name(request.code),
            conn.peer,
            took_ms,
            more,
        )
