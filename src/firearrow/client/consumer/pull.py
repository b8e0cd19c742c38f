"""Pull requests and the messages in their responses.

A pull names a queue, an offset and a subscription, and carries the offset consumed so far. The broker answers at once, or, if no
message is available, as soon as one arrives or `suspend_ms` has passed (long polling). One pull per queue is in flight.

    0    FOUND          messages; continue at nextBeginOffset, which may be beyond the last one: filtered messages are skipped
    19   NO_NEW         no message arrived
    20   NO_MATCH       no available message matches; continue at nextBeginOffset
    21   OFFSET_MOVED   the offset is outside the queue, or the group was reset: continue at nextBeginOffset

A response may suggest a replica to read from when the requested messages have left the broker's memory.

Brokers compare the hash codes of tags; the client compares their text and drops messages with other tags.

Messages are decoded lazily. Scanning a response costs a fraction of decoding it: the offset and size of each message are read
during the scan, the body and single properties are sliced out on access, and everything else decodes the record once. A response
contains whole records only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from firearrow.client.compression import DecompressionBudget
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.connection.routes import MASTER
from firearrow.client.consumer.subscription import Subscription
from firearrow.client.errors import BrokerError, ClientError
from firearrow.client.message import MessageQueue, ReceivedMessage, received
from firearrow.client.namespaces import without_namespace
from firearrow.wire.codes import VERSION_5_0_0, ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.headers.client import LitePullMessageRequestHeader, PullMessageRequestHeader, PullMessageResponseHeader
from firearrow.wire.names import RETRY_PREFIX
from firearrow.wire.properties import find
from firearrow.wire.record import (
    AT_BORN_TIMESTAMP,
    AT_STORE_TIMESTAMP_V4,
    BORN_HOST_V6,
    COMPRESSED,
    FIXED_BYTES_V1,
    HEAD_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    PULL_SCAN,
    STORE_HOST_V6,
    decode,
    properties_after_body,
)

PULL_BATCH: Final = 32
PUSH_SUSPEND_MS: Final = 15_000
PULL_SUSPEND_MS: Final = 20_000
TIMEOUT_MS: Final = 30_000
PULL_TIMEOUT_MS: Final = 10_000  # of a pull without long polling

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
    """Pulls for one group. The subscription of a push consumer is in its heartbeats; a pull consumer (`lite`) sends it along."""

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
        self._suggested: dict[MessageQueue, int] = {}  # broker id to read from, by queue

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
        """Pull once. `suspend_ms` 0 disables long polling. BrokerError or ClientError if there is no result."""
        address, is_slave = await self._address(queue)
        hold_ms = self._suspend_ms if suspend_ms is None else suspend_ms
        flags = (SUSPEND if hold_ms > 0 else 0) | (WITH_SUBSCRIPTION | LITE if self._lite else 0)
        if commit_offset is not None and not is_slave:
            flags |= COMMIT_OFFSET
        # Brokers before 5.0 have one code for both; a broker of unknown version gets the code that all know.
        lite = self._lite and self._instance.broker_version(address) >= VERSION_5_0_0
        header_class = LitePullMessageRequestHeader if lite else PullMessageRequestHeader
        pull = header_class(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
            max_msg_nums=batch or self._batch, sys_flag=flags, commit_offset=commit_offset or 0,
            suspend_timeout_millis=hold_ms, sub_version=0 if self._lite else subscription.version,
            subscription=subscription.expression if self._lite else "", expression_type=subscription.kind,
        )  # fmt: skip
        timeout_ms = max(TIMEOUT_MS, hold_ms + PULL_TIMEOUT_MS) if hold_ms > 0 else PULL_TIMEOUT_MS
        answer = await self._instance.call(address, pull, timeout_ms=timeout_ms)
        status = _STATUSES.get(answer.code)
        if status is None:
            raise BrokerError(answer.code, answer.remark, address)
        try:
            header = PullMessageResponseHeader.decode(answer.ext)
            messages = self._messages(answer.body, queue, subscription) if status is PullStatus.FOUND else []
        except ProtocolError as error:
            raise ClientError(f"the response of {address} to a pull of {queue} at {offset} is malformed: {error}") from error
        self._note_suggestion(queue, header.suggest_which_broker_id)
        return PullResult(status, header.next_begin_offset, header.min_offset, header.max_offset, messages)

    def forget(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)

    def _messages(self, body: bytes, queue: MessageQueue, subscription: Subscription) -> list[ReceivedMessage]:
        messages = decode_messages(body, queue, self._namespace)
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
                f"the broker {queue.broker_name!r} of {queue} has no address; is it down, or has it left the cluster?"
            )
        return found

    def _note_suggestion(self, queue: MessageQueue, broker_id: int) -> None:
        if broker_id != MASTER:
            self._suggested[queue] = broker_id
        else:
            self._suggested.pop(queue, None)


_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
_scan = PULL_SCAN.unpack_from
_i64 = struct.Struct(">q").unpack_from


class PulledMessage(ReceivedMessage):
    """A message in a pull response. The unset slots of the base class are filled on access: `__getattr__` is called for these."""

    __slots__ = ("_at", "_body_bytes", "_run", "queue_offset", "store_size")

    _at: int
    _run: bytes
    _body_bytes: int  # bytes of a body that can be sliced out; -1: the record must be decoded
    queue_offset: int
    store_size: int

    @property
    def body(self) -> bytes:
        body = self._body
        if body is None:
            body_bytes = self._body_bytes
            if body_bytes >= 0:
                at = self._at + HEAD_BYTES
                body = self._body = self._run[at : at + body_bytes]
            else:
                record = self._record
                compressed = record.sys_flag & COMPRESSED
                body = self._body = self._budget.decompress(record.body, record.sys_flag) if compressed else record.body
        return body

    @property
    def born_ms(self) -> int:
        return int(_i64(self._run, self._at + AT_BORN_TIMESTAMP)[0])

    @property
    def store_ms(self) -> int:
        if self._body_bytes < 0:
            return super().store_ms
        return int(_i64(self._run, self._at + AT_STORE_TIMESTAMP_V4)[0])

    if not TYPE_CHECKING:  # otherwise a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            if name == "_record":
                self._record = decode(self._run, self._at, check_crc=False)
            elif name == "reconsume_times":
                self.reconsume_times = self._record.reconsume_times
            else:
                raise AttributeError(f"a message has no attribute {name!r}")
            return getattr(self, name)

    def _text(self, name: bytes) -> str | None:
        body_bytes = self._body_bytes
        if body_bytes < 0:
            return super()._text(name)
        found = find(properties_after_body(self._run, self._at + HEAD_BYTES + body_bytes), name)
        return None if found is None else found.decode(errors="replace")


def decode_messages(run: bytes, queue: MessageQueue, namespace: str = "") -> list[ReceivedMessage]:
    """Return the messages of a pull response. ProtocolError, and no messages, if a record is malformed."""
    if queue.topic.startswith(RETRY_PREFIX):
        return _decode_retried(run, queue, namespace)
    messages: list[ReceivedMessage] = []
    budget: DecompressionBudget | None = None
    topic = without_namespace(queue.topic, namespace)
    new, append, end, at = PulledMessage.__new__, messages.append, len(run), 0
    try:
        while at < end:
            total, magic, queue_offset, sys_flag, length = _scan(run, at)
            if total < FIXED_BYTES_V1 or total > end - at or (magic != MAGIC_V1 and magic != MAGIC_V2):
                raise ProtocolError(f"malformed record at byte {at} of {end} in a pull of {queue}")
            message = new(PulledMessage)
            message._run = run
            message._at = at
            message._body = None
            message._properties = None
            message.queue = queue
            message.topic = topic
            message.queue_offset = queue_offset
            message.store_size = total
            if sys_flag & (_V6 | COMPRESSED) or magic == MAGIC_V2:
                message._body_bytes = -1
                message._budget = budget = budget or DecompressionBudget(end)
            elif 0 <= length <= total - FIXED_BYTES_V1:
                message._body_bytes = length
            else:
                raise ProtocolError(f"malformed record at byte {at}: a body of {length} bytes in {total}")
            append(message)
            at += total
    except struct.error:
        raise ProtocolError(f"a pull of {queue} ends within a record, at byte {at} of {end}") from None
    return messages


def _decode_retried(run: bytes, queue: MessageQueue, namespace: str) -> list[ReceivedMessage]:
    """Decode messages of a retry topic, which show their original topic."""
    messages: list[ReceivedMessage] = []
    budget = DecompressionBudget(len(run))
    at = 0
    while at < len(run):
        record = decode(run, at, check_crc=False)
        messages.append(received(record, queue.broker_name, namespace, restore_topic=True, budget=budget))
        at += record.total_size
    return messages
