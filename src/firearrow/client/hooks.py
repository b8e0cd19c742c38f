"""Seams before and after what a client does with messages, for tracing, metering, refusing.

Hooks are called on the event loop and must not block. A hook that raises in `before_send` stops the send: the error is what the
sender gets. What any other hook raises is logged, and nothing else happens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeVar

from firearrow.client.message import Message, MessageQueue, ReceivedMessage, SendResult

log = logging.getLogger("firearrow.client")


class MessageKind(IntEnum):
    """What kind of message is sent; the numbers are those of Apache's traces."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


@dataclass(slots=True)
class SendContext:
    """One attempt-independent send: a message, or the messages of a batch."""

    group: str
    messages: Sequence[Message]
    queue: MessageQueue
    address: str  # of the broker; before the first attempt, of the one chosen first
    msg_id: str
    kind: MessageKind
    began_ms: int
    body_size: int  # as it travels
    elapsed_ms: float = 0.0
    result: SendResult | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class EndTransactionContext:
    """A decision about a transaction that is told to its broker."""

    group: str
    topic: str
    message: Message | ReceivedMessage
    address: str
    msg_id: str
    transaction_id: str
    state: str  # COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW
    from_check: bool


@dataclass(slots=True)
class ConsumeContext:
    """One call of a listener."""

    group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    began_ms: int
    elapsed_ms: float = 0.0
    succeeded: bool = False
    status: str = ""  # what the listener made of it, in Apache's words: CONSUME_SUCCESS, RECONSUME_LATER, ...
    timed_out: bool = False
    error: BaseException | None = None


class SendHook(Protocol):
    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


class EndTransactionHook(Protocol):
    def end_transaction(self, context: EndTransactionContext) -> None: ...


class ConsumeHook(Protocol):
    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


C = TypeVar("C")


def call_hooks(calls: Iterable[Callable[[C], None]], context: C) -> None:
    """Calls all of them; what they raise is logged."""
    for call in calls:
        try:
            call(context)
        except Exception:
            log.exception("the hook %r failed", call)
