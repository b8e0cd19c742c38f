"""Rebalancing: keeps a consumer's share of the queues in step with its group.

Runs every 20 s, and at once when a broker reports a change of members (40) or a route changes. For each subscribed topic the
sorted queues (from the route) and the sorted members (38, from any broker of the topic) are passed to the allocation strategy,
and `apply` takes and drops queues to match the result. A broadcasting consumer has all queues and asks no broker.

`apply` returns False if it could not finish: a queue may still be locked by its previous owner, or its offset is not known yet.
Unfinished work is retried after 1 s, 2 s, ... up to the regular interval.

A consumer whose topic does not exist, or that cannot reach a name server, keeps trying. It logs a warning after a few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.connection.routes import MASTER, TopicRoute
from firearrow.client.consumer.allocation import AllocationStrategy
from firearrow.client.errors import BrokerError, ClientError, FirearrowError
from firearrow.client.message import MessageQueue
from firearrow.wire.bodies.client import GetConsumerListByGroupResponseBody
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.fastjson import loads
from firearrow.wire.headers.client import GetConsumerListByGroupRequestHeader
from firearrow.wire.names import RETRY_PREFIX

INTERVAL_MS: Final = 20_000
RETRY_MS: Final = 1_000
MIN_GAP_MS: Final = 100  # between two runs, however often the members change
WARN_AFTER_S: Final = 3.0
WARN_EVERY_S: Final = 60.0

log = logging.getLogger("firearrow.client")

Apply = Callable[[str, Sequence[MessageQueue]], Awaitable[bool]]


class Rebalancer:
    """`topics` returns the subscribed topics; `apply(topic, share)` makes the consumer own exactly this share of a topic."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        strategy: AllocationStrategy,
        *,
        topics: Callable[[], Iterable[str]],
        apply: Apply,
        broadcasting: bool = False,
        interval_ms: int = INTERVAL_MS,
        warn_after_s: float = WARN_AFTER_S,
    ) -> None:
        self._instance = instance
        self._group = group
        self._strategy = strategy
        self._topics = topics
        self._apply = apply
        self._broadcasting = broadcasting
        self._interval_ms = interval_ms
        self._requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._balanced: bool | None = None  # None: not run yet
        self._report = AssignmentReport(group, warn_after_s)

    @property
    def problem(self) -> FirearrowError | None:
        """The reason why queues of a subscribed topic cannot be assigned, or None."""
        return self._report.problem

    def start(self) -> None:
        """Run in the background; the first run follows at once, unless one has succeeded already."""
        self._task = asyncio.get_running_loop().create_task(self._keep_balanced(), name=f"rebalance {self._group}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def request(self) -> None:
        """Rebalance as soon as possible."""
        self._requested.set()

    async def run_once(self) -> bool:
        """Rebalance all topics. Return True if every queue is where it belongs."""
        async with self._lock:
            self._balanced = False
            done = True
            topics = list(self._topics())
            for topic in topics:
                try:
                    share = await self._share(topic)
                    done = await self._apply(topic, share) and done
                except FirearrowError as error:
                    self._report.failed(topic, error, time.monotonic())
                    done = False
                else:
                    self._report.assigned(topic)
            self._report.finish(topics)
            self._balanced = done
            return done

    async def _keep_balanced(self) -> None:
        retry_ms = RETRY_MS
        wait_ms = {None: 0, False: RETRY_MS, True: self._interval_ms}[self._balanced]
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._requested.wait()
            self._requested.clear()
            try:
                done = await self.run_once()
            except Exception:
                log.exception("group %s: rebalancing failed and will be retried", self._group)
                done = False
            retry_ms = RETRY_MS if done else min(retry_ms * 2, self._interval_ms)
            wait_ms = self._interval_ms if done else retry_ms // 2
            await asyncio.sleep(MIN_GAP_MS / 1000)

    async def _share(self, topic: str) -> list[MessageQueue]:
        """Return the queues of this member. FirearrowError if they cannot be determined now."""
        route = await self._instance.route(topic)
        queues = route.read_queues()
        if self._broadcasting:
            return queues
        members = await self._members(route)
        return self._strategy.allocate(self._group, self._instance.client_id, queues, sorted(members))

    async def _members(self, route: TopicRoute) -> list[str]:
        """Return the client ids of the group, as one of the topic's brokers reports them. ClientError if none does."""
        addresses = [by_id.get(MASTER) or next(iter(by_id.values())) for by_id in route.brokers.values() if by_id]
        random.shuffle(addresses)
        problem: FirearrowError | None = None
        for address in addresses:
            try:
                answer = await self._instance.call(address, GetConsumerListByGroupRequestHeader(consumer_group=self._group))
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    members = GetConsumerListByGroupResponseBody.from_json(loads(answer.body)).consumer_id_list
                    if members:
                        return members
                problem = BrokerError(answer.code, answer.remark or "no members", address)
            except FirearrowError as error:
                problem = error
            except ProtocolError as error:
                problem = BrokerError(ResponseCode.SYSTEM_ERROR, f"its list of members is malformed: {error}", address)
        raise ClientError(f"no broker of {route.topic} lists the members of the group: {problem or 'it has no brokers'}")


class AssignmentReport:
    """Log lines about topics whose queues cannot be assigned, and about the first complete assignment.

    A failure becomes a warning when it has lasted `warn_after_s`, and again every WARN_EVERY_S. The retry topic of a group is
    left out: it comes into being together with the group.
    """

    def __init__(self, group: str, warn_after_s: float) -> None:
        self.problem: FirearrowError | None = None
        self._group = group
        self._warn_after_s = warn_after_s
        self._failing: dict[str, float] = {}  # topic -> when it failed first
        self._warned: dict[str, float] = {}
        self._announced = False

    def failed(self, topic: str, error: FirearrowError, now_s: float) -> None:
        log.debug("group %s: no queues of %s can be assigned: %s", self._group, topic, error)
        if topic.startswith(RETRY_PREFIX):
            return
        self.problem = error
        since_s = self._failing.setdefault(topic, now_s)
        last_s = self._warned.get(topic)
        if now_s - since_s >= self._warn_after_s and (last_s is None or now_s - last_s >= WARN_EVERY_S):
            self._warned[topic] = now_s
            log.warning("consumer group %s receives nothing from %s and keeps trying: %s", self._group, topic, error)

    def assigned(self, topic: str) -> None:
        self._failing.pop(topic, None)
        if self._warned.pop(topic, None) is not None:
            log.info("consumer group %s receives messages from %s now", self._group, topic)

    def finish(self, topics: Iterable[str]) -> None:
        """Call after every run, with the topics that are subscribed."""
        for topic in self._failing.keys() - set(topics):
            del self._failing[topic]
            self._warned.pop(topic, None)
        if self._failing:
            return
        self.problem = None
        if not self._announced:
            self._announced = True
            names = ", ".join(sorted(topic for topic in topics if not topic.startswith(RETRY_PREFIX)))
            log.info("consumer started: group %s, topics %s", self._group, names or "none")


def differences(held: Iterable[MessageQueue], share: Iterable[MessageQueue]) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """Return (queues to drop, queues to take), each sorted."""
    have, want = set(held), set(share)
    return sorted(have - want), sorted(want - have)
