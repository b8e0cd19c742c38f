"""Flow control: when a send is refused at once instead of being made to wait.

A broker that falls behind helps its producers most by saying so quickly: they try another broker, or later. Three things are
watched, each with a limit, and the answer is always code 2 (SYSTEM_BUSY) with a remark that names limit, value and cure.

- The round before this one kept the event loop longer than `waitTimeMillsInSendQueue`: whatever is read now has waited that
  long in the socket. Only the round that follows at once is judged so; after an idle pause nothing has been waiting.
- The log has not taken writes for `osPageCacheBusyTimeOutMills`: a flush has been under way that long.
- A connection has more unanswered sends than `sendThreadPoolQueueCapacity`.
"""

from __future__ import annotations

from firearrow.broker.settings import BrokerSettings

_FOLLOWS_AT_ONCE_MS = 20


class Flow:
    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings  # looked at each time: some of it may be changed while the broker runs
        self._round_ms = 0
        self._round_ended_ms = 0

    def round_took(self, started_ms: int, ended_ms: int) -> None:
        """The event loop was ours from `started_ms` to `ended_ms`."""
        self._round_ms = ended_ms - started_ms
        self._round_ended_ms = ended_ms

    def refusal(self, now_ms: int, in_flight: int, flushing_since_ms: int | None) -> str | None:
        """Why a send that is read now is refused; None: it is welcome. `in_flight` counts this connection's unanswered sends."""
        settings = self._settings
        if in_flight > settings.send_thread_pool_queue_capacity:
            return (
                f"[OVERLOAD]system busy, start flow control for a while: {in_flight} sends of this connection are unanswered, "
                f"sendThreadPoolQueueCapacity is {settings.send_thread_pool_queue_capacity}; "
                "wait for answers, or use more connections"
            )
        if flushing_since_ms is not None and now_ms - flushing_since_ms > settings.os_page_cache_busy_time_out_mills:
            return (
                f"[PC_SYNCHRONIZED]broker busy, start flow control for a while: the disk has not taken writes for "
                f"{now_ms - flushing_since_ms} ms, osPageCacheBusyTimeOutMills is {settings.os_page_cache_busy_time_out_mills}; "
                "try another broker, and look at this broker's disk"
            )
        waited = self._round_ms > settings.wait_time_mills_in_send_queue and now_ms - self._round_ended_ms < _FOLLOWS_AT_ONCE_MS
        if waited and settings.broker_fast_failure_enable:
            return (
                f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {self._round_ms}ms, "
                f"waitTimeMillsInSendQueue is {settings.wait_time_mills_in_send_queue}; try again, or another broker"
            )
        return None
