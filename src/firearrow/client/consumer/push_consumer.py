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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Unpack

from firearrow.client.connection.instance import ClientInstance, acquire
from firearrow.client.consumer import operator_requests
from firearrow.client.consumer.allocation import AllocationStrategy
from firearrow.client.consumer.concurrent import ConcurrentDispatcher
from firearrow.client.consumer.group_consumer import GroupConsumer, RunningConsumer
from firearrow.client.consumer.listener import Listener, hooked, is_coroutine_listener, taking_lists
from firearrow.client.consumer.listener_dispatcher import DispatcherKeywords, ListenerDispatcher
from firearrow.client.consumer.offset_store import BrokerOffsets, LocalOffsets, OffsetStore
from firearrow.client.consumer.orderly import OrderlyDispatcher
from firearrow.client.consumer.process_queue import MAX_BYTES, MAX_MESSAGES, MAX_SPAN, ProcessQueue
from firearrow.client.consumer.pull import PULL_BATCH, Puller
from firearrow.client.consumer.queue_locks import RENEW_MS, QueueLockClient
from firearrow.client.consumer.queue_manager import QueueManager
from firearrow.client.consumer.queue_offsets import StartFrom
from firearrow.client.consumer.rebalance import Rebalancer
from firearrow.client.consumer.send_back import MAX_RECONSUME_TIMES, SendBack
from firearrow.client.consumer.stats import TICK_MS, ConsumerStats
from firearrow.client.consumer.subscription import EVERYTHING, SQL92, Expression, as_expressions, subscription
from firearrow.client.errors import ClientError, ClosedError
from firearrow.client.hooks import ConsumeHook
from firearrow.client.lifecycle import BackgroundTasks, repeat
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.client.namespaces import with_namespace
from firearrow.client.options import ClientKeywords, Duration, NameServers, document_keywords, milliseconds, seconds
from firearrow.clock import wall_ms
from firearrow.wire import fastjson
from firearrow.wire.bodies.client import CheckClientRequestBody, ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo
from firearrow.wire.codes import RequestCode
from firearrow.wire.names import retry_topic

CONCURRENCY: Final = 20
CONSUME_TIMEOUT_S: Final = 15 * 60.0
SUSPEND_TIME_S: Final = 1.0
SHUTDOWN_TIMEOUT_S: Final = 30.0
UNLIMITED: Final = 2**31 - 1
_BROADCASTING_NAMES: Final = 16  # members of a broadcasting group in one process with offset files of their own

log = logging.getLogger("firearrow.client")


