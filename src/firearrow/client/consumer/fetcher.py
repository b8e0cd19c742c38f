"""Inside a running pull consumer: one fetch under way for each queue, and the hand-out.

Each queue has a task that fetches while there is room and the queue is not paused. A seek ends the fetch that is under way (a
broker may hold it for 20 s) and begins another at the new place; what the old one brings is not looked at.

`ready` is set while there may be something to hand out. Queues are handed out in turn, so that a long queue does not keep the
others waiting.
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

FETCH_AGAIN_MS: Final = 1_000
FLOW_CONTROL_AGAIN_MS: Final = 20

# Refusals that will not go away by themselves: whoever polls is told. Others are logged, and the fetch is tried again.
TOLD: Final = {ResponseCode.NO_PERMISSION, ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST}

log = logging.getLogger("firearrow.client")


@dataclass(slots=True)
class _Fetched:
    held: FetchedQueue
    room: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Fetcher:
    """The queues of one consumer. `offsets` is where the group's progress is on record."""

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
        self._turn: list[_Fetched] = []  # whose turn it is to be handed out is first
        self._in_hand: list[FetchedQueue] = []
        self._befores = [hook.before_consume for hook in hooks]
        self._afters = [hook.after_consume for hook in hooks]
        self._contexts: list[ConsumeContext] = []  # of what is in hand
        self._ready = asyncio.Event()
        self.stopped = False

    # Queues.

    def queues(self) -> list[MessageQueue]:
        return sorted(self._fetched)

    def held(self, queue: MessageQueue) -> FetchedQueue:
        """The queue, which must be one of this consumer's."""
        found = self._fetched.get(queue)
        if found is None:
            have = ", ".join(f"{one.topic} {one.broker_name}/{one.queue_id}" for one in self.queues()) or "none"
            raise ClientError(f"{queue} is not one of this consumer's queues now; it has: {have}")
        return found.held

    async def share(self, subscription: Subscription, share: Sequence[MessageQueue]) -> list[FirearrowError]:
        """Makes these the queues of the topic. Returns why some cannot be taken yet: their offsets are not known."""
        mine = [queue for queue in self._fetched if queue.topic == subscription.topic]
        drop, take = differences(mine, share)
        await self.drop(drop)
        troubles = []
        for queue in take:
            try:
                stored = await self._stored(queue)
                offset = await self.resolve(queue, self._start_from) if stored is None else stored
            except FirearrowError as error:
                troubles.append(error)
                continue
            self.take(queue, subscription, offset, stored)
        for queue in share:
            if queue in self._fetched:
                self._wants(queue, subscription)
        return troubles

    def take(self, queue: MessageQueue, subscription: Subscription, offset: int, stored: int | None) -> None:
        """The queue is ours from now on, from this offset; `stored` is what is on record for the group."""
        fetched = self._fetched[queue] = _Fetched(FetchedQueue(queue, subscription, offset))
        fetched.held.saved = stored
        self._turn.append(fetched)
        self._fetch_anew(fetched)

    async def drop(self, queues: Iterable[MessageQueue]) -> None:
        """These are not ours any more; with `auto_commit` what was consumed of them is committed."""
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
            self.held(queue).call_back()
            self._look(self._fetched[queue])

    # Messages.

    def hand_out(self, limit: int) -> list[ReceivedMessage]:
        """Messages that wait, at most so many; raises what a broker refuses for good, if nothing waits."""
        messages: list[ReceivedMessage] = []
        for _ in range(len(self._turn)):
            fetched = self._turn[0]
            if fetched.held.ready:
                got = fetched.held.hand_out(limit - len(messages))
                messages += got
                self._in_hand.append(fetched.held)
                if self._befores:
                    self._begin_context(fetched.held.queue, got)
                self._look(fetched)
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

    def lend(self, limit: int) -> MessageLease | None:
        """Messages of the queue whose turn it is; None if none wait. Raises as `hand_out` does."""
        for _ in range(len(self._turn)):
            fetched = self._turn[0]
            self._next_turn()
            if fetched.held.ready:
                loan = fetched.held.lend(1 if self._befores else limit)
                self._in_hand.append(fetched.held)
                if self._befores:
                    self._begin_context(fetched.held.queue, list(loan.messages))
                self._look(fetched)
                return loan
        self.hand_out(0)
        return None

    def finish_in_hand(self) -> None:
        """What was handed out is done with."""
        for held in self._in_hand:
            held.all_consumed()
        self._in_hand.clear()
        self._end_contexts(succeeded=True)

    async def wait_ready(self) -> None:
        await self._ready.wait()

    # Places.

    async def resolve(self, queue: MessageQueue, position: Position) -> int:
        """Return the offset of a position in a queue."""
        return await queue_offsets.resolve(self._instance, queue, position)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        held = self.held(queue)
        held.seek(offset)
        if held in self._in_hand:
            self._in_hand.remove(held)
        self._fetch_anew(self._fetched[queue])

    async def lag(self) -> dict[MessageQueue, int]:
        queues = self.queues()
        ends = await asyncio.gather(*(queue_offsets.max_offset(self._instance, queue) for queue in queues))
        return {queue: max(end - self._fetched[queue].held.position, 0) for queue, end in zip(queues, ends, strict=True)
                if queue in self._fetched}  # fmt: skip

    def consumed(self) -> dict[MessageQueue, int]:
        return {queue: fetched.held.consumed for queue, fetched in self._fetched.items()}

    # Committing.

    async def commit(self, offsets: Mapping[MessageQueue, int] | None) -> None:
        """These offsets, or all that was handed out. FirearrowError if a broker does not take it."""
        if offsets is None:
            self.finish_in_hand()
            offsets = {queue: offset for queue, offset in self.consumed().items() if self._fetched[queue].held.saved != offset}
        await asyncio.gather(*(self._commit(queue, offset) for queue, offset in offsets.items()))

    async def save(self) -> None:
        """What is consumed and not on record yet; troubles are logged, the next time may be better."""
        await self._save([fetched.held for fetched in self._fetched.values()])

    async def stop(self, *, consumed: bool) -> None:
        """Ends all fetches. `consumed`: what is in hand is done with."""
        if self.stopped:
            return
        self.stopped = True
        self._ready.set()
        if consumed:
            self.finish_in_hand()
        self._end_contexts(succeeded=False)
        tasks = [fetched.task for fetched in self._fetched.values() if fetched.task is not None]
        await self.drop(self.queues())
        if tasks:
            await asyncio.wait(tasks)

    # Inside.

    def _wants(self, queue: MessageQueue, subscription: Subscription) -> None:
        """What is held of a queue is what was wanted when it was fetched; another expression needs another fetch."""
        fetched = self._fetched[queue]
        before, fetched.held.subscription = fetched.held.subscription, subscription
        if (before.kind, before.expression) != (subscription.kind, subscription.expression):
            self.seek(queue, fetched.held.handed)

    async def _stored(self, queue: MessageQueue) -> int | None:
        try:
            return await self._offsets.read(queue)
        except BrokerError as error:
            if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                return None  # it will, from the first fetch on
            raise

    def _fetch_anew(self, fetched: _Fetched) -> None:
        if fetched.task is not None:
            fetched.task.cancel()
        self._look(fetched)
        fetched.task = asyncio.get_running_loop().create_task(self._fetch(fetched), name=f"fetch {fetched.held.queue}")

    def _look(self, fetched: _Fetched) -> None:
        """Room or not, ready or not: after anything about a queue has changed."""
        held = fetched.held
        if held.paused or held.full:
            fetched.room.clear()
        else:
            fetched.room.set()
        if held.ready or held.refusal is not None:
            self._ready.set()

    async def _fetch(self, fetched: _Fetched) -> None:
        held = fetched.held
        while True:
            await fetched.room.wait()
            offset = held.next_offset
            try:
                held.took(await self._puller.pull(held.queue, offset, held.subscription))
            except BrokerError as error:
                await self._refused(fetched, error)
            except FirearrowError as error:
                log.warning("group %s gets nothing of %s: %s; it is tried again", self._group, held.queue, error)
                await self._look_for_route(held.queue)
                await asyncio.sleep(FETCH_AGAIN_MS / 1000)
            except Exception:
                log.exception("group %s: fetching of %s failed; it is tried again", self._group, held.queue)
                await asyncio.sleep(FETCH_AGAIN_MS / 1000)
            else:
                self._look(fetched)
                if held.next_offset == offset:
                    await asyncio.sleep(FLOW_CONTROL_AGAIN_MS / 1000)  # a broker that holds nothing must not be asked in circles

    async def _refused(self, fetched: _Fetched, error: BrokerError) -> None:
        held = fetched.held
        if error.code in TOLD or (error.code == ResponseCode.SYSTEM_ERROR and held.subscription.kind == SQL92):
            held.refusal = error
            self._look(fetched)
        elif error.code != ResponseCode.FLOW_CONTROL:
            log.warning("group %s gets nothing of %s: %s; it is tried again", self._group, held.queue, error)
        await asyncio.sleep((FLOW_CONTROL_AGAIN_MS if error.code == ResponseCode.FLOW_CONTROL else FETCH_AGAIN_MS) / 1000)

    async def _look_for_route(self, queue: MessageQueue) -> None:
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
                log.warning("group %s: the offset of %s was not committed: %s", self._group, held.queue, outcome)
            else:
                raise outcome
