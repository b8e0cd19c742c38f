"""A moment awake after an answer, for the client that sends its next message as soon as it has the answer to the last.

A loop that has nothing to do sleeps in the system, and waking up takes longer than a whole send: the processor has to come back
from its rest. Such a client asks again within some tens of microseconds, so looking for its request again and again for a moment
makes it half as fast again, and costs no more processor time than going to sleep and waking up. Nobody else is held up: every
look is a turn of the loop, which serves whoever has come.

Only after a single answer to the same client as the last time, when the flush is asynchronous: with more of them there is more to
do anyway, clients that take turns do not wait for each other's answers, and a synchronous flush takes longer than the moment.
"""

from __future__ import annotations

import asyncio
from time import perf_counter


class BusyPoller:
    def __init__(self, loop: asyncio.AbstractEventLoop, micros: int) -> None:
        self._call_soon = loop.call_soon
        self._moment_s = micros / 1e6
        self._until = 0.0
        self._awake = False
        self._last = 0

    def stay(self, conn: object) -> None:
        """This one was answered: stay awake for a moment from now on, if it was so the last time, too."""
        last, self._last = self._last, id(conn)
        if last != self._last:
            return
        self._until = perf_counter() + self._moment_s
        if not self._awake:
            self._awake = True
            self._call_soon(self._look)

    def _look(self) -> None:
        if perf_counter() < self._until:
            self._call_soon(self._look)
        else:
            self._awake = False
