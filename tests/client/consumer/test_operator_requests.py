"""Requests of operators to a push consumer."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.client.consumer.listener import RetryLater
from firearrow.client.consumer.operator_requests import consume_once, queue_infos
from firearrow.client.consumer.process_queue import ProcessQueue
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.wire.record import Record
from tests.support.waiting import run

Q0 = MessageQueue("T", "a", 0)


def message() -> ReceivedMessage:
    return ReceivedMessage(Record("T", b"x"), Q0, "T")


@pytest.mark.parametrize("coroutine", [False, True])
@pytest.mark.parametrize(
    ("error", "result"), [(None, "CR_SUCCESS"), (RetryLater(), "CR_LATER"), (RuntimeError("no"), "CR_THROW_EXCEPTION")]
)
def test_outcome_of_a_direct_consumption(coroutine: bool, error: Exception | None, result: str) -> None:
    def call(messages: list[ReceivedMessage]) -> None:
        if error is not None:
            raise error

    async def call_async(messages: list[ReceivedMessage]) -> None:
        call(messages)

    listener: Any = call_async if coroutine else call
    outcome = run(consume_once(listener, message(), coroutine=coroutine, orderly=False))
    assert outcome.consume_result == result


def test_queue_info_has_held_messages_and_offsets() -> None:
    held = ProcessQueue(Q0, 1_000)
    held.put([message()])
    ((queue, info),) = queue_infos({Q0: held}, lambda queue: 42).items()
    assert (queue.topic, queue.queue_id) == ("T", 0)
    assert (info["cachedMsgCount"], info["commitOffset"], info["lastPullTimestamp"]) == (1, 42, 1_000)
