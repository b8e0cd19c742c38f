"""Fetching for a pull consumer: one fetch in flight per queue, and the delivery of messages to the user.

Each queue has a task that fetches while the queue is neither full nor paused. A seek cancels the fetch in flight, which a broker
may hold for 20 s, and starts another at the new offset.

`ready` is set while there may be messages to return. Queues are served in turn, so that a long queue does not starve the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer import queue_offsets
from firearrow.client.consumer.fetched_queue import FetchedQueue, MessageLease
from firearrow.client.consumer.offset_store import BrokerOffsets
from firearrow.client.consumer.pull import Puller
from firearrow.client.consumer.queue_offsets import Position, StartFrom
from firearrow.client.consumer.rebalance import differences
from firearrow.client.consumer.subscription import SQL92, Subscription
from firearrow.client.errors import BrokerError, ClientError, FirearrowError
from firearrow.client.hooks import ConsumeContext, ConsumeHook, call_hooks
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.clock import wall_ms
from firearrow.wire.codes import ResponseCode

RETRY_MS: Final = 1_000
FLOW_CONTROL_RETRY_MS: Final = 20

# Permanent errors, raised by `poll`. Others are logged, and the fetch is retried.
PERMANENT_ERRORS: Final = frozenset((
    ResponseCode.NO_PERMISSION, ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
))  # fmt: skip

log = logging.getLogger("firearrow.client")


@dataclass(slots=True)
class _Fetched:
    held: FetchedQueue
    may_fetch: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Fetcher:
    """The queues of one consumer. `offsets` stores the progress of the group."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        offsets: BrokerOffsets,
        *,
        start_from: StartFrom,
        auto_commit: bool,
        batch: int,
        hooks: Sequence[ConsumeHook] = (),
    ) -> None:
        self._instance = instance
        self._group = group
        self._offsets = offsets
        self._start_from = start_from
        self._auto_commit = auto_commit
        self._puller = Puller(instance, group, lite=True, batch=batch)
        self._fetched: dict[MessageQueue, _Fetched] = {}
        self._turn: list[_Fetched] = []  # the queue to serve next is first
        self._in_progress: list[FetchedQueue] = []
        self._befores = [hook.before_consume for hook in hooks]
        self._afters = [hook.after_consume for hook in hooks]
        self._contexts: list[ConsumeContext] = []  # of messages in progress
        self._ready = asyncio.Event()
        self.stopped = False

    # Queues.

    def queues(self) -> list[MessageQueue]:
        return sorted(self._fetched)

    def held(self, queue: MessageQueue) -> FetchedQueue:
        """Return a queue of this consumer. ClientError if it is not assigned."""
        found = self._fetched.get(queue)
        if found is None:
            have = ", ".join(f"{one.topic} {one.broker_name}/{one.queue_id}" for one in self.queues()) or "none"
            raise ClientError(f"{queue} is not assigned to this consumer; assigned are: {have}")
        return found.held

    async def share(self, subscription: Subscription, share: Sequence[MessageQueue]) -> list[FirearrowError]:
        """Own exactly these queues of the topic. Return the errors of queues whose offsets are not known yet."""
        mine = [queue for queue in self._fetched if queue.topic == subscription.topic]
        drop, take = differences(mine, share)
        await self.drop(drop)
        errors = []
        for queue in take:
            try:
                stored = await self._stored(queue)
                offset = await self.resolve(queue, self._start_from) if stored is None else stored
            except FirearrowError as error:
                errors.append(error)
                continue
            self.take(queue, subscription, offset, stored)
        for queue in share:
            if queue in self._fetched:
                self._apply_subscription(queue, subscription)
        return errors

    def take(self, queue: MessageQueue, subscription: Subscription, offset: int, stored: int | None) -> None:
        """Start to fetch a queue at an offset; `stored` is the committed offset of the group."""
        fetched = self._fetched[queue] = _Fetched(FetchedQueue(queue, subscription, offset))
        fetched.held.saved = stored
        self._turn.append(fetched)
        self._restart_fetch(fetched)

    async def drop(self, queues: Iterable[MessageQueue]) -> None:
        """Give up queues; with `auto_commit` their consumed offsets are committed."""
        gone = [self._fetched.pop(queue) for queue in queues if queue in self._fetched]
        for fetched in gone:
            self._turn.remove(fetched)
            if fetched.task is not None:
                fetched.task.cancel()
            self._puller.forget(fetched.held.queue)
            fetched.held.note_taken()
            fetched.held.drop()
        if self._auto_commit:
            await self._save([fetched.held for fetched in gone])
        for fetched in gone:
            self._offsets.forget(fetched.held.queue)

    def pause(self, queues: Iterable[MessageQueue] | None, paused: bool) -> None:
        for queue in self.queues() if queues is None else list(queues):
            self.held(queue).paused = paused
            self.held(queue).return_untaken()
            self._update_state(self._fetched[queue])

    # Messages.

    def hand_out(self, limit: int) -> list[ReceivedMessage]:
        """Return held messages, at most `limit`. If there are none, raise a permanent error of a broker."""
        messages: list[ReceivedMessage] = []
        for _ in range(len(self._turn)):
            fetched = self._turn[0]
            if fetched.held.ready:
                got = fetched.held.hand_out(limit - len(messages))
                messages += got
                self._in_progress.append(fetched.held)
                if self._befores:
                    self._begin_context(fetched.held.queue, got)
                self._update_state(fetched)
                if len(messages) >= limit:
                    self._next_turn()
                    return messages
            self._next_turn()
        self._ready.clear()
        if not messages:
            for fetched in self._turn:
                if fetched.held.refusal is not None:
                    refusal, fetched.held.refusal = fetched.held.refusal, None
                    raise refusal
        return messages

    def lease(self, limit: int) -> MessageLease | None:
        """Lease messages of the next queue; None if there are none. Raises like `hand_out`."""
        for _ in range(len(self._turn)):
            fetched = self._turn[0]
            self._next_turn()
            if fetched.held.ready:
                lease = fetched.held.lease(1 if self._befores else limit)
                self._in_progress.append(fetched.held)
                if self._befores:
                    self._begin_context(fetched.held.queue, list(lease.messages))
                self._update_state(fetched)
                return lease
        self.hand_out(0)
        return None

    def finish_in_progress(self) -> None:
        """Mark the returned messages as consumed."""
        for held in self._in_progress:
            held.all_consumed()
        self._in_progress.clear()
        self._end_contexts(succeeded=True)

    async def wait_ready(self) -> None:
        await self._ready.wait()

    # Offsets.

    async def resolve(self, queue: MessageQueue, position: Position) -> int:
        """Return the offset of a position in a queue."""
        return await queue_offsets.resolve(self._instance, queue, position)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        held = self.held(queue)
        held.seek(offset)
        if held in self._in_progress:
            self._in_progress.remove(held)
        self._restart_fetch(self._fetched[queue])

    async def lag(self) -> dict[MessageQueue, int]:
        queues = self.queues()
        ends = await asyncio.gather(*(queue_offsets.max_offset(self._instance, queue) for queue in queues))
        return {queue: max(end - self._fetched[queue].held.position, 0) for queue, end in zip(queues, ends, strict=True)
                if queue in self._fetched}  # fmt: skip

    def consumed(self) -> dict[MessageQueue, int]:
        return {queue: fetched.held.consumed for queue, fetched in self._fetched.items()}

    # Committing.

    async def commit(self, offsets: Mapping[MessageQueue, int] | None) -> None:
        """Commit these offsets, or all returned messages. FirearrowError if a broker rejects it."""
        if offsets is None:
            self.finish_in_progress()
            offsets = {queue: offset for queue, offset in self.consumed().items() if self._fetched[queue].held.saved != offset}
        await asyncio.gather(*(self._commit(queue, offset) for queue, offset in offsets.items()))

    async def save(self) -> None:
        """Commit what is consumed and not committed yet. Errors are logged; the next call retries."""
        await self._save([fetched.held for fetched in self._fetched.values()])

    async def stop(self, *, consumed: bool) -> None:
        """Stop all fetches. With `consumed`, messages in progress count as consumed."""
        if self.stopped:
            return
        self.stopped = True
        self._ready.set()
        if consumed:
            self.finish_in_progress()
        self._end_contexts(succeeded=False)
        tasks = [fetched.task for fetched in self._fetched.values() if fetched.task is not None]
        await self.drop(self.queues())
        if tasks:
            await asyncio.wait(tasks)

    # Internals.

    def _apply_subscription(self, queue: MessageQueue, subscription: Subscription) -> None:
        """Fetch again if the expression has changed, because held messages match the old one."""
        fetched = self._fetched[queue]
        before, fetched.held.subscription = fetched.held.subscription, subscription
        if (before.kind, before.expression) != (subscription.kind, subscription.expression):
            self.seek(queue, fetched.held.handed)

    async def _stored(self, queue: MessageQueue) -> int | None:
        try:
            return await self._offsets.read(queue)
        except BrokerError as error:
            if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                return None  # the first fetch creates it
            raise

    def _restart_fetch(self, fetched: _Fetched) -> None:
        if fetched.task is not None:
            fetched.task.cancel()
        self._update_state(fetched)
        fetched.task = asyncio.get_running_loop().create_task(self._fetch(fetched), name=f"fetch {fetched.held.queue}")

    def _update_state(self, fetched: _Fetched) -> None:
        """Update the events after a change of the queue."""
        held = fetched.held
        if held.paused or held.full:
            fetched.may_fetch.clear()
        else:
            fetched.may_fetch.set()
        if held.ready or held.refusal is not None:
            self._ready.set()

    async def _fetch(self, fetched: _Fetched) -> None:
        held = fetched.held
        while True:
            await fetched.may_fetch.wait()
            offset = held.next_offset
            try:
                held.add(await self._puller.pull(held.queue, offset, held.subscription))
            except BrokerError as error:
                await self._refused(fetched, error)
            except FirearrowError as error:
                log.warning("group %s: fetching from %s failed and will be retried: %s", self._group, held.queue, error)
                await self._refresh_route(held.queue)
                await asyncio.sleep(RETRY_MS / 1000)
            except Exception:
                log.exception("group %s: fetching from %s failed and will be retried", self._group, held.queue)
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                self._update_state(fetched)
                if held.next_offset == offset:
                    await asyncio.sleep(FLOW_CONTROL_RETRY_MS / 1000)  # the broker did not hold the pull

    async def _refused(self, fetched: _Fetched, error: BrokerError) -> None:
        held = fetched.held
        if error.code in PERMANENT_ERRORS or (error.code == ResponseCode.SYSTEM_ERROR and held.subscription.kind == SQL92):
            held.refusal = error
            self._update_state(fetched)
        elif error.code != ResponseCode.FLOW_CONTROL:
            log.warning("group %s: fetching from %s failed and will be retried: %s", self._group, held.queue, error)
        await asyncio.sleep((FLOW_CONTROL_RETRY_MS if error.code == ResponseCode.FLOW_CONTROL else RETRY_MS) / 1000)

    async def _refresh_route(self, queue: MessageQueue) -> None:
        with contextlib.suppress(FirearrowError):
            await self._instance.route(queue.topic, refresh=True)

    def _begin_context(self, queue: MessageQueue, messages: list[ReceivedMessage]) -> None:
        context = ConsumeContext(self._group, queue, messages, wall_ms())
        self._contexts.append(context)
        call_hooks(self._befores, context)

    def _end_contexts(self, *, succeeded: bool) -> None:
        contexts, self._contexts = self._contexts, []
        for context in contexts:
            context.elapsed_ms = time.time_ns() / 1_000_000 - context.began_ms
            context.succeeded = succeeded
            context.status = "CONSUME_SUCCESS" if succeeded else "RECONSUME_LATER"
            call_hooks(self._afters, context)

    def _next_turn(self) -> None:
        self._turn.append(self._turn.pop(0))

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        await self._offsets.commit(queue, offset)
        if queue in self._fetched:
            self._fetched[queue].held.saved = offset

    async def _save(self, queues: Iterable[FetchedQueue]) -> None:
        for held in (queues := list(queues)):
            held.note_taken()
        unsaved = [held for held in queues if held.saved != held.consumed]
        outcomes = await asyncio.gather(
            *(self._offsets.commit(held.queue, held.consumed) for held in unsaved), return_exceptions=True
        )
        for held, outcome in zip(unsaved, outcomes, strict=True):
            if outcome is None:
                held.saved = held.consumed
            elif isinstance(outcome, FirearrowError):
                log.warning("group %s: committing the offset of %s failed: %s", self._group, held.queue, outcome)
            else:
                raise outcome