class PushConsumer(GroupConsumer["_Running"]):
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
        super().__init__(name_server, group, start_from, allocation, hooks, {**options})
        if not callable(listener):
            raise TypeError(f"listener is {listener!r}, expected a function or a coroutine function that takes a message")
        self._listener = listener
        self._orderly = orderly
        self._broadcasting = broadcasting
        self._batch_size = _between("batch_size", batch_size, 1, 1024)
        self._concurrency = _between("concurrency", concurrency, 1, 1000)
        self._max_reconsume_times = None if max_attempts is None else _between("max_attempts", max_attempts, 1, UNLIMITED) - 1
        self._suspend_ms = milliseconds("suspend_time", suspend_time)
        self._consume_timeout_ms = milliseconds("consume_timeout", consume_timeout)
        self._pull_batch = _between("pull_batch", pull_batch, 1, 1024)
        self._max_held_messages = _between("max_held_messages", max_held_messages, 1, 65_535)
        self._max_held_bytes = _between("max_held_bytes", max_held_bytes, 1, 1 << 40)
        self._max_span = _between("max_span", max_span, 1, 65_535)
        self._shutdown_timeout_s = seconds("shutdown_timeout", shutdown_timeout, or_zero=True)
        self._local_offset_dir = local_offset_dir
        self._ended: asyncio.Event | None = None
        for topic, expression in as_expressions(subscribe).items():
            self._subscribe(topic, expression)
        if not broadcasting:
            topic = retry_topic(self._group)
            self._subscriptions[topic] = subscription(topic, EVERYTHING, wall_ms())

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
            expiry_interval_ms = min(60_000, max(self._consume_timeout_ms // 4, 1))
            running.tasks.start(repeat(self._options.persist_offset_interval_ms, running.save_offsets), "offsets")
            running.tasks.start(repeat(expiry_interval_ms, partial(running.expire, self._consume_timeout_ms)), "expiry")
            running.tasks.start(repeat(TICK_MS, running.tick_statistics), "statistics")
            if self._orderly:
                running.tasks.start(repeat(RENEW_MS, running.consuming.renew_locks), "locks")
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
        self._subscribe(topic, expression)
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
        await self._open().save_offsets(confirmed=True)

    # ConsumerMember, called by the instance.

    def heartbeat(self) -> ConsumerData:
        return self._heartbeat("CONSUME_PASSIVELY", "BROADCASTING" if self._broadcasting else "CLUSTERING")

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        if self._running is not None:
            await self._running.consuming.move(offsets)

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        running = self._open()
        return await operator_requests.consume_once(running.call, message, coroutine=running.coroutine, orderly=self._orderly)

    async def running_info(self) -> ConsumerRunningInfo:
        running, now = self._open(), wall_ms()
        return ConsumerRunningInfo(
            properties=operator_requests.info_properties(
                name_servers=self._options.name_servers,
                orderly=self._orderly,
                concurrency=self._concurrency,
                started_ms=running.started_ms,
            ),
            subscription_set=self.subscriptions(),
            mq_table=operator_requests.queue_infos(running.consuming.queues, running.offsets.noted),
            status_table={topic: running.stats.status(topic, now) for topic in sorted(self._subscriptions)},
        )

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {} if self._running is None else self._running.offsets.table(topic)

    # Internals.

    async def _acquire(self) -> ClientInstance:
        """Acquire an instance. The offset file of a broadcasting consumer needs a client id that survives restarts."""
        options = self._options
        if not self._broadcasting or options.instance_name is not None:
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
        group = self._group
        coroutine = is_coroutine_listener(self._listener)
        trace, hooks = self._start_trace()
        call = hooked(
            taking_lists(self._listener, coroutine=coroutine, batch_size=self._batch_size), hooks,
            coroutine=coroutine, orderly=self._orderly, group=group,
        )  # fmt: skip
        limit = self._max_reconsume_times
        offsets: OffsetStore
        if self._broadcasting:
            offsets, send_back = LocalOffsets(instance.client_id, group, self._local_offset_dir), None
        else:
            usual = UNLIMITED if self._orderly else MAX_RECONSUME_TIMES
            offsets, send_back = BrokerOffsets(instance, group), SendBack(instance, group, usual if limit is None else limit)
        stats = ConsumerStats(wall_ms())
        shared: DispatcherKeywords = {
            "coroutine": coroutine, "concurrency": self._concurrency, "batch_size": self._batch_size, "offsets": offsets,
            "send_back": send_back, "finished": self._finished, "count": stats.consumed, "name": group,
        }  # fmt: skip
        service: ListenerDispatcher[Any, Any]
        if self._orderly:
            service = OrderlyDispatcher(call, max_reconsume_times=limit, suspend_ms=self._suspend_ms, now_ms=wall_ms, **shared)
        else:
            plain = self._batch_size == 1 and not hooks
            service = ConcurrentDispatcher(self._listener if plain else call, lists=not plain, **shared)
        consuming = QueueManager(
            instance, Puller(instance, group, batch=self._pull_batch), offsets, service,
            locks=QueueLockClient(instance, group) if self._orderly and not self._broadcasting else None,
            start_from=self._start_from, subscription=self._subscriptions.get, full=self._full, pulled=stats.pulled,
        )  # fmt: skip
        rebalance = Rebalancer(
            instance, group, self._allocation,
            topics=lambda: list(self._subscriptions), apply=consuming.share, broadcasting=self._broadcasting,
        )  # fmt: skip
        return _Running(instance, rebalance, trace, offsets, service, consuming, stats, call, coroutine, wall_ms())

    def _full(self, held: ProcessQueue) -> str | None:
        return held.full(self._max_held_messages, self._max_held_bytes, None if self._orderly else self._max_span)

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
                    except ClientError as error:
                        log.warning("%s cannot check the expression for %s: %s", address, wanted.topic, error)

    async def _end(self, instance: ClientInstance) -> None:
        running, self._running = self._running, None
        try:
            if running is not None:
                await running.stop(self._shutdown_timeout_s)
            await instance.unregister_consumer(self._group)
        finally:
            await instance.release()
            if self._ended is not None:
                self._ended.set()


@dataclass(slots=True)
class _Running(RunningConsumer):
    offsets: OffsetStore
    service: ListenerDispatcher[Any, Any]
    consuming: QueueManager
    stats: ConsumerStats
    call: Callable[[list[ReceivedMessage]], Any]
    coroutine: bool
    started_ms: int
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)

    async def save_offsets(self, *, confirmed: bool = False) -> None:
        await self.offsets.persist(list(self.consuming.queues), confirmed=confirmed)

    async def expire(self, timeout_ms: int) -> None:
        self.service.expire(timeout_ms)

    async def tick_statistics(self) -> None:
        self.stats.tick(wall_ms())

    async def stop(self, timeout_s: float) -> None:
        await self.rebalance.stop()
        self.tasks.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.consuming.stop(timeout_s)
        if self.trace is not None:
            await self.trace.close()


def _between(name: str, value: int, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}, expected a number from {low} to {high}")
    return value
