"""The base of concurrent and orderly consumption: workers that call the listener, and finished messages."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from firearrow.client.consumer.offset_store import OffsetStore
from firearrow.client.consumer.process_queue import NO_OFFSET, ProcessQueue
from firearrow.client.consumer.send_back import SendBack
from firearrow.client.consumer.stats import Count
from firearrow.client.consumer.worker_pool import TaskWorkers, ThreadWorkers, Workers
from firearrow.client.lifecycle import BackgroundTasks
from firearrow.client.message import ReceivedMessage
from firearrow.clock import wall_ms

J = TypeVar("J")
R = TypeVar("R")


class DispatcherKeywords(TypedDict):
    coroutine: bool  # the listener is a coroutine function
    concurrency: int
    batch_size: int
    offsets: OffsetStore
    send_back: SendBack | None  # None: broadcasting
    finished: Callable[[ProcessQueue], None]  # called when a process queue whose pull loop waits has become smaller
    count: Count
    name: str  # part of the names of threads


class ListenerDispatcher(ABC, Generic[J, R]):
    """Passes the messages of process queues to the listener `call`."""

    def __init__(self, call: Callable[[Any], object], *, patient: bool, **shared: Unpack[DispatcherKeywords]) -> None:
        self._call: Any = call
        self._batch_size = shared["batch_size"]
        self._offsets = shared["offsets"]
        self._send_back = shared["send_back"]
        self._finished = shared["finished"]
        self._count = shared["count"]
        self._loop = asyncio.get_running_loop()
        self._failure_tasks = BackgroundTasks()
        self._stopped = False
        count = shared["concurrency"]
        self._workers: Workers[J] = (
            TaskWorkers(count, self._consume_in_task, self._settle)
            if shared["coroutine"]
            else ThreadWorkers(count, self._consume_in_thread, self._settle, patient=patient, name=shared["name"])
        )

    @abstractmethod
    def put(self, held: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Dispatch pulled messages that are in the process queue."""

    @abstractmethod
    def expire(self, timeout_ms: int) -> None:
        """Handle calls of the listener that take longer than the timeout."""

    async def stop(self, timeout_s: float) -> bool:
        """Wait for running calls and for the handling of failures. Return True if all finished in time."""
        self._stopped = True
        ended = await self._workers.stop(timeout_s)
        return await self._failure_tasks.finish(timeout_s) and ended

    @abstractmethod
    def _consume_in_thread(self, job: J) -> R: ...

    @abstractmethod
    async def _consume_in_task(self, job: J) -> R: ...

    @abstractmethod
    def _settle(self, finished: list[tuple[J, R, float]]) -> None: ...

    def _finish(self, held: ProcessQueue, messages: Sequence[ReceivedMessage], *, only_forward: bool) -> None:
        """Remove messages from their process queue and note the offset to commit."""
        held.last_consume_ms = wall_ms()
        offset = held.finish(messages)
        if offset != NO_OFFSET:
            self._offsets.note(held.queue, offset, only_forward=only_forward)
        if held.wake_pull_loop:
            self._finished(held)
