"""Blocking access to name servers and brokers, for planning and for tasks.

Connections belong to the process: a Spark worker runs many tasks, and later ones find the connections open. They live on the
event-loop thread of the blocking clients (`client/sync/loop_thread.py`), so replies arrive while a task decodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Final, TypeVar

from firearrow.admin.errors import AdminError
from firearrow.admin.topics import DEFAULT_QUEUES, create_topic, topic_names
from firearrow.client.connection.instance import ClientInstance, acquire
from firearrow.client.connection.routes import MASTER, TopicRoute
from firearrow.client.consumer.queue_offsets import max_offset, min_offset, offset_at
from firearrow.client.errors import BrokerError, ClientError, ConnectionLost, NoRouteError, RequestTimeout
from firearrow.client.message import MessageQueue
from firearrow.client.options import ClientOptions
from firearrow.client.sync.loop_thread import background
from firearrow.config.properties_file import parse_properties
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.read.offsets import Offsets, Queue
from firearrow.wire.bodies.route import TopicList
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.fastjson import loads
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request
from firearrow.wire.headers.client import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC

log = logging.getLogger("firearrow.spark")

ATTEMPTS: Final = 10  # over nine seconds, enough for a broker to restart
_ROUTE_ATTEMPTS: Final = 2
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

    def submit(self, call: Callable[[], Awaitable[T]]) -> Future[T]:
        """Start a call on the event loop."""

        async def run() -> T:
            return await call()

        return asyncio.run_coroutine_threadsafe(run(), background().loop)

    def topics(self) -> list[str]:
        """Return all topics known to the name servers."""

        async def request() -> list[str]:
            answer = await (await self._client()).ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, self._servers)
            return sorted(TopicList.from_json(loads(answer.body)).topic_list)

        return self._result(request)

    def queues(self, topics: Iterable[str]) -> list[Queue]:
        """Return the readable queues of these topics. SparkOptionError for a topic that does not exist."""

        async def request() -> list[Queue]:
            routes = await asyncio.gather(*(self._route(topic) for topic in topics))
            return sorted(_queue(found) for route in routes for found in route.read_queues())

        return self._result(request)

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

        queues = self._result(request)
        if not queues:
            raise SparkOptionError(f"no queue of the topic {topic!r} is writable: check its permission and that its master runs")
        return queues

    def min_offsets(self, queues: Iterable[Queue]) -> Offsets:
        return self._each(queues, min_offset)

    def max_offsets(self, queues: Iterable[Queue]) -> Offsets:
        return self._each(queues, max_offset)

    def offsets_at(self, queues: Iterable[Queue], timestamp_ms: int) -> Offsets:
        """Return the offset of the first message stored at or after a time, or the end of the queue."""
        return self.offsets_at_each(dict.fromkeys(queues, timestamp_ms))

    def offsets_at_each(self, times_ms: Mapping[Queue, int]) -> Offsets:
        """Like `offsets_at`, with a time for each queue."""
        return self._each(times_ms, lambda instance, queue: offset_at(instance, queue, times_ms[_queue(queue)]))

    def committed(self, group: str, queues: Iterable[Queue]) -> Offsets:
        """Return the committed offsets of a group. Queues without one are omitted."""

        async def request(instance: ClientInstance, queue: MessageQueue) -> int:
            header = QueryConsumerOffsetRequestHeader(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
            )
            answer = await instance.call(await self.resolve_address(_queue(queue)), header)
            if answer.code in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
                return -1
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, queue.broker_name)
            offset = QueryConsumerOffsetResponseHeader.decode(answer.ext).offset
            return -1 if offset is None else offset

        return {queue: offset for queue, offset in self._each(queues, request).items() if offset >= 0}

    def brokers_without_dedup(self, queues: Iterable[Queue], window: int) -> list[str]:
        """Return the brokers that do not deduplicate `window` messages: Apache's, or those with a smaller window."""
        by_broker = {queue.broker_name: queue for queue in queues}

        async def request(instance: ClientInstance, queue: MessageQueue) -> int:
            answer = await instance.check(await self.resolve_address(_queue(queue)), RequestCode.GET_BROKER_CONFIG)
            found = parse_properties(answer.body.decode(errors="replace")).get("idempotentProducerWindow", "0")
            return int(found) if found.isdecimal() else 0

        return sorted(queue.broker_name for queue, size in self._each(by_broker.values(), request).items() if size < window)

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Commit the offsets of a group."""

        async def update(instance: ClientInstance, queue: MessageQueue) -> int:
            offset = offsets[_queue(queue)]
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
            )
            await instance.check(await self.resolve_address(_queue(queue)), header)
            return offset

        self._each(offsets, update)

    async def resolve_address(self, queue: Queue, *, refresh: bool = False) -> str:
        """Return the address of the master of a queue, or of another broker with its name."""
        instance = await self._client()
        found = None if refresh else instance.broker_address(queue.broker_name, MASTER)
        if found is None:
            await instance.route(queue.topic, refresh=True)
            found = instance.broker_address(queue.broker_name, MASTER)
        if found is None:
            raise ClientError(f"the broker {queue.broker_name!r} is missing in the route of {queue.topic}: check that it runs")
        return found[0]

    async def call_async(self, queue: Queue, request: Request, timeout_ms: int, body: bytes = b"") -> Command:
        """Send a request to the broker of a queue and return its reply, whatever its code. Connection errors are retried."""
        problem: ClientError | None = None
        for attempt in range(ATTEMPTS):
            try:
                if attempt:
                    await asyncio.sleep(_RETRY_S * attempt)
                address = await self.resolve_address(queue, refresh=attempt > 0)
                return await (await self._client()).call(address, request, body, timeout_ms=timeout_ms)
            except (RequestTimeout, ConnectionLost, NoRouteError) as error:
                problem = error
        raise problem if problem is not None else ClientError("no attempt was made")

    @property
    def _servers(self) -> str:
        return ";".join(self._options.name_servers)

    async def _client(self) -> ClientInstance:
        if self._instance is None:
            self._instance = await acquire(self._options)
        return self._instance

    async def _route(self, topic: str) -> TopicRoute:
        for attempt in range(_ROUTE_ATTEMPTS):
            try:
                return await (await self._client()).route(topic, refresh=True)
            except NoRouteError as error:
                if error.asked or attempt == _ROUTE_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_RETRY_S)
        raise AssertionError("the last attempt returns or raises")

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

    def _each(self, queues: Iterable[Queue], request: Callable[[ClientInstance, MessageQueue], Awaitable[int]]) -> Offsets:
        ordered = list(queues)

        async def request_all() -> list[int]:
            instance = await self._client()
            slots = asyncio.Semaphore(_MAX_CONCURRENT)

            async def one(queue: Queue) -> int:
                async with slots:
                    return await _retrying(lambda: request(instance, MessageQueue(*queue)))

            return list(await asyncio.gather(*(one(queue) for queue in ordered)))

        return dict(zip(ordered, self._result(request_all), strict=True))

    def _result(self, call: Callable[[], Awaitable[T]]) -> T:
        """Wait for the result; report errors as a SparkOptionError that says what to check."""
        try:
            return self.submit(call).result()
        except NoRouteError as error:
            if error.asked:
                raise SparkOptionError(f"the topic {error.topic!r} does not exist (name server {self._servers})") from None
            raise SparkOptionError(f"name server {self._servers} does not answer: check the option nameServer") from None
        except (ClientError, BrokerError, AdminError) as error:
            raise SparkOptionError(f"name server {self._servers}: {error}") from None


async def _retrying(request: Callable[[], Awaitable[int]]) -> int:
    for attempt in range(ATTEMPTS):
        try:
            return await request()
        except (RequestTimeout, ConnectionLost):
            if attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(_RETRY_S * (attempt + 1))
    raise AssertionError("the last attempt returns or raises")


def _queue(queue: MessageQueue) -> Queue:
    return Queue(queue.topic, queue.broker_name, queue.queue_id)
