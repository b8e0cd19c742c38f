"""Messages, queues and send results.

A `ReceivedMessage` is a view of a stored record. Consumers create one for every pulled message, and listeners use only parts of
it, so properties, ids, hosts and the decompressed body are computed on first access.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from firearrow.client.compression import DecompressionBudget
from firearrow.client.namespaces import without_namespace
from firearrow.wire import properties as wire_properties
from firearrow.wire.message_ids import host_text, offset_msg_id
from firearrow.wire.names import RETRY_PREFIX
from firearrow.wire.properties import (
    PROPERTY_KEYS,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)
from firearrow.wire.record import COMPRESSED, Record

SYSTEM_PROPERTIES: Final = frozenset((
    "1ST_POP_TIME", "ARRIVE_TIME", "BORN_TIMESTAMP", "BUYER_ID", "CHECK_IMMUNITY_TIME_IN_SECONDS", "CLUSTER",
    "CONSUME_START_TIME", "CORRECTION_FLAG", "CORRELATION_ID", "DELAY", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "DUP_INFO",
    "EXTEND_UNIQ_INFO", "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "INNER_NUM", "INSTANCE_ID", "KEYS",
    "MAX_OFFSET", "MAX_RECONSUME_TIMES", "MIN_OFFSET", "MQ2_FLAG", "MSG_REGION", "MSG_TYPE", "ORIGIN_MESSAGE_ID", "PGROUP",
    "POP_CK", "POP_CK_OFFSET", "PUSH_REPLY_TIME", "REAL_QID", "REAL_TOPIC", "RECONSUME_TIME", "REPLY_TO_CLIENT", "RETRY_TOPIC",
    "TAGS", "TIMER_DELAY_LEVEL", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY",
    "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TRACE_CONTEXT", "TRACE_ON",
    "TRANSACTION_CHECK_TIMES", "TRANSFER_FLAG", "TRAN_MSG", "TRAN_PREPARED_QUEUE_OFFSET", "TTL", "UNIQ_KEY", "WAIT",
    "__BORNHOST", "__CRC32#", "__PRODUCER_ID", "__PRODUCER_SEQ", "__SHARDINGKEY", "__transactionId__",
))  # fmt: skip
"""Property names that the protocol uses itself."""

_UNIQ_KEY: Final = PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode()
_TAGS: Final = PROPERTY_TAGS.encode()
_KEYS: Final = PROPERTY_KEYS.encode()


@dataclass(slots=True)
class Message:
    """A message to send.

    Subscriptions filter by `tags`; queries find a message by its `keys` (a sequence, or a string with spaces between keys).
    `properties` are the user's; names reserved by the protocol are rejected when the message is sent. With `wait_store=False` the
    broker acknowledges before the message is flushed and replicated.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] | str = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    wait_store: bool = True


@dataclass(frozen=True, order=True, slots=True)
class MessageQueue:
    """One queue of a topic on one broker. Queues sort by topic, broker and number, in the same order for every client."""

    topic: str
    broker_name: str
    queue_id: int


