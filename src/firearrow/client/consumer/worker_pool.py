"""Workers that call the listener: threads for functions, tasks for coroutine functions. They are reused for all messages.

All workers take jobs from one queue. Finished jobs are passed to `settle` in groups, with the duration of each, in one call on
the event loop: a fast listener does not cost a loop iteration per message.

Only as many workers run as are useful. Threads share one interpreter, and many of them around a CPU-bound listener would only
contend for it. So one thread starts, and others join while jobs wait and few are finished, the sign of a listener that blocks.
Tasks join one by one, each woken by its predecessor.

`stop` waits for running calls and starts no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

log = logging.getLogger("firearrow.client")

CHECK_INTERVAL_S: Final = 0.002  # between checks whether more threads would help
QUICK_JOBS: Final = 40  # a thread that finishes so many between two checks does not block
SLICE_S: Final = 0.005  # how long coroutines that never wait may occupy the loop

J = TypeVar("J")
R = TypeVar("R")


class Workers(Protocol[J]):
    """A pool that runs jobs."""

    def put(self, jobs: Iterable[J]) -> None: ...

    def running(self) -> list[tuple[J, float]]:
        """Return the running jobs and their start (`time.monotonic`)."""

    async def stop(self, timeout_s: float) -> bool:
        """Return True if every running job was finished and settled in time."""


@dataclass(slots=True, eq=False)
class _RunningJob(Generic[J]):
    job: J | None = None
    since: float = 0.0


@dataclass(slots=True, eq=False)
class _Thread(_RunningJob[J]):
    wakeup: threading.Lock = field(default_factory=threading.Lock)  # released to wake the thread

    def __post_init__(self) -> None:
        self.wakeup.acquire()


class ThreadWorkers(Generic[J, R]):
    """`call` runs in the threads and must not raise; `settle` runs on the loop.

    With `patient`, finished jobs wait for the next check, up to CHECK_INTERVAL_S, instead of waking the loop.
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
        self._checking = False
        self._stopped = False

    def put(self, jobs: Iterable[J]) -> None:
        if self._stopped:
            return
        self._jobs.extend(jobs)
        if len(self._idle) == len(self._threads):
            self._wake_one()
        if not self._checking and self._jobs:
            self._checking = True
            self._loop.call_later(CHECK_INTERVAL_S, self._check)

    def running(self) -> list[tuple[J, float]]:
        return [(job, thread.since) for thread in self._threads if (job := thread.job) is not None]

    async def stop(self, timeout_s: float) -> bool:
        self._stopped = True
        self._jobs.clear()
        for thread in self._threads:
            with contextlib.suppress(RuntimeError):  # it is working and will see `_stopped`
                thread.wakeup.release()
        ends = time.monotonic() + timeout_s
        while any(thread.job is not None for thread in self._threads) and time.monotonic() < ends:  # noqa: ASYNC110 (set by other threads)
            await asyncio.sleep(CHECK_INTERVAL_S)
        self._settle_finished()
        return all(thread.job is None for thread in self._threads)

    def _wake_one(self) -> None:
        try:
            self._idle.popleft().wakeup.release()
        except IndexError:
            if len(self._threads) < self._count:
                thread: _Thread[J] = _Thread()
                self._threads.append(thread)
                name = f"firearrow-{self._name}-{len(self._threads)}"
                threading.Thread(target=self._work, args=(thread,), name=name, daemon=True).start()

    def _check(self) -> None:
        """Wake more threads if jobs wait while the running threads finish few of them."""
        self._checking = False  # before settling: jobs that finish from now on wake the loop
        if self._patient:
            self._settle_finished()
        if not self._jobs or self._stopped:
            return
        ended = self._settled_jobs + len(self._finished)
        done, self._seen_jobs = ended - self._seen_jobs, ended
        busy = len(self._threads) - len(self._idle)
        if done < QUICK_JOBS * max(busy, 1):
            for _ in range(max(busy, 1)):
                self._wake_one()
        if busy < self._count:
            self._checking = True
            self._loop.call_later(CHECK_INTERVAL_S, self._check)

    def _work(self, me: _Thread[J]) -> None:
        jobs, call, finished = self._jobs, self._call, self._finished
        while not self._stopped:
            try:
                job = jobs.popleft()
            except IndexError:
                self._sleep(me)
                continue
            me.since = now = time.monotonic()
            me.job = job
            result = call(job)
            finished.append((job, result, time.monotonic() - now))
            me.job = None
            if not self._settling and not (self._patient and self._checking):
                self._settling = True
                try:
                    self._loop.call_soon_threadsafe(self._settle_finished)
                except RuntimeError:  # the loop is closed
                    return

    def _sleep(self, me: _Thread[J]) -> None:
        self._idle.append(me)
        if self._jobs or self._stopped:  # a job came before this thread was registered as idle
            try:
                self._idle.remove(me)
            except ValueError:  # another thread is waking this one
                me.wakeup.acquire()
            return
        me.wakeup.acquire()

    def _settle_finished(self) -> None:
        self._settling = False  # before collecting: jobs that finish from now on schedule another call
        finished = [self._finished.popleft() for _ in range(len(self._finished))]
        if finished:
            self._settled_jobs += len(finished)
            self._settle(finished)


class TaskWorkers(Generic[J, R]):
    """`call` is awaited by the tasks and must not raise."""

    def __init__(self, count: int, call: Callable[[J], Awaitable[R]], settle: Callable[[list[tuple[J, R, float]]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._call = call
        self._settle = settle
        self._jobs: deque[J] = deque()
        self._finished: list[tuple[J, R, float]] = []
        self._tasks: dict[asyncio.Task[None], _RunningJob[J]] = {}
        self._idle: deque[asyncio.Future[None]] = deque()
        self._waking = False  # a task was woken and has not started
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
        self._settle_finished()
        return not late

    def _wake_one(self) -> None:
        if self._idle:
            self._waking = True
            self._idle.popleft().set_result(None)
        elif len(self._tasks) < self._count:
            self._waking = True
            mine: _RunningJob[J] = _RunningJob()
            task = self._loop.create_task(self._work(mine))
            self._tasks[task] = mine
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a worker task failed", exc_info=error)

    async def _work(self, mine: _RunningJob[J]) -> None:
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
                self._wake_one()  # it starts if this call waits
            mine.since = since = now
            mine.job = job
            result = await call(job)
            mine.job = None
            now = monotonic()
            self._finished.append((job, result, now - since))
            if not self._settling:
                self._settling = True
                self._loop.call_soon(self._settle_finished)
            if now - began > SLICE_S:
                await asyncio.sleep(0)
                began = now = monotonic()

    def _settle_finished(self) -> None:
        self._settling = False
        finished, self._finished = self._finished, []
        if finished:
            self._settle(finished)
