"""What the tests here share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from firearrow.client.message import ReceivedMessage
from firearrow.net import event_loop

T = TypeVar("T")
PATIENCE_S = 30


def run(story: Coroutine[Any, Any, T]) -> T:
    """Runs a test's story; one that hangs fails instead."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE_S):
            return await story

    return event_loop.run(bounded())


def bodies(messages: Iterable[ReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]
