"""Pull loop: the task that pulls messages of one queue while the queue is owned.

It pauses while `hold_back` returns a reason (paused, full, not locked), until it is woken or a second has passed. After errors it
continues: after a second, or after 20 ms if the broker only throttles.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from firearrow.client.consumer.process_queue import ProcessQueue
from firearrow.client.consumer.pull import Puller, PullResult, PullStatus
from firearrow.client.consumer.subscription import Subscription
from firearrow.client.errors import BrokerError, FirearrowError
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.wire.codes import ResponseCode

ERROR_PAUSE_MS: Final = 1_000
FLOW_CONTROL_PAUSE_MS: Final = 20
RECHECK_MS: Final = 1_000
_LOG_EVERY: Final = 30  # of consecutive errors one in so many is logged

log = logging.getLogger("firearrow.client")


class PullLoop:
    """Pulls one queue and passes the messages on."""

    def __init__(
        self,
        puller: Puller,
        held: ProcessQueue,
        offset: int,
        *,
        subscription: Callable[[str], Subscription | None],
        hold_back: Callable[[ProcessQueue], str | None],
        consumed: Callable[[MessageQueue], int | None],
        hand_out: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        skipped: Callable[[ProcessQueue, int], None],
        moved: Callable[[ProcessQueue, int], Awaitable[None]],
        pulled: Callable[[str, int, float], None],
        now_ms: Callable[[], int],
    ) -> None:
        """`skipped` is called if nothing is held and no message below the offset matches; `moved` if the loop must restart at
        another offset, after which it ends; `pulled` with topic, number of messages and seconds, for statistics.
        """
        self.held = held
        self.next_offset = offset
        self._puller = puller
        self._subscription = subscription
        self._hold_back = hold_back
        self._consumed = consumed
        self._hand_out = hand_out
        self._skipped = skipped
        self._moved = moved
        self._pulled = pulled
        self._now_ms = now_ms
        self._woken = asyncio.Event()
        self._errors = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"pull {self.held.queue}")

    def wake(self) -> None:
        self._woken.set()

    async def stop(self) -> None:
        """Stop, also during a pull."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        held = self.held
        while not held.dropped:
            held.last_pull_ms = self._now_ms()
            subscription = self._subscription(held.queue.topic)
            if subscription is None or self._hold_back(held) is not None:
                await self._wait()
                continue
            began = time.monotonic()
            try:
                result = await self._puller.pull(
                    held.queue, self.next_offset, subscription, commit_offset=self._consumed(held.queue)
                )
            except FirearrowError as error:
                await self._pause_after(error)
                continue
            except Exception:
                log.exception("pulling from %s failed and will be retried in %d ms", held.queue, ERROR_PAUSE_MS)
                await asyncio.sleep(ERROR_PAUSE_MS / 1000)
                continue
            self._errors = 0
            if held.dropped:
                return
            if result.status is PullStatus.OFFSET_MOVED:
                await self._moved(held, result.next_offset)
                return
            if result.messages:
                self._pulled(held.queue.topic, len(result.messages), time.monotonic() - began)
            self._take(result)

    def _take(self, result: PullResult) -> None:
        held = self.held
        held.max_offset = result.max_offset
        self.next_offset = result.next_offset
        if result.messages:
            held.put(result.messages)
            self._hand_out(held, result.messages)
        elif not len(held):
            self._skipped(held, result.next_offset)

    async def _wait(self) -> None:
        self._woken.clear()
        self.held.wake_pull_loop = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECHECK_MS / 1000):
                await self._woken.wait()
        self.held.wake_pull_loop = False

    async def _pause_after(self, error: FirearrowError) -> None:
        pause_ms = ERROR_PAUSE_MS
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            pause_ms = FLOW_CONTROL_PAUSE_MS
        elif self._errors % _LOG_EVERY == 0:
            log.warning("pulling from %s at %d failed and will be retried: %s", self.held.queue, self.next_offset, error)
        self._errors += 1
        await asyncio.sleep(pause_ms / 1000)
