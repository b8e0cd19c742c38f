"""The lifecycle that clients share: `async with`, background tasks and periodic work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

log = logging.getLogger("firearrow.client")


class AsyncClient:
    """A client that `async with` starts and closes."""

    async def start(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class BackgroundTasks(set[asyncio.Task[None]]):
    """The running tasks of an object. They are referenced here because the event loop only has weak references."""

    def start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.add(task)
        task.add_done_callback(self.discard)

    def cancel(self) -> None:
        for task in self:
            task.cancel()

    async def finish(self, timeout_s: float) -> bool:
        """Wait for the tasks. Cancel those that take longer and return False."""
        if not self:
            return True
        _, late = await asyncio.wait(self, timeout=timeout_s)
        for task in late:
            task.cancel()
        return not late


async def repeat(interval_ms: int, do: Callable[[], Awaitable[None]]) -> None:
    """Call a function periodically; exceptions are logged."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await do()
        except Exception:
            log.exception("%s failed and will be retried in %d ms", do, interval_ms)
