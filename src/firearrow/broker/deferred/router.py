"""Where a message is put that is not to be delivered as it comes.

A delayed message waits in a topic of the broker's own until it is due, a half message until its transaction is decided. Its real
destination travels with it in the properties REAL_TOPIC and REAL_QID. Whoever stores a message, a client's send or the broker
itself, asks `DeferralRouter.place` first; None means that it goes straight to its topic.

    TRAN_MSG=true in a client's send                     half topic              transaction.py
    DELAY > 0                                            SCHEDULE_TOPIC_XXXX     delay.py
    TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS    rmq_sys_wheel_timer     timer.py

A half message is not delayed; what it becomes when it is committed is. What it asks for is judged when it is sent, while somebody
can be told (`checks`). What the broker itself stores is never refused for it: a committed message that asks for the impossible
goes straight to its topic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

TRANSACTION_BITS = 0xC
PREPARED = 0x4
COMMITTED = 0x8


class DeferredTarget(NamedTuple):
    topic: str
    queue_id: int
    properties: bytes
    tags_code: int  # of the consume-queue entry there
    sys_flag: int
    reply: dict[str, str] | None  # what the reply to a send says besides the usual
    keep: Callable[[DeferredMessage], None] | None = None  # wants to know what a client's send stored there, and where


class IncomingMessage(NamedTuple):
    """A message on its way into the store."""

    topic: str
    queue_id: int
    properties: bytes  # complete, ending with 0x02
    sys_flag: int
    reconsume_times: int
    unique_key: str
    tags_code: int = 0  # of a client's send
    inner: bool = False  # stored by the broker itself: what a transaction has become does not become half of one again


class DeferredMessage(NamedTuple):
    """A message that waits in its place, and the queue that it was sent to."""

    queue_offset: int
    physical_offset: int
    topic: str
    queue_id: int
    body: bytes
    properties: bytes  # as stored
    tags_code: int
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int


# The constructor of a named tuple is a Python function; these are not, and take half the time. Give them the tuple.
quick_arrival: Callable[[tuple[str, int, bytes, int, int, str, int, bool]], IncomingMessage] = partial(
    tuple.__new__, IncomingMessage
)
quick_placement: Callable[
    [tuple[str, int, bytes, int, int, dict[str, str] | None, Callable[[DeferredMessage], None] | None]], DeferredTarget
] = partial(tuple.__new__, DeferredTarget)
quick_placed: Callable[[tuple[int, int, str, int, bytes, bytes, int, int, int, int, bytes, int]], DeferredMessage] = partial(
    tuple.__new__, DeferredMessage
)


@lru_cache(maxsize=4096)
def bound_for(topic: str, queue_id: int) -> bytes:
    """The last properties of a message that waits: where it goes then. There are few, and they are wanted with every message."""
    return f"REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02".encode()


Place = Callable[[IncomingMessage, int], DeferredTarget | None]
Check = Callable[[IncomingMessage, int], bool]  # whether it is the one to place the message; raises Refused


def may_be_placed(properties: bytes) -> bool:
    """A quick look, for the hot path: False when no property can ask for a detour.

    DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS have three letters in common.
    """
    return properties.find(b"DEL") >= 0 or properties.find(b"TRAN_MSG\x01") >= 0  # half the cost of `in`


class DeferralRouter:
    """`places` are asked in turn; the first that has a place for the message gets it. `checks` are for half messages."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.checks: list[Check] = []

    def place(self, arrival: IncomingMessage, now_ms: int) -> DeferredTarget | None:
        for ask in self.places:
            placement = ask(arrival, now_ms)
            if placement is not None:
                return placement
        return None

    def check(self, arrival: IncomingMessage, now_ms: int) -> None:
        """Refuses a half message that could not be placed when it is committed."""
        any(check(arrival, now_ms) for check in self.checks)
