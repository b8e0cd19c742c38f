"""Blocking access to name servers and brokers, for planning and for tasks.

Connections belong to the process: a Spark worker runs many tasks, and later ones find the connections open. They live on the
event-loop thread of the blocking clients (`client/sync/loop_thread.py`), so replies arrive while a task decodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from firearrow.admin.errors import AdminError
from firearrow.admin.offsets import committed_offset
from firearrow.admin.topics import DEFAULT_QUEUES, create_topic, topic_names
from firearrow.client.connection.instance import ClientInstance, acquire
from firearrow.client.connection.routes import TopicRoute
from firearrow.client.consumer.queue_offsets import master_address, max_offset, min_offset, offset_at
from firearrow.client.errors import BrokerError, ClientError, ConnectionLost, NoRouteError, RequestTimeout
from firearrow.client.message import MessageQueue
from firearrow.client.options import ClientOptions
from firearrow.client.sync.loop_thread import background
from firearrow.config.properties_file import parse_properties
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.read.offsets import Offsets, Queue
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request
from firearrow.wire.headers.client import UpdateConsumerOffsetRequestHeader
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC

log = logging.getLogger("firearrow.spark")

ATTEMPTS: Final = 10  # over nine seconds, enough for a broker to restart
_MAX_CONCURRENT: Final = 64  # requests
_RETRY_S: Final = 0.2

T = TypeVar("T")

_clusters: dict[tuple[int, ClientOptions], ClusterClient] = {}


def cluster_client(options: ClientOptions) -> ClusterClient:
    """Return the client of this process for these options."""
    key = (id(background()), options)  # a forked process has its own loop and connections
    if key not in _clusters:
        _clusters[key] = ClusterClient(options)
    return _clusters[key]


class ClusterClient:
    """A shared client; obtain it with `cluster_client`. Coroutine methods run on the background event loop, others block."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._instance: ClientInstance | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the event loop."""
        return asyncio.run_coroutine_threadsafe(work, background().loop)

    def topics(self) -> list[str]:
        """Return all topics known to the name servers."""

        async def request() -> list[str]:
            return await topic_names(await self._client())

        return self._result(request())

    def queues(self, topics: Iterable[str]) -> list[Queue]:
        """Return the readable queues of these topics. SparkOptionError for a topic that does not exist."""

        async def request() -> list[Queue]:
            routes = await asyncio.gather(*(self._route(topic) for topic in topics))
            return sorted(_queue(found) for route in routes for found in route.read_queues())

        return self._result(request())

    def write_queues(self, topic: str, create: str = "false", new_queues: int = DEFAULT_QUEUES) -> list[Queue]:
        """Return the writable queues of a topic, sorted.

        A missing topic is created with `new_queues` queues per broker: with `create` "auto" on the brokers that create
        topics automatically, with "true" on all masters. Otherwise SparkOptionError says how to create it.
        """

        async def request() -> list[Queue]:
            try:
                route = await self._route(topic)
            except NoRouteError as error:
                if not error.asked:
                    raise
                await self._create_topic(topic, create, new_queues)
                route = await self._route(topic)
            return [_queue(found) for found in route.write_queues()]

        queues = self._result(request())
        if not queues:
            raise SparkOptionError(f"no queue of the topic {topic!r} is writable: check its permission and that its master runs")
        return queues

    def min_offsets(self, queues: Iterable[Queue]) -> Offsets:
        return self._each(queues, min_offset)

    def max_offsets(self, queues: Iterable[Queue]) -> Offsets:
        return self._each(queues, max_offset)

    def offsets_at(self, times_ms: Mapping[Queue, int]) -> Offsets:
        """Return the offset of the first message stored at or after the time of each queue, or the end of the queue."""
        return self._each(times_ms, lambda instance, queue: offset_at(instance, queue, times_ms[queue]))

    def committed(self, group: str, queues: Iterable[Queue]) -> Offsets:
        """Return the committed offsets of a group. Queues without one are omitted."""

        async def request(instance: ClientInstance, queue: Queue) -> int | None:
            try:
                return await committed_offset(instance, group, queue)
            except BrokerError as error:
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                return None

        return {queue: offset for queue, offset in self._each(queues, request).items() if offset is not None and offset >= 0}

    def brokers_without_dedup(self, queues: Iterable[Queue], window: int) -> list[str]:
        """Return the brokers that do not deduplicate `window` messages: Apache's, or those with a smaller window."""
        by_broker = {queue.broker_name: queue for queue in queues}

        async def request(instance: ClientInstance, queue: Queue) -> int:
            answer = await instance.check(await master_address(instance, queue), RequestCode.GET_BROKER_CONFIG)
            found = parse_properties(answer.body.decode(errors="replace")).get("idempotentProducerWindow", "0")
            return int(found) if found.isdecimal() else 0

        return sorted(queue.broker_name for queue, size in self._each(by_broker.values(), request).items() if size < window)

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Commit the offsets of a group."""

        async def update(instance: ClientInstance, queue: Queue) -> None:
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offsets[queue]
            )
            await instance.check(await master_address(instance, queue), header)

        self._each(offsets, update)

    async def call_async(self, queue: Queue, request: Request, timeout_ms: int, body: bytes = b"") -> Command:
        """Send a request to the broker of a queue and return its reply, whatever its code. Connection errors are retried."""
        instance = await self._client()

        async def call(attempt: int) -> Command:
            if attempt:
                await instance.route(queue.topic, refresh=True)
            return await instance.call(await master_address(instance, queue), request, body, timeout_ms=timeout_ms)

        return await _retry(call, RequestTimeout, ConnectionLost, NoRouteError)

    @property
    def _servers(self) -> str:
        return ";".join(self._options.name_servers)

    async def _client(self) -> ClientInstance:
        if self._instance is None:
            self._instance = await acquire(self._options)
        return self._instance

    async def _route(self, topic: str) -> TopicRoute:
        instance = await self._client()
        try:
            return await instance.route(topic, refresh=True)
        except NoRouteError as error:
            if error.asked:
                raise
        await asyncio.sleep(_RETRY_S)
        return await instance.route(topic, refresh=True)

    async def _create_topic(self, topic: str, create: str, queues: int) -> None:
        brokers: list[str | None] = [None]  # all masters
        if create == "auto":
            try:
                brokers = list((await self._route(AUTO_CREATE_TOPIC_KEY_TOPIC)).brokers)
            except NoRouteError as error:
                if not error.asked:
                    raise
                raise SparkOptionError(
                    f"the topic {topic!r} does not exist and no broker creates topics automatically "
                    f"(autoCreateTopicEnable=false): set the option createTopic to true, or run `firearrow topic create {topic}`"
                ) from None
        elif create == "false":
            raise SparkOptionError(
                f"the topic {topic!r} does not exist (name server {self._servers}): create it with "
                f"`firearrow topic create {topic}`"
            )
        instance = await self._client()
        try:
            await asyncio.gather(*(create_topic(instance, topic, queues=queues, broker=broker) for broker in brokers))
        except AdminError:
            if topic not in await topic_names(instance):  # otherwise another task has created it at the same time
                raise
        log.info("created the topic %s with %d queues per broker", topic, queues)

    def _each(self, queues: Iterable[Queue], request: Callable[[ClientInstance, Queue], Awaitable[T]]) -> dict[Queue, T]:
        async def request_all() -> dict[Queue, T]:
            instance = await self._client()
            slots = asyncio.Semaphore(_MAX_CONCURRENT)

            async def one(queue: Queue) -> tuple[Queue, T]:
                async with slots:
                    return queue, await _retry(lambda _: request(instance, queue), RequestTimeout, ConnectionLost)

            return dict(await asyncio.gather(*map(one, queues)))

        return self._result(request_all())

    def _result(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result; report errors as a SparkOptionError that says what to check."""
        try:
            return self.submit(work).result()
        except NoRouteError as error:
            if error.asked:
                raise SparkOptionError(f"the topic {error.topic!r} does not exist (name server {self._servers})") from None
            raise SparkOptionError(f"name server {self._servers} does not answer: check the option nameServer") from None
        except (ClientError, BrokerError, AdminError) as error:
            raise SparkOptionError(f"name server {self._servers}: {error}") from None


async def _retry(call: Callable[[int], Awaitable[T]], *errors: type[ClientError]) -> T:
    """Repeat a call that ends with one of these errors. It receives the number of previous attempts."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return await call(attempt)
        except errors:
            await asyncio.sleep(_RETRY_S * (attempt + 1))
    return await call(ATTEMPTS - 1)


def _queue(queue: MessageQueue) -> Queue:
    return Queue(queue.topic, queue.broker_name, queue.queue_id)
