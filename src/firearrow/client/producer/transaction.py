"""Transactional messages: stored as half messages, and delivered once the local transaction is committed.

    producer                                        broker
      | half message  -------------------------------> stored, not visible to consumers
      | `execute` runs
      | COMMIT, ROLLBACK or UNKNOWN (37, one-way) ---> delivered, dropped, or kept
      | <---- transaction check (39) ----------------- repeatedly, while the outcome is unknown
      | `check` runs
      | COMMIT, ROLLBACK or UNKNOWN (37) ------------>

`execute` and `check` are coroutine functions, or plain functions, which run in threads. An exception of `execute` is raised by
`send_in_transaction`; the outcome is then unknown, and the broker will check. An exception of `check` is logged and counts as
unknown.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Unpack

from firearrow.client.connection.pool import closed_error
from firearrow.client.errors import ClientError, FirearrowError
from firearrow.client.hooks import EndTransactionContext, SendHook, call_hooks
from firearrow.client.lifecycle import BackgroundTasks
from firearrow.client.message import Message, ReceivedMessage, SendResult, SendStatus
from firearrow.client.options import ClientKeywords, Duration, NameServers, document_keywords, seconds
from firearrow.client.producer.producer import SEND_TIMEOUT_S, Producer
from firearrow.wire.errors import ProtocolError
from firearrow.wire.headers.client import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from firearrow.wire.message_ids import parse_offset_msg_id
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC
from firearrow.wire.properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
)
from firearrow.wire.record import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

log = logging.getLogger("firearrow.client")

_THREADS: Final = 8


class LocalTransactionState(Enum):
    """The outcome of a local transaction. The values are Apache's names."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


Execute = Callable[[Message, Any], LocalTransactionState | Awaitable[LocalTransactionState]]
Check = Callable[[ReceivedMessage], LocalTransactionState | Awaitable[LocalTransactionState]]

_FLAGS: Final = {
    LocalTransactionState.COMMIT: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOWN: 0,
}


@dataclass(slots=True)
class TransactionSendResult:
    """The outcome and the `result` of the half message: its position there, not that of the delivered message."""

    result: SendResult
    state: LocalTransactionState

    @property
    def msg_id(self) -> str:
        return self.result.msg_id

    @property
    def transaction_id(self) -> str:
        return self.result.transaction_id or self.result.msg_id


