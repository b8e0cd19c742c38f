"""The connections that a listener has accepted, and how all of them are ended."""

from __future__ import annotations

import asyncio

from firearrow.net.connection import Connection

_CLOSE_GRACE_S = 0.5


class OpenConnections:
    def __init__(self) -> None:
        self.all: set[Connection] = set()
        self._drained = asyncio.Event()

    def lost(self, conn: Connection) -> None:
        self.all.discard(conn)
        if not self.all:
            self._drained.set()

    def abort(self) -> int:
        """Cuts all of them, whatever was on its way; returns how many."""
        cut = list(self.all)
        for conn in cut:
            conn.abort()
        return len(cut)

    async def close(self, *, abruptly: bool) -> None:
        """Returns when the last one is gone. What was written is sent first; what hangs is cut after half a second."""
        if abruptly:
            self.abort()
        for conn in list(self.all):
            conn.close("the server is stopping")
        try:
            await asyncio.wait_for(self._wait_drained(), _CLOSE_GRACE_S)
        except TimeoutError:
            self.abort()
            await self._wait_drained()

    async def _wait_drained(self) -> None:
        while self.all:
            self._drained.clear()
            await self._drained.wait()
