"""Concurrent dispatch: offsets to commit, failures, timeouts and dropped queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from firearrow.client.consumer.concurrent import EXPIRED_LEVEL, ConcurrentDispatcher
from firearrow.client.consumer.listener import RetryLater
from tests.client.consumer.scripted import QUEUE, ScriptedSendBack, filled, offsets_in_memory
from tests.support.waiting import run, until


class Setup:
    """A dispatcher for a listener, with a scripted SendBack."""

    def __init__(
        self,
        listener: Callable[[Any], object],
        *,
        coroutine: bool = True,
        batch_size: int = 1,
        send_back: ScriptedSendBack | None = None,
    ) -> None:
        self.offsets = offsets_in_memory()
        self.counted: list[tuple[int, bool]] = []
        self.finished: list[object] = []
        back: Any = send_back
        self.dispatcher = ConcurrentDispatcher(
            listener, coroutine=coroutine, concurrency=3, batch_size=batch_size, offsets=self.offsets, send_back=back,
            finished=self.finished.append, count=lambda topic, count, ok, spent_s: self.counted.append((count, ok)),
            name="consume",
        )  # fmt: skip

    async def until_noted(self, offset: int) -> None:
        await until(lambda: self.offsets.noted(QUEUE) == offset, f"offset {offset}")


@pytest.mark.parametrize("coroutine", [True, False])
def test_consumed_messages_advance_the_offset_and_wake_the_pull_loop(coroutine: bool) -> None:
    async def story() -> None:
        bodies: list[bytes] = []

        async def in_task(messages: list[Any]) -> None:
            bodies.append(messages[0].body)

        def in_thread(messages: list[Any]) -> None:
            bodies.append(messages[0].body)

        setup = Setup(in_task if coroutine else in_thread, coroutine=coroutine)
        held, messages = filled(5, 6, 7)
        held.wake_pull_loop = True
        setup.dispatcher.put(held, messages)
        await setup.until_noted(8)
        assert sorted(bodies) == [b"5", b"6", b"7"]
        assert (len(held), set(setup.finished)) == (0, {held})
        assert sum(count for count, ok in setup.counted if ok) == 3
        assert await setup.dispatcher.stop(10)

    run(story())


def test_offset_stays_at_the_oldest_message_that_is_being_consumed() -> None:
    async def story() -> None:
        release = asyncio.Event()

        async def listener(messages: list[Any]) -> None:
            if messages[0].queue_offset == 5:
                await release.wait()

        setup = Setup(listener)
        held, messages = filled(5, 6, 7)
        setup.dispatcher.put(held, messages)
        await until(lambda: len(held) == 1)
        assert setup.offsets.noted(QUEUE) == 5
        release.set()
        await setup.until_noted(8)
        assert await setup.dispatcher.stop(10)

    run(story())


def test_failed_part_of_a_batch_is_sent_back() -> None:
    async def story() -> None:
        async def listener(messages: list[Any]) -> None:
            raise RetryLater(4, first=1)

        send_back = ScriptedSendBack()
        setup = Setup(listener, batch_size=3, send_back=send_back)
        setup.dispatcher.put(*filled(5, 6, 7))
        await setup.until_noted(8)
        assert send_back.sent == [(b"6", 4), (b"7", 4)]
        assert await setup.dispatcher.stop(10)

    run(story())


def test_message_accepted_by_no_broker_stays_held_for_another_attempt() -> None:
    async def story() -> None:
        async def listener(messages: list[Any]) -> None:
            raise RuntimeError("no")

        setup = Setup(listener, send_back=ScriptedSendBack(accepts=False))
        held, messages = filled(5)
        setup.dispatcher.put(held, messages)
        await until(lambda: messages[0].reconsume_times == 1)
        assert held.holds(messages[0])
        assert setup.offsets.noted(QUEUE) is None
        assert await setup.dispatcher.stop(10)

    run(story())


def test_failed_message_of_a_broadcasting_group_is_dropped() -> None:
    async def story() -> None:
        async def listener(messages: list[Any]) -> None:
            raise RuntimeError("no")

        setup = Setup(listener)
        setup.dispatcher.put(*filled(5))
        await setup.until_noted(6)
        assert setup.counted == [(1, False)]
        assert await setup.dispatcher.stop(10)

    run(story())


def test_message_beyond_the_consume_timeout_is_sent_back_once_and_its_outcome_ignored() -> None:
    async def story() -> None:
        started, release = asyncio.Event(), asyncio.Event()

        async def listener(messages: list[Any]) -> None:
            started.set()
            await release.wait()
            raise RuntimeError("too late")

        send_back = ScriptedSendBack()
        setup = Setup(listener, send_back=send_back)
        setup.dispatcher.put(*filled(5))
        await started.wait()
        setup.dispatcher.expire(0)
        setup.dispatcher.expire(0)
        await setup.until_noted(6)
        release.set()
        assert await setup.dispatcher.stop(10)
        assert send_back.sent == [(b"5", EXPIRED_LEVEL)]

    run(story())


def test_messages_of_a_dropped_queue_are_not_delivered() -> None:
    async def story() -> None:
        calls: list[object] = []

        async def listener(messages: list[Any]) -> None:
            calls.append(messages)

        setup = Setup(listener)
        held, messages = filled(5)
        held.dropped = True
        setup.dispatcher.put(held, messages)
        await until(lambda: setup.counted)
        assert (calls, setup.offsets.noted(QUEUE)) == ([], None)
        assert await setup.dispatcher.stop(10)

    run(story())
