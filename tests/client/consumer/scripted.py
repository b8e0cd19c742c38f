"""Scripted collaborators for tests of consumption without brokers."""

from __future__ import annotations

import asyncio
from typing import Any

from firearrow.client.consumer.offset_store import BrokerOffsets
from firearrow.client.consumer.process_queue import ProcessQueue
from firearrow.client.consumer.pull import PullResult, PullStatus
from firearrow.client.consumer.subscription import Subscription
from firearrow.client.message import MessageQueue, ReceivedMessage, received
from firearrow.wire.record import Record

QUEUE = MessageQueue("T", "a", 0)


def message(offset: int) -> ReceivedMessage:
    return received(Record("T", b"%d" % offset, queue_offset=offset), "a")


def filled(*offsets: int) -> tuple[ProcessQueue, list[ReceivedMessage]]:
    """Return a process queue that holds messages at these offsets, and the messages."""
    held = ProcessQueue(QUEUE, now_ms=0)
    messages = [message(offset) for offset in offsets]
    held.put(messages)
    return held, messages


def offsets_in_memory() -> BrokerOffsets:
    """Return an offset store that can note offsets, but has no broker."""
    instance: Any = None
    return BrokerOffsets(instance, "g")


def found(*offsets: int) -> PullResult:
    """Return the result of a pull that found messages at these offsets."""
    return PullResult(PullStatus.FOUND, offsets[-1] + 1, 0, 100, [message(offset) for offset in offsets])


class ScriptedPuller:
    """Returns or raises the `outcomes` in order, then blocks. Records (offset, commit offset) of each pull."""

    def __init__(self, *outcomes: PullResult | Exception) -> None:
        self.outcomes = list(outcomes)
        self.pulls: list[tuple[int, int | None]] = []

    async def pull(
        self, queue: MessageQueue, offset: int, subscription: Subscription, *, commit_offset: int | None = None
    ) -> PullResult:
        self.pulls.append((offset, commit_offset))
        await asyncio.sleep(0)  # other queues pull meanwhile
        if not self.outcomes:
            await asyncio.Event().wait()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def forget(self, queue: MessageQueue) -> None:
        """Do nothing: no state is kept per queue."""


class ScriptedSendBack:
    """Records (body, delay level) of messages sent back; rejects them unless `accepts`."""

    def __init__(self, *, accepts: bool = True) -> None:
        self.accepts = accepts
        self.sent: list[tuple[bytes, int]] = []

    async def to_broker(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        self.sent.append((message.body, delay_level))
        return self.accepts

    as_message = to_broker