class SendStatus(Enum):
    """The durability of a stored message: as configured (OK), or less because a flush or replication took too long."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(slots=True)
class SendResult:
    """The position of a stored message. For a batch, ids are joined by commas and the offset is that of the first message."""

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str | None = None
    recall_handle: str | None = None
    trace_on: bool = True

    @property
    def queue_id(self) -> int:
        return self.queue.queue_id


class ReceivedMessage:
    """A received message. `topic` and `reconsume_times` may be set by the consumer that delivers it."""

    __slots__ = ("_body", "_budget", "_properties", "_record", "queue", "reconsume_times", "topic")

    _budget: DecompressionBudget  # shared by the messages of a response

    def __init__(self, record: Record, queue: MessageQueue, topic: str, budget: DecompressionBudget | None = None) -> None:
        self.topic = topic
        self.queue = queue  # where it was read; the retry topic for a redelivered message
        self.reconsume_times = record.reconsume_times
        self._record = record
        self._budget = budget or DecompressionBudget(len(record.body))
        self._body: bytes | None = None
        self._properties: tuple[dict[str, str], dict[str, str]] | None = None  # the user's, the protocol's

    @property
    def body(self) -> bytes:
        """The body, decompressed if necessary. DecompressionError if that fails."""
        body = self._body
        if body is None:
            record = self._record
            compressed = record.sys_flag & COMPRESSED
            body = self._body = self._budget.decompress(record.body, record.sys_flag) if compressed else record.body
        return body

    @property
    def properties(self) -> dict[str, str]:
        """The properties that the sender gave the message."""
        return self._split_properties()[0]

    @property
    def system_properties(self) -> dict[str, str]:
        """The properties of the protocol: tags, keys, ids, delays, retries."""
        return self._split_properties()[1]

    @property
    def all_properties(self) -> dict[str, str]:
        """A new dictionary of all properties, in the order in which they are stored."""
        return wire_properties.parse(self._record.properties)

    @property
    def tags(self) -> str | None:
        return self._text(_TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        found = self._text(_KEYS)
        return tuple(found.split()) if found else ()

    @property
    def msg_id(self) -> str:
        """The id assigned by the producer, or the offset id if the producer assigned none."""
        return self._text(_UNIQ_KEY) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        return offset_msg_id(self._record.store_host, self._record.physical_offset)

    @property
    def queue_id(self) -> int:
        return self._record.queue_id

    @property
    def queue_offset(self) -> int:
        return self._record.queue_offset

    @property
    def commit_log_offset(self) -> int:
        return self._record.physical_offset

    @property
    def born_ms(self) -> int:
        return self._record.born_timestamp

    @property
    def born_host(self) -> str:
        return host_text(self._record.born_host)

    @property
    def store_ms(self) -> int:
        return self._record.store_timestamp

    @property
    def store_host(self) -> str:
        return host_text(self._record.store_host)

    @property
    def flag(self) -> int:
        return self._record.flag

    @property
    def sys_flag(self) -> int:
        return self._record.sys_flag

    @property
    def prepared_transaction_offset(self) -> int:
        return self._record.prepared_transaction_offset

    @property
    def store_size(self) -> int:
        return self._record.total_size

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return one property, of the sender or of the protocol, without parsing all of them."""
        if self._properties is not None:
            own, system = self._properties
            return own.get(name, system.get(name, default))
        found = self._text(name.encode())
        return default if found is None else found

    def __repr__(self) -> str:
        return (
            f"<ReceivedMessage {self.msg_id} {self.topic} queue {self.queue.broker_name}/{self.queue_id} "
            f"offset {self.queue_offset} tags={self.tags!r} keys={self.keys} {len(self._record.body)} bytes>"
        )

    def _split_properties(self) -> tuple[dict[str, str], dict[str, str]]:
        if self._properties is None:
            own: dict[str, str] = {}
            system: dict[str, str] = {}
            for name, value in self.all_properties.items():
                (system if name in SYSTEM_PROPERTIES else own)[name] = value
            self._properties = own, system
        return self._properties

    def _text(self, name: bytes) -> str | None:
        found = wire_properties.find(self._record.properties, name)
        return None if found is None else found.decode(errors="replace")


def received(
    record: Record,
    broker_name: str,
    namespace: str = "",
    *,
    restore_topic: bool = False,
    budget: DecompressionBudget | None = None,
) -> ReceivedMessage:
    """Return the message of a record read from a broker, with the topic without namespace.

    With `restore_topic`, a message of a retry topic shows its original topic. `budget` is that of the response, if it contains
    several messages.
    """
    topic = record.topic
    queue = MessageQueue(topic, broker_name, record.queue_id)
    if restore_topic and topic.startswith(RETRY_PREFIX):
        origin = wire_properties.find(record.properties, PROPERTY_RETRY_TOPIC.encode())
        topic = topic if origin is None else origin.decode(errors="replace")
    if namespace:
        topic = without_namespace(topic, namespace)
    return ReceivedMessage(record, queue, topic, budget)
