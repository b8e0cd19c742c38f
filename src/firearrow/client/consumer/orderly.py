"""Orderly consumption: the messages of a queue strictly one after the other.

A queue with messages gets a *turn*: a worker passes up to `TURN_MESSAGES` of them to the listener, in order. It stops at the
first failure, when the queue was dropped, or when its lock is too old to be trusted. Then other queues have their turn.

    consumed     the offset to commit is that of the next message
    failed       the queue is suspended (1 s, or as the listener asks), then the same messages are delivered again, up to the
                 maximum of attempts; then they are sent to the retry topic, where the broker makes them dead letters
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Unpack

from firearrow.client.consumer.listener import DEAD_LETTER, Failure, failure
from firearrow.client.consumer.listener_dispatcher import DispatcherKeywords, ListenerDispatcher
from firearrow.client.consumer.process_queue import ProcessQueue
from firearrow.client.message import ReceivedMessage

TURN_MESSAGES: Final = 64
MIN_SUSPEND_MS: Final = 10
MAX_SUSPEND_MS: Final = 30_000
NOT_LOCKED_MS: Final = 500  # how soon to check a lost lock again

log = logging.getLogger("firearrow.client")


@dataclass(slots=True, eq=False)
class Turn:
    """Messages of one queue that a worker passes to the listener."""

    held: ProcessQueue
    messages: list[ReceivedMessage]
    consumed: int = 0  # counted by the worker
    failure: Failure | None = None


class OrderlyDispatcher(ListenerDispatcher[Turn, None]):
    """Runs one turn at a time for each queue."""

    def __init__(
        self,
        call: Callable[[list[ReceivedMessage]], object],
        *,
        max_reconsume_times: int | None,
        suspend_ms: int,
        now_ms: Callable[[], int],
        **shared: Unpack[DispatcherKeywords],
    ) -> None:
        """`max_reconsume_times` None is unlimited. Broadcasting has neither locks nor dead letters."""
        super().__init__(call, patient=False, **shared)
        self._max_reconsume_times = max_reconsume_times
        self._suspend_ms = suspend_ms
        self._now_ms = now_ms

    def put(self, held: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        held.waiting.extend(messages)
        self.start_turn(held)

    def start_turn(self, held: ProcessQueue) -> None:
        """Give the queue a turn if it has messages and no turn is running."""
        if held.running or held.suspended or held.dropped or not held.waiting or self._stopped:
            return
        if not self._may_consume(held):
            self._suspend(held, NOT_LOCKED_MS)
            return
        held.running = True
        waiting = held.waiting
        self._workers.put([Turn(held, [waiting.popleft() for _ in range(min(len(waiting), TURN_MESSAGES))])])

    def expire(self, timeout_ms: int) -> None:
        """Log calls beyond the timeout. They are not redelivered, which would break the order."""
        limit = time.monotonic() - timeout_ms / 1000
        for turn, since in self._workers.running():
            if since < limit:
                log.warning("the listener has been processing %s for more than %d ms", turn.held.queue, timeout_ms)

    # In the workers.

    def _consume_in_thread(self, turn: Turn) -> None:
        for batch in self._batches(turn):
            try:
                self._call(batch)
            except BaseException as error:  # noqa: BLE001 (SystemExit in a listener must not end the worker thread)
                turn.failure = failure(error, batch)
                turn.consumed += turn.failure.first
                return
            turn.consumed += len(batch)

    async def _consume_in_task(self, turn: Turn) -> None:
        for batch in self._batches(turn):
            try:
                await self._call(batch)
            except (Exception, asyncio.CancelledError) as error:
                if self._stopped and isinstance(error, asyncio.CancelledError):
                    raise  # stop() has cancelled the call
                turn.failure = failure(error, batch)
                turn.consumed += turn.failure.first
                return
            turn.consumed += len(batch)

    def _batches(self, turn: Turn) -> Iterator[list[ReceivedMessage]]:
        size, messages = self._batch_size, turn.messages
        for at in range(0, len(messages), size):
            if self._stopped or turn.held.dropped or not self._may_consume(turn.held):
                return
            yield messages[at : at + size]

    def _may_consume(self, held: ProcessQueue) -> bool:
        return self._send_back is None or (held.locked and not held.lock_expired(self._now_ms()))

    # On the event loop.

    def _settle(self, finished: list[tuple[Turn, None, float]]) -> None:
        for turn, _, spent_s in finished:
            held = turn.held
            self._count(held.queue.topic, turn.consumed, True, spent_s)
            if turn.failure is not None:
                self._count(held.queue.topic, 1, False, 0.0)
            if turn.consumed:
                self._done(held, turn.messages[: turn.consumed])
            left = turn.messages[turn.consumed :]
            held.waiting.extendleft(reversed(left))
            if turn.failure is not None and not held.dropped:
                failed = left[: max(self._batch_size - turn.failure.first, 1)]
                self._failure_tasks.start(self._handle_failure(held, failed, turn.failure))
            else:
                held.running = False
                self.start_turn(held)

    def _done(self, held: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        # A queue dropped during the call still belongs to us at the broker: its lock is released afterwards.
        self._finish(held, messages, only_forward=False)

    async def _handle_failure(self, held: ProcessQueue, failed: list[ReceivedMessage], why: Failure) -> None:
        """Handle failed messages at the head of the queue: dead letters after the last attempt, else suspend the queue."""
        redeliver = False
        for message in failed:
            limit = self._max_reconsume_times
            last = why.delay_level == DEAD_LETTER or (limit is not None and message.reconsume_times >= limit)
            if last and await self._discard(message):
                if message in held.waiting:
                    held.waiting.remove(message)
                self._done(held, [message])
            else:
                message.reconsume_times += 1
                redeliver = True
        wanted_ms = self._suspend_ms if why.suspend_ms is None else why.suspend_ms
        held.running = False
        self._suspend(held, min(max(wanted_ms, MIN_SUSPEND_MS), MAX_SUSPEND_MS) if redeliver else 0)

    async def _discard(self, message: ReceivedMessage) -> bool:
        if self._send_back is not None:
            return await self._send_back.as_message(message, DEAD_LETTER)
        log.warning("%s is dropped: a broadcasting group has no dead letters", message)
        return True

    def _suspend(self, held: ProcessQueue, for_ms: int) -> None:
        """Give the queue no turn for a while."""
        held.suspended = True
        self._loop.call_later(for_ms / 1000, self._resume, held)

    def _resume(self, held: ProcessQueue) -> None:
        held.suspended = False
        self.start_turn(held)
