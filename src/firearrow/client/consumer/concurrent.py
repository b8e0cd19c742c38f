"""Concurrent consumption: messages of all queues, many at a time, in no particular order.

    pulled -> cut into batches -> a worker calls the listener -> settled:
        consumed     out of the process queue; the offset to commit moves on
        failed       given back to the broker, which delivers it again later; then the same
        not given back either    kept, and tried again here after 5 s
    broadcasting: a failed message is dropped, since nobody could deliver it to this consumer again

A message that takes longer than the consume time-out is given back as well, so that the offset can move on; the listener's call
goes on, and what becomes of it is not looked at any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from firearrow.client.consumer.listener import Failure, Outcome, failure
from firearrow.client.consumer.offset_store import OffsetStore
from firearrow.client.consumer.process_queue import NO_OFFSET, ProcessQueue
from firearrow.client.consumer.send_back import SendBack
from firearrow.client.consumer.stats import Count
from firearrow.client.consumer.worker_pool import TaskWorkers, ThreadWorkers, Workers
from firearrow.client.message import ReceivedMessage
from firearrow.clock import wall_ms

KEPT_RETRY_MS: Final = 5_000
EXPIRED_LEVEL: Final = 3  # of a message that took too long

log = logging.getLogger("firearrow.client")


Batch = tuple[ProcessQueue, list[ReceivedMessage]]
"""What one call of the listener is given, and where that is from. A tuple, because there is one for every message."""


class ConcurrentDispatcher:
    def __init__(
        self,
        call: Callable[[Any], object] | Callable[[Any], Awaitable[object]],
        *,
        coroutine: bool,
        concurrency: int,
        batch_size: int,
        lists: bool = True,
        offsets: OffsetStore,
        send_back: SendBack | None,
        finished: Callable[[ProcessQueue], None],
        count: Count,
        name: str = "consume",
    ) -> None:
        """`call` takes a list, or, without `lists`, the message of a batch of one. `send_back` None: broadcasting.

        `finished`: there may be room for more now.
        """
        self._call: Any = call
        self._batch_size = batch_size
        self._offsets = offsets
        self._send_back = send_back
        self._finished = finished
        self._count = count
        self._loop = asyncio.get_running_loop()
        self._giving_back: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._expired: dict[int, Batch] = {}  # by identity: batches that took too long and are still in the listener's hands
        consume_in_task = self._consume_in_task if lists else self._consume_one_in_task
        consume_in_thread = self._consume_in_thread if lists else self._consume_one_in_thread
        self._workers: Workers[Batch] = (
            TaskWorkers(concurrency, consume_in_task, self._settle)
            if coroutine
            else ThreadWorkers(concurrency, consume_in_thread, self._settle, patient=True, name=name)
        )

    def put(self, held: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Messages that were pulled and are in the process queue."""
        size = self._batch_size
        if size == 1:
            self._workers.put([(held, [message]) for message in messages])
        else:
            self._workers.put([(held, messages[at : at + size]) for at in range(0, len(messages), size)])

    def expire(self, timeout_ms: int) -> None:
        """Gives back what has been in the listener's hands for longer than that."""
        limit = time.monotonic() - timeout_ms / 1000
        for batch, since in self._workers.running():
            if since < limit and id(batch) not in self._expired:
                self._expired[id(batch)] = batch
                held, messages = batch
                log.warning("%s takes longer than %d ms; it is given back", messages[0], timeout_ms)
                if self._send_back is None:
                    self._done(held, messages)
                else:
                    self._give_back_later(held, messages, EXPIRED_LEVEL)

    async def stop(self, timeout_s: float) -> bool:
        """Lets the calls in hand finish, and the giving back. True if all did."""
        self._stopped = True
        ended = await self._workers.stop(timeout_s)
        if self._giving_back:
            _, late = await asyncio.wait(self._giving_back, timeout=timeout_s)
            for task in late:
                task.cancel()
            return ended and not late
        return ended

    # In the workers.

    def _consume_in_thread(self, batch: Batch) -> Outcome:
        held, messages = batch
        if held.dropped:
            return None
        try:
            self._call(messages)
        except BaseException as error:  # SystemExit in a listener ends neither the thread nor the program
            return failure(error, messages)
        return None

    def _consume_one_in_thread(self, batch: Batch) -> Outcome:
        held, messages = batch
        if held.dropped:
            return None
        try:
            self._call(messages[0])
        except BaseException as error:
            return failure(error, messages)
        return None

    async def _consume_in_task(self, batch: Batch) -> Outcome:
        held, messages = batch
        if held.dropped:
            return None
        try:
            await self._call(messages)
        except (Exception, asyncio.CancelledError) as error:
            if self._stopped and isinstance(error, asyncio.CancelledError):
                raise  # by us, because the end does not wait any longer
            return failure(error, messages)
        return None

    async def _consume_one_in_task(self, batch: Batch) -> Outcome:
        held, messages = batch
        if held.dropped:
            return None
        try:
            await self._call(messages[0])
        except (Exception, asyncio.CancelledError) as error:
            if self._stopped and isinstance(error, asyncio.CancelledError):
                raise  # by us, because the end does not wait any longer
            return failure(error, messages)
        return None

    # On the loop, with what was finished since the last time.

    def _settle(self, finished: list[tuple[Batch, Outcome, float]]) -> None:
        consumed: dict[ProcessQueue, list[ReceivedMessage]] = {}
        spent: dict[ProcessQueue, float] = {}
        for batch, outcome, spent_s in finished:
            held, messages = batch
            if outcome is not None or (self._expired and self._expired.pop(id(batch), None) is not None):
                self._not_consumed(batch, outcome, spent_s)
                continue
            known = consumed.get(held)
            if known is None:
                consumed[held] = messages  # of this batch alone, and not needed any more
                spent[held] = spent_s
            else:
                known += messages
                spent[held] += spent_s
        for held, messages in consumed.items():
            self._count(held.queue.topic, len(messages), True, spent[held])
            self._done(held, messages)

    def _not_consumed(self, batch: Batch, outcome: Outcome, spent_s: float) -> None:
        held, messages = batch
        if outcome is None or self._expired.pop(id(batch), None) is not None:
            return  # it took too long, and is somebody else's by now
        self._count(held.queue.topic, len(messages), False, spent_s)
        if held.dropped:
            return
        if outcome.first:
            self._done(held, messages[: outcome.first])
        self._failed(held, messages[outcome.first :], outcome)

    def _failed(self, held: ProcessQueue, messages: list[ReceivedMessage], outcome: Failure) -> None:
        if not messages:
            return
        if self._send_back is None:
            log.warning("%d messages are dropped, beginning with %s: broadcasting has no other try", len(messages), messages[0])
            self._done(held, messages)
        else:
            self._give_back_later(held, messages, outcome.delay_level)

    def _done(self, held: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        if held.dropped:
            return
        held.last_consume_ms = wall_ms()
        offset = held.finish(messages)
        if offset != NO_OFFSET:
            self._offsets.note(held.queue, offset, only_forward=True)
        if held.room_awaited:
            self._finished(held)

    def _give_back_later(self, held: ProcessQueue, messages: Sequence[ReceivedMessage], delay_level: int) -> None:
        task = self._loop.create_task(self._give_back(held, messages, delay_level))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _give_back(self, held: ProcessQueue, messages: Sequence[ReceivedMessage], delay_level: int) -> None:
        assert self._send_back is not None
        kept = []
        for message in messages:
            if held.dropped:
                return
            if await self._send_back.to_broker(message, delay_level):
                self._done(held, [message])
            else:
                kept.append(message)
        if kept and not self._stopped:
            for message in kept:
                message.reconsume_times += 1
            log.warning("%d messages stay here and are tried again in %d ms", len(kept), KEPT_RETRY_MS)
            self._loop.call_later(KEPT_RETRY_MS / 1000, self.put, held, kept)
