"""Messages that wait for their time, as they are stored: reading many records at once, and what they say about when and where.

A delayed message waits in SCHEDULE_TOPIC_XXXX with REAL_TOPIC and REAL_QID, where it goes, besides its own properties.

A timer message waits in rmq_sys_wheel_timer with these properties besides its own:

    TIMER_OUT_MS      the moment of its slot in the wheel: it is due after this, and at the latest one precision step later
    REAL_TOPIC        | where it goes then
    REAL_QID          |
    TIMER_ROLL_TIMES  how often it was stored again on its way, because its time was too far ahead

What the producer asked for (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS) stays among them, so the exact moment is known
too: a relative one counts from when the message was stored, unless it has been stored again since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from firearrow.broker.message import HOST_BITS, BrokerMessage
from firearrow.store.message_store import MessageStore
from firearrow.wire import properties
from firearrow.wire.properties import ended, find
from firearrow.wire.record import AT_BORN_HOST, BORN_HOST_V6, FIXED_BYTES_V1, MAGIC_V1, MAGIC_V2, STORE_HOST_V6

MAX_PRECISION_MS = 60_000

_FRONT = Struct(">iiiiiqqiq")  # up to and including BORNTIMESTAMP
_STORED = Struct(">q")
_BACK = Struct(">iqi")  # RECONSUMETIMES, PREPAREDTRANSACTIONOFFSET, BODYLEN
_SHORT = Struct(">h")
_MERGE_GAP = 8_192
_MERGE_LIMIT = 262_144
_PORTION_BYTES = 1_048_576
_EFFORT_BYTES = 16_384


class DeferredRecord:
    """A record that was read, not taken apart: what is asked for again and again, and where the rest is."""

    __slots__ = ("_body_at", "_topic_at", "properties", "raw", "stored_ms")

    def __init__(self, raw: bytes, stored_ms: int, body_at: int, topic_at: int, properties: bytes) -> None:
        self.raw = raw
        self.stored_ms = stored_ms
        self.properties = properties
        self._body_at = body_at
        self._topic_at = topic_at

    @property
    def physical_offset(self) -> int:
        offset: int = _STORED.unpack_from(self.raw, 28)[0]
        return offset

    def message(self, topic: str, queue_id: int) -> BrokerMessage | None:
        """What the record holds, bound for another queue; None when its body is damaged."""
        raw, body_at = self.raw, self._body_at
        _, _, crc, _, flag, _, _, sys_flag, born_ms = _FRONT.unpack_from(raw)
        body = raw[body_at : self._topic_at]
        if crc32(body) & 0x7FFFFFFF != crc:
            return None
        born_host = raw[AT_BORN_HOST : AT_BORN_HOST + (20 if sys_flag & BORN_HOST_V6 else 8)]
        reconsume_times = _BACK.unpack_from(raw, body_at - 16)[0]
        names = ended(self.properties)
        return BrokerMessage(topic, queue_id, body, names, flag, sys_flag & ~HOST_BITS, born_ms, born_host, reconsume_times)

    def real_target(self) -> tuple[str, int]:
        """REAL_TOPIC ("" if it does not say) and REAL_QID (0 if it does not say, -1 if that is no number)."""
        raw = self.properties
        # As we write them: the last two, one behind the other. Apache writes them wherever its map has them.
        _, found, rest = raw.rpartition(b"\x02REAL_TOPIC\x01")
        topic, _, queue_id = rest.partition(b"\x02REAL_QID\x01")
        digits = queue_id[:-1]
        if found and topic and digits.isdigit() and len(digits) < 10 and queue_id[-1] == 2 and b"\x02" not in topic:
            return topic.decode("utf-8", "replace"), int(digits)
        number = find(raw, b"REAL_QID") or b"0"
        return self.text(b"REAL_TOPIC") or "", int(number) if number.isdigit() and len(number) < 10 else -1

    def text(self, name: bytes) -> str | None:
        value = find(self.properties, name)
        return None if value is None else value.decode("utf-8", "replace")

    def number(self, name: bytes) -> int | None:
        return parse_long(find(self.properties, name))

    @property
    def recalls(self) -> str | None:
        """Which message it recalls, as `identity` names it; None: it is no marker."""
        key = self.text(b"TIMER_DEL_UNIQKEY") if b"TIMER_DEL_" in self.properties else None
        return None if key is None else recalled(self.text(b"REAL_TOPIC") or "", key)

    @property
    def identity(self) -> str:
        return f"{self.text(b'REAL_TOPIC')}+{self.text(b'UNIQ_KEY')}"

    def due_ms(self, out_ms: int, precision_ms: int) -> int:
        """When it is to be delivered: the moment the producer asked for, if that can be known, else the end of its slot."""
        wanted = self._wanted_ms()
        if wanted is not None and out_ms < wanted <= out_ms + MAX_PRECISION_MS:
            return wanted
        return out_ms + precision_ms

    def _wanted_ms(self) -> int | None:
        if b"TIMER_DELAY_" in self.properties:
            for name, unit_ms in ((b"TIMER_DELAY_SEC", 1000), (b"TIMER_DELAY_MS", 1)):
                delay = self.number(name)
                if delay is not None:
                    return None if b"TIMER_ROLL_TIMES\x01" in self.properties else self.stored_ms + delay * unit_ms
        return self.number(b"TIMER_DELIVER_MS")


def recalled(topic: str, key: str) -> str:
    """Which message is meant by TIMER_DEL_UNIQKEY in a marker of this topic: always one of the same topic.

    Apache 5.5 writes the key alone, other releases `topic+key`.
    """
    return key if key.startswith(f"{topic}+") else f"{topic}+{key}"


def parse_long(text: bytes | None) -> int | None:
    """What Java reads as a long; None for anything else."""
    if text is None:
        return None
    if text.isdigit() and len(text) < 19:  # of bytes: 0 to 9 only
        return int(text)
    digits = text[1:] if text[:1] in (b"-", b"+") else text
    if not digits.isdigit() or len(digits.lstrip(b"0")) > 19:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def with_names(raw: bytes, names: dict[str, str]) -> bytes:
    """The properties with these set."""
    added = "".join([f"{name}\x01{value}\x02" for name, value in names.items()]).encode()
    for name in names:
        if name.encode() in raw:
            return properties.encode(properties.parse(raw) | names)
    return raw + added


def portion(sizes: Sequence[int]) -> int:
    """How many of these records, from the first on, may be read into memory together; at least one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > _PORTION_BYTES:
            return max(count, 1)
    return len(sizes)


