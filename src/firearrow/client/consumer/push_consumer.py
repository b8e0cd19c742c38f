"""The push consumer: its user gives it a listener, and it is called with every message of the subscriptions.

    async def handle(message: ReceivedMessage) -> None: ...

    async with PushConsumer("127.0.0.1:9876", group="billing", subscribe={"Orders": "new || paid"}, listener=handle) as consumer:
        await consumer.run()

The listener may be a coroutine function, which runs on the event loop, or an ordinary one, which runs in worker threads;
`concurrency` says how many calls there are at most at a time. What it returns does not matter, and what it raises means: try
again later (see listening.py).

    concurrent (default)   messages in no particular order; what fails comes again from the broker, later each time, and is a
                           dead letter in `%DLQ%<group>` when `max_attempts` is reached (17 if not given: once, and 16 retries)
    orderly                the messages of a queue one after the other; what fails is tried again before anything else of its
                           queue, for ever if `max_attempts` is not given
    broadcasting           every member gets every message; there are no retries, and offsets are kept in a local file

Delivery is at least once: offsets are saved every few seconds and at the end, and after a crash what was consumed since comes
again. `close` lets the calls in hand finish first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self, Unpack

from firearrow.client.connection.instance import ClientInstance, acquire
from firearrow.client.consumer import operator_requests
from firearrow.client.consumer.allocation import AllocationStrategy, Averagely
from firearrow.client.consumer.concurrent import ConcurrentDispatcher
from firearrow.client.consumer.listener import Listener, hooked, is_coroutine_listener, taking_lists
from firearrow.client.consumer.offset_store import BrokerOffsets, LocalOffsets, OffsetStore
from firearrow.client.consumer.orderly import Orderly
from firearrow.client.consumer.process_queue import MAX_BYTES, MAX_MESSAGES, MAX_SPAN, ProcessQueue
from firearrow.client.consumer.pull import PULL_BATCH, Puller
from firearrow.client.consumer.queue_locks import RENEW_MS, QueueLockClient
from firearrow.client.consumer.queue_manager import QueueManager
from firearrow.client.consumer.queue_offsets import StartFrom, check_start_from, consume_from_where
from firearrow.client.consumer.rebalance import Rebalancer
from firearrow.client.consumer.send_back import MAX_RECONSUME_TIMES, SendBack
from firearrow.client.consumer.stats import TICK_MS, ConsumerStats
from firearrow.client.consumer.subscription import EVERYTHING, SQL92, Expression, Subscription, as_expressions, subscription
from firearrow.client.errors import BrokerError, ClientError, ClosedError, FirearrowError
from firearrow.client.hooks import ConsumeHook
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.client.namespaces import with_namespace
from firearrow.client.options import (
    ClientKeywords,
    Duration,
    NameServers,
    client_options,
    document_keywords,
    milliseconds,
    seconds,
)
from firearrow.client.trace.hook import Trace, trace_consumer
from firearrow.clock import wall_ms
from firearrow.wire import fastjson
from firearrow.wire.bodies import (
    CheckClientRequestBody,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    SubscriptionData,
)
from firearrow.wire.codes import RequestCode
from firearrow.wire.names import check_group, check_topic, retry_topic

CONCURRENCY: Final = 20
CONSUME_TIMEOUT_S: Final = 15 * 60.0
SUSPEND_TIME_S: Final = 1.0
SHUTDOWN_TIMEOUT_S: Final = 30.0
FOR_EVER: Final = 2**31 - 1
_BROADCASTING_NAMES: Final = 16  # members of one broadcasting group in one process that keep their offsets apart by themselves

log = logging.getLogger("firearrow.client")


class PushConsumer:
    """Calls a listener with every message of its subscriptions.

    If the listener returns, the message is acknowledged; if it raises, the message is redelivered.
    """

    @document_keywords
    def __init__(
        self,
        name_server: NameServers = None,
        *,
        group: str,
        subscribe: str | Mapping[str, Expression],
        listener: Listener,
        orderly: bool = False,
        broadcasting: bool = False,
        start_from: StartFrom = "latest",
        batch_size: int = 1,
        concurrency: int = CONCURRENCY,
        allocation: AllocationStrategy | None = None,
        max_attempts: int | None = None,
        suspend_time: Duration = SUSPEND_TIME_S,
        consume_timeout: Duration = CONSUME_TIMEOUT_S,
        pull_batch: int = PULL_BATCH,
        max_held_messages: int = MAX_MESSAGES,
        max_held_bytes: int = MAX_BYTES,
        max_span: int = MAX_SPAN,
        shutdown_timeout: Duration = SHUTDOWN_TIMEOUT_S,
        local_offset_dir: str | os.PathLike[str] | None = None,
        hooks: Sequence[ConsumeHook] = (),
        **options: Unpack[ClientKeywords],
    ) -> None:
        """Create a consumer; it connects and starts to consume in `start`.

        A new group receives only messages sent after it started: `start_from` is "latest" by default.

        group                     the consumer group; its members share the queues
        subscribe                 a topic, or a mapping of topics to expressions: "*", tags ("new || paid") or Sql("amount > 100")
        listener                  a function (called in worker threads) or coroutine function that takes a message
        orderly                   deliver the messages of a queue one after the other
        broadcasting              deliver every message to every member; offsets are kept in a local file
        start_from                where a group without offsets starts: "latest" skips the messages that exist already,
                                  "earliest" delivers them, a datetime delivers those stored since. A group with offsets
                                  always continues where it stopped
        batch_size                above 1: the listener takes lists of at most this many messages
        concurrency               the maximum of simultaneous calls of the listener
        allocation                the strategy that shares the queues among the members; default: `Averagely`
        max_attempts              deliveries of a message before it becomes a dead letter; default: 17, orderly: unlimited
        suspend_time              orderly: time between two attempts for one message (1 s)
        consume_timeout           a message that takes longer is redelivered (15 minutes)
        pull_batch                messages requested by one pull
        max_held_messages         messages held per queue before pulling pauses
        max_held_bytes            the same limit in bytes
        max_span                  the largest distance of offsets in flight in one queue; not for orderly consumers
        shutdown_timeout          how long `close` waits for calls of the listener (30 s)
        local_offset_dir          directory of the offsets of a broadcasting consumer; default: ~/.rocketmq_offsets
        hooks                     `ConsumeHook` objects called before and after every call of the listener
        """
        self._options = client_options(name_server, **options)
        check_group(group)
        self._group = with_namespace(group, self._options.namespace)
        if not callable(listener):
            raise TypeError(f"listener is {listener!r}, expected a function or a coroutine function that takes a message")
        check_start_from(start_from)
        self._settings = _Settings(
            orderly=orderly, broadcasting=broadcasting, start_from=start_from,
            batch_size=_between("batch_size", batch_size, 1, 1024), concurrency=_between("concurrency", concurrency, 1, 1000),
            max_reconsume_times=None if max_attempts is None else _between("max_attempts", max_attempts, 1, FOR_EVER) - 1,
            suspend_ms=milliseconds("suspend_time", suspend_time),
            consume_timeout_ms=milliseconds("consume_timeout", consume_timeout),
            pull_batch=_between("pull_batch", pull_batch, 1, 1024),
            max_held_messages=_between("max_held_messages", max_held_messages, 1, 65_535),
            max_held_bytes=_between("max_held_bytes", max_held_bytes, 1, 1 << 40),
            max_span=_between("max_span", max_span, 1, 65_535),
            shutdown_timeout_s=seconds("shutdown_timeout", shutdown_timeout, or_zero=True), local_offset_dir=local_offset_dir,
        )  # fmt: skip
        self._listener = listener
        self._hooks = tuple(hooks)
        self._allocation = allocation or Averagely()
        self._subscriptions: dict[str, Subscription] = {}
        for topic, expression in as_expressions(subscribe).items():
            self._add(topic, expression)
        if not broadcasting:
            topic = retry_topic(self._group)
            self._subscriptions[topic] = subscription(topic, EVERYTHING, wall_ms())
        self._running: _Running | None = None
        self._ended: asyncio.Event | None = None
        self._closed = False

    # Life.

    async def start(self) -> None:
        """Connects, joins the group, takes its share of the queues and begins. `async with` does it too."""
        if self._closed:
            raise ClosedError(f"this consumer of group {self._group!r} has been closed; make another one")
        if self._running is not None:
            return
        instance = await self._acquire()
        self._ended = asyncio.Event()
        try:
            self._running = running = self._run_with(instance)
            await instance.register_consumer(self._group, self)
            await self._check_filters(instance)
            await running.rebalance.run_once()
            running.rebalance.start()
            running.keep("offsets", self._options.persist_offset_interval_ms, self._save_offsets)
            running.keep("expiry", min(60_000, max(self._settings.consume_timeout_ms // 4, 1)), self._expire)
            running.keep("statistics", TICK_MS, self._tick_statistics)
            if running.locks is not None:
                running.keep("locks", RENEW_MS, running.consuming.renew_locks)
        except BaseException:
            await self._end(instance)
            raise

    async def run(self, timeout: Duration | None = None) -> None:
        """Wait while messages are consumed: until the consumer is closed, or until the timeout expires."""
        self._open()
        ended = self._ended
        assert ended is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if timeout is None else seconds("timeout", timeout, or_zero=True)):
                await ended.wait()

    async def close(self) -> None:
        """Lets the calls in hand finish, saves offsets, leaves the group. `async with` does it too; again does nothing."""
        self._closed = True
        if self._running is not None:
            await self._end(self._running.instance)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # While it runs.

    def pause(self) -> None:
        """Fetches nothing more; what was fetched is still consumed."""
        self._open().consuming.pause(True)

    def resume(self) -> None:
        """Goes on fetching."""
        self._open().consuming.pause(False)

    async def subscribe(self, topic: str, expression: Expression = EVERYTHING) -> None:
        """Adds a topic, or changes what is wanted of it. All members of a group must subscribe alike."""
        running = self._open()
        self._add(topic, expression)
        await running.instance.heartbeat_now()
        await running.rebalance.run_once()

    async def unsubscribe(self, topic: str) -> None:
        """Gives up a topic."""
        running = self._open()
        name = with_namespace(topic, self._options.namespace)
        if self._subscriptions.pop(name, None) is not None:
            await running.consuming.drop_topic(name)
            await running.instance.heartbeat_now()

    def assignment(self) -> list[MessageQueue]:
        """The queues this consumer has at this moment, sorted; its retry topic's among them."""
        return sorted(self._open().consuming.queues)

    async def commit(self) -> None:
        """Saves offsets now, instead of within the next few seconds."""
        running = self._open()
        await running.offsets.persist(list(running.consuming.queues), confirmed=True)

    # What the instance asks of a consumer.

    @property
    def group(self) -> str:
        return self._group

    def subscriptions(self) -> list[SubscriptionData]:
        return [one.data for one in self._subscriptions.values()]

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING" if self._settings.broadcasting else "CLUSTERING",
            consume_from_where=consume_from_where(self._settings.start_from),
            subscription_data_set=self.subscriptions(),
        )

    def rebalance_soon(self) -> None:
        if self._running is not None:
            self._running.rebalance.request()

    def route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self.rebalance_soon()

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        if self._running is not None:
            await self._running.consuming.move(offsets)

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        running = self._open()
        return await operator_requests.consume_once(
            running.call, message, coroutine=running.coroutine, orderly=self._settings.orderly
        )

    async def running_info(self) -> ConsumerRunningInfo:
        running, settings, now = self._open(), self._settings, wall_ms()
        return ConsumerRunningInfo(
            properties=operator_requests.info_properties(
                name_servers=self._options.name_servers,
                orderly=settings.orderly,
                concurrency=settings.concurrency,
                started_ms=running.started_ms,
            ),
            subscription_set=self.subscriptions(),
            mq_table=operator_requests.queue_infos(running.consuming.queues, running.offsets.noted),
            status_table={topic: running.stats.status(topic, now) for topic in sorted(self._subscriptions)},
        )

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {} if self._running is None else self._running.offsets.table(topic)

    # Inside.

    def _add(self, topic: str, expression: Expression) -> None:
        check_topic(topic)
        name = with_namespace(topic, self._options.namespace)
        self._subscriptions[name] = subscription(name, expression, wall_ms())

    async def _acquire(self) -> ClientInstance:
        """A broadcasting consumer's offsets are kept under its client id, so that must be the same after a restart."""
        options = self._options
        if not self._settings.broadcasting or options.instance_name is not None:
            return await acquire(options, consumer_group=self._group)
        for number in range(1, _BROADCASTING_NAMES + 1):
            name = "DEFAULT" if number == 1 else f"DEFAULT-{number}"
            try:
                return await acquire(replace(options, instance_name=name), consumer_group=self._group)
            except ClientError:
                if number == _BROADCASTING_NAMES:
                    raise
        raise AssertionError("the loop ends with a return or an error")

    def _run_with(self, instance: ClientInstance) -> _Running:
        settings, group = self._settings, self._group
        coroutine = is_coroutine_listener(self._listener)
        trace = trace_consumer(self._options, group) if self._options.trace else None
        hooks = self._hooks if trace is None else (*self._hooks, trace)
        call = hooked(
            taking_lists(self._listener, coroutine=coroutine, batch_size=settings.batch_size), hooks,
            coroutine=coroutine, orderly=settings.orderly, group=group,
        )  # fmt: skip
        offsets: OffsetStore = (
            LocalOffsets(instance.client_id, group, settings.local_offset_dir)
            if settings.broadcasting
            else BrokerOffsets(instance, group)
        )
        limit = settings.max_reconsume_times
        send_back = None
        if not settings.broadcasting:
            usual = FOR_EVER if settings.orderly else MAX_RECONSUME_TIMES
            send_back = SendBack(instance, group, usual if limit is None else limit)
        stats = ConsumerStats(wall_ms())
        service: ConcurrentDispatcher | Orderly
        if settings.orderly:
            service = Orderly(
                call, coroutine=coroutine, concurrency=settings.concurrency, batch_size=settings.batch_size, offsets=offsets,
                send_back=send_back, max_reconsume_times=limit, suspend_ms=settings.suspend_ms, finished=self._finished,
                count=stats.consumed, now_ms=wall_ms, name=group,
            )  # fmt: skip
        else:
            plain = settings.batch_size == 1 and not hooks
            service = ConcurrentDispatcher(
                self._listener if plain else call, coroutine=coroutine, lists=not plain,
                concurrency=settings.concurrency, batch_size=settings.batch_size, offsets=offsets,
                send_back=send_back, finished=self._finished, count=stats.consumed, name=group,
            )  # fmt: skip
        locks = QueueLockClient(instance, group) if settings.orderly and not settings.broadcasting else None
        puller = Puller(instance, group, batch=settings.pull_batch)
        consuming = QueueManager(
            instance, puller, offsets, service,
            locks=locks, start_from=settings.start_from, subscription=self._subscriptions.get, full=settings.full,
            pulled=stats.pulled,
        )  # fmt: skip
        rebalance = Rebalancer(
            instance, group, self._allocation,
            topics=lambda: list(self._subscriptions), apply=consuming.share, broadcasting=settings.broadcasting,
        )  # fmt: skip
        return _Running(instance, offsets, service, consuming, rebalance, locks, stats, call, coroutine, wall_ms(), trace)

    def _finished(self, held: ProcessQueue) -> None:
        if self._running is not None:
            self._running.consuming.wake(held)

    async def _check_filters(self, instance: ClientInstance) -> None:
        """Brokers say at once whether they can evaluate an SQL92 expression; a pull would only fail again and again."""
        for wanted in list(self._subscriptions.values()):
            if wanted.kind != SQL92:
                continue
            route = instance.known_route(wanted.topic)
            body = CheckClientRequestBody(instance.client_id, self._group, wanted.data, self._options.namespace or None)
            text = fastjson.dumps(body.to_json())
            for by_id in route.brokers.values() if route is not None else ():
                for address in list(by_id.values())[:1]:
                    try:
                        await instance.check(address, RequestCode.CHECK_CLIENT_CONFIG, text)
                    except BrokerError:
                        raise
                    except FirearrowError as error:
                        log.warning("%s cannot be asked whether it can filter %s: %s", address, wanted.topic, error)

    async def _save_offsets(self) -> None:
        if self._running is not None:
            await self._running.offsets.persist(list(self._running.consuming.queues))

    async def _expire(self) -> None:
        if self._running is not None:
            self._running.service.expire(self._settings.consume_timeout_ms)

    async def _tick_statistics(self) -> None:
        if self._running is not None:
            self._running.stats.tick(wall_ms())

    def _open(self) -> _Running:
        if self._running is None:
            when = "has been closed" if self._closed else "was not started; use it in a `with` statement, or call start()"
            raise ClosedError(f"this consumer of group {self._group!r} {when}")
        return self._running

    async def _end(self, instance: ClientInstance) -> None:
        running, self._running = self._running, None
        try:
            if running is not None:
                await running.stop(self._settings.shutdown_timeout_s)
            await instance.unregister_consumer(self._group)
        finally:
            await instance.release()
            if self._ended is not None:
                self._ended.set()


