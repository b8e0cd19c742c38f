"""Timer messages as they are stored: reading many records at once, and what their properties say about time.

A timer message waits in rmq_sys_wheel_timer with these properties besides its own:

    TIMER_OUT_MS      the moment of its slot in the wheel: it is due after this, and at the latest one precision step later
    REAL_TOPIC        | where it goes then
    REAL_QID          |
    TIMER_ROLL_TIMES  how often it was stored again on its way, because its time was too far ahead

What the producer asked for (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS) stays among them, so the exact moment is known
too: a relative one counts from when the message was stored, unless it has been stored again since.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from firearrow.store.store import MessageStore
from firearrow.wire.properties import find
from firearrow.wire.record import AT_PHYSICAL_OFFSET, BORN_HOST_V6, MAGIC_V1, MAGIC_V2, STORE_HOST_V6

MAX_PRECISION_MS = 60_000

_FRONT = Struct(">ii")
_I64 = Struct(">q")
_SYS_FLAG = Struct(">i")
_BODY_LENGTH = Struct(">i")
_SHORT = Struct(">h")
_MERGE_GAP = 8_192
_MERGE_LIMIT = 262_144


class TimerRecord:
    """A record that was read, and the few things about it that the timers ask for again and again."""

    __slots__ = ("properties", "raw", "stored_ms")

    def __init__(self, raw: bytes, properties: bytes, stored_ms: int) -> None:
        self.raw = raw
        self.properties = properties
        self.stored_ms = stored_ms

    def text(self, name: bytes) -> str | None:
        value = find(self.properties, name)
        return None if value is None else value.decode("utf-8", "replace")

    def number(self, name: bytes) -> int | None:
        return parse_long(find(self.properties, name))

    def due_ms(self, out_ms: int, precision_ms: int) -> int:
        """When it is to be delivered: the moment the producer asked for, if that can be known, else the end of its slot."""
        wanted = self._wanted_ms()
        if wanted is not None and out_ms < wanted <= out_ms + MAX_PRECISION_MS:
            return wanted
        return out_ms + precision_ms

    def _wanted_ms(self) -> int | None:
        for name, unit_ms in ((b"TIMER_DELAY_SEC", 1000), (b"TIMER_DELAY_MS", 1)):
            delay = self.number(name)
            if delay is not None:
                return None if b"TIMER_ROLL_TIMES\x01" in self.properties else self.stored_ms + delay * unit_ms
        return self.number(b"TIMER_DELIVER_MS")


def parse_long(text: bytes | None) -> int | None:
    """What Java reads as a long; None for anything else."""
    if text is None or not text.isascii():
        return None
    digits = text[1:] if text[:1] in (b"-", b"+") else text
    if not digits.isdigit() or len(digits) > 19:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def read_timer_records(store: MessageStore, wanted: Sequence[tuple[int, int]]) -> list[TimerRecord | None]:
    """The records at these (physical offset, size); None for one that is gone or is another one. Neighbours are read together."""
    segment_size = store.settings.mapped_file_size_commit_log
    found: list[TimerRecord | None] = []
    start = 0
    while start < len(wanted):
        window, size = wanted[start]
        end, stop = window + size, start + 1
        limit = min(window - window % segment_size + segment_size, window + _MERGE_LIMIT)
        while stop < len(wanted):
            offset, size = wanted[stop]
            if not end <= offset <= end + _MERGE_GAP or offset + size > limit:
                break
            end, stop = offset + size, stop + 1
        data = store.read(window, end - window)
        found += [_view(data[offset - window : offset - window + size], offset, size) for offset, size in wanted[start:stop]]
        start = stop
    return found


def _view(raw: bytes, offset: int, size: int) -> TimerRecord | None:
    if len(raw) != size or size < 91:
        return None
    total, magic = _FRONT.unpack_from(raw)
    if total != size or magic not in (MAGIC_V1, MAGIC_V2) or _I64.unpack_from(raw, AT_PHYSICAL_OFFSET)[0] != offset:
        return None
    (sys_flag,) = _SYS_FLAG.unpack_from(raw, 36)
    stored_at = 68 if sys_flag & BORN_HOST_V6 else 56
    at = stored_at + 28 + (12 if sys_flag & STORE_HOST_V6 else 0)
    at += 4 + _BODY_LENGTH.unpack_from(raw, at)[0]
    if not 0 < at < size - 3:
        return None
    at += 1 + raw[at] if magic == MAGIC_V1 else 2 + _SHORT.unpack_from(raw, at)[0]
    if not 0 < at <= size - 2 or size - at - 2 != _SHORT.unpack_from(raw, at)[0]:
        return None
    return TimerRecord(raw, raw[at + 2 :], _I64.unpack_from(raw, stored_at)[0])
