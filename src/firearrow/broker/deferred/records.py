"""Records of deferred messages: reading many at once, their destination and their delivery time.

A delayed message is held in SCHEDULE_TOPIC_XXXX; REAL_TOPIC and REAL_QID name its destination.

A timer message is held in rmq_sys_wheel_timer with these additional properties:

    TIMER_OUT_MS      time of its slot in the wheel; it is due after this, at most one precision step later
    REAL_TOPIC        destination topic
    REAL_QID          destination queue
    TIMER_ROLL_TIMES  number of times it was rolled, because its delivery time was too far ahead

The producer's TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS is kept, so the exact delivery time is known as well.
A relative delay counts from the store timestamp; it is lost when the message is rolled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from firearrow.broker.message import HOST_BITS, BrokerMessage
from firearrow.store.message_store import MessageStore
from firearrow.wire.properties import find, parse_long, with_terminator
from firearrow.wire.record import FIXED_BYTES_V1, RecordView

MAX_PRECISION_MS = 60_000

_MERGE_GAP = 8_192
_MERGE_LIMIT = 262_144
_BATCH_BYTES = 1_048_576
_COST_UNIT_BYTES = 16_384


class DeferredRecord(RecordView):
    """A record read from the log and decoded on demand."""

    __slots__ = ()

    def message(self, topic: str, queue_id: int) -> BrokerMessage | None:
        """Return the message for delivery to another queue; None if its body is corrupt."""
        content = self.content()
        if content is None:
            return None
        body, flag, sys_flag, born_ms, born_host, times = content
        raw = with_terminator(self.properties)
        return BrokerMessage(topic, queue_id, body, raw, flag, sys_flag & ~HOST_BITS, born_ms, born_host, times)

    def real_target(self) -> tuple[str, int]:
        """Return REAL_TOPIC ("" if absent) and REAL_QID (0 if absent, -1 if not a number)."""
        raw = self.properties
        # Firearrow writes them as the last two properties. Apache's order is that of a hash map.
        _, found, rest = raw.rpartition(b"\x02REAL_TOPIC\x01")
        topic, _, queue_id = rest.partition(b"\x02REAL_QID\x01")
        digits = queue_id[:-1]
        if found and topic and digits.isdigit() and len(digits) < 10 and queue_id[-1] == 2 and b"\x02" not in topic:
            return topic.decode("utf-8", "replace"), int(digits)
        number = find(raw, b"REAL_QID") or b"0"
        return self.text(b"REAL_TOPIC") or "", int(number) if number.isdigit() and len(number) < 10 else -1

    def text(self, name: bytes) -> str | None:
        """Return the value of a property as text."""
        value = find(self.properties, name)
        return None if value is None else value.decode("utf-8", "replace")

    def number(self, name: bytes) -> int | None:
        """Return the value of a property as a number; None if it is absent or malformed."""
        return parse_long(find(self.properties, name))

    @property
    def recalls(self) -> str | None:
        """`identity` of the message that this recall marker cancels; None if this is not a marker."""
        key = self.text(b"TIMER_DEL_UNIQKEY") if b"TIMER_DEL_" in self.properties else None
        return None if key is None else recall_key(self.text(b"REAL_TOPIC") or "", key)

    @property
    def identity(self) -> str:
        """Key by which a recall marker names this message."""
        return f"{self.text(b'REAL_TOPIC')}+{self.text(b'UNIQ_KEY')}"

    def due_ms(self, out_ms: int, precision_ms: int) -> int:
        """Return the delivery time: the one the producer asked for if it is known, else the end of the slot."""
        requested_ms = self._requested_ms()
        if requested_ms is not None and out_ms < requested_ms <= out_ms + MAX_PRECISION_MS:
            return requested_ms
        return out_ms + precision_ms

    def _requested_ms(self) -> int | None:
        if b"TIMER_DELAY_" in self.properties:
            for name, unit_ms in ((b"TIMER_DELAY_SEC", 1000), (b"TIMER_DELAY_MS", 1)):
                delay = self.number(name)
                if delay is not None:
                    return None if b"TIMER_ROLL_TIMES\x01" in self.properties else self.store_timestamp + delay * unit_ms
        return self.number(b"TIMER_DELIVER_MS")


def recall_key(topic: str, key: str) -> str:
    """Return the identity of the message named by a marker's TIMER_DEL_UNIQKEY, always of the marker's topic.

    Apache 5.5 writes the key alone, other releases `topic+key`.
    """
    return key if key.startswith(f"{topic}+") else f"{topic}+{key}"


def batch_within_limit(sizes: Sequence[int]) -> int:
    """Return how many of the first records may be read into memory together; at least one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > _BATCH_BYTES:
            return max(count, 1)
    return len(sizes)


def read_cost(size: int) -> int:
    """Return the cost of reading or storing a record: 1 for a small one, more for large ones."""
    return 1 + size // _COST_UNIT_BYTES


class LogWindow(NamedTuple):
    """A section of the log with several records. `wanted` are their (physical offset, size) according to the queue."""

    start: int
    data: bytes
    wanted: Sequence[tuple[int, int]]

    def record(self, offset: int, size: int) -> DeferredRecord | None:
        """Return the record at `offset`; None if it is gone or another record is there."""
        at = offset - self.start
        record = DeferredRecord.parse(self.data[at : at + size])
        return record if record is not None and len(record.raw) == size and record.physical_offset == offset else None


def read_records(store: MessageStore, wanted: Sequence[tuple[int, int]]) -> list[DeferredRecord | None]:
    """Read the records at these (physical offset, size). None stands for one that is gone or replaced by another."""
    return [window.record(*entry) for window in read_windows(store, wanted) for entry in window.wanted]


def read_windows(store: MessageStore, wanted: Sequence[tuple[int, int]]) -> Iterator[LogWindow]:
    """Yield sections of the log that contain these records, in order. Adjacent records share one read."""
    segment_size = store.settings.mapped_file_size_commit_log
    start = 0
    while start < len(wanted):
        window, size = wanted[start]
        end, stop = window + size, start + 1
        if not FIXED_BYTES_V1 <= size <= segment_size:  # an entry without a record
            yield LogWindow(window, b"", wanted[start:stop])
            start = stop
            continue
        limit = min(window - window % segment_size + segment_size, window + _MERGE_LIMIT)
        while stop < len(wanted):
            offset, size = wanted[stop]
            if not end <= offset <= end + _MERGE_GAP or offset + size > limit:
                break
            end, stop = offset + size, stop + 1
        yield LogWindow(window, store.read(window, end - window), wanted[start:stop])
        start = stop