class TransactionProducer(Producer):
    """A producer that also sends transactional messages."""

    @document_keywords
    def __init__(
        self,
        name_server: NameServers = None,
        *,
        group: str,
        execute: Execute,
        check: Check,
        send_timeout: Duration = SEND_TIMEOUT_S,
        retries: int = 2,
        compress_over: int = 4096,
        compression: str = "zlib",
        max_message_size: int = 4 * 1024 * 1024,
        latency_fault: bool = False,
        hooks: Sequence[SendHook] = (),
        **client: Unpack[ClientKeywords],
    ) -> None:
        """Create a transaction producer; it connects in `start`.

        group                     required: the broker asks any member of it for the outcome of a transaction, so every member
                                  must know the outcome of the transactions of all members
        execute                   `execute(message, argument)` runs the local transaction and returns its state
        check                     `check(message)` returns the state of a transaction whose outcome the broker does not know

        For the other keywords see `Producer`.
        """
        super().__init__(
            name_server,
            group=group,
            send_timeout=send_timeout,
            retries=retries,
            compress_over=compress_over,
            compression=compression,
            max_message_size=max_message_size,
            latency_fault=latency_fault,
            hooks=hooks,
            **client,
        )
        self._execute = execute
        self._check = check
        self._pool: ThreadPoolExecutor | None = None
        self._checks = BackgroundTasks()
        self._registration: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the producer and register with the brokers, which may have open transactions of its group."""
        if self._instance is not None:
            return
        await super().start()
        self._registration = asyncio.get_running_loop().create_task(self._register(), name=f"register {self.group}")

    async def close(self) -> None:
        """Finish running checks, then close the producer."""
        if self._registration is not None:
            self._registration.cancel()
            await asyncio.wait([self._registration])
        await self._checks.finish(self._send_timeout_s)
        await super().close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    async def send_in_transaction(
        self, message: Message, argument: Any = None, *, check_after: Duration | None = None, timeout: Duration | None = None
    ) -> TransactionSendResult:
        """Store a half message, run `execute(message, argument)`, and report the outcome to the broker.

        `check_after` (rounded up to whole seconds) is the time before the broker first asks for the outcome.
        """
        extra = {PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: self.group}
        if check_after is not None:
            extra[PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = str(math.ceil(seconds("check_after", check_after, or_zero=True)))
        sending = self._running()
        targets = await sending.routes.get(message.topic)
        send = self._prepare(targets, sending.choose(targets), message, extra, False, timeout)
        send.sys_flag |= TRANSACTION_PREPARED
        sending.start(send)
        result = await send.future
        if result.status is not SendStatus.OK:  # the half message may be lost: roll back
            await self._end(message, result, LocalTransactionState.ROLLBACK)
            return TransactionSendResult(result, LocalTransactionState.ROLLBACK)
        try:
            state = _checked(await self._call(self._execute, message, argument), "execute")
        except BaseException:
            await self._end(message, result, LocalTransactionState.UNKNOWN)
            raise
        await self._end(message, result, state)
        return TransactionSendResult(result, state)

    # ---- ProducerMember, called by the instance

    def topics(self) -> set[str]:
        return super().topics() | {AUTO_CREATE_TOPIC_KEY_TOPIC}

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        self._checks.start(self._answer_check(address, header, message))

    # ---- internals

    async def _register(self) -> None:
        """Send heartbeats to the brokers of the default topic: brokers check only producers they know."""
        instance = self._known()
        try:
            await instance.route(AUTO_CREATE_TOPIC_KEY_TOPIC)
            await instance.ensure_known_to_brokers()
        except FirearrowError as error:
            log.debug("producer %s registers with the brokers at its first message: %s", self.group, error)

    async def _answer_check(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        try:
            state = _checked(await self._call(self._check, message), "check")
        except Exception:
            log.exception("check of transaction %s failed: its outcome remains unknown", header.transaction_id or message.msg_id)
            state = LocalTransactionState.UNKNOWN
        end = EndTransactionRequestHeader(
            topic=header.topic,
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=_FLAGS[state],
            from_transaction_check=True,
            msg_id=message.msg_id,
            transaction_id=header.transaction_id,
            bname=header.bname,
        )
        await self._report(address, end, message, message.msg_id, state)

    async def _end(self, message: Message, result: SendResult, state: LocalTransactionState) -> None:
        instance = self._known()
        address = instance.broker_address(result.queue.broker_name, only_this=True)
        try:
            _, commit_log_offset = parse_offset_msg_id(result.offset_msg_id)
        except ProtocolError as error:
            raise ClientError(f"the broker returned an id without a position for a half message: {error}") from None
        if address is None:
            log.warning("outcome of %s not reported: the broker %s has no address", result.msg_id, result.queue.broker_name)
            return
        end = EndTransactionRequestHeader(
            topic=result.queue.topic,
            producer_group=self.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=commit_log_offset,
            commit_or_rollback=_FLAGS[state],
            from_transaction_check=False,
            msg_id=result.msg_id,
            transaction_id=result.transaction_id or result.msg_id,
            bname=result.queue.broker_name,
        )
        await self._report(address[0], end, message, result.msg_id, state)

    async def _report(
        self,
        address: str,
        header: EndTransactionRequestHeader,
        message: Message | ReceivedMessage,
        msg_id: str,
        state: LocalTransactionState,
    ) -> None:
        """Report the outcome one-way, as all clients do: if the request is lost, the broker checks."""
        transaction_id = header.transaction_id or msg_id
        try:
            await self._known().oneway(address, header)
        except ClientError as error:
            log.warning("the outcome of transaction %s was not reported, the broker will check: %s", transaction_id, error)
        calls = [hook.end_transaction for hook in self._hooks if hasattr(hook, "end_transaction")]
        if calls:
            from_check = bool(header.from_transaction_check)
            call_hooks(
                calls,
                EndTransactionContext(
                    self.group, message.topic, message, address, msg_id, transaction_id, state.value, from_check
                ),
            )

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        if self._instance is None:
            raise closed_error("producer")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="firearrow-transaction")
        outcome = await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
        return await outcome if inspect.isawaitable(outcome) else outcome


def _checked(state: Any, what: str) -> LocalTransactionState:
    if not isinstance(state, LocalTransactionState):
        raise TypeError(f"{what} returned {state!r}, expected a LocalTransactionState: COMMIT, ROLLBACK or UNKNOWN")
    return state
