"""The listener: the user's function that consumes, and what its outcome means.

    it returns                          consumed
    it raises RetryLater                try again later: when, is said in the exception
    it raises anything else             try again later: the usual delay, and the log has the traceback

A listener takes one message, or a list when the consumer's `batch_size` is above 1. Coroutine functions run as tasks on the event
loop; everything else is called in worker threads.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
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


class RetryLater(Exception):  # noqa: N818 (what it asks for, not an error)
    """Raised by a listener: this could not be consumed now.

    `delay_level` 1 to 18 chooses when it comes again (1 s, 5 s, 10 s, 30 s, 1 m, ...); 0 leaves it to the broker, which waits
    longer each time; -1 asks for no other try: it becomes a dead letter. In a list, the messages before `first` are consumed. An
    orderly consumer suspends its queue for `suspend_time` instead and tries again itself.
    """

    def __init__(self, delay_level: int = 0, *, first: int = 0, suspend_time: Duration | None = None, reason: str = "") -> None:
        if not DEAD_LETTER <= delay_level <= HIGHEST_LEVEL:
            raise ValueError(f"delay_level is {delay_level}, expected 1 to {HIGHEST_LEVEL}, 0 (usual) or -1 (dead letter)")
        if first < 0:
            raise ValueError(f"first is {first}, expected the place of the first message that was not consumed")
        self.delay_level = delay_level
        self.first = first
        self.suspend_time = suspend_time
        super().__init__(reason or "the listener asked for another try later")


@dataclass(slots=True, frozen=True)
class Failure:
    """What a listener's call came to when it was no success."""

    error: BaseException
    delay_level: int = 0
    first: int = 0
    suspend_ms: int | None = None


# orderly? -> succeeded? -> Apache's word for it
_STATUS: Final = (("RECONSUME_LATER", "CONSUME_SUCCESS"), ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "SUCCESS"))

Outcome = Failure | None
"""None: everything consumed."""


def is_coroutine_listener(listener: Callable[..., Any]) -> bool:
    """Also for a partial of, or an object whose `__call__` is, a coroutine function."""
    while isinstance(listener, functools.partial):
        listener = listener.func
    call = getattr(listener, "__call__", None)  # noqa: B004 (it is looked at, not asked for whether it is there)
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(call)


def taking_lists(listener: Callable[..., Any], *, coroutine: bool, batch_size: int) -> Callable[[list[ReceivedMessage]], Any]:
    """The listener as something that is given a list, whatever it takes itself."""
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
    """`call` with hooks around it. They are called on the event loop also when the listener is called in a thread."""
    if not hooks:
        return call
    befores, afters = [hook.before_consume for hook in hooks], [hook.after_consume for hook in hooks]
    loop = asyncio.get_running_loop()

    def begin(messages: list[ReceivedMessage]) -> tuple[ConsumeContext, float]:
        return ConsumeContext(group, messages[0].queue, messages, wall_ms()), time.monotonic()

    def end(context: ConsumeContext, elapsed_s: float, error: BaseException | None) -> None:
        context.elapsed_ms = elapsed_s * 1000
        context.succeeded = error is None
        context.status = _STATUS[orderly][error is None]
        context.error = error
        call_hooks(afters, context)

    async def consume_in_task(messages: list[ReceivedMessage]) -> None:
        context, began = begin(messages)
        call_hooks(befores, context)
        error: BaseException | None = None
        try:
            await call(messages)
        except BaseException as problem:
            error = problem
            raise
        finally:
            end(context, time.monotonic() - began, error)

    def consume_in_thread(messages: list[ReceivedMessage]) -> None:
        context, began = begin(messages)
        loop.call_soon_threadsafe(call_hooks, befores, context)
        error: BaseException | None = None
        try:
            call(messages)
        except BaseException as problem:
            error = problem
            raise
        finally:
            loop.call_soon_threadsafe(end, context, time.monotonic() - began, error)

    return consume_in_task if coroutine else consume_in_thread


def failure(error: BaseException, messages: Sequence[ReceivedMessage]) -> Failure:
    if isinstance(error, RetryLater):
        log.debug("%s will be delivered again later: %s", messages[0], error)
        suspend_ms = None if error.suspend_time is None else milliseconds("suspend_time", error.suspend_time)
        return Failure(error, error.delay_level, min(error.first, len(messages)), suspend_ms)
    log.warning("the listener failed on %s%s", messages[0], _and_others(messages), exc_info=error)
    return Failure(error)


def _and_others(messages: Sequence[ReceivedMessage]) -> str:
    return f" and {len(messages) - 1} with it" if len(messages) > 1 else ""
