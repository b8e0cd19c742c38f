"""The push consumer: calls a listener with every message of its subscriptions.

    async def handle(message: ReceivedMessage) -> None: ...

    async with PushConsumer("127.0.0.1:9876", group="billing", subscribe={"Orders": "new || paid"}, listener=handle) as consumer:
        await consumer.run()

The listener is a coroutine function, which runs on the event loop, or a function, which runs in worker threads; `concurrency`
limits the simultaneous calls. Its return value is ignored; an exception causes redelivery (see listener.py).

    concurrent (default)   messages in no particular order; a failed message is redelivered by the broker with increasing delays
                           and becomes a dead letter in `%DLQ%<group>` after `max_attempts` (default 17: once and 16 retries)
    orderly                the messages of a queue one after the other; a failed message is delivered again before any other of
                           its queue, without limit unless `max_attempts` is given
    broadcasting           every member gets every message; there is no redelivery, and offsets are kept in a local file

Delivery is at least once: offsets are committed every few seconds and at the end, so messages consumed since the last commit are
delivered again after a crash. `close` waits for running calls.
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
from firearrow.client.consumer.orderly import OrderlyDispatcher
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
from firearrow.wire.bodies.client import (
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
UNLIMITED: Final = 2**31 - 1
_BROADCASTING_NAMES: Final = 16  # members of a broadcasting group in one process with offset files of their own

log = logging.getLogger("firearrow.client")


class PushConsumer:
    """Consumer that calls a listener with every message of its subscriptions.

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
        start_from                where a group without offsets starts: "latest" skips the existing messages,
                                  "earliest" delivers them, a datetime delivers those stored since. A group with offsets
                                  always continues at its offsets
        batch_size                above 1: the listener takes lists of at most this many messages
        concurrency               the maximum number of simultaneous calls of the listener
        allocation                the strategy that shares the queues among the members; default: `Averagely`
        max_attempts              deliveries of a message before it becomes a dead letter; default: 17, orderly: unlimited
        suspend_time              orderly: time between two attempts for one message (1 s)
        consume_timeout           a message that takes longer is redelivered (15 minutes)
        pull_batch                messages requested by one pull
        max_held_messages         messages held per queue before pulling pauses
        max_held_bytes            the same limit in bytes
        max_span                  the largest distance between offsets in flight in one queue; not for orderly consumers
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
            max_reconsume_times=None if max_attempts is None else _between("max_attempts", max_attempts, 1, UNLIMITED) - 1,
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

    # Lifecycle.

    async def start(self) -> None:
        """Connect, join the group, take a share of the queues and start to consume. Called by `async with`."""
        if self._closed:
            raise ClosedError(f"this consumer of group {self._group!r} has been closed; create another one")
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
            running.schedule("offsets", self._options.persist_offset_interval_ms, self._save_offsets)
            running.schedule("expiry", min(60_000, max(self._settings.consume_timeout_ms // 4, 1)), self._expire)
            running.schedule("statistics", TICK_MS, self._tick_statistics)
            if running.locks is not None:
                running.schedule("locks", RENEW_MS, running.consuming.renew_locks)
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
        """Wait for running calls, commit offsets and leave the group. Called by `async with`; repeated calls do nothing."""
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

    # Control.

    def pause(self) -> None:
        """Stop fetching; messages already fetched are still consumed."""
        self._open().consuming.pause(True)

    def resume(self) -> None:
        """Continue fetching."""
        self._open().consuming.pause(False)

    async def subscribe(self, topic: str, expression: Expression = EVERYTHING) -> None:
        """Subscribe to a topic, or change its expression. All members of a group must have the same subscriptions."""
        running = self._open()
        self._add(topic, expression)
        await running.instance.heartbeat_now()
        await running.rebalance.run_once()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        running = self._open()
        name = with_namespace(topic, self._options.namespace)
        if self._subscriptions.pop(name, None) is not None:
            await running.consuming.drop_topic(name)
            await running.instance.heartbeat_now()

    def assignment(self) -> list[MessageQueue]:
        """Return the currently assigned queues, sorted, including those of the retry topic."""
        return sorted(self._open().consuming.queues)

    async def commit(self) -> None:
        """Commit offsets now instead of within the next few seconds."""
        running = self._open()
        await running.offsets.persist(list(running.consuming.queues), confirmed=True)

    # ConsumerMember, called by the instance.

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

    # Internals.

    def _add(self, topic: str, expression: Expression) -> None:
        check_topic(topic)
        name = with_namespace(topic, self._options.namespace)
        self._subscriptions[name] = subscription(name, expression, wall_ms())

    async def _acquire(self) -> ClientInstance:
        """Acquire an instance. The offset file of a broadcasting consumer needs a client id that survives restarts."""
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
        raise AssertionError("unreachable")

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
            usual = UNLIMITED if settings.orderly else MAX_RECONSUME_TIMES
            send_back = SendBack(instance, group, usual if limit is None else limit)
        stats = ConsumerStats(wall_ms())
        service: ConcurrentDispatcher | OrderlyDispatcher
        if settings.orderly:
            service = OrderlyDispatcher(
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
        """Have brokers check SQL92 expressions at the start, rather than fail with every pull. BrokerError if one is rejected."""
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
                        log.warning("%s cannot check the expression for %s: %s", address, wanted.topic, error)

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
            when = "has been closed" if self._closed else "was not started; use `with` or call start()"
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
    """The state of a consumer between start and close."""

    instance: ClientInstance
    offsets: OffsetStore
    service: ConcurrentDispatcher | OrderlyDispatcher
    consuming: QueueManager
    rebalance: Rebalancer
    locks: QueueLockClient | None
    stats: ConsumerStats
    call: Callable[[list[ReceivedMessage]], Any]
    coroutine: bool
    started_ms: int
    trace: Trace | None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def schedule(self, name: str, interval_ms: int, do: Callable[[], Awaitable[None]]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(_every(interval_ms, do), name=name))

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
            log.exception("%s failed and will be retried in %d ms", do, interval_ms)


def _between(name: str, value: int, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}, expected a number from {low} to {high}")
    return value
