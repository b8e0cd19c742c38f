"""Who calls the listener: worker threads for functions, tasks for coroutine functions. Neither is made per message.

Jobs are put into one queue that all workers take from. A job that is finished is handed back, together with all that finished
meanwhile and how long each took, in one call on the event loop (`settle`): a quick listener needs no trip to it per message.

No more workers are woken than are of use. Threads share one interpreter, and twenty of them around a listener that only computes
would only take turns; so one begins, and others join while jobs wait and few get finished, which is how a listener that waits
for something looks. Tasks join one by one, each woken by the one before it.

`stop` lets the calls in hand finish and hands out no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, Protocol, TypeVar

log = logging.getLogger("firearrow.client")

LOOK_S: Final = 0.002  # how often to look whether more threads would help
QUICK_JOBS: Final = 40  # a thread that finishes so many between two looks does not wait for anything
SLICE_S: Final = 0.005  # how long coroutines that never wait may keep the loop

J = TypeVar("J")
R = TypeVar("R")


class Workers(Protocol[J]):
    def put(self, jobs: Iterable[J]) -> None: ...

    def running(self) -> list[tuple[J, float]]:
        """Jobs in hand, and since when (`time.monotonic`)."""

    async def stop(self, timeout_s: float) -> bool:
        """True if every job in hand was finished, and settled, in time."""


class ThreadWorkers(Generic[J, R]):
    """`call` runs in the threads and must not raise; `settle` on the loop.

    With `patient` a job may be settled LOOK_S after it was finished: the loop is not woken for what it is about to see anyway.
    """

    def __init__(
        self,
        count: int,
        call: Callable[[J], R],
        settle: Callable[[list[tuple[J, R, float]]], None],
        *,
        patient: bool = False,
        name: str = "consume",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._call = call
        self._settle = settle
        self._patient = patient
        self._name = name
        self._jobs: deque[J] = deque()
        self._finished: deque[tuple[J, R, float]] = deque()
        self._threads: list[_Thread[J]] = []
        self._idle: deque[_Thread[J]] = deque()
        self._settling = False
        self._settled_jobs = 0
        self._seen_jobs = 0
        self._looking = False
        self._stopped = False

    def put(self, jobs: Iterable[J]) -> None:
        if self._stopped:
            return
        self._jobs.extend(jobs)
        if len(self._idle) == len(self._threads):
            self._wake_one()
        if not self._looking and self._jobs:
            self._looking = True
            self._loop.call_later(LOOK_S, self._look)

    def running(self) -> list[tuple[J, float]]:
        return [(job, thread.since) for thread in self._threads if (job := thread.job) is not None]

    async def stop(self, timeout_s: float) -> bool:
        self._stopped = True
        self._jobs.clear()
        for thread in self._threads:
            with contextlib.suppress(RuntimeError):  # it is at work and will see that it is to end
                thread.bell.release()
        ends = time.monotonic() + timeout_s
        while any(thread.job is not None for thread in self._threads) and time.monotonic() < ends:
            await asyncio.sleep(LOOK_S)
        self._hand_back()
        return all(thread.job is None for thread in self._threads)

    def _wake_one(self) -> None:
        try:
            self._idle.popleft().bell.release()
        except IndexError:
            if len(self._threads) < self._count:
                thread: _Thread[J] = _Thread()
                self._threads.append(thread)
                name = f"firearrow-{self._name}-{len(self._threads)}"
                threading.Thread(target=self._work, args=(thread,), name=name, daemon=True).start()

    def _look(self) -> None:
        """While jobs wait: are those at work held up, and would one more help?"""
        self._looking = False  # before handing back: what finishes from now on rings
        if self._patient:
            self._hand_back()
        if not self._jobs or self._stopped:
            return
        ended = self._settled_jobs + len(self._finished)
        done, self._seen_jobs = ended - self._seen_jobs, ended
        busy = len(self._threads) - len(self._idle)
        if done < QUICK_JOBS * max(busy, 1):
            for _ in range(max(busy, 1)):
                self._wake_one()
        if busy < self._count:
            self._looking = True
            self._loop.call_later(LOOK_S, self._look)

    def _work(self, me: _Thread[J]) -> None:
        jobs, call, finished = self._jobs, self._call, self._finished
        while not self._stopped:
            try:
                job = jobs.popleft()
            except IndexError:
                self._rest(me)
                continue
            me.since = now = time.monotonic()
            me.job = job
            result = call(job)
            finished.append((job, result, time.monotonic() - now))
            me.job = None
            if not self._settling and not (self._patient and self._looking):
                self._settling = True
                try:
                    self._loop.call_soon_threadsafe(self._hand_back)
                except RuntimeError:  # the loop is closed: nobody wants to know any more
                    return

    def _rest(self, me: _Thread[J]) -> None:
        self._idle.append(me)
        if self._jobs or self._stopped:  # something came before anybody could know that we rest
            try:
                self._idle.remove(me)
            except ValueError:  # and somebody rings already
                me.bell.acquire()
            return
        me.bell.acquire()

    def _hand_back(self) -> None:
        self._settling = False  # before looking: what finishes from now on rings again
        finished = [self._finished.popleft() for _ in range(len(self._finished))]
        if finished:
            self._settled_jobs += len(finished)
            self._settle(finished)


class _Thread(Generic[J]):
    __slots__ = ("bell", "job", "since")

    def __init__(self) -> None:
        self.bell = threading.Lock()  # rung by releasing it
        self.bell.acquire()
        self.job: J | None = None
        self.since = 0.0


class _InHand(Generic[J]):
    __slots__ = ("job", "since")

    def __init__(self) -> None:
        self.job: J | None = None
        self.since = 0.0


class TaskWorkers(Generic[J, R]):
    """`call` is awaited by the tasks and must not raise."""

    def __init__(self, count: int, call: Callable[[J], Awaitable[R]], settle: Callable[[list[tuple[J, R, float]]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._call = call
        self._settle = settle
        self._jobs: deque[J] = deque()
        self._finished: list[tuple[J, R, float]] = []
        self._tasks: dict[asyncio.Task[None], _InHand[J]] = {}
        self._idle: deque[asyncio.Future[None]] = deque()
        self._waking = False  # one was woken and has not begun
        self._settling = False
        self._stopped = False

    def put(self, jobs: Iterable[J]) -> None:
        if self._stopped:
            return
        self._jobs.extend(jobs)
        if not self._waking:
            self._wake_one()

    def running(self) -> list[tuple[J, float]]:
        return [(job, mine.since) for mine in self._tasks.values() if (job := mine.job) is not None]

    async def stop(self, timeout_s: float) -> bool:
        self._stopped = True
        self._jobs.clear()
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(list(self._tasks), timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1)
        self._hand_back()
        return not late

    def _wake_one(self) -> None:
        if self._idle:
            self._waking = True
            self._idle.popleft().set_result(None)
        elif len(self._tasks) < self._count:
            self._waking = True
            mine: _InHand[J] = _InHand()
            task = self._loop.create_task(self._work(mine))
            self._tasks[task] = mine
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a consuming task ended", exc_info=error)

    async def _work(self, mine: _InHand[J]) -> None:
        jobs, call, monotonic = self._jobs, self._call, time.monotonic
        self._waking = False
        began = now = monotonic()
        while not self._stopped:
            try:
                job = jobs.popleft()
            except IndexError:
                idle = self._loop.create_future()
                self._idle.append(idle)
                await idle
                self._waking = False
                began = now = monotonic()
                continue
            if jobs and not self._waking:
                self._wake_one()  # it begins if this call waits for something
            mine.since = since = now
            mine.job = job
            result = await call(job)
            mine.job = None
            now = monotonic()
            self._finished.append((job, result, now - since))
            if not self._settling:
                self._settling = True
                self._loop.call_soon(self._hand_back)
            if now - began > SLICE_S:
                await asyncio.sleep(0)
                began = now = monotonic()

    def _hand_back(self) -> None:
        self._settling = False
        finished, self._finished = self._finished, []
        if finished:
            self._settle(finished)
