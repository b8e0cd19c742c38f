"""Transactional messages: stored as halves that nobody sees, and delivered once the local transaction says so.

    producer                                        broker
      | the message, as a half  ---------------------> stored, invisible
      | `execute` runs
      | COMMIT, ROLLBACK or UNKNOWN (37, one-way) ---> delivered, dropped, or left
      | <---- what became of it? (39) ---------------- when nothing was heard for a while, again and again
      | `check` runs
      | COMMIT, ROLLBACK or UNKNOWN (37) ------------>

`execute` and `check` may be coroutine functions, or plain ones, which run in threads. What `execute` raises is raised by
`send_in_transaction`; the outcome is unknown then, and the broker will ask. What `check` raises is logged and counts as unknown.
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
    """What became of a local transaction. The values are Apache's names."""

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
    """`result` is that of the half message: where it waits, not where it will be delivered."""

    result: SendResult
    state: LocalTransactionState

    @property
    def msg_id(self) -> str:
        return self.result.msg_id

    @property
    def transaction_id(self) -> str:
        return self.result.transaction_id or self.result.msg_id


class TransactionProducer(Producer):
    """A producer that can also send in transactions. All that a Producer does, it does."""

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
                                  must be able to answer for the transactions of all
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
        self._checks: set[asyncio.Task[None]] = set()
        self._introduction: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """As a producer does; and it makes itself known to the brokers, which may have open transactions of its group."""
        if self._instance is not None:
            return
        await super().start()
        self._introduction = asyncio.get_running_loop().create_task(self._introduce(), name=f"introduction of {self.group}")

    async def close(self) -> None:
        """Finishes checks in hand, then closes as a producer does."""
        if self._introduction is not None:
            self._introduction.cancel()
            await asyncio.wait([self._introduction])
        if self._checks:
            await asyncio.wait(self._checks, timeout=self._send_timeout_s)
            for task in self._checks:
                task.cancel()
        await super().close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    async def send_in_transaction(
        self, message: Message, argument: Any = None, *, check_after: Duration | None = None, timeout: Duration | None = None
    ) -> TransactionSendResult:
        """Stores the message as a half, runs `execute(message, argument)`, and tells the broker what came of it.

        `check_after` (rounded up to whole seconds) is the time before the broker first asks for the outcome.
        """
        more = {PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: self.group}
        if check_after is not None:
            more[PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = str(math.ceil(seconds("check_after", check_after, or_zero=True)))
        sending = self._running()
        targets = await self._destinations().get(message.topic)
        send = self._prepare(targets, sending.choose(targets), message, more, False, timeout)
        send.sys_flag |= TRANSACTION_PREPARED
        sending.start(send)
        result = await send.future
        if result.status is not SendStatus.OK:  # it may be lost: nothing must depend on it
            await self._end(message, result, LocalTransactionState.ROLLBACK)
            return TransactionSendResult(result, LocalTransactionState.ROLLBACK)
        try:
            state = _checked(await self._call(self._execute, message, argument), "execute")
        except BaseException:
            await self._end(message, result, LocalTransactionState.UNKNOWN)
            raise
        await self._end(message, result, state)
        return TransactionSendResult(result, state)

    # ---- the side that the instance sees

    def topics(self) -> set[str]:
        return super().topics() | {AUTO_CREATE_TOPIC_KEY_TOPIC}

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        task = asyncio.get_running_loop().create_task(self._answer_check(address, header, message))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    # ---- inside

    async def _introduce(self) -> None:
        """Brokers ask those whose heartbeat they have, and heartbeats go to the brokers in the routes, if there is one yet."""
        instance = self._known()
        try:
            await instance.route(AUTO_CREATE_TOPIC_KEY_TOPIC)
            await instance.ensure_known_to_brokers()
        except FirearrowError as error:
            log.debug("producer %s is not known to brokers before its first message: %s", self.group, error)

    async def _answer_check(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        try:
            state = _checked(await self._call(self._check, message), "check")
        except Exception:
            log.exception("check of transaction %s failed: its outcome stays unknown", header.transaction_id or message.msg_id)
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
        transaction_id = header.transaction_id or message.msg_id
        await self._tell(address, end, message, message.topic, message.msg_id, transaction_id, state, from_check=True)

    async def _end(self, message: Message, result: SendResult, state: LocalTransactionState) -> None:
        instance = self._known()
        address = instance.broker_address(result.queue.broker_name, only_this=True)
        try:
            _, commit_log_offset = parse_offset_msg_id(result.offset_msg_id)
        except ProtocolError as error:
            raise ClientError(f"the broker gave a half message no id that tells where it is: {error}") from None
        if address is None:
            log.warning("the outcome of %s cannot be told: the broker %s is gone", result.msg_id, result.queue.broker_name)
            return
        transaction_id = result.transaction_id or result.msg_id
        end = EndTransactionRequestHeader(
            topic=result.queue.topic,
            producer_group=self.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=commit_log_offset,
            commit_or_rollback=_FLAGS[state],
            from_transaction_check=False,
            msg_id=result.msg_id,
            transaction_id=transaction_id,
            bname=result.queue.broker_name,
        )
        await self._tell(address[0], end, message, message.topic, result.msg_id, transaction_id, state, from_check=False)

    async def _tell(
        self,
        address: str,
        header: EndTransactionRequestHeader,
        message: Message | ReceivedMessage,
        topic: str,
        msg_id: str,
        transaction_id: str,
        state: LocalTransactionState,
        *,
        from_check: bool,
    ) -> None:
        """One-way, as every client does it: if it is lost, the broker asks."""
        try:
            await self._known().oneway(address, header)
        except ClientError as error:
            log.warning("the outcome of transaction %s was not told, the broker will ask: %s", transaction_id, error)
        calls = [hook.end_transaction for hook in self._hooks if hasattr(hook, "end_transaction")]
        if calls:
            context = EndTransactionContext(self.group, topic, message, address, msg_id, transaction_id, state.value, from_check)
            call_hooks(calls, context)

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