@dataclass(slots=True, frozen=True, kw_only=True)
class _Settings:
    orderly: bool
    broadcasting: bool
    start_from: StartFrom
    batch_size: int
    concurrency: int
    max_reconsume_times: int | None
    suspend_ms: int
    consume_timeout_ms: int
    pull_batch: int
    max_held_messages: int
    max_held_bytes: int
    max_span: int
    shutdown_timeout_s: float
    local_offset_dir: str | os.PathLike[str] | None

    def full(self, held: ProcessQueue) -> str | None:
        return held.full(self.max_held_messages, self.max_held_bytes, None if self.orderly else self.max_span)


@dataclass(slots=True)
class _Running:
    """What a consumer has between start and close."""

    instance: ClientInstance
    offsets: OffsetStore
    service: ConcurrentDispatcher | Orderly
    consuming: QueueManager
    rebalance: Rebalancer
    locks: QueueLockClient | None
    stats: ConsumerStats
    call: Callable[[list[ReceivedMessage]], Any]
    coroutine: bool
    started_ms: int
    trace: Trace | None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def keep(self, what: str, interval_ms: int, do: Callable[[], Awaitable[None]]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(_every(interval_ms, do), name=what))

    async def stop(self, timeout_s: float) -> None:
        await self.rebalance.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.consuming.stop(timeout_s)
        if self.trace is not None:
            await self.trace.close()


async def _every(interval_ms: int, do: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await do()
        except Exception:
            log.exception("%s failed; it is tried again in %d ms", do, interval_ms)


def _between(name: str, value: int, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}, expected a number from {low} to {high}")
    return value
