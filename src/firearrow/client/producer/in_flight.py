"""Sends in flight, from the choice of a queue to the response, over all attempts.

A send is one object without a task: it is its own waiter on the channel (net/channel.py), which calls it on every event. This is
the hot path of a producer that sends tens of thousands of messages per second.

After a failure
- the next attempt goes to another broker if there is one, otherwise to the same broker after a pause. All attempts together have
  the timeout of one send. `retries` limits the attempts after a rejection or after a connection was lost with the request in
  flight. A message that was never written to a connection is retried until the timeout: it cannot be stored twice.
- a queue that was chosen by the user, a selector or a sharding key is kept, and there is no second attempt, which could overtake
  later messages of the queue.
- RETRIED lists the response codes that are retried; they are Apache's.
- an idempotent producer retries on the same queue until the timeout: the broker recognizes a repeat by its number.

At most `max_in_flight` messages, and `max_in_flight_bytes`, are in flight; further sends wait here in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.client.errors import BrokerError, ClientError, ClosedError, ConnectionLost, InvalidMessageError, RequestTimeout
from firearrow.client.hooks import SendContext, SendHook, call_hooks
from firearrow.client.message import MessageQueue, SendResult, SendStatus
from firearrow.client.producer.fault_avoidance import FaultTable
from firearrow.client.producer.routing import BATCH, SINGLE, SendTemplate, Target, TopicRouting
from firearrow.net.errors import ConnectionLostError
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command

if TYPE_CHECKING:
    from firearrow.client.connection.pool import Connections
    from firearrow.client.producer.routing import RouteCache
    from firearrow.net.channel import Channel

log = logging.getLogger("firearrow.client")

RETRIED: Final = frozenset((
    ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_BUYER_ID, ResponseCode.NOT_IN_CURRENT_UNIT, ResponseCode.GO_AWAY,
))  # fmt: skip
_ROUTE_OUTDATED: Final = frozenset((
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION, ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NOT_LEADER_FOR_QUEUE,
))  # fmt: skip
_STATUS: Final = {
    ResponseCode.SUCCESS: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
_OK: Final = SendStatus.OK
_FIRST_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 1.0


@dataclass(slots=True, eq=False)
class SendAttempt:
    """One message or batch in flight. Created by the producer, driven by `InFlightSends` and the channel."""

    sending: InFlightSends
    future: asyncio.Future[SendResult]
    targets: TopicRouting
    target: Target
    body: bytes
    properties: str
    msg_id: str
    flag: int
    sys_flag: int
    born_ms: int
    end: float  # deadline of all attempts together
    may_move: bool  # to another queue
    retries: int  # attempts left after this one
    code: int = SINGLE
    attempts: int = 0
    sent_at: float = 0.0
    deadline: float = 0.0  # of the current attempt; read by the channel
    gone_away: bool = False
    finished: bool = False
    error: ConnectionLost | None = None  # why the last attempt was not sent
    channel: Channel | None = None
    context: SendContext | None = None

    def template(self) -> SendTemplate:
        return self.target.single if self.code == SINGLE else self.target.template(self.code)

    def answered(self, answer: Command) -> None:
        self.sending.answered(self, answer)

    def timed_out(self) -> None:
        self.sending.timed_out(self)

    def lost(self, error: ConnectionLostError) -> None:
        self.sending.lost(self, ConnectionLost(str(error)))


@dataclass(slots=True, frozen=True)
class SendPolicy:
    """The options of a producer about attempts and capacity."""

    attempt_timeout_s: float | None
    retry_unless_ok: bool
    idempotent: bool
    latency_fault: bool
    max_in_flight: int
    max_in_flight_bytes: int


class InFlightSends:
    """The sends of one producer."""

    def __init__(self, connections: Connections, routes: RouteCache, hooks: tuple[SendHook, ...], policy: SendPolicy) -> None:
        self.routes = routes
        self.topics = routes.known
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._starting = False  # guards _start_waiting against recursion
        self._connections = connections
        self._open = connections.open
        self._hooks = hooks
        self._faults = FaultTable() if policy.latency_fault else None
        self._policy = policy
        self._attempt_s = policy.attempt_timeout_s
        self._max_in_flight = policy.max_in_flight
        self._max_bytes = policy.max_in_flight_bytes
        self._low_watermark = self._max_in_flight * 3 // 4  # wakes waiting senders in groups, not on every response
        self._low_watermark_bytes = self._max_bytes * 3 // 4
        self._waiting: deque[SendAttempt] = deque()
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._idle.set()
        self._capacity_waiters: list[asyncio.Future[None]] = []

    async def wait_for_capacity(self) -> None:
        """Return when another send need not wait: at once, or when a quarter of the capacity is free."""
        while self.in_flight >= self._max_in_flight or self.in_flight_bytes >= self._max_bytes or self._waiting:
            waiter = self._loop.create_future()
            self._capacity_waiters.append(waiter)
            await waiter

    async def idle(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight. Return False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.in_flight or self._waiting:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def choose(self, targets: TopicRouting, last_broker: str | None = None) -> Target:
        if self._faults is None:
            return targets.turns.choose(targets.targets, last_broker)
        return targets.turns.choose_available(targets.targets, self._faults, self._loop.time() * 1000, last_broker)

    def start(self, send: SendAttempt) -> None:
        """Send, now or when there is capacity."""
        if self.in_flight >= self._max_in_flight or self.in_flight_bytes >= self._max_bytes or self._waiting:
            self._waiting.append(send)
        else:
            self.in_flight += 1
            self.in_flight_bytes += len(send.body)
            self._attempt(send)

    def cancel_all(self, why: str) -> None:
        """Fail the sends that wait for capacity."""
        waiting, self._waiting = self._waiting, deque()
        for send in waiting:
            if not send.future.done():
                send.future.set_exception(ClosedError(why))

    # ---- events of an attempt

    def answered(self, send: SendAttempt, answer: Command) -> None:
        code = answer.code
        target = send.target
        if self._faults is not None:
            now = self._loop.time()
            self._faults.succeeded(target.broker_name, (now - send.sent_at) * 1000, now * 1000)
        if code == 0 or code in _STATUS:
            try:
                ext = answer.ext
                queue_id = int(ext["queueId"])
                result = SendResult(
                    _OK if code == 0 else _STATUS[ResponseCode(code)],
                    send.msg_id,
                    ext["msgId"],
                    target.queue if queue_id == target.queue.queue_id else _other(target.queue, queue_id),
                    int(ext["queueOffset"]),
                    ext.get("transactionId"),
                    ext.get("MSG_REGION"),
                    ext.get("recallHandle"),
                    ext.get("TRACE_ON") != "false",
                )
            except (KeyError, TypeError, ValueError):
                self._finish(send, None, ClientError(f"{target.address} stored a message at an unknown position: {answer!r}"))
                return
            if code != 0 and self._policy.retry_unless_ok and self._may_retry(send):
                self._retry(send)
            else:
                self._finish(send, result, None)
            return
        error = BrokerError(code, answer.remark, target.address)
        if code == ResponseCode.GO_AWAY and send.channel is not None and not send.gone_away:
            send.gone_away = True  # once: the same address on a new connection
            self._connections.retire(send.channel)
            self._attempt(send)
            return
        if code in _ROUTE_OUTDATED:
            self.routes.suspect(target.queue.topic)
        if code in RETRIED and self._may_retry(send):
            log.debug("retrying %s: %s", send.msg_id, error)
            self._retry(send)
        else:
            self._finish(send, None, error)

    def timed_out(self, send: SendAttempt) -> None:
        self._failed_at(send, reachable=True)
        if self._loop.time() < send.end and self._may_retry(send):
            self._retry(send)
            return
        what = f"the {'batch' if send.code == BATCH else 'message'} {send.msg_id[:64]}"
        error = RequestTimeout(
            f"no answer from {send.target.address} ({send.target.queue}) in time; {what} may have been stored: "
            "send it again if duplicates are acceptable, or increase the timeout"
        )
        self._finish(send, None, error)

    def lost(self, send: SendAttempt, error: ConnectionLost, *, sent: bool = True) -> None:
        self._failed_at(send, reachable=False)
        self.routes.suspect(send.target.queue.topic)
        if self._may_retry(send, sent=sent):
            send.error = None if sent else error
            log.debug("retrying %s: %s", send.msg_id, error)
            self._retry(send)
        else:
            self._finish(send, None, error)

    # ---- internals

    def _attempt(self, send: SendAttempt) -> None:
        target = send.target
        context = send.context
        if context is not None:
            context.queue, context.address = target.queue, target.address
            if send.attempts == 0:
                try:
                    for hook in self._hooks:
                        hook.before_send(context)
                except Exception as error:  # noqa: BLE001 (the error of a hook fails the send)
                    self._finish(send, None, error)
                    return
        send.attempts += 1
        channel = self._open.get(target.address)
        if channel is None or channel.closed:
            self._dial(send)
        else:
            self._submit(send, channel)

    def _dial(self, send: SendAttempt) -> None:
        """Open a connection, then submit, unless the timeout of the send comes first."""
        send.channel = None
        attempt = send.attempts
        timer: asyncio.TimerHandle | None = None

        def dialled(channel: Channel | None, error: ConnectionLost | None) -> None:
            if timer is not None:
                timer.cancel()
            self._dialled(send, channel, error)

        self._connections.when_open(send.target.address, dialled)
        if send.channel is None and send.attempts == attempt and not send.finished:
            timer = self._loop.call_at(send.end, self._still_dialling, send, attempt)

    def _still_dialling(self, send: SendAttempt, attempt: int) -> None:
        """Fail a send whose timeout has come while its connection is being opened."""
        if send.channel is None and send.attempts == attempt and not send.finished:
            where = send.target.address
            self._finish(send, None, RequestTimeout(f"no connection to {where} in time; message {send.msg_id[:64]} was not sent"))

    def _dialled(self, send: SendAttempt, channel: Channel | None, error: ConnectionLost | None) -> None:
        if send.finished:
            return
        if channel is None:
            send.sent_at = self._loop.time()
            self.lost(send, error or ConnectionLost(f"no connection to {send.target.address}"), sent=False)
        elif self._loop.time() >= send.end:
            self.timed_out(send)
        else:
            self._submit(send, channel)

    def _submit(self, send: SendAttempt, channel: Channel) -> None:
        send.channel = channel
        send.sent_at = now = self._loop.time()
        send.deadline = send.end if self._attempt_s is None else min(send.end, now + self._attempt_s)
        opaque = channel.take_opaque()
        try:
            frame = send.template().frame(send.sys_flag, send.born_ms, send.flag, send.properties, opaque, send.body)
        except (TypeError, ValueError) as error:
            self._finish(send, None, InvalidMessageError(f"message to {send.target.queue.topic!r} cannot be encoded: {error}"))
        else:
            channel.submit(frame, opaque, send)

    def _may_retry(self, send: SendAttempt, *, sent: bool = True) -> bool:
        """Return True if another attempt is allowed, and count it. `sent`: the request was written to a connection."""
        if send.future.done() or self._loop.time() >= send.end:
            return False
        if self._policy.idempotent or (send.may_move and not sent):
            return True
        if not send.may_move or send.retries <= 0:
            return False
        send.retries -= 1
        return True

    def _retry(self, send: SendAttempt) -> None:
        last = send.target.broker_name
        if self._policy.idempotent or not send.may_move:
            send.target = send.targets.by_queue.get(send.target.queue, send.target)  # its address may have changed
        else:
            send.target = self.choose(send.targets, last)
        if send.target.broker_name != last and send.attempts < len(send.targets.route.brokers):
            self._attempt(send)
            return
        # Every broker has failed once: back off, one of them may come back.
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(send.attempts - 1, 5), _MAX_PAUSE_S, max(0.0, send.end - self._loop.time()))
        self._loop.call_later(pause_s, self._attempt_unless_over, send)

    def _attempt_unless_over(self, send: SendAttempt) -> None:
        if self._loop.time() < send.end:
            self._attempt(send)
        elif send.error is not None:
            self._finish(send, None, send.error)
        else:
            self.timed_out(send)

    def _failed_at(self, send: SendAttempt, *, reachable: bool) -> None:
        if self._faults is not None:
            now = self._loop.time()
            self._faults.failed(send.target.broker_name, (now - send.sent_at) * 1000, now * 1000, reachable=reachable)

    def _finish(self, send: SendAttempt, result: SendResult | None, error: Exception | None) -> None:
        send.finished = True
        self.in_flight -= 1
        self.in_flight_bytes -= len(send.body)
        future = send.future
        if not future.done():
            if error is None and result is not None:
                future.set_result(result)
            elif error is not None:
                if send.attempts > 1:
                    error.add_note(f"attempt {send.attempts} of this send; see `retries`")
                future.set_exception(error)
        context = send.context
        if context is not None:
            context.result, context.error = result, error
            context.elapsed_ms = (self._loop.time() - send.sent_at) * 1000
            call_hooks([hook.after_send for hook in self._hooks], context)
        if self._waiting:
            self._start_waiting()
        if self._capacity_waiters and self.in_flight <= self._low_watermark and self.in_flight_bytes <= self._low_watermark_bytes:
            waiters, self._capacity_waiters = self._capacity_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        if not self.in_flight:
            self._idle.set()

    def _start_waiting(self) -> None:
        if self._starting:  # a send that fails at once frees capacity; the loop below takes the next one
            return
        self._starting = True
        try:
            while self._waiting and self.in_flight < self._max_in_flight and self.in_flight_bytes < self._max_bytes:
                send = self._waiting.popleft()
                if send.future.done():
                    continue
                self.in_flight += 1
                self.in_flight_bytes += len(send.body)
                if self._loop.time() >= send.end:
                    self.timed_out(send)
                else:
                    self._attempt(send)
        finally:
            self._starting = False


def _other(queue: MessageQueue, queue_id: int) -> MessageQueue:
    """Return the queue that the broker chose instead of ours."""
    return MessageQueue(queue.topic, queue.broker_name, queue_id)
