"""The event loop of the blocking clients: one per process, in a background thread.

Invariants:
- All blocking clients of a process share one loop, created on first use. A forked process creates its own; the inherited loop is
  neither used nor closed, because its file descriptors are shared with the parent.
- `wait_for` may be called from every thread but that of the loop, where it would deadlock and raises instead.
- A waiting thread can be interrupted (KeyboardInterrupt): the call is cancelled, and the interrupt propagates.
- The thread is a daemon, so that a program can end with open clients. They are closed at exit, within END_TIMEOUT_S, and then the
  loop.

Calls from other threads go through a queue; the loop is woken once for all calls since its last iteration.
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
from typing import Any, Generic, TypeVar

from firearrow.client.errors import ClientError, ClosedError
from firearrow.client.lifecycle import AsyncClient
from firearrow.net.event_loop import new_loop

END_TIMEOUT_S = 5.0

log = logging.getLogger(__name__)

R = TypeVar("R")


class Background:
    """The loop and its thread; use `background()`."""

    def __init__(self) -> None:
        self.loop = new_loop()
        self.ended = False
        self._calls: deque[Callable[[], None]] = deque()
        self._awake = False
        self._thread = threading.Thread(target=self._run, name="firearrow-client", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], None]) -> None:
        """Run a call on the loop, in the order of submission. The call must not raise."""
        if self.ended:
            raise ClosedError("the loop of the blocking clients has stopped at exit; close clients earlier")
        self._calls.append(call)
        if not self._awake:
            self._awake = True
            self.loop.call_soon_threadsafe(self._make_calls)

    def wait_for(self, call: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine on the loop and wait for its result."""
        if threading.get_ident() == self._thread.ident:
            raise ClientError(
                "a blocking client was called on the event loop of the blocking clients, which would deadlock; "
                "use firearrow.aio there, or a plain function as listener, which runs in a worker thread"
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
        """Stop the loop and its thread after `closing`, or after END_TIMEOUT_S."""
        if closing is not None:
            waiting = _Waiting(self.loop, closing)
            self.submit(waiting.begin)
            if not waiting.done.acquire(timeout=END_TIMEOUT_S):
                log.warning("clients that were open at exit did not close within %.0f s", END_TIMEOUT_S)
        self.ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(END_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self.ended:
            try:
                self.loop.run_forever()
            except BaseException:  # SystemExit in a coroutine must not end the loop of all clients
                log.exception("the event loop of the blocking clients continues after an error")
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=END_TIMEOUT_S))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def _make_calls(self) -> None:
        self._awake = False  # before draining the queue: later calls wake the loop again
        for _ in range(len(self._calls)):
            self._calls.popleft()()


class _Waiting(Generic[R]):
    """A coroutine on the loop and the thread that waits for it."""

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
                raise ClosedError("the call was cancelled: its client was closed")
            raise self._error
        finally:
            self._error = None  # breaks a reference cycle: its traceback holds this frame

    async def _finish(self) -> None:
        try:
            self._value.append(await self._call())
        except BaseException as error:  # noqa: BLE001 (raised in the waiting thread)
            self._error = error
        finally:
            self.done.release()


# The loop of this process.


class _Process:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.background: Background | None = None
        self.open: dict[int, AsyncClient] = {}


_process = _Process()
_inherited: list[object] = []
"""Objects of the parent in a forked process, kept alive: a collected loop would close shared descriptors."""


def background() -> Background:
    """Return the loop of this process, creating it if necessary."""
    found = _process.background
    if found is not None:
        return found
    with _process.lock:
        if _process.background is None:
            _process.background = Background()
        return _process.background


def close_at_exit(client: AsyncClient) -> None:
    """Register a client to be closed at exit."""
    _process.open[id(client)] = client


def unregister_closed(client: AsyncClient) -> None:
    _process.open.pop(id(client), None)


@contextmanager
def remaking(inherited: object) -> Iterator[None]:
    """Serialize the recreation of clients after a fork, and keep `inherited` alive."""
    with _process.lock:
        yield
        _inherited.append(inherited)


def _after_fork() -> None:
    global _process  # noqa: PLW0603 (a forked child starts with new state)
    _inherited.append(_process)
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
