"""Half messages: the forms of a transactional message.

sent       TRAN_MSG=true, PGROUP=its producer group
half       in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, which no consumer reads. REAL_TOPIC and REAL_QID name its destination,
           __transactionId__ is its UNIQ_KEY; the transaction bits of its sysFlag are clear
copied     to the end of the same queue when it is checked and still open. TRANSACTION_CHECK_TIMES counts the checks,
           TRAN_PREPARED_QUEUE_OFFSET is the queue offset of its first record
committed  in its real queue: sysFlag 8, PREPAREDTRANSACTIONOFFSET = log offset of the committed half message; without
           REAL_TOPIC, REAL_QID and TRAN_PREPARED_QUEUE_OFFSET
given up   in TRANS_CHECK_MAX_TIME_TOPIC, queue 0, as it last was in the half topic
"""

from __future__ import annotations

from firearrow.broker.deferred.router import target_properties
from firearrow.broker.message import COMMITTED, TRANSACTION_BITS, BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.store.consume_queue import ABSENT_SIZE, ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire import properties
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from firearrow.wire.record import Record, decode, encode

SYSTEM_GROUP = "CID_RMQ_SYS_TRANS"  # its consumer offsets are the progress of the two topics

# Properties that only the broker sets in a half message.
_BROKER_PROPERTIES = (b"REAL_TOPIC", b"REAL_QID", b"__transactionId__", b"TRANSACTION_CHECK_TIMES", b"TRAN_PREPARED_QUEUE_OFFSET")
_RESERVED_BYTES = 128  # for properties that the broker may add later


def is_half(message: BrokerMessage) -> bool:
    """Return whether a client's message is a half message. A delayed retry is not, even if the original message was."""
    if message.internal:
        return False
    raw = message.properties
    at = raw.find(b"TRAN_MSG\x01")
    if at < 0:
        return False
    if not raw.startswith(b"\x02TRAN_MSG\x01true\x02", at - 1) or raw.find(b"TRAN_MSG\x01", at + 9) >= 0:
        wanted = properties.find(raw, b"TRAN_MSG")
        if wanted is None or wanted.lower() != b"true":
            return False
    return message.reconsume_times <= 0 or _number((properties.find(raw, b"DELAY") or b"").decode()) <= 0


def hold_as_half(message: BrokerMessage) -> None:
    """Redirect `message` to the half topic."""
    raw = message.properties
    # A forwarded message may still have these properties. (Substrings of _BROKER_PROPERTIES, fast to find; one TRAN is TRAN_MSG.)
    if raw.count(b"TRAN") > 1 or raw.find(b"REAL_") >= 0 or raw.find(b"__trans") >= 0:
        kept = properties.parse(raw)
        for name in _BROKER_PROPERTIES:
            kept.pop(name.decode(), None)
        raw = properties.encode(kept)
    raw += b"__transactionId__\x01%b\x02%b" % (message.unique_key, target_properties(message.topic, message.queue_id))
    if len(raw) > properties.MAX_BYTES - _RESERVED_BYTES:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: its properties take {len(raw)} bytes as a half message, "
            f"the limit is {properties.MAX_BYTES - _RESERVED_BYTES}; send fewer or shorter ones",
        )
    message.sys_flag &= ~TRANSACTION_BITS
    message.hold_in(TRANS_HALF_TOPIC, 0, raw, message.tags_code)


def read_half(store: MessageStore, queue: ConsumeQueue, offset: int) -> Half | None:
    """Return the half message at an offset of its queue; None if it is missing."""
    entry = queue.entry(offset) if offset >= queue.min_offset else None
    if entry is None or entry[1] == ABSENT_SIZE:
        return None
    return _half(store.read(entry[0], entry[1]), TRANS_HALF_TOPIC)


def half_at(store: MessageStore, physical_offset: int, topic: str = TRANS_HALF_TOPIC) -> Half | None:
    """Return the half message whose record begins at an offset of the log; None if there is no such record."""
    return _half(store.read_record(physical_offset) or b"", topic)


