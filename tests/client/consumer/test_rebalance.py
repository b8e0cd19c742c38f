"""Rebalancing with a scripted instance."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Any

import pytest

from firearrow.client.connection.routes import QueueCounts, TopicRoute
from firearrow.client.consumer.allocation import Averagely
from firearrow.client.consumer.rebalance import AssignmentReport, Rebalancer, differences
from firearrow.client.errors import ConnectionLost, NoRouteError
from firearrow.client.message import MessageQueue
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request
from firearrow.wire.headers.client import GetConsumerListByGroupRequestHeader
from tests.support.waiting import run

QUEUES = [MessageQueue("T", "a", queue_id) for queue_id in range(4)]


class FakeInstance:
    """One topic on two brokers, and the members that each of them reports."""

    client_id = "me"

    def __init__(self) -> None:
        self.members: dict[str, list[str] | None] = {"1:1": ["me"], "2:2": ["me"]}
        self.exists = True

    async def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        if not self.exists:
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


def rebalance(instance: Any, shares: list[Sequence[MessageQueue]], answers: list[bool] | None = None, **more: Any) -> Rebalancer:
    async def apply(topic: str, share: Sequence[MessageQueue]) -> bool:
        shares.append(share)
        return answers.pop(0) if answers else True

    return Rebalancer(instance, "g", Averagely(), topics=lambda: ["T"], apply=apply, **more)


def test_share_is_allocated_from_readable_queues_and_members() -> None:
    async def story() -> None:
        instance, shares = FakeInstance(), []  # type: ignore[var-annotated]
        instance.members = {"1:1": ["you", "me"], "2:2": ["you", "me"]}
        assert await rebalance(instance, shares).run_once()
        assert shares == [QUEUES[:2]], "sorted, me is before you; b's queues cannot be read"

    run(story())


def test_one_responding_broker_is_sufficient() -> None:
    failures: list[list[str] | None] = [None, []]

    async def story() -> None:
        for silent in ("1:1", "2:2"):
            for trouble in failures:
                instance, shares = FakeInstance(), []  # type: ignore[var-annotated]
                instance.members[silent] = trouble
                random.seed(1)
                assert await rebalance(instance, shares).run_once()
                assert shares == [QUEUES]

    run(story())


def test_share_is_unchanged_while_route_or_members_are_unknown() -> None:
    async def story() -> None:
        instance, shares = FakeInstance(), []  # type: ignore[var-annotated]
        instance.members = {"1:1": None, "2:2": []}
        assert not await rebalance(instance, shares).run_once()
        instance.exists = False
        assert not await rebalance(instance, shares).run_once()
        assert shares == []

    run(story())


def test_former_member_has_no_queues() -> None:
    async def story() -> None:
        instance, shares = FakeInstance(), []  # type: ignore[var-annotated]
        instance.members = {"1:1": ["you"], "2:2": ["you"]}
        assert await rebalance(instance, shares).run_once()
        assert shares == [[]]

    run(story())


def test_broadcasting_takes_all_queues_without_asking_brokers() -> None:
    async def story() -> None:
        instance, shares = FakeInstance(), []  # type: ignore[var-annotated]
        instance.members = {}
        assert await rebalance(instance, shares, broadcasting=True).run_once()
        assert shares == [QUEUES]

    run(story())


def test_request_rebalances_at_once_and_unfinished_work_is_retried() -> None:
    async def story() -> None:
        shares: list[Sequence[MessageQueue]] = []
        rebalancer = rebalance(FakeInstance(), shares, answers=[True, False, True], interval_ms=60_000)
        assert await rebalancer.run_once()
        rebalancer.start()
        await asyncio.sleep(0.05)
        assert len(shares) == 1, "it had run before, and nothing was left to do"
        rebalancer.request()
        while len(shares) < 3:
            await asyncio.sleep(0.01)
        await rebalancer.stop()
        rebalancer.request()
        await asyncio.sleep(0.05)
        assert len(shares) == 3

    run(story())


def test_unexpected_error_does_not_end_rebalancing() -> None:
    async def story() -> None:
        calls = 0

        async def apply(topic: str, share: Sequence[MessageQueue]) -> bool:
            nonlocal calls
            calls += 1
            raise RuntimeError("a mistake of ours")

        rebalancer = Rebalancer(
            FakeInstance(), "g", Averagely(), topics=lambda: ["T"], apply=apply, interval_ms=50  # type: ignore[arg-type]
        )  # fmt: skip
        rebalancer.start()
        while calls < 2:
            await asyncio.sleep(0.01)
        await rebalancer.stop()

    run(story())


def test_differences_are_sorted() -> None:
    assert differences(QUEUES[:2], QUEUES[1:3]) == ([QUEUES[0]], [QUEUES[2]])
    assert differences([], reversed(QUEUES)) == ([], QUEUES)


def test_missing_topic_is_reported_after_a_few_seconds_and_then_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    report = AssignmentReport("g", 3.0)
    for now_s in (0.0, 1.0, 2.9):
        report.failed("T", NoRouteError("T"), now_s)
    assert caplog.messages == []
    for now_s in (3.1, 10.0, 50.0):
        report.failed("T", NoRouteError("T", "the name server 1:1 does not know it"), now_s)
    assert [line for line in caplog.messages if "receives nothing from T and keeps trying: no route to the topic 'T'" in line]
    assert len(caplog.messages) == 1
    report.failed("T", NoRouteError("T"), 64.0)
    assert len(caplog.messages) == 2


def test_retry_topic_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    report = AssignmentReport("g", 0.0)
    report.failed("%RETRY%g", NoRouteError("%RETRY%g"), 0.0)
    assert (caplog.messages, report.problem) == ([], None)


def test_consumer_started_is_logged_once_when_all_topics_are_assigned(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        instance, shares = FakeInstance(), []  # type: ignore[var-annotated]
        rebalancer = rebalance(instance, shares, warn_after_s=0)
        instance.exists = False
        await rebalancer.run_once()
        assert isinstance(rebalancer.problem, NoRouteError)
        assert "consumer group g receives nothing from T" in caplog.text
        assert "consumer started" not in caplog.text
        instance.exists = True
        await rebalancer.run_once()
        await rebalancer.run_once()
        assert rebalancer.problem is None
        assert caplog.messages.count("consumer started: group g, topics T") == 1
        assert "consumer group g receives messages from T now" in caplog.messages

    caplog.set_level(logging.INFO, "firearrow.client")
    run(story())