def effort(size: int) -> int:
    """What it takes to read or store a record: one for a small one, more for large ones."""
    return 1 + size // _EFFORT_BYTES


class LogWindow(NamedTuple):
    """A piece of the log that holds several records: those at `wanted`, (physical offset, size), if it is as the queue says."""

    start: int
    data: bytes
    wanted: Sequence[tuple[int, int]]

    def record(self, offset: int, size: int) -> DeferredRecord | None:
        """The record there; None if it is gone or another one."""
        at = offset - self.start
        return _view(self.data[at : at + size], offset, size)


def read_waiting(store: MessageStore, wanted: Sequence[tuple[int, int]]) -> list[DeferredRecord | None]:
    """The records at these (physical offset, size); None for one that is gone or is another one. Neighbours are read together."""
    return [part.record(*one) for part in read_neighbours(store, wanted) for one in part.wanted]


def read_neighbours(store: MessageStore, wanted: Sequence[tuple[int, int]]) -> Iterator[LogWindow]:
    """The same, not looked at yet: pieces of the log that hold all of them, in their order."""
    segment_size = store.settings.mapped_file_size_commit_log
    start = 0
    while start < len(wanted):
        window, size = wanted[start]
        end, stop = window + size, start + 1
        if not FIXED_BYTES_V1 <= size <= segment_size:  # an entry that stands for no record
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


def _view(raw: bytes, offset: int, size: int) -> DeferredRecord | None:
    if len(raw) != size or size < FIXED_BYTES_V1:
        return None
    total, magic, _, _, _, _, physical_offset, sys_flag, _ = _FRONT.unpack_from(raw)
    if total != size or magic not in (MAGIC_V1, MAGIC_V2) or physical_offset != offset:
        return None
    stored_at = 68 if sys_flag & BORN_HOST_V6 else 56
    back_at = stored_at + (28 if sys_flag & STORE_HOST_V6 else 16)
    topic_at = back_at + 16 + _BACK.unpack_from(raw, back_at)[2]
    if not back_at + 16 <= topic_at < size - 3:
        return None
    at = topic_at + (1 + raw[topic_at] if magic == MAGIC_V1 else 2 + _SHORT.unpack_from(raw, topic_at)[0])
    if not topic_at < at <= size - 2 or size - at - 2 != _SHORT.unpack_from(raw, at)[0]:
        return None
    return DeferredRecord(raw, _STORED.unpack_from(raw, stored_at)[0], back_at + 16, topic_at, raw[at + 2 :])
