"""Concurrent consumption: messages of all queues in parallel, in no particular order.

    pulled -> split into batches -> a worker calls the listener -> settled:
        consumed     removed from the process queue, so that the offset to commit advances
        failed       sent back to the broker for redelivery, then removed likewise
        failed, and not accepted by a broker    kept, and delivered again here after 5 s
    broadcasting: a failed message is dropped, because brokers do not redeliver to single consumers

A message that takes longer than the consume timeout is sent back too, so that the offset can advance. The call of the listener
continues, and its outcome is ignored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Unpack

from firearrow.client.consumer.listener import Failure, Outcome, failure
from firearrow.client.consumer.listener_dispatcher import DispatcherKeywords, ListenerDispatcher
from firearrow.client.consumer.process_queue import ProcessQueue
from firearrow.client.message import ReceivedMessage

KEPT_RETRY_MS: Final = 5_000
EXPIRED_LEVEL: Final = 3  # delay level of a message that exceeded the consume timeout

log = logging.getLogger("firearrow.client")

Batch = tuple[ProcessQueue, list[ReceivedMessage]]
"""The messages for one call of the listener and their origin. A tuple, because there is one for every message."""


class ConcurrentDispatcher(ListenerDispatcher[Batch, Outcome]):
    def __init__(self, call: Callable[[Any], object], *, lists: bool = True, **shared: Unpack[DispatcherKeywords]) -> None:
        """`call` takes a list, or, without `lists`, a single message."""
        super().__init__(call, patient=True, **shared)
        self._lists = lists
        self._expired: dict[int, Batch] = {}  # by identity: batches beyond the timeout whose call still runs

    def put(self, held: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        size = self._batch_size
        if size == 1:
            self._workers.put([(held, [message]) for message in messages])
        else:
            self._workers.put([(held, messages[at : at + size]) for at in range(0, len(messages), size)])

    def expire(self, timeout_ms: int) -> None:
        """Send back messages whose call of the listener takes longer than the timeout."""
        limit = time.monotonic() - timeout_ms / 1000
        for batch, since in self._workers.running():
            if since < limit and id(batch) not in self._expired:
                self._expired[id(batch)] = batch
                held, messages = batch
                log.warning("%s exceeds the consume timeout of %d ms and will be redelivered", messages[0], timeout_ms)
                if self._send_back is None:
                    self._done(held, messages)
                else:
                    self._send_back_later(held, messages, EXPIRED_LEVEL)

    # In the workers.

    def _consume_in_thread(self, batch: Batch) -> Outcome:
        held, messages = batch
        if held.dropped:
            return None
        try:
            self._call(messages if self._lists else messages[0])
        except BaseException as error:  # noqa: BLE001 (SystemExit in a listener must not end the worker thread)
            return failure(error, messages)
        return None

    async def _consume_in_task(self, batch: Batch) -> Outcome:
        held, messages = batch
        if held.dropped:
            return None
        try:
            await self._call(messages if self._lists else messages[0])
        except (Exception, asyncio.CancelledError) as error:
            if self._stopped and isinstance(error, asyncio.CancelledError):
                raise  # stop() has cancelled the call
            return failure(error, messages)
        return None

    # On the event loop.

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
                consumed[held] = messages  # the list of the batch is reused
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
            return  # it was sent back by expire()
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
            log.warning("%d messages are dropped, the first is %s: broadcasting has no redelivery", len(messages), messages[0])
            self._done(held, messages)
        else:
            self._send_back_later(held, messages, outcome.delay_level)

    def _done(self, held: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        if not held.dropped:
            self._finish(held, messages, only_forward=True)

    def _send_back_later(self, held: ProcessQueue, messages: Sequence[ReceivedMessage], delay_level: int) -> None:
        self._failure_tasks.start(self._return_to_broker(held, messages, delay_level))

    async def _return_to_broker(self, held: ProcessQueue, messages: Sequence[ReceivedMessage], delay_level: int) -> None:
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
            log.warning("%d messages were accepted by no broker and are delivered again in %d ms", len(kept), KEPT_RETRY_MS)
            self._loop.call_later(KEPT_RETRY_MS / 1000, self.put, held, kept)
