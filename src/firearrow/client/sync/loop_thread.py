"""The event loop behind the sync face: one for the process, in a thread of its own.

Invariants:
- One loop for all sync clients of a process, made at the first use. A process that was forked makes its own; the loop that came
  with the memory of its parent is never touched again, nor closed, since its file descriptors are shared with the parent.
- `wait_for` may be called from every thread but that of the loop, where it would wait for itself: that is refused.
- A thread that waits can be interrupted (KeyboardInterrupt): what it waited for is cancelled, and the interrupt goes on its way.
- The thread is a daemon, so that a program can end with clients open. At the end of the program those are closed in order, which
  may take as long as END_TIMEOUT_S, and the loop after them.

Calls from other threads go through a queue, and the loop is woken once for all that came since it last looked.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from firearrow.client.errors import ClientError, ClosedError
from firearrow.net.event_loop import new_loop

END_TIMEOUT_S = 5.0

log = logging.getLogger(__name__)

R = TypeVar("R")


class Background:
    """Use `background()`: there is to be one."""

    def __init__(self) -> None:
        self.loop = new_loop()
        self.ended = False
        self._calls: deque[Callable[[], None]] = deque()
        self._awake = False
        self._thread = threading.Thread(target=self._run, name="firearrow-client", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], None]) -> None:
        """Has the loop make the call, soon and in the order of submission. The call must not raise."""
        if self.ended:
            raise ClosedError("the program is ending: the loop of the sync clients has stopped; close clients before the end")
        self._calls.append(call)
        if not self._awake:
            self._awake = True
            self.loop.call_soon_threadsafe(self._make_calls)

    def wait_for(self, call: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """What the coroutine returns or raises. It runs on the loop; this thread waits."""
        if threading.get_ident() == self._thread.ident:
            raise ClientError(
                "a sync client was called from a coroutine on the clients' own event loop, which would wait for itself; "
                "use the client of firearrow.aio there, or a plain function as listener: those run in worker threads"
            )
        waiting = _Waiting(self.loop, call)
        try:
            self.submit(waiting.begin)
            waiting.done.acquire()
        except BaseException:
            self.submit(waiting.cancel)
            raise
        return waiting.result()

    def end(self, closing: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        """Stops the loop and its thread, after `closing`, if that is done in time."""
        if closing is not None:
            waiting = _Waiting(self.loop, closing)
            self.submit(waiting.begin)
            if not waiting.done.acquire(timeout=END_TIMEOUT_S):
                log.warning("clients that were open at the end of the program did not close within %.0f s", END_TIMEOUT_S)
        self.ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(END_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self.ended:
            try:
                self.loop.run_forever()
            except BaseException:  # SystemExit in somebody's coroutine ends that, but not everybody's loop
                log.exception("the event loop of the sync clients goes on after")
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=END_TIMEOUT_S))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def _make_calls(self) -> None:
        self._awake = False  # before the look at the queue: whoever comes after it wakes us again
        for _ in range(len(self._calls)):
            self._calls.popleft()()


class _Waiting(Generic[R]):
    """One coroutine on the loop and the thread that waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], Coroutine[Any, Any, R]]) -> None:
        self.done = threading.Lock()
        self.done.acquire()
        self._loop = loop
        self._call = call
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        self._value: list[R] = []
        self._error: BaseException | None = None

    def begin(self) -> None:
        self._task = self._loop.create_task(self._finish(), context=self._context)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def result(self) -> R:
        if self._error is None:
            return self._value[0]
        try:
            if isinstance(self._error, asyncio.CancelledError):
                raise ClosedError("the call was given up: its client was closed while it waited")
            raise self._error
        finally:
            self._error = None  # it holds this frame, and this frame must not hold it

    async def _finish(self) -> None:
        try:
            self._value.append(await self._call())
        except BaseException as error:  # the waiting thread's, whatever it is
            self._error = error
        finally:
            self.done.release()


# The one of this process.


class Closable(Protocol):
    def close(self) -> Coroutine[Any, Any, object]: ...


class _Process:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.background: Background | None = None
        self.open: dict[int, Closable] = {}


_process = _Process()
_left_behind: list[object] = []
"""What a forked process must neither use nor let go of: a loop that is collected closes descriptors."""


def background() -> Background:
    """The loop of this process."""
    found = _process.background
    if found is not None:
        return found
    with _process.lock:
        if _process.background is None:
            _process.background = Background()
        return _process.background


def close_at_exit(client: Closable) -> None:
    """The client lives on the loop of this process and is to be closed at the end of the program."""
    _process.open[id(client)] = client


def was_closed(client: Closable) -> None:
    _process.open.pop(id(client), None)


@contextmanager
def remaking(left: object) -> Iterator[None]:
    """While something is made anew after a fork: one at a time, and what it was in the parent is left behind."""
    with _process.lock:
        yield
        _left_behind.append(left)


def _after_fork() -> None:
    global _process
    _left_behind.append(_process)
    _process = _Process()


def _at_exit() -> None:
    found = _process.background
    if found is None:
        return
    clients = list(_process.open.values())

    async def close_all() -> None:
        await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)

    found.end(close_all if clients else None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
