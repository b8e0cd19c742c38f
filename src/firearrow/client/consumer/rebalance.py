"""Keeps a consumer's share of the queues in step with its group.

Every 20 s, and at once when the broker says that the members changed (40) or a route did: for each subscribed topic the queues
(from the route) and the members (38, from any broker of the topic) are sorted and given to the strategy; the consumer is handed
its share and takes and drops queues accordingly. In broadcasting everybody has all queues and nobody is asked.

The consumer's `apply` says whether it could do all it was asked to: a queue may still be locked by its last owner, an offset may
not be known yet. What is left to do is tried again after 1 s, 2 s, ... up to the ordinary interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.connection.routes import MASTER, TopicRoute
from firearrow.client.consumer.allocation import AllocationStrategy
from firearrow.client.errors import BrokerError, FirearrowError, NoRouteError
from firearrow.client.message import MessageQueue
from firearrow.wire.bodies import GetConsumerListByGroupResponseBody
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.fastjson import loads
from firearrow.wire.headers.client import GetConsumerListByGroupRequestHeader

INTERVAL_MS: Final = 20_000
AGAIN_MS: Final = 1_000
MIN_GAP_MS: Final = 100  # between two rounds, however often the members change

log = logging.getLogger("firearrow.client")

Apply = Callable[[str, Sequence[MessageQueue]], Awaitable[bool]]


class Rebalance:
    """`topics` are the subscribed ones at this moment; `apply(topic, share)` makes the share of a topic what the consumer has."""

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
    ) -> None:
        self._instance = instance
        self._group = group
        self._strategy = strategy
        self._topics = topics
        self._apply = apply
        self._broadcasting = broadcasting
        self._interval_ms = interval_ms
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._round = asyncio.Lock()
        self._balanced: bool | None = None  # None: there was no round yet

    def start(self) -> None:
        """The first round begins at once, unless there was one already and nothing was left to do."""
        self._task = asyncio.get_running_loop().create_task(self._keep_balanced(), name=f"rebalance {self._group}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def soon(self) -> None:
        self._wanted.set()

    async def once(self) -> bool:
        """One round over all topics. True if every queue is where it belongs."""
        async with self._round:
            self._balanced = False
            done = True
            for topic in list(self._topics()):
                try:
                    share = await self._share(topic)
                    if share is None or not await self._apply(topic, share):
                        done = False
                except FirearrowError as error:
                    log.warning("group %s cannot share out the queues of %s yet: %s", self._group, topic, error)
                    done = False
            self._balanced = done
            return done

    async def _keep_balanced(self) -> None:
        again_ms = AGAIN_MS
        wait_ms = {None: 0, False: AGAIN_MS, True: self._interval_ms}[self._balanced]
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                done = await self.once()
            except Exception:
                log.exception("group %s: sharing out the queues failed; it is tried again", self._group)
                done = False
            again_ms = AGAIN_MS if done else min(again_ms * 2, self._interval_ms)
            wait_ms = self._interval_ms if done else again_ms // 2
            await asyncio.sleep(MIN_GAP_MS / 1000)

    async def _share(self, topic: str) -> list[MessageQueue] | None:
        """The queues of this member; None if that cannot be known now."""
        try:
            route = await self._instance.route(topic)
        except NoRouteError:
            log.debug("group %s: the topic %s has no route yet", self._group, topic)
            return None
        queues = route.read_queues()
        if self._broadcasting:
            return queues
        members = await self._members(route)
        if not members:
            return None
        return self._strategy.allocate(self._group, self._instance.client_id, queues, sorted(members))

    async def _members(self, route: TopicRoute) -> list[str]:
        """The client ids of the group, as one of the topic's brokers knows them; empty if it knows none."""
        addresses = [by_id.get(MASTER) or next(iter(by_id.values())) for by_id in route.brokers.values() if by_id]
        random.shuffle(addresses)
        trouble: FirearrowError | None = None
        for address in addresses:
            try:
                answer = await self._instance.call(address, GetConsumerListByGroupRequestHeader(consumer_group=self._group))
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    return GetConsumerListByGroupResponseBody.from_json(loads(answer.body)).consumer_id_list
                trouble = BrokerError(answer.code, answer.remark, address)
            except FirearrowError as error:
                trouble = error
            except ProtocolError as error:
                trouble = BrokerError(ResponseCode.SYSTEM_ERROR, f"its list of members cannot be read: {error}", address)
        if trouble is not None:
            log.debug("group %s: nobody names the members: %s", self._group, trouble)
        return []


def differences(held: Iterable[MessageQueue], share: Iterable[MessageQueue]) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """(queues to drop, queues to take), each sorted."""
    have, want = set(held), set(share)
    return sorted(have - want), sorted(want - have)
