"""Shared parts of test_client_matrix_*.py: the Python client against every supported server.

    kind          server
    firearrow     ours
    apache        Apache 5.5.0
    apache-4.9    Apache 4.9.7

Every test runs with the asyncio client (`aio`) and with the blocking client in a thread (`sync`). A test is written once, as a
coroutine. Features that a server lacks are skipped with a reason.

A default run covers the server under test, and for tests marked `everywhere` also Apache's, with asyncio only.
FIREARROW_CLIENT_MATRIX selects other servers: `all`, or a comma-separated list.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ParamSpec, Self

import pytest

import firearrow as fa
import firearrow.aio as aio
from firearrow.wire import record
from tests.conformance import rawcall
from tests.conformance.conftest import fresh, topic_on
from tests.conformance.servers import APART, TARGET, Cluster
from tests.support.waiting import until

Given = ParamSpec("Given")

FACES = ("sync", "aio")
# On Apache's broker about one start of a consumer in twenty waits for the next heartbeat (30 s).
PATIENCE_S = 75.0
SETTINGS = {
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1500",
    "transactionOpBatchInterval": "200",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "traceTopicEnable": "true",
}
MISSING = {"apache-4.9": {"timers": "Apache 4.9 has no timer messages: they came with 5.0", "recall": "Apache 4.9 has no recall"}}


def combinations(everywhere: bool) -> list[tuple[str, str]]:
    """The combinations of server and client interface for a test."""
    chosen = os.environ.get("FIREARROW_CLIENT_MATRIX", "")
    kinds = list(APART) if chosen == "all" else chosen.split(",") if chosen else [TARGET]
    whole = [(kind, face) for kind in kinds for face in FACES]
    others = [kind for kind in APART if kind not in (TARGET, "firearrow")] if everywhere and not chosen else []
    return whole + [(kind, "aio") for kind in others]


def story(test: Callable[Given, Coroutine[Any, Any, None]]) -> Callable[Given, None]:
    """Decorator for a test written as a coroutine."""

    @functools.wraps(test)
    def run(*given: Given.args, **named: Given.kwargs) -> None:
        asyncio.run(test(*given, **named))

    return run


@dataclass
class RecordingListener:
    """A listener that records messages and rejects given bodies a given number of times."""

    refuse: dict[bytes, int] = field(default_factory=dict)
    refusal: Callable[[], Exception] = lambda: fa.RetryLater(delay_level=1)
    messages: list[fa.ReceivedMessage] = field(default_factory=list)
    moments_ms: list[float] = field(default_factory=list)
    tries: list[tuple[bytes, int]] = field(default_factory=list)  # body and number of earlier deliveries
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, message: fa.ReceivedMessage) -> None:
        with self._lock:
            self.messages.append(message)
            self.moments_ms.append(time.time() * 1000)
            self.tries.append((message.body, message.reconsume_times))
            left = self.refuse.get(message.body, 0)
            if left > 0:
                self.refuse[message.body] = left - 1
                raise self.refusal()

    async def take_on_loop(self, message: fa.ReceivedMessage) -> None:
        self.take(message)

    def bodies(self) -> list[bytes]:
        with self._lock:
            return [message.body for message in self.messages]

    async def wait(self, count: int) -> list[bytes]:
        await until(lambda: len(self.messages) >= count, f"{count} messages")
        return self.bodies()


class Client:
    """A client with either interface whose methods are all awaited."""

    def __init__(self, client: Any, in_threads: bool) -> None:
        self._client = client
        self._in_threads = in_threads

    async def __aenter__(self) -> Self:
        if self._in_threads:
            await asyncio.to_thread(self._client.__enter__)
        else:
            await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._in_threads:
            await asyncio.to_thread(self._client.__exit__, kind, error, traceback)
        else:
            await self._client.__aexit__(kind, error, traceback)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._client, name)

        async def call(*given: Any, **named: Any) -> Any:
            outcome = await asyncio.to_thread(method, *given, **named) if self._in_threads else method(*given, **named)
            if isinstance(outcome, concurrent.futures.Future):
                return await asyncio.wrap_future(outcome)
            return await outcome if inspect.isawaitable(outcome) else outcome

        return call


@dataclass
class World:
    """One server and clients of one interface for it."""

    cluster: Cluster
    face: str

    def needs(self, feature: str) -> None:
        """Skip the test if the server lacks the feature."""
        reason = MISSING.get(self.cluster.kind, {}).get(feature)
        if reason is not None:
            pytest.skip(reason)

    def topic(self, queues: int = 4, perm: int = 6) -> str:
        return topic_on(self.cluster, queues, queues, perm)

    def producer(self, **options: Any) -> Client:
        return self._client("Producer", {"group": fresh("pg"), "send_timeout": 10} | options)

    def transaction_producer(self, **options: Any) -> Client:
        return self._client("TransactionProducer", {"group": fresh("pg"), "send_timeout": 10} | options)

    def push(self, topic: str, seen: RecordingListener, expression: Any = "*", **options: Any) -> Client:
        """A push consumer that starts at the earliest message, in a new group unless `group` is given."""
        listener = seen.take if self.face == "sync" else seen.take_on_loop
        options = {
            "group": fresh("g"),
            "start_from": "earliest",
            "subscribe": {topic: expression},
            "listener": listener,
        } | options
        return self._client("PushConsumer", options)

    def pull(self, **options: Any) -> Client:
        return self._client("PullConsumer", {"group": fresh("g"), "start_from": "earliest"} | options)

    async def stored(self, topic: str, count: int, timeout_s: float = PATIENCE_S) -> list[fa.ReceivedMessage]:
        """Return the messages of a topic, ordered by queue and offset, once there are `count`."""
        messages: list[fa.ReceivedMessage] = []
        deadline = time.monotonic() + timeout_s
        async with self.pull() as consumer:
            await consumer.assign(await consumer.queues(topic))
            await consumer.seek_all("earliest")
            while len(messages) < count and time.monotonic() < deadline:
                messages += await consumer.poll(1)
            messages += await consumer.poll(0.2)
        assert len(messages) == count, f"{len(messages)} messages instead of {count}: {messages[:10]}"
        return sorted(messages, key=lambda message: (message.queue_id, message.queue_offset))

    def query(self, topic: str, key: str, **more: str) -> list[record.Record]:
        """Return the messages found by the broker's key index (12)."""
        span = {"beginTimestamp": "0", "endTimestamp": str(int(time.time() * 1000) + 60_000)}
        answer, body = rawcall.call(self.cluster.broker, 12, {"topic": topic, "key": key, "maxNum": "32", **span, **more})
        assert answer["code"] in (0, 22), answer
        return record.decode_all(body) if answer["code"] == 0 else []

    def _client(self, name: str, options: dict[str, Any]) -> Client:
        options = {"route_interval": 1, "request_timeout": 10} | options
        return Client(getattr(fa if self.face == "sync" else aio, name)(self.cluster.namesrv, **options), self.face == "sync")