class Half:
    """A record of the half topic. Its properties are searched, not parsed: usually only two or three are needed."""

    __slots__ = ("offset", "origin", "raw", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.raw = properties.with_terminator(record.properties)
        self.offset = record.queue_offset
        first = _number(self._text(b"TRAN_PREPARED_QUEUE_OFFSET")) if b"TRAN_PREPARED_QUEUE_OFFSET" in self.raw else -1
        self.origin = record.queue_offset if first < 0 else first  # queue offset of its first record, the same for all copies

    @property
    def producer_group(self) -> str:
        return self._text(b"PGROUP")

    @property
    def unique_key(self) -> str:
        return self._text(b"UNIQ_KEY")

    @property
    def real_topic(self) -> str:
        return self._text(b"REAL_TOPIC")

    @property
    def real_queue_id(self) -> int:
        return max(_number(self._text(b"REAL_QID")), 0)

    @property
    def check_times(self) -> int:
        return max(_number(self._text(b"TRANSACTION_CHECK_TIMES")), 0)

    def immunity_ms(self, otherwise_ms: int) -> int | None:
        """Return the time during which it must not be checked; None if not set. A malformed value means `otherwise_ms`."""
        text = self._text(b"CHECK_IMMUNITY_TIME_IN_SECONDS")
        if not text:
            return None
        seconds = _number(text)
        return otherwise_ms if seconds == -1 else seconds * 1000

    def _text(self, name: bytes) -> str:
        value = properties.find(self.raw, name)
        return "" if value is None else value.decode("utf-8", "replace")

    def committed(self) -> BrokerMessage:
        """Return the message for its real queue."""
        message = BrokerMessage.from_record(self.record, self.real_topic, self.real_queue_id)
        raw = _without(_without(self.raw, b"REAL_QID\x01"), b"REAL_TOPIC\x01")
        message.properties = _without(raw, b"TRAN_PREPARED_QUEUE_OFFSET\x01") if self.origin != self.offset else raw
        message.sys_flag |= COMMITTED
        message.prepared_offset = self.record.physical_offset
        return message

    def copied(self, check_times: int) -> BrokerMessage:
        """Return the copy for the end of the half queue."""
        message = BrokerMessage.from_record(self.record, TRANS_HALF_TOPIC, 0)
        raw = _without(self.raw, b"TRAN_PREPARED_QUEUE_OFFSET\x01") + b"TRAN_PREPARED_QUEUE_OFFSET\x01%d\x02" % self.origin
        if check_times:
            raw = _without(raw, b"TRANSACTION_CHECK_TIMES\x01") + b"TRANSACTION_CHECK_TIMES\x01%d\x02" % check_times
        if len(raw) <= properties.MAX_BYTES:  # always, except for a half message stored by another broker
            message.properties = raw
        return message

    def given_up(self) -> BrokerMessage:
        """Return the copy for TRANS_CHECK_MAX_TIME_TOPIC."""
        return BrokerMessage.from_record(self.record, TRANS_CHECK_MAX_TIME_TOPIC, 0)

    def reopened(self) -> BrokerMessage:
        """Return it as a new half message without checks."""
        message = BrokerMessage.from_record(self.record, TRANS_HALF_TOPIC, 0)
        raw = _without(_without(self.raw, b"TRAN_PREPARED_QUEUE_OFFSET\x01"), b"TRANSACTION_CHECK_TIMES\x01")
        message.properties = raw + b"TRANSACTION_CHECK_TIMES\x010\x02"
        return message

    def for_check(self, copy: BrokerMessage) -> bytes:
        """Return the record to send to the producer: the stored copy, with the topic and queue the producer sent to."""
        record = self.record
        return encode(
            Record(
                topic=self.real_topic,
                body=record.body,
                properties=copy.properties,
                queue_id=self.real_queue_id,
                flag=record.flag,
                queue_offset=copy.queue_offset,
                physical_offset=copy.physical_offset,
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


def _without(raw: bytes, wanted: bytes) -> bytes:
    """Return the properties without those named `wanted`, a name with its 0x01."""
    at = raw.rfind(wanted)
    while at >= 0:
        if at == 0 or raw[at - 1] == 2:
            raw = raw[:at] + raw[raw.index(b"\x02", at) + 1 :]
        at = raw.rfind(wanted, 0, at)
    return raw


def _number(text: str) -> int:
    """Parse a decimal number like Java; -1 for anything else."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isdecimal() and digits.isascii() and len(digits) < 19 else -1
