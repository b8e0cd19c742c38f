"""Hooks before and after sends and consumptions, for tracing, metrics and rejection.

Hooks run on the event loop and must not block. An exception in `before_send` rejects the send and is raised to the sender.
Exceptions of other hooks are logged and ignored.
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
    """The kind of a message; the numbers are those of Apache's traces."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


@dataclass(slots=True)
class SendContext:
    """One send of a message or batch, over all attempts."""

    group: str
    messages: Sequence[Message]
    queue: MessageQueue
    address: str  # of the broker of the current attempt
    msg_id: str
    kind: MessageKind
    began_ms: int
    body_size: int  # after compression
    elapsed_ms: float = 0.0
    result: SendResult | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class EndTransactionContext:
    """The outcome of a transaction, reported to its broker."""

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
    status: str = ""  # Apache's name of the outcome: CONSUME_SUCCESS, RECONSUME_LATER, ...
    timed_out: bool = False
    error: BaseException | None = None


class SendHook(Protocol):
    """Called before and after every send."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


class EndTransactionHook(Protocol):
    """Called when the outcome of a transaction is reported."""

    def end_transaction(self, context: EndTransactionContext) -> None: ...


class ConsumeHook(Protocol):
    """Called before and after every consumption."""

    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


C = TypeVar("C")


def call_hooks(calls: Iterable[Callable[[C], None]], context: C) -> None:
    """Call all hooks; exceptions are logged."""
    for call in calls:
        try:
            call(context)
        except Exception:
            log.exception("the hook %r failed", call)
