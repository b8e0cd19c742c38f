"""The pull loop of one queue, with a scripted puller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from firearrow.client.consumer.process_queue import ProcessQueue
from firearrow.client.consumer.pull import PullResult, PullStatus
from firearrow.client.consumer.pull_loop import PullLoop
from firearrow.client.consumer.subscription import subscription
from firearrow.client.errors import BrokerError, ConnectionLost
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.wire.codes import ResponseCode
from tests.client.consumer.scripted import QUEUE, ScriptedPuller, found
from tests.support.waiting import run, until

NO_MATCH = PullResult(PullStatus.NO_MATCH, 30, 0, 100, [])
MOVED = PullResult(PullStatus.OFFSET_MOVED, 50, 50, 100, [])


class Setup:
    """A pull loop at offset 10 that records its calls."""

    def __init__(self, *outcomes: PullResult | Exception) -> None:
        self.puller = ScriptedPuller(*outcomes)
        self.held = ProcessQueue(QUEUE, now_ms=0)
        self.reason: str | None = None
        self.drops_during_pull = False
        self.delivered: list[int] = []
        self.skips: list[int] = []
        self.moves: list[int] = []
        self.counted: list[tuple[str, int]] = []
        puller: Any = self.puller
        self.loop = PullLoop(
            puller, self.held, 10, subscription=lambda topic: subscription(topic, "*", 1), hold_back=lambda held: self.reason,
            consumed=self.consumed, hand_out=self.hand_out, skipped=lambda held, offset: self.skips.append(offset),
            moved=self.moved, pulled=lambda topic, count, seconds: self.counted.append((topic, count)), now_ms=lambda: 123,
        )  # fmt: skip

    def consumed(self, queue: MessageQueue) -> int:
        self.held.dropped = self.drops_during_pull
        return 7

    def hand_out(self, held: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self.delivered += [message.queue_offset for message in messages]

    async def moved(self, held: ProcessQueue, offset: int) -> None:
        self.moves.append(offset)

    async def until_pulls(self, count: int) -> None:
        await until(lambda: len(self.puller.pulls) == count, f"{count} pulls")


def test_pulled_messages_are_held_and_delivered_and_the_next_pull_follows_them() -> None:
    async def story() -> None:
        setup = Setup(found(10, 12))
        setup.loop.start()
        await setup.until_pulls(2)
        assert setup.puller.pulls == [(10, 7), (13, 7)]
        assert (setup.delivered, len(setup.held), setup.held.max_offset, setup.held.last_pull_ms) == ([10, 12], 2, 100, 123)
        assert setup.counted == [("T", 2)]
        await setup.loop.stop()

    run(story())


def test_held_back_queue_is_pulled_when_the_loop_is_woken() -> None:
    async def story() -> None:
        setup = Setup()
        setup.reason = "full"
        setup.loop.start()
        await until(lambda: setup.held.wake_pull_loop)
        assert setup.puller.pulls == []
        setup.reason = None
        setup.loop.wake()
        await setup.until_pulls(1)
        assert not setup.held.wake_pull_loop
        await setup.loop.stop()

    run(story())


def test_offset_skips_filtered_messages_only_while_nothing_is_held() -> None:
    async def story() -> None:
        setup = Setup(NO_MATCH, found(31), NO_MATCH)
        setup.loop.start()
        await setup.until_pulls(4)
        assert setup.skips == [30]
        await setup.loop.stop()

    run(story())


def test_loop_ends_when_the_offset_has_moved() -> None:
    async def story() -> None:
        setup = Setup(MOVED, found(50))
        setup.loop.start()
        await until(lambda: setup.moves)
        await setup.loop.stop()
        assert (setup.moves, setup.delivered, len(setup.puller.pulls)) == ([50], [], 1)

    run(story())


@pytest.mark.parametrize(
    "error", [BrokerError(ResponseCode.FLOW_CONTROL, "busy", "1:1"), ConnectionLost("gone"), RuntimeError("a defect")]
)
def test_pull_is_repeated_at_the_same_offset_after_an_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firearrow.client.consumer.pull_loop.ERROR_PAUSE_MS", 0)

    async def story() -> None:
        setup = Setup(error, found(10))
        setup.loop.start()
        await setup.until_pulls(3)
        assert [offset for offset, _ in setup.puller.pulls] == [10, 10, 11]
        await setup.loop.stop()

    run(story())


def test_messages_pulled_while_the_queue_was_dropped_are_not_delivered() -> None:
    async def story() -> None:
        setup = Setup(found(10), found(11))
        setup.drops_during_pull = True
        setup.loop.start()
        await setup.until_pulls(1)
        await asyncio.sleep(0)
        assert (setup.delivered, len(setup.held), len(setup.puller.pulls)) == ([], 0, 1)
        await setup.loop.stop()

    run(story())
