"""Messages as users see them: what is sent, what came of it, and what is received.

A `ReceivedMessage` is a view of a stored record. Consumers make one for every message they pull, and listeners look at little of
it, so what takes work (properties, ids, hosts, inflating the body) is done at the first look and then kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from firearrow.client.compression import inflated
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

SYSTEM_PROPERTIES: Final = frozenset(
    value for name, value in vars(wire_properties).items() if name.startswith("PROPERTY_")
) | {
    "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "EXTEND_UNIQ_INFO", "DUP_INFO", "__PRODUCER_ID", "__PRODUCER_SEQ",
}  # fmt: skip
"""Property names that the protocol uses itself."""

_UNIQ_KEY: Final = PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode()
_TAGS: Final = PROPERTY_TAGS.encode()
_KEYS: Final = PROPERTY_KEYS.encode()


@dataclass(slots=True)
class Message:
    """What is to be sent.

    `tags` is what subscriptions select by, `keys` is what queries find it by (in one text, keys have spaces between them).
    `properties` are the user's own; names that the protocol uses itself are refused when the message is sent. With
    `wait_store=False` the broker answers before the message is as safe as its settings say.
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
    """One queue of a topic on one broker. Queues sort by topic, broker and number, as every client must agree on."""

    topic: str
    broker_name: str
    queue_id: int


class SendStatus(Enum):
    """All four mean that the broker has stored the message; the last three, that it is less safe than was asked for."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(slots=True)
class SendResult:
    """Where a message went. For a batch the ids are those of its messages, joined by commas, and the offset is the first."""

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
    """A message as a consumer gets it. `topic` and `reconsume_times` may be set by the consumer that delivers it."""

    __slots__ = ("_body", "_properties", "_record", "queue", "reconsume_times", "topic")

    def __init__(self, record: Record, queue: MessageQueue, topic: str) -> None:
        self.topic = topic
        self.queue = queue  # where it was read: of a message that is delivered again, the retry topic's
        self.reconsume_times = record.reconsume_times
        self._record = record
        self._body: bytes | None = None
        self._properties: tuple[dict[str, str], dict[str, str]] | None = None  # the user's, the protocol's

    @property
    def body(self) -> bytes:
        """The body as it was sent; inflated if it came compressed. DecompressionError if that cannot be done."""
        body = self._body
        if body is None:
            record = self._record
            body = self._body = inflated(record.body, record.sys_flag) if record.sys_flag & COMPRESSED else record.body
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
        """The id that the producer gave; of a producer that gave none, the offset id."""
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


def received(record: Record, broker_name: str, namespace: str = "", *, restore_topic: bool = False) -> ReceivedMessage:
    """The message of a record that was read from a broker; its topic is shown without the namespace.

    With `restore_topic` a message of a retry topic shows the topic it was sent to at first.
    """
    topic = record.topic
    queue = MessageQueue(topic, broker_name, record.queue_id)
    if restore_topic and topic.startswith(RETRY_PREFIX):
        origin = wire_properties.find(record.properties, PROPERTY_RETRY_TOPIC.encode())
        topic = topic if origin is None else origin.decode(errors="replace")
    if namespace:
        topic = without_namespace(topic, namespace)
    return ReceivedMessage(record, queue, topic)
