"""Responses that take long to compute: their work is done in slices, and other requests are served in between.

Work is an iterator; each step takes a few milliseconds at most. The first STEPS_AT_ONCE steps run at once, which suffices for
nearly all requests. The rest runs in later iterations of the event loop, for one request at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from firearrow.broker.requests.responses import Refused
from firearrow.net.server import Connection
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command

STEPS_AT_ONCE: Final = 4
MAX_WAITING: Final = 64


@dataclass(slots=True)
class _Job:
    conn: Connection
    request: Command
    steps: Iterator[None]
    finish: Callable[[], bytes]


class SlicedAnswers:
    def __init__(self) -> None:
        self._jobs: deque[_Job] = deque()

    def answer(self, conn: Connection, request: Command, steps: Iterator[None], finish: Callable[[], bytes]) -> bytes | None:
        """Return the response `finish()`, or None if it is sent later."""
        if not self._jobs and _is_done(steps):
            return finish()
        if len(self._jobs) >= MAX_WAITING:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{len(self._jobs)} requests for statistics wait; try again later")
        self._jobs.append(_Job(conn, request, steps, finish))
        if len(self._jobs) == 1:
            asyncio.get_running_loop().call_soon(self._work)
        return None

    def _work(self) -> None:
        job = self._jobs[0]
        if job.conn.closed or _is_done(job.steps):
            self._jobs.popleft()
            if not job.conn.closed and not job.request.is_oneway:
                job.conn.write(job.finish())
        if self._jobs:
            asyncio.get_running_loop().call_soon(self._work)


def _is_done(steps: Iterator[None]) -> bool:
    """Do some steps. Return True if there are no more."""
    return any(next(steps, steps) is steps for _ in range(STEPS_AT_ONCE))
