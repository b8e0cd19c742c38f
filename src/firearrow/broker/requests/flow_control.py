"""Flow control: sends that are rejected at once instead of being made to wait.

A broker that falls behind helps its producers most by saying so quickly: they try another broker, or later. Three limits apply.
The answer is always code 2 (SYSTEM_BUSY) with a remark that names the limit, the value and the remedy.

- The previous iteration kept the event loop longer than `waitTimeMillsInSendQueue`, so the requests read now have waited as long
  in the socket. Only the iteration that follows at once is judged so; after an idle pause no request has been waiting.
- Messages have been pending longer than `osPageCacheBusyTimeOutMills`. The acknowledgement policy says what they wait for.
- A connection has more unanswered sends than `sendThreadPoolQueueCapacity`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from firearrow.broker.settings import BrokerSettings

if TYPE_CHECKING:
    from firearrow.broker.send.ack_policy import Stall

_FOLLOWS_AT_ONCE_MS = 20


class FlowControl:
    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings  # read each time: some of it may change while the broker runs
        self._iteration_ms = 0
        self._iteration_ended_ms = 0

    def iteration_took(self, started_ms: int, ended_ms: int) -> None:
        """Record how long the broker kept the event loop."""
        self._iteration_ms = ended_ms - started_ms
        self._iteration_ended_ms = ended_ms

    def refusal(self, now_ms: int, in_flight: int, pending_since_ms: int | None, stall: Callable[[], Stall | None]) -> str | None:
        """Return the remark to reject a send with, or None to accept it.

        `in_flight` is the number of unanswered sends of its connection. `stall` is asked why messages have been pending since
        `pending_since_ms` if that is too long ago.
        """
        settings = self._settings
        if in_flight > settings.send_thread_pool_queue_capacity:
            return (
                f"[OVERLOAD]system busy, start flow control for a while: {in_flight} sends of this connection are unanswered, "
                f"sendThreadPoolQueueCapacity is {settings.send_thread_pool_queue_capacity}; "
                "wait for answers, or use more connections"
            )
        limit_ms = settings.os_page_cache_busy_time_out_mills
        if pending_since_ms is not None and now_ms - pending_since_ms > limit_ms:
            stalled = stall()
            if stalled is not None:
                return (
                    f"[PC_SYNCHRONIZED]broker busy, start flow control for a while: {stalled.cause} for "
                    f"{now_ms - pending_since_ms} ms, osPageCacheBusyTimeOutMills is {limit_ms}; "
                    f"try another broker, and {stalled.advice}"
                )
        waited = self._iteration_ms > settings.wait_time_mills_in_send_queue
        if waited and now_ms - self._iteration_ended_ms < _FOLLOWS_AT_ONCE_MS and settings.broker_fast_failure_enable:
            return (
                f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {self._iteration_ms}ms, "
                f"waitTimeMillsInSendQueue is {settings.wait_time_mills_in_send_queue}; try again, or another broker"
            )
        return None
