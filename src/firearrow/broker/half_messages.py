"""Half messages: the forms that the message of a transaction takes on its way.

sent       TRAN_MSG=true, PGROUP=its producer group
half       in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, where no consumer looks. REAL_TOPIC and REAL_QID say where it is bound for,
           __transactionId__ is its UNIQ_KEY; the transaction bits of its sysFlag are clear
copied     behind the others in the same queue, whenever it was not decided when it was its turn. TRANSACTION_CHECK_TIMES
           says how often its producers were asked, TRAN_PREPARED_QUEUE_OFFSET which record of the queue was its first
committed  in its real queue: sysFlag 8, PREPAREDTRANSACTIONOFFSET = log offset of the half that was committed; without
           REAL_TOPIC, REAL_QID and TRAN_PREPARED_QUEUE_OFFSET
given up   in TRANS_CHECK_MAX_TIME_TOPIC, queue 0, as it last was in the half topic
"""

from __future__ import annotations

from firearrow.broker.inner import InnerMessage, Stored
from firearrow.broker.placing import COMMITTED, TRANSACTION_BITS, Arrival, Placement
from firearrow.broker.refused import Refused
from firearrow.store.consumequeue import ABSENT_SIZE, ConsumeQueue
from firearrow.store.store import MessageStore
from firearrow.wire import properties
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.javahash import tags_code
from firearrow.wire.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from firearrow.wire.record import Record, decode, encode

SYSTEM_GROUP = "CID_RMQ_SYS_TRANS"  # whose consumer offsets say how far the two topics are worked off

_REAL_TOPIC = properties.PROPERTY_REAL_TOPIC
_REAL_QUEUE_ID = properties.PROPERTY_REAL_QUEUE_ID
_CHECK_TIMES = properties.PROPERTY_TRANSACTION_CHECK_TIMES
_ORIGIN = properties.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET
_ROOM = 128  # bytes of properties that the broker may add later
_IMMUNITY = properties.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS


def is_half(arrival: Arrival) -> bool:
    """Whether a client's message is half of a transaction. A retry that its consumer delays is not, even if its message was."""
    wanted = properties.find(arrival.properties, b"TRAN_MSG")
    if arrival.inner or wanted is None or wanted.lower() != b"true":
        return False
    return not (arrival.reconsume_times > 0 and _number((properties.find(arrival.properties, b"DELAY") or b"").decode()) > 0)


def as_half(arrival: Arrival) -> Placement:
    kept = properties.parse(arrival.properties)
    for stale in (_CHECK_TIMES, _ORIGIN):  # of a half message that somebody sends on
        kept.pop(stale, None)
    kept |= {
        properties.PROPERTY_TRANSACTION_ID: arrival.unique_key,
        _REAL_TOPIC: arrival.topic,
        _REAL_QUEUE_ID: str(arrival.queue_id),
    }
    raw = properties.encode(kept)
    if len(raw) > properties.MAX_BYTES - _ROOM:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: its properties take {len(raw)} bytes as half of a transaction, "
            f"the limit is {properties.MAX_BYTES - _ROOM}; send fewer or shorter ones",
        )
    tags = kept.get("TAGS")
    sys_flag = arrival.sys_flag & ~TRANSACTION_BITS
    return Placement(TRANS_HALF_TOPIC, 0, raw, 0 if tags is None else tags_code(tags), sys_flag, {})


def read_half(store: MessageStore, queue: ConsumeQueue, offset: int) -> Half | None:
    """The half message at an offset of its queue; None if there is none, or no more."""
    entry = queue.entry(offset) if offset >= queue.min_offset else None
    if entry is None or entry[1] == ABSENT_SIZE:
        return None
    return _half(store.read(entry[0], entry[1]), TRANS_HALF_TOPIC)


def half_at(store: MessageStore, physical_offset: int, topic: str = TRANS_HALF_TOPIC) -> Half | None:
    """The half message whose record begins at an offset of the log."""
    return _half(store.read_record(physical_offset) or b"", topic)


