"""Routing of delayed and timed messages to their holding topics.

A deferred message is stored in a topic of the broker until it is due or its transaction is committed. The properties REAL_TOPIC
and REAL_QID name its destination.

    TRAN_MSG=true in a client's send                     half topic              transaction/
    DELAY > 0                                            SCHEDULE_TOPIC_XXXX     deferred/delay_levels.py
    TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS    rmq_sys_wheel_timer     timer/

The send handler asks the transaction service first: a half message is not delayed, but the message committed from it is. The
requested delay of a half message is therefore validated when it is sent (`check`), while the producer can still be told. Messages
stored by the broker itself are never rejected for an invalid delay; they are stored in their topic directly.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from firearrow.broker.message import BrokerMessage
from firearrow.broker.send.internal import InternalWriter


class Deferral(Protocol):
    """A service that holds messages back."""

    def defer(self, message: BrokerMessage, now_ms: int) -> bool:
        """Redirect `message` to the holding topic; return False if it does not belong there. Raises Refused."""

    def check(self, message: BrokerMessage, now_ms: int) -> bool:
        """Return whether `message` asks for this kind of deferral. Raises Refused if it cannot be granted."""


@lru_cache(maxsize=4096)
def target_properties(topic: str, queue_id: int) -> bytes:
    """Return REAL_TOPIC and REAL_QID, the last properties of a deferred message. Cached: every deferred message needs them."""
    return f"REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02".encode()


class DeferralRouter:
    """Delay levels, then timer: the first one that matches gets the message."""

    def __init__(self, writer: InternalWriter, delay_levels: Deferral, timer: Deferral) -> None:
        self._writer = writer
        self._delay_levels = delay_levels
        self._timer = timer

    def defer(self, message: BrokerMessage, now_ms: int) -> bool:
        """Redirect `message` to a holding topic if its properties ask for a delay."""
        return self._delay_levels.defer(message, now_ms) or self._timer.defer(message, now_ms)

    def check(self, message: BrokerMessage, now_ms: int) -> None:
        """Raise Refused for a half message whose delay could not be granted when it is committed."""
        if not self._delay_levels.check(message, now_ms):
            self._timer.check(message, now_ms)

    def put(self, message: BrokerMessage, now_ms: int) -> None:
        """Store an internal message, in a holding topic if its properties ask for a delay."""
        # DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS have these three letters in common.
        if message.properties.find(b"DEL") >= 0 and self.defer(message, now_ms):
            self._writer.append(message, now_ms)
        else:
            self._writer.deliver(message, now_ms)
