"""Orderly dispatch: order, redelivery in place, dead letters and locks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from firearrow.client.consumer.listener import DEAD_LETTER
from firearrow.client.consumer.orderly import OrderlyDispatcher
from firearrow.client.consumer.process_queue import LOCK_EXPIRES_MS, ProcessQueue
from firearrow.client.message import ReceivedMessage
from tests.client.consumer.scripted import QUEUE, ScriptedSendBack, filled, offsets_in_memory
from tests.support.waiting import run, until


class Setup:
    """A dispatcher for a listener, with a clock that stands still and a scripted SendBack."""

    def __init__(self, listener: Callable[[Any], object], *, coroutine: bool = True, max_reconsume_times: int = 16) -> None:
        self.now_ms = 0
        self.offsets = offsets_in_memory()
        self.send_back = ScriptedSendBack()
        send_back: Any = self.send_back
        self.dispatcher = OrderlyDispatcher(
            listener, coroutine=coroutine, concurrency=3, batch_size=1, offsets=self.offsets, send_back=send_back,
            max_reconsume_times=max_reconsume_times, suspend_ms=10, finished=lambda held: None,
            count=lambda topic, count, ok, spent_s: None, now_ms=lambda: self.now_ms, name="consume",
        )  # fmt: skip

    async def until_noted(self, offset: int) -> None:
        await until(lambda: self.offsets.noted(QUEUE) == offset, f"offset {offset}")


def locked(*offsets: int) -> tuple[ProcessQueue, list[ReceivedMessage]]:
    held, messages = filled(*offsets)
    held.locked = True
    return held, messages


@pytest.mark.parametrize("coroutine", [True, False])
def test_messages_of_a_queue_are_consumed_in_order_one_at_a_time(coroutine: bool) -> None:
    async def story() -> None:
        events: list[object] = []

        async def in_task(messages: list[Any]) -> None:
            events.append(messages[0].queue_offset)
            await asyncio.sleep(0)
            events.append("done")

        def in_thread(messages: list[Any]) -> None:
            events.extend((messages[0].queue_offset, "done"))

        setup = Setup(in_task if coroutine else in_thread, coroutine=coroutine)
        held, messages = locked(5, 6, 7)
        setup.dispatcher.put(held, messages[:1])
        setup.dispatcher.put(held, messages[1:])
        await setup.until_noted(8)
        assert events == [5, "done", 6, "done", 7, "done"]
        assert await setup.dispatcher.stop(10)

    run(story())


def test_failed_message_is_redelivered_before_later_ones_and_those_pulled_meanwhile() -> None:
    async def story() -> None:
        calls: list[tuple[int, int]] = []

        async def listener(batch: list[Any]) -> None:
            calls.append((batch[0].queue_offset, batch[0].reconsume_times))
            if len(calls) == 1:
                setup.dispatcher.put(held, messages[2:])
            if len(calls) <= 2:
                raise RuntimeError("no")

        setup = Setup(listener)
        held, messages = locked(5, 6, 7)
        setup.dispatcher.put(held, messages[:2])
        await setup.until_noted(8)
        assert calls == [(5, 0), (5, 1), (5, 2), (6, 0), (7, 0)]
        assert setup.send_back.sent == []
        assert await setup.dispatcher.stop(10)

    run(story())


def test_message_becomes_a_dead_letter_after_the_last_attempt_and_the_queue_continues() -> None:
    async def story() -> None:
        calls: list[int] = []

        async def listener(messages: list[Any]) -> None:
            calls.append(messages[0].queue_offset)
            if messages[0].queue_offset == 5:
                raise RuntimeError("no")

        setup = Setup(listener, max_reconsume_times=1)
        setup.dispatcher.put(*locked(5, 6))
        await setup.until_noted(7)
        assert calls == [5, 5, 6]
        assert setup.send_back.sent == [(b"5", DEAD_LETTER)]
        assert await setup.dispatcher.stop(10)

    run(story())


def test_queue_without_a_lock_is_suspended() -> None:
    async def story() -> None:
        calls: list[object] = []

        async def listener(messages: list[Any]) -> None:
            calls.append(messages)

        setup = Setup(listener)
        held, messages = filled(5)
        setup.dispatcher.put(held, messages)
        assert (held.suspended, held.running, list(held.waiting)) == (True, False, messages)
        assert await setup.dispatcher.stop(10)
        assert calls == []

    run(story())


def test_turn_ends_when_the_lock_expires_and_keeps_the_other_messages() -> None:
    async def story() -> None:
        async def listener(messages: list[Any]) -> None:
            setup.now_ms = LOCK_EXPIRES_MS + 1

        setup = Setup(listener)
        held, messages = locked(5, 6, 7)
        setup.dispatcher.put(held, messages)
        await setup.until_noted(6)
        assert [message.queue_offset for message in held.waiting] == [6, 7]
        assert (held.running, held.suspended) == (False, True)
        assert await setup.dispatcher.stop(10)

    run(story())


def test_stop_waits_for_the_running_call_and_starts_no_other() -> None:
    async def story() -> None:
        calls: list[int] = []
        release = asyncio.Event()

        async def listener(messages: list[Any]) -> None:
            calls.append(messages[0].queue_offset)
            await release.wait()

        setup = Setup(listener)
        setup.dispatcher.put(*locked(5, 6))
        await until(lambda: calls)
        stopping = asyncio.ensure_future(setup.dispatcher.stop(10))
        await asyncio.sleep(0)
        release.set()
        assert await stopping
        assert (calls, setup.offsets.noted(QUEUE)) == ([5], 6)

    run(story())
