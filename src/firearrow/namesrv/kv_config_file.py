"""Writer of the key-value configuration file.

The file is written in a thread, and changes that come meanwhile are written together afterwards: a file that is written again for
every change would keep the event loop from other clients. A change is acknowledged when it is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Table = dict[str, Any]
Done = Callable[[Exception | None], None]


class KvConfigFile:
    """`write` writes a table to disk. It is called in a thread."""

    def __init__(self, write: Callable[[Table], None]) -> None:
        self._write = write
        self._task: asyncio.Task[None] | None = None
        self._newest: Callable[[], Table] | None = None
        self._waiting: list[Done] = []

    def save(self, table: Callable[[], Table], done: Done) -> None:
        """Write the table soon. Calls `done` with None, or with the error."""
        self._newest = table
        self._waiting.append(done)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def finish(self) -> None:
        """Wait until everything is written."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._newest is not None:
            table, waiting = self._newest(), self._waiting
            self._newest, self._waiting = None, []
            error = None
            try:
                await asyncio.to_thread(self._write, table)
            except Exception as caught:  # noqa: BLE001 (the requests are answered with it)
                error = caught
            for done in waiting:
                done(error)
        self._task = None
