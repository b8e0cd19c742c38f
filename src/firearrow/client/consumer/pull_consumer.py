"""The pull consumer: the user polls for messages or iterates over them.

    async with PullConsumer("127.0.0.1:9876", group="audit", topics=["Orders"]) as consumer:
        async for message in consumer:
            ...

Queues are assigned by subscription (`topics`, `subscribe`), shared with the other members of the group, or by `assign`,
independent of the group. Messages are fetched ahead: one fetch per queue is in flight while its buffer is not full.

With `auto_commit` (the default) the messages of a `poll` count as consumed at the next `poll`, and an iterated message when the
next is taken. Consumed offsets are committed every few seconds, when a queue moves to another member, and at the end. When
`async with` is left by an exception, the messages in progress do not count and are delivered again. Without `auto_commit` only
`commit` commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, Unpack

from firearrow.client.connection.instance import ClientInstance, acquire
from firearrow.client.consumer.allocation import AllocationStrategy
from firearrow.client.consumer.fetched_queue import MessageLease
from firearrow.client.consumer.fetcher import Fetcher
from firearrow.client.consumer.group_consumer import GroupConsumer, RunningConsumer
from firearrow.client.consumer.offset_store import BrokerOffsets
from firearrow.client.consumer.pull import PULL_BATCH
from firearrow.client.consumer.queue_offsets import Position, StartFrom
from firearrow.client.consumer.rebalance import WARN_EVERY_S, Rebalancer
from firearrow.client.consumer.subscription import Expression, as_expressions, subscription
from firearrow.client.errors import ClientError, ClosedError, FirearrowError
from firearrow.client.hooks import ConsumeHook
from firearrow.client.lifecycle import repeat
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.client.namespaces import with_namespace
from firearrow.client.options import ClientKeywords, Duration, NameServers, document_keywords, seconds
from firearrow.clock import wall_ms
from firearrow.wire.bodies import client
from firearrow.wire.bodies.client import ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo
from firearrow.wire.headers.client import CheckTransactionStateRequestHeader
from firearrow.wire.names import CLIENT_INNER_PRODUCER_GROUP, check_topic

POLL_TIMEOUT_S: Final = 5.0
MAX_PULL_BATCH: Final = 1_024

log = logging.getLogger("firearrow.client")


class PullConsumer(GroupConsumer["_Running"]):
    """Consumer that returns messages on request, by `poll` or by iteration."""

    @document_keywords
    def __init__(
        self,
        name_server: NameServers = None,
        *,
        group: str,
        topics: Iterable[str] = (),
        subscribe: str | Mapping[str, Expression] | None = None,
        start_from: StartFrom = "latest",
        auto_commit: bool = True,
        pull_batch: int = PULL_BATCH,
        allocation: AllocationStrategy | None = None,
        hooks: Sequence[ConsumeHook] = (),
        **options: Unpack[ClientKeywords],
    ) -> None:
        """Create a consumer; it connects in `start`.

        A new group receives only messages sent after it started: `start_from` is "latest" by default.

        group                     the consumer group; its members share the queues
        topics                    topics to consume completely
        subscribe                 a topic, or a mapping of topics to expressions: "*", tags ("new || paid") or Sql("amount > 100")
        start_from                where a group without offsets starts: "latest" skips the existing messages,
                                  "earliest" returns them, a datetime returns those stored since. A group with offsets
                                  always continues at its offsets
        auto_commit               commit the messages of a `poll` when the next one is called; otherwise only `commit` does
        pull_batch                messages requested by one pull
        allocation                the strategy that shares the queues among the members; default: `Averagely`
        hooks                     `ConsumeHook` objects called when messages are returned and when they count as consumed
        """
        if not 1 <= pull_batch <= MAX_PULL_BATCH:
            raise ValueError(f"pull_batch is {pull_batch}, expected 1 to {MAX_PULL_BATCH} messages")
        super().__init__(name_server, group, start_from, allocation, hooks, {**options})
        self._pull_batch = pull_batch
        self._auto_commit = auto_commit
        wanted: dict[str, Expression] = dict.fromkeys([topics] if isinstance(topics, str) else topics, "*")
        wanted.update(as_expressions(subscribe or {}))
        for topic, expression in wanted.items():
            self._subscribe(topic, expression)
        self._lease: MessageLease | None = None
        self._warned_s = -math.inf

    # Lifecycle.

    async def start(self) -> None:
        """Connect, join the group and take a share of the queues. Called by `async with`."""
        if self._closed:
            raise ClosedError("this consumer has been closed; create another one")
        if self._running is not None:
            return
        joins = bool(self._subscriptions)
        instance = await acquire(
            self._options, consumer_group=self._group, producer_group=None if joins else CLIENT_INNER_PRODUCER_GROUP
        )
        self._running = running = self._run_with(instance)
        try:
            if joins:
                await self._join(running)
            else:
                await instance.register_producer(CLIENT_INNER_PRODUCER_GROUP, _AssignedTopics(running.fetching))
                running.apart = True
        except BaseException:
            await self._end(consumed=False)
            raise
        if self._auto_commit:
            saving = repeat(self._options.persist_offset_interval_ms, running.fetching.save)
            running.saving = asyncio.get_running_loop().create_task(saving, name=f"offsets of {self._group}")

    async def close(self) -> None:
        """Commit (with `auto_commit`) and leave the group. Called by `async with`; repeated calls do nothing."""
        await self._end(consumed=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end(consumed=kind is None)

    # Messages.

    async def poll(self, timeout: Duration = POLL_TIMEOUT_S, *, max_messages: int = PULL_BATCH) -> list[ReceivedMessage]:
        """Return the next messages, or an empty list after the timeout; a warning is logged if a topic cannot be consumed.

        The messages of the previous call count as consumed.
        """
        running = self._open()
        fetching = running.fetching
        timeout_s = seconds("timeout", timeout, or_zero=True)
        fetching.finish_in_progress()
        messages = fetching.hand_out(max_messages)
        if not messages and timeout_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while not messages:
                        await fetching.wait_ready()
                        self._open()
                        messages = fetching.hand_out(max_messages)
        if not messages and running.rebalance.problem is not None:
            self._warn_of_problem(running.rebalance.problem)
        return messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Wait for the next message; the previous one counts as consumed. Ends when the consumer is closed."""
        message = self.next_buffered()
        if message is not None:
            return message
        fetching = self._open().fetching
        fetching.finish_in_progress()
        while not fetching.stopped:
            self._lease = fetching.lease(PULL_BATCH)
            message = self.next_buffered()
            if message is not None:
                return message
            await fetching.wait_ready()
        raise StopAsyncIteration

    def next_buffered(self) -> ReceivedMessage | None:
        """Return the message that `async for` would return without waiting, else None. May be called from any thread."""
        return None if self._lease is None else self._lease.next()

    # Queues.

    async def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Subscribe to a topic, or change its expression."""
        running = self._open()
        if running.assigned:
            raise ClientError("this consumer uses assign; use another consumer for subscriptions")
        first = not self._subscriptions
        self._subscribe(topic, expression)
        if first:
            await self._join(running)
        else:
            await running.instance.heartbeat_now()
            await running.rebalance.run_once()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic; the other members of the group take over its queues."""
        running = self._open()
        name = with_namespace(topic, self._options.namespace)
        if self._subscriptions.pop(name, None) is not None:
            await running.fetching.drop([queue for queue in running.fetching.queues() if queue.topic == name])
            await running.instance.heartbeat_now()

    async def assign(self, queues: Iterable[MessageQueue], expression: Expression = "*") -> None:
        """Consume exactly these queues, independent of the group. Not together with subscriptions."""
        running = self._open()
        if self._subscriptions:
            raise ClientError(
                f"this consumer subscribes to {', '.join(sorted(self._subscriptions))} and gets its queues from its group; "
                "assign needs a consumer without topics"
            )
        running.assigned = True
        by_topic: dict[str, list[MessageQueue]] = {queue.topic: [] for queue in running.fetching.queues()}
        for queue in queues:
            by_topic.setdefault(queue.topic, []).append(queue)
        for topic, share in by_topic.items():
            await running.instance.route(topic)
            for error in await running.fetching.share(subscription(topic, expression, wall_ms()), share):
                raise error

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic, sorted, for use with `assign`."""
        check_topic(topic)
        route = await self._open().instance.route(with_namespace(topic, self._options.namespace), refresh=True)
        return route.read_queues()

    def assignment(self) -> list[MessageQueue]:
        """Return the currently assigned queues, sorted."""
        return self._open().fetching.queues()

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Return no messages of these queues (default: all) until `resume`."""
        self._open().fetching.pause(queues, True)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Resume these queues (default: all)."""
        self._open().fetching.pause(queues, False)

    # Offsets.

    async def seek(self, queue: MessageQueue, to: Position) -> None:
        """Continue at an offset, at the first message stored at or after a time, at `"earliest"` or at `"latest"`."""
        fetching = self._open().fetching
        fetching.held(queue)
        fetching.seek(queue, await fetching.resolve(queue, to))

    async def seek_all(self, to: Position) -> None:
        """Seek in all assigned queues."""
        await asyncio.gather(*(self.seek(queue, to) for queue in self.assignment()))

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message of a queue."""
        return self._open().fetching.held(queue).position

    async def offset_at(self, queue: MessageQueue, to: Position) -> int:
        """Return the offset of a position: of the first message stored at or after a time, of `"earliest"` or `"latest"`."""
        return await self._open().fetching.resolve(queue, to)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit all returned messages, or the given offsets, and wait for the brokers."""
        await self._open().fetching.commit(offsets)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group, or None if it has not committed any."""
        return await self._open().offsets.read(queue)

    async def lag(self) -> dict[MessageQueue, int]:
        """Return the number of messages not returned yet, by assigned queue."""
        return await self._open().fetching.lag()

    # ConsumerMember, called by the instance.

    def heartbeat(self) -> ConsumerData:
        return self._heartbeat("CONSUME_ACTIVELY", "CLUSTERING")

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        if self._running is None:
            return
        fetching = self._running.fetching
        mine = fetching.queues()
        for queue, offset in offsets.items():
            if queue in mine:
                fetching.seek(queue, offset)
        if self._auto_commit:
            await fetching.save()

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        return ConsumeMessageDirectlyResult(consume_result="CR_THROW_EXCEPTION", remark="a pull consumer has no listener")

    async def running_info(self) -> ConsumerRunningInfo:
        consumed = {} if self._running is None else self._running.fetching.consumed()
        return ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"},
            subscription_set=self.subscriptions(),
            mq_table={
                client.QueueBody(queue.topic, queue.broker_name, queue.queue_id): {"commitOffset": offset}
                for queue, offset in sorted(consumed.items())
            },
        )

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        consumed = {} if self._running is None else self._running.fetching.consumed()
        return {queue: offset for queue, offset in consumed.items() if queue.topic == topic}

    # Internals.

    def _run_with(self, instance: ClientInstance) -> _Running:
        offsets = BrokerOffsets(instance, self._group)
        trace, hooks = self._start_trace()
        fetching = Fetcher(
            instance, self._group, offsets,
            start_from=self._start_from, auto_commit=self._auto_commit, batch=self._pull_batch, hooks=hooks,
        )  # fmt: skip
        rebalance = Rebalancer(
            instance, self._group, self._allocation, topics=lambda: list(self._subscriptions), apply=self._take_share
        )
        return _Running(instance, rebalance, trace, offsets, fetching)

    async def _join(self, running: _Running) -> None:
        await running.instance.register_consumer(self._group, self)
        await running.rebalance.run_once()
        running.rebalance.start()

    async def _take_share(self, topic: str, share: Sequence[MessageQueue]) -> bool:
        wanted = self._subscriptions.get(topic)
        if wanted is None or self._running is None:
            return True
        errors = await self._running.fetching.share(wanted, share)
        for error in errors:
            log.warning("group %s: a queue of %s is not taken yet, its offset is unknown: %s", self._group, topic, error)
        return not errors

    def _warn_of_problem(self, problem: FirearrowError) -> None:
        now_s = time.monotonic()
        if now_s - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now_s
            log.warning("poll by consumer group %s returns no messages: %s", self._group, problem)

    async def _end(self, *, consumed: bool) -> None:
        self._closed = True
        running, self._running = self._running, None
        if running is None:
            return
        if running.saving is not None:
            running.saving.cancel()
        await running.rebalance.stop()
        try:
            await running.fetching.stop(consumed=consumed)
            if running.trace is not None:
                await running.trace.close()
            await running.instance.unregister_consumer(self._group)
            if running.apart:
                await running.instance.unregister_producer(CLIENT_INNER_PRODUCER_GROUP)
        finally:
            await running.instance.release()


@dataclass(slots=True)
class _Running(RunningConsumer):
    offsets: BrokerOffsets
    fetching: Fetcher
    saving: asyncio.Task[None] | None = None
    apart: bool = False  # registered outside the group, for `assign`
    assigned: bool = False


class _AssignedTopics:
    """A producer member that never sends: it keeps the routes of assigned topics fresh without joining the group."""

    group = CLIENT_INNER_PRODUCER_GROUP

    def __init__(self, fetching: Fetcher) -> None:
        self._fetching = fetching

    def topics(self) -> set[str]:
        return {queue.topic for queue in self._fetching.queues()}

    def route_changed(self, topic: str) -> None:
        """Do nothing: assigned queues stay assigned."""

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        """Do nothing: it has no transactions."""
