"""Queues of a running push consumer: taking, dropping and moving them, and their pull loops.

    take       (orderly: lock) -> find the start offset -> create process queue and pull loop
    drop       stop pulling -> (orderly: wait for the running call) -> commit the offset -> (orderly: unlock)
    move       the broker or an operator sets another offset: drop, then take at that offset

Changes are made one at a time. Messages of concurrent calls that run while their queue is dropped are not committed, so the next
owner consumes them again. This is the only source of duplicates without a failure; RocketMQ has it, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer import queue_offsets
from firearrow.client.consumer.listener_dispatcher import ListenerDispatcher
from firearrow.client.consumer.offset_store import OffsetStore
from firearrow.client.consumer.process_queue import ProcessQueue
from firearrow.client.consumer.pull import Puller
from firearrow.client.consumer.pull_loop import PullLoop
from firearrow.client.consumer.queue_locks import QueueLockClient
from firearrow.client.consumer.queue_offsets import StartFrom
from firearrow.client.consumer.rebalance import differences
from firearrow.client.consumer.subscription import Subscription
from firearrow.client.errors import FirearrowError
from firearrow.client.message import MessageQueue
from firearrow.clock import wall_ms
from firearrow.wire.names import RETRY_PREFIX

RELEASE_WAIT_MS: Final = 500  # how long to wait for the call of a dropped orderly queue before handling other queues
FORCE_RELEASE_MS: Final = 20_000  # after this time a queue is released while its call still runs

log = logging.getLogger("firearrow.client")


class QueueManager:
    """The process queues and pull loops of one consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        puller: Puller,
        offsets: OffsetStore,
        service: ListenerDispatcher[Any, Any],
        *,
        locks: QueueLockClient | None,
        start_from: StartFrom,
        subscription: Callable[[str], Subscription | None],
        full: Callable[[ProcessQueue], str | None],
        pulled: Callable[[str, int, float], None],
    ) -> None:
        """`locks` is for orderly consumption of a clustering group."""
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self.paused = False
        self._loops: dict[MessageQueue, PullLoop] = {}
        self._instance = instance
        self._puller = puller
        self._offsets = offsets
        self._service = service
        self._locks = locks
        self._start_from = start_from
        self._subscription = subscription
        self._full = full
        self._pulled = pulled
        self._changing = asyncio.Lock()

    # Changes.

    async def share(self, topic: str, share: Sequence[MessageQueue]) -> bool:
        """Own exactly these queues of the topic. Return False if the call must be repeated."""
        async with self._changing:
            mine = {queue for queue, held in self.queues.items() if queue.topic == topic}
            drop, _ = differences(mine, share)
            now = wall_ms()
            stuck = [queue for queue in mine if self.queues[queue].dropped or self.queues[queue].pull_expired(now)]
            done = True
            for queue in sorted({*drop, *stuck}):
                if not await self._drop(queue):
                    done = False
            _, take = differences(self.queues, share)
            return await self._take(take) and done

    async def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets in the queues that are owned."""
        async with self._changing:
            for queue, offset in offsets.items():
                held = self.queues.get(queue)
                if held is not None:
                    await self._restart(held, offset)

    async def drop_topic(self, topic: str) -> None:
        await self.share(topic, ())

    async def renew_locks(self) -> None:
        """Renew all locks; called every 20 s."""
        if self._locks is None or not self.queues:
            return
        held_queues = list(self.queues)
        ours, unknown = await self._locks.lock(held_queues)
        for queue in held_queues:
            held = self.queues.get(queue)
            if held is None or queue in unknown:
                continue
            if queue in ours:
                held.last_lock_ms = wall_ms()
                if not held.locked:
                    held.locked = True
                    self.wake(held)
            elif held.locked:
                held.locked = False
                log.warning("the lock of %s was lost; the queue is suspended until it is locked again", queue)

    def wake(self, held: ProcessQueue) -> None:
        loop = self._loops.get(held.queue)
        if loop is not None:
            loop.wake()

    def pause(self, paused: bool) -> None:
        self.paused = paused
        for loop in self._loops.values():
            loop.wake()

    async def stop(self, timeout_s: float) -> None:
        """Stop pulling, wait for running calls, commit offsets and release locks."""
        async with self._changing:
            for loop in list(self._loops.values()):
                await loop.stop()
            if not await self._service.stop(timeout_s):
                log.warning("some calls of the listener took longer than %g s; their messages will be redelivered", timeout_s)
            await self._offsets.persist(list(self.queues), confirmed=True)
            if self._locks is not None:
                await self._locks.unlock(list(self.queues), confirmed=True)
            for held in self.queues.values():
                held.dropped = True
            self.queues.clear()
            self._loops.clear()

    # Internals; all hold `_changing`.

    async def _take(self, queues: Sequence[MessageQueue]) -> bool:
        wanted = list(queues)
        if self._locks is not None and wanted:
            ours, _ = await self._locks.lock(wanted)
            wanted = [queue for queue in wanted if queue in ours]
        offsets = await asyncio.gather(*(self._first_offset(queue) for queue in wanted))
        for queue, offset in zip(wanted, offsets, strict=True):
            if offset is not None:
                self._begin(queue, offset)
        return len(wanted) == len(queues) and None not in offsets

    async def _drop(self, queue: MessageQueue) -> bool:
        held = self.queues[queue]
        if not held.dropped:
            held.dropped, held.dropped_ms = True, wall_ms()
        await self._loops[queue].stop()
        if not await self._wait_for_call(held):
            return False
        await self._offsets.persist([queue])
        if self._locks is not None:
            await self._locks.unlock([queue])
        self._offsets.forget(queue)
        self._puller.forget(queue)
        self._forget(held)
        log.info("released %s", queue)
        return True

    async def _restart(self, held: ProcessQueue, offset: int) -> None:
        queue = held.queue
        held.dropped, held.dropped_ms = True, wall_ms()
        await self._loops[queue].stop()
        await self._wait_for_call(held)
        self._offsets.note(queue, offset)
        await self._offsets.persist([queue], confirmed=True)
        self._forget(held)
        fresh = self._begin(queue, offset)
        fresh.locked, fresh.last_lock_ms = held.locked, held.last_lock_ms
        log.info("continuing %s at %d", queue, offset)

    async def _wait_for_call(self, held: ProcessQueue) -> bool:
        """Wait for the running call of an orderly queue. Return False if the queue must be kept for now."""
        began = time.monotonic()
        while held.running:
            if wall_ms() - held.dropped_ms > FORCE_RELEASE_MS:
                log.warning(
                    "%s is released while a call of the listener still runs; its messages will be redelivered", held.queue
                )
                return True
            if time.monotonic() - began > RELEASE_WAIT_MS / 1000:
                return False
            await asyncio.sleep(0.005)
        return True

    def _forget(self, held: ProcessQueue) -> None:
        held.clear()
        self.queues.pop(held.queue, None)
        self._loops.pop(held.queue, None)

    async def _first_offset(self, queue: MessageQueue) -> int | None:
        """Return the start offset, None if it is not known now. The retry topic of the group is consumed completely."""
        try:
            stored = await self._offsets.read(queue)
            if stored is not None and stored >= 0:
                return stored
            position = 0 if queue.topic.startswith(RETRY_PREFIX) and self._start_from != "earliest" else self._start_from
            return await queue_offsets.resolve(self._instance, queue, position)
        except FirearrowError as error:
            log.warning("%s is not taken yet, its start offset is unknown: %s", queue, error)
            return None

    def _begin(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        held = ProcessQueue(queue, wall_ms())
        if self._locks is not None:
            held.locked, held.last_lock_ms = True, wall_ms()
        loop = PullLoop(
            self._puller,
            held,
            offset,
            subscription=self._subscription,
            hold_back=self._hold_back,
            consumed=self._offsets.noted,
            hand_out=self._service.put,
            skipped=self._skipped,
            moved=self._moved,
            pulled=self._pulled,
            now_ms=wall_ms,
        )
        self.queues[queue] = held
        self._loops[queue] = loop
        loop.start()
        log.info("consuming %s from %d", queue, offset)
        return held

    def _hold_back(self, held: ProcessQueue) -> str | None:
        if self.paused:
            return "the consumer is paused"
        if self._locks is not None and not held.locked:
            return "the queue is not locked"
        return self._full(held)

    def _skipped(self, held: ProcessQueue, offset: int) -> None:
        self._offsets.note(held.queue, offset, only_forward=True)

    async def _moved(self, held: ProcessQueue, offset: int) -> None:
        log.warning("the offset in %s is out of range; the broker continues at %d", held.queue, offset)
        async with self._changing:
            if self.queues.get(held.queue) is held and not held.dropped:
                await self._restart(held, offset)