class Half:
    """A record of the half topic, with its properties taken apart."""

    __slots__ = ("names", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.names = properties.parse(record.properties)

    @property
    def offset(self) -> int:
        return self.record.queue_offset

    @property
    def origin(self) -> int:
        """The queue offset of its first record: what all copies of it have in common."""
        first = _number(self.names.get(_ORIGIN, ""))
        return self.record.queue_offset if first < 0 else first

    @property
    def producer_group(self) -> str | None:
        return self.names.get(properties.PROPERTY_PRODUCER_GROUP)

    @property
    def unique_key(self) -> str:
        return self.names.get(properties.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "")

    @property
    def real_topic(self) -> str:
        return self.names.get(_REAL_TOPIC, "")

    @property
    def real_queue_id(self) -> int:
        return max(_number(self.names.get(_REAL_QUEUE_ID, "")), 0)

    @property
    def check_times(self) -> int:
        return max(_number(self.names.get(_CHECK_TIMES, "")), 0)

    def immunity_ms(self, otherwise_ms: int) -> int | None:
        """How long it does not want to be asked about; None if it does not say. What is no number means the broker's time-out."""
        text = self.names.get(_IMMUNITY)
        if text is None:
            return None
        seconds = _number(text)
        return otherwise_ms if seconds == -1 else seconds * 1000

    def committed(self) -> InnerMessage:
        kept = self.names.copy()
        for name in (_REAL_TOPIC, _REAL_QUEUE_ID, _ORIGIN):
            kept.pop(name, None)
        message = InnerMessage.of(self.record, self.real_topic, self.real_queue_id)
        message.properties = properties.encode(kept)
        message.sys_flag |= COMMITTED
        message.prepared_offset = self.record.physical_offset
        return message

    def copied(self, check_times: int) -> InnerMessage:
        kept = self.names | {_ORIGIN: str(self.origin)}
        if check_times:
            kept[_CHECK_TIMES] = str(check_times)
        message = InnerMessage.of(self.record, TRANS_HALF_TOPIC, 0)
        raw = properties.encode(kept)
        if len(raw) <= properties.MAX_BYTES:  # always, unless another broker stored it without room
            message.properties = raw
        return message

    def given_up(self) -> InnerMessage:
        return InnerMessage.of(self.record, TRANS_CHECK_MAX_TIME_TOPIC, 0)

    def begun_anew(self) -> InnerMessage:
        """As a half message of its own, about which nobody was asked yet."""
        kept = self.names | {_CHECK_TIMES: "0"}
        kept.pop(_ORIGIN, None)
        message = InnerMessage.of(self.record, TRANS_HALF_TOPIC, 0)
        message.properties = properties.encode(kept)
        return message

    def as_asked_about(self, copy: InnerMessage, stored: Stored) -> bytes:
        """The record that its producer is shown: the copy, but with the topic and the queue that the producer knows."""
        record = self.record
        return encode(
            Record(
                topic=self.real_topic,
                body=record.body,
                properties=copy.properties,
                queue_id=self.real_queue_id,
                flag=record.flag,
                queue_offset=stored.queue_offset,
                physical_offset=stored.physical_offset,
                sys_flag=record.sys_flag,
                born_timestamp=record.born_timestamp,
                born_host=record.born_host,
                store_timestamp=record.store_timestamp,
                store_host=record.store_host,
                reconsume_times=record.reconsume_times,
                version=1 if len(self.real_topic.encode()) < 128 else 2,
            )
        )


def _half(raw: bytes, topic: str) -> Half | None:
    try:
        record = decode(raw)
        half = Half(record)
    except ProtocolError:
        return None
    return half if record.topic == topic and half.real_topic else None


def _number(text: str) -> int:
    """A decimal number as Java reads one; -1 for what is none."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isdecimal() and digits.isascii() and len(digits) < 19 else -1
