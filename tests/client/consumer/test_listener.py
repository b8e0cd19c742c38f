"""Listeners and their outcomes."""

from __future__ import annotations

import functools
import logging
from datetime import timedelta
from typing import Any

import pytest

from firearrow.client.consumer.listener import RetryLater, failure, is_coroutine_listener, taking_lists
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.wire.record import Record


def message() -> ReceivedMessage:
    return ReceivedMessage(Record("T", b"x"), MessageQueue("T", "a", 0), "T")


class AsyncCallable:
    async def __call__(self, message: ReceivedMessage) -> None: ...


async def coroutine(message: ReceivedMessage, extra: int = 0) -> None: ...


def test_coroutine_functions_are_recognized() -> None:
    assert is_coroutine_listener(coroutine)
    assert is_coroutine_listener(functools.partial(coroutine, extra=1))
    assert is_coroutine_listener(AsyncCallable())
    assert not is_coroutine_listener(lambda message: None)


def test_listener_of_single_messages_is_adapted_to_lists() -> None:
    seen: list[Any] = []
    one, two = message(), message()
    taking_lists(seen.append, coroutine=False, batch_size=1)([one])
    taking_lists(seen.append, coroutine=False, batch_size=2)([one, two])
    assert seen == [one, [one, two]]


def test_retry_later_sets_delay_first_and_suspend_time() -> None:
    failed = failure(RetryLater(3, first=9, suspend_time=timedelta(seconds=2)), [message()])
    assert (failed.delay_level, failed.first, failed.suspend_ms) == (3, 1, 2_000)


def test_other_errors_are_logged_with_traceback(caplog: pytest.LogCaptureFixture) -> None:
    error = RuntimeError("no")
    assert failure(error, [message(), message()]).error is error
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert "and 1 with it" in line.message
    assert line.exc_info is not None


@pytest.mark.parametrize("arguments", [{"delay_level": 19}, {"delay_level": -2}, {"first": -1}])
def test_invalid_retry_later_is_rejected(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        RetryLater(**arguments)  # type: ignore[arg-type]
