"""Listeners: the user's functions that consume messages.

    returns               the message is acknowledged
    raises RetryLater     the message is redelivered after the delay in the exception
    raises another error  the message is redelivered after the usual delay; the traceback is logged

A listener takes one message, or a list if the consumer's `batch_size` is above 1. Coroutine functions run on the event loop,
other functions in worker threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firearrow.client.hooks import ConsumeContext, ConsumeHook, call_hooks
from firearrow.client.message import ReceivedMessage
from firearrow.client.options import Duration, milliseconds
from firearrow.clock import wall_ms

DEAD_LETTER: Final = -1
HIGHEST_LEVEL: Final = 18

log = logging.getLogger("firearrow.client")

Listener = (
    Callable[[ReceivedMessage], object]
    | Callable[[list[ReceivedMessage]], object]
    | Callable[[ReceivedMessage], Awaitable[object]]
    | Callable[[list[ReceivedMessage]], Awaitable[object]]
)


class RetryLater(Exception):  # noqa: N818 (a request, not an error)
    """Raised by a listener to have a message redelivered.

    `delay_level` 1 to 18 chooses the delay (1 s, 5 s, 10 s, 30 s, 1 m, ...). With 0 the broker increases the delay with every
    retry. With -1 the message becomes a dead letter. In a list, the messages before `first` are acknowledged. An orderly
    consumer suspends the queue for `suspend_time` and then redelivers the message.
    """

    def __init__(self, delay_level: int = 0, *, first: int = 0, suspend_time: Duration | None = None, reason: str = "") -> None:
        if not DEAD_LETTER <= delay_level <= HIGHEST_LEVEL:
            raise ValueError(f"delay_level is {delay_level}, expected 1 to {HIGHEST_LEVEL}, 0 (usual) or -1 (dead letter)")
        if first < 0:
            raise ValueError(f"first is {first}, expected the index of the first message that was not consumed")
        self.delay_level = delay_level
        self.first = first
        self.suspend_time = suspend_time
        super().__init__(reason or "the listener asked for redelivery")


@dataclass(slots=True, frozen=True)
class Failure:
    """The outcome of a failed call of a listener."""

    error: BaseException
    delay_level: int = 0
    first: int = 0
    suspend_ms: int | None = None


# [orderly][succeeded]: Apache's names
_STATUS: Final = (("RECONSUME_LATER", "CONSUME_SUCCESS"), ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "SUCCESS"))

Outcome = Failure | None
"""None: all messages are consumed."""


def is_coroutine_listener(listener: Callable[..., Any]) -> bool:
    """Return True for a coroutine function, a partial of one, and an object whose `__call__` is one."""
    while isinstance(listener, functools.partial):
        listener = listener.func
    call = getattr(listener, "__call__", None)  # noqa: B004 (the attribute is inspected)
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(call)


def taking_lists(listener: Callable[..., Any], *, coroutine: bool, batch_size: int) -> Callable[[list[ReceivedMessage]], Any]:
    """Adapt the listener to take a list."""
    if batch_size > 1:
        return listener
    if coroutine:

        async def consume_one(messages: list[ReceivedMessage]) -> object:
            return await listener(messages[0])

        return consume_one
    return lambda messages: listener(messages[0])


def hooked(
    call: Callable[[list[ReceivedMessage]], Any], hooks: Sequence[ConsumeHook], *, coroutine: bool, orderly: bool, group: str
) -> Callable[[list[ReceivedMessage]], Any]:
    """Wrap `call` in hooks, which run on the event loop even if the listener runs in a thread."""
    if not hooks:
        return call
    befores, afters = [hook.before_consume for hook in hooks], [hook.after_consume for hook in hooks]
    loop = asyncio.get_running_loop()

    def on_loop(function: Callable[..., None], *args: Any) -> None:
        if coroutine:
            function(*args)
        else:
            loop.call_soon_threadsafe(function, *args)

    def end(context: ConsumeContext, elapsed_s: float, error: BaseException | None) -> None:
        context.elapsed_ms = elapsed_s * 1000
        context.succeeded = error is None
        context.status = _STATUS[orderly][error is None]
        context.error = error
        call_hooks(afters, context)

    @contextlib.contextmanager
    def hooks_around(messages: list[ReceivedMessage]) -> Iterator[None]:
        context, began = ConsumeContext(group, messages[0].queue, messages, wall_ms()), time.monotonic()
        on_loop(call_hooks, befores, context)
        error: BaseException | None = None
        try:
            yield
        except BaseException as problem:
            error = problem
            raise
        finally:
            on_loop(end, context, time.monotonic() - began, error)

    async def consume_in_task(messages: list[ReceivedMessage]) -> None:
        with hooks_around(messages):
            await call(messages)

    def consume_in_thread(messages: list[ReceivedMessage]) -> None:
        with hooks_around(messages):
            call(messages)

    return consume_in_task if coroutine else consume_in_thread


def failure(error: BaseException, messages: Sequence[ReceivedMessage]) -> Failure:
    if isinstance(error, RetryLater):
        log.debug("%s will be delivered again later: %s", messages[0], error)
        suspend_ms = None if error.suspend_time is None else milliseconds("suspend_time", error.suspend_time)
        return Failure(error, error.delay_level, min(error.first, len(messages)), suspend_ms)
    others = f" and {len(messages) - 1} with it" if len(messages) > 1 else ""
    log.warning("the listener failed on %s%s", messages[0], others, exc_info=error)
    return Failure(error)
