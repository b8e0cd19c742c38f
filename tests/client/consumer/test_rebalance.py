"""Rounds of sharing out queues, with a scripted instance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from firearrow.client.connection.routes import QueueCounts, TopicRoute
from firearrow.client.consumer.allocation import Averagely
from firearrow.client.consumer.rebalance import Rebalance, differences
from firearrow.client.errors import ConnectionLost, NoRouteError
from firearrow.client.message import MessageQueue
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request
from firearrow.wire.headers.client import GetConsumerListByGroupRequestHeader
from tests.client.cluster import run

QUEUES = [MessageQueue("T", "a", queue_id) for queue_id in range(4)]


class Instance:
    """Knows one topic on two brokers, and what each of them says about the members."""

    client_id = "me"

    def __init__(self) -> None:
        self.members: dict[str, list[str] | None] = {"1:1": ["me"], "2:2": ["me"]}
        self.there = True

    async def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        if not self.there:
            raise NoRouteError(topic)
        return TopicRoute(topic, {"a": {0: "1:1"}, "b": {1: "2:2"}}, (QueueCounts("a", 4, 4, 6), QueueCounts("b", 4, 4, 2)))

    async def call(self, address: str, request: Request, body: bytes = b"", **_: Any) -> Command:
        assert request == GetConsumerListByGroupRequestHeader(consumer_group="g")
        members = self.members[address]
        if members is None:
            raise ConnectionLost(f"{address} is gone")
        if not members:
            return Command(1, remark="no consumer for this group")
        return Command(0, body=b'{"consumerIdList":[%b]}' % b",".join(b'"%b"' % name.encode() for name in members))


def rebalance(instance: Any, shares: list[Sequence[MessageQueue]], answers: list[bool] | None = None, **more: Any) -> Rebalance:
    async def apply(topic: str, share: Sequence[MessageQueue]) -> bool:
        shares.append(share)
        return answers.pop(0) if answers else True

    return Rebalance(instance, "g", Averagely(), topics=lambda: ["T"], apply=apply, **more)


def test_a_share_is_what_the_strategy_makes_of_the_readable_queues_and_the_members() -> None:
    async def story() -> None:
        instance, shares = Instance(), []  # type: ignore[var-annotated]
        instance.members = {"1:1": ["you", "me"], "2:2": ["you", "me"]}
        assert await rebalance(instance, shares).once()
        assert shares == [QUEUES[:2]], "sorted, me is before you; b's queues cannot be read"

    run(story())


def test_one_broker_that_answers_is_enough() -> None:
    async def story() -> None:
        for silent in ("1:1", "2:2"):
            for trouble in (None, []):
                instance, shares = Instance(), []  # type: ignore[var-annotated]
                instance.members[silent] = trouble
                random.seed(1)
                assert await rebalance(instance, shares).once()
                assert shares == [QUEUES]

    run(story())


def test_what_cannot_be_known_changes_nothing() -> None:
    async def story() -> None:
        instance, shares = Instance(), []  # type: ignore[var-annotated]
        instance.members = {"1:1": None, "2:2": []}
        assert not await rebalance(instance, shares).once()
        instance.there = False
        assert not await rebalance(instance, shares).once()
        assert shares == []

    run(story())


def test_who_is_not_a_member_any_more_gets_nothing() -> None:
    async def story() -> None:
        instance, shares = Instance(), []  # type: ignore[var-annotated]
        instance.members = {"1:1": ["you"], "2:2": ["you"]}
        assert await rebalance(instance, shares).once()
        assert shares == [[]]

    run(story())


def test_broadcasting_asks_nobody() -> None:
    async def story() -> None:
        instance, shares = Instance(), []  # type: ignore[var-annotated]
        instance.members = {}
        assert await rebalance(instance, shares, broadcasting=True).once()
        assert shares == [QUEUES]

    run(story())


def test_a_notice_begins_a_round_at_once_and_what_is_left_is_tried_again_soon() -> None:
    async def story() -> None:
        shares: list[Sequence[MessageQueue]] = []
        rounds = rebalance(Instance(), shares, answers=[True, False, True], interval_ms=60_000)
        assert await rounds.once()
        rounds.start()
        await asyncio.sleep(0.05)
        assert len(shares) == 1, "there was a round already, and nothing was left"
        rounds.soon()
        while len(shares) < 3:
            await asyncio.sleep(0.01)
        await rounds.stop()
        rounds.soon()
        await asyncio.sleep(0.05)
        assert len(shares) == 3

    run(story())


def test_an_error_does_not_end_it() -> None:
    async def story() -> None:
        calls = 0

        async def apply(topic: str, share: Sequence[MessageQueue]) -> bool:
            nonlocal calls
            calls += 1
            raise RuntimeError("a mistake of ours")

        rounds = Rebalance(
            Instance(), "g", Averagely(), topics=lambda: ["T"], apply=apply, interval_ms=50  # type: ignore[arg-type]
        )  # fmt: skip
        rounds.start()
        while calls < 2:
            await asyncio.sleep(0.01)
        await rounds.stop()

    run(story())


def test_differences() -> None:
    assert differences(QUEUES[:2], QUEUES[1:3]) == ([QUEUES[0]], [QUEUES[2]])
    assert differences([], reversed(QUEUES)) == ([], QUEUES)
