"""Pulling: one request at a time for each queue, held at the broker until there is something to say.

A pull names the queue, the offset and what is wanted, and carries the offset consumed so far. The broker answers at once, or, if
nothing is there, as soon as something arrives or `suspend_ms` are over.

    0    FOUND          messages; go on at nextBeginOffset, which may be beyond the last one: what was filtered out is skipped
    19   NO_NEW         nothing arrived
    20   NO_MATCH       nothing of what is there is wanted; go on at nextBeginOffset
    21   OFFSET_MOVED   there is nothing at this offset (any more), or the group was reset: go on at nextBeginOffset

With every answer the broker may suggest a replica to read from, when what is asked for is not in its memory any more.

Tags were compared by hash code at the broker; here they are compared by text, and messages of another tag are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.connection.routes import MASTER
from firearrow.client.consumer.pulled import messages_of
from firearrow.client.consumer.subscription import Subscription
from firearrow.client.errors import BrokerError, ClientError
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.wire.codes import VERSION_5_0_0, RequestCode, ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.headers.client import PullMessageResponseHeader

PULL_BATCH: Final = 32
PUSH_SUSPEND_MS: Final = 15_000
PULL_SUSPEND_MS: Final = 20_000
TIMEOUT_MS: Final = 30_000
PULL_TIMEOUT_MS: Final = 10_000  # of a pull that is not to be held

COMMIT_OFFSET: Final = 0x1
SUSPEND: Final = 0x2
WITH_SUBSCRIPTION: Final = 0x4
LITE: Final = 0x10


class PullStatus(Enum):
    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_MOVED = ResponseCode.PULL_OFFSET_MOVED


_STATUSES: Final = {int(status.value): status for status in PullStatus}


@dataclass(slots=True)
class PullResult:
    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]


class Puller:
    """Pulls for one group. A push consumer is known by its heartbeats; a pull consumer (`lite`) says what it wants each time."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        *,
        lite: bool = False,
        suspend_ms: int | None = None,
        batch: int = PULL_BATCH,
    ) -> None:
        self._instance = instance
        self._group = group
        self._lite = lite
        self._suspend_ms = suspend_ms if suspend_ms is not None else PULL_SUSPEND_MS if lite else PUSH_SUSPEND_MS
        self._batch = batch
        self._namespace = instance.options.namespace
        self._suggested: dict[MessageQueue, int] = {}  # broker id to read from

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        *,
        commit_offset: int | None = None,
        suspend_ms: int | None = None,
        batch: int | None = None,
    ) -> PullResult:
        """One pull. `suspend_ms` 0 asks for an answer at once. BrokerError or ClientError if there is no result."""
        address, is_slave = await self._address(queue)
        hold_ms = self._suspend_ms if suspend_ms is None else suspend_ms
        flags = (SUSPEND if hold_ms > 0 else 0) | (WITH_SUBSCRIPTION | LITE if self._lite else 0)
        if commit_offset is not None and not is_slave:
            flags |= COMMIT_OFFSET
        ext = {
            "consumerGroup": self._group, "topic": queue.topic, "queueId": queue.queue_id, "queueOffset": offset,
            "maxMsgNums": batch or self._batch, "sysFlag": flags, "commitOffset": commit_offset or 0,
            "suspendTimeoutMillis": hold_ms, "subVersion": 0 if self._lite else subscription.version,
            "expressionType": subscription.kind,
        }  # fmt: skip
        if self._lite:
            ext["subscription"] = subscription.expression
        # Brokers before 5.0 have one code for both; one that has not said its version is asked in the way that all know.
        lite = self._lite and self._instance.broker_version(address) >= VERSION_5_0_0
        code = RequestCode.LITE_PULL_MESSAGE if lite else RequestCode.PULL_MESSAGE
        timeout_ms = max(TIMEOUT_MS, hold_ms + PULL_TIMEOUT_MS) if hold_ms > 0 else PULL_TIMEOUT_MS
        answer = await self._instance.call(address, code, ext, timeout_ms=timeout_ms)
        status = _STATUSES.get(answer.code)
        if status is None:
            raise BrokerError(answer.code, answer.remark, address)
        try:
            header = PullMessageResponseHeader.decode(answer.ext)
            messages = self._messages(answer.body, queue, subscription) if status is PullStatus.FOUND else []
        except ProtocolError as error:
            raise ClientError(f"the answer of {address} to a pull of {queue} at {offset} cannot be read: {error}") from error
        self._note_suggestion(queue, header.suggest_which_broker_id)
        return PullResult(status, header.next_begin_offset, header.min_offset, header.max_offset, messages)

    def forget(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)

    def _messages(self, body: bytes, queue: MessageQueue, subscription: Subscription) -> list[ReceivedMessage]:
        messages = messages_of(body, queue, self._namespace)
        if subscription.tags is not None:
            return [message for message in messages if message.tags in subscription.tags]
        return messages

    async def _address(self, queue: MessageQueue) -> tuple[str, bool]:
        broker_id = self._suggested.get(queue, MASTER)
        found = self._instance.broker_address(queue.broker_name, broker_id)
        if found is None:
            await self._instance.route(queue.topic, refresh=True)
            found = self._instance.broker_address(queue.broker_name, broker_id)
        if found is None:
            raise ClientError(
                f"the broker {queue.broker_name!r} of {queue} has no address: is it down, or has it left the cluster?"
            )
        return found

    def _note_suggestion(self, queue: MessageQueue, broker_id: int) -> None:
        if broker_id != MASTER:
            self._suggested[queue] = broker_id
        else:
            self._suggested.pop(queue, None)
