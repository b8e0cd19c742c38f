"""Delay levels: messages with the property DELAY are held in SCHEDULE_TOPIC_XXXX, one queue per level, until they are due.

`messageDelayLevel` gives the delays of the levels 1, 2, ... ("1s 5s 10s ... 2h"). All messages of a level have the same delay, so
its queue is ordered by due time, and a tick compares only the first entry: a million held messages cost one comparison. The queue
entry contains the due time in place of the tags code.

    send, DELAY=3  --defer-->  SCHEDULE_TOPIC_XXXX, queue 2  --due-->  REAL_TOPIC and REAL_QID, with all properties

The delivered offset of each level is saved to `config/delayOffset.json`, never ahead of what is durable in the log, so no message
is lost. After a crash or an election it is behind by some deliveries. They are in the log: a delivered record names the record it
was copied from in PREPAREDTRANSACTIONOFFSET, which is 0 in a record that Apache delivers and has no effect on clients. `resume`
searches the end of the log for them, so they are not repeated.

Invariants:
- No message is delivered before it is due, unless the clock was set back: an entry due later than now + delay is due now.
- A level's offset advances only past entries that were delivered, or whose record is gone.
- The entries of a level are delivered in their order, so all entries before a delivered one are done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any
from zlib import crc32

from firearrow.broker.deferred.records import DeferredRecord, LogWindow, read_windows
from firearrow.broker.deferred.router import target_properties
from firearrow.broker.log_scan import delivered_since
from firearrow.broker.message import HOST_BITS, PREPARED, TRANSACTION_BITS, BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.broker.send.internal import InternalWriter
from firearrow.store.consume_queue import ENTRY, UNIT, ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire import properties
from firearrow.wire.bodies.admin import DelayOffsetSerializeWrapper
from firearrow.wire.bodies.topic import DataVersion
from firearrow.wire.codes import ResponseCode
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from firearrow.wire.properties import parse_long
from firearrow.wire.record import HEAD, HEAD_BYTES, MAGIC_V1

MAX_PER_TICK = 2_000  # deliveries of one level per tick; bounds the time the event loop is blocked
_BATCH = 256  # queue entries read together
_CLOCK_ERROR_MS = 1_000  # by which the clock of a master may have been set back, or differ from its predecessor's
_INT32 = 1 << 31
_LEVEL_PROPERTY = b"\x02DELAY\x01%d\x02"
_TARGET = re.compile(rb"REAL_TOPIC\x01([^\x01\x02]+)\x02REAL_QID\x01([0-9]{1,9})\x02")
_MAX_CACHED_TARGET = 512  # bytes of REAL_TOPIC and REAL_QID; longer ones are not cached
_TOPIC = bytes((len(SCHEDULE_TOPIC),)) + SCHEDULE_TOPIC.encode()
_TOPIC_BYTES = len(_TOPIC) + 2  # including the length of the properties
_MIN_BYTES = HEAD_BYTES + _TOPIC_BYTES


class DelayService:
    """Holds messages with a delay level and delivers them when they are due."""

    def __init__(self, levels_ms: list[int], store: MessageStore, writer: InternalWriter) -> None:
        self.data_version = DataVersion()
        self._levels_ms = levels_ms
        self._store = store
        self._writer = writer
        self._offsets = [0] * len(levels_ms)  # next entry to deliver, by level - 1
        self._due_ms = [0] * len(levels_ms)  # when that entry is due; 0: not read yet
        self._saved = list(self._offsets)
        # In an elected group: offsets whose deliveries are replicated and cannot be truncated.
        self._confirmed: list[int] | None = None

    # Deferral

    def defer(self, message: BrokerMessage, now_ms: int) -> bool:
        """Redirect a message with a delay level to the queue of its level; False if it has none or is a half message."""
        level = self._level(message)
        if level == 0:
            return False
        raw = message.properties
        if raw.find(b"REAL_") >= 0 or raw.find(_LEVEL_PROPERTY % level) < 0 or raw.count(b"DELAY\x01") > 1:
            # The message was delayed before, or the level exceeds the maximum: normalise the properties.
            kept = properties.parse(raw)
            for name in ("REAL_TOPIC", "REAL_QID"):
                kept.pop(name, None)
            raw = properties.encode(kept | {"DELAY": str(level)})
        raw += target_properties(message.topic, message.queue_id)
        message.hold_in(SCHEDULE_TOPIC, level - 1, raw, now_ms + self._levels_ms[level - 1])
        return True

    def check(self, message: BrokerMessage, now_ms: int) -> bool:
        """Return whether the message has a delay level. Raises Refused if the level is not a number."""
        return self._level(message) > 0

    def _level(self, message: BrokerMessage) -> int:
        if message.sys_flag & TRANSACTION_BITS == PREPARED:
            return 0
        text = properties.find(message.properties, b"DELAY")
        if not text:
            return 0
        number = parse_long(text)
        if number is None or not -_INT32 <= number < _INT32:
            if message.internal:
                return 0
            value = text.decode("utf-8", "replace")[:64]
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the delay level DELAY is {value!r}; expected a whole number, 1 to {len(self._levels_ms)}, or 0 for no delay",
            )
        return max(min(number, len(self._levels_ms)), 0)

    # Delivery

    def tick(self, now_ms: int) -> bool:
        """Deliver due messages. Return True if more are due than one tick may deliver."""
        more = False
        for number, due_ms in enumerate(self._due_ms):
            if due_ms <= now_ms:
                queue = self._store.find_queue(SCHEDULE_TOPIC, number)
                if queue is not None and self._offsets[number] < queue.max_offset:
                    more |= self._deliver_level(number, queue, now_ms)
        return more

    def resume(self) -> None:
        """Skip the entries behind the saved offsets that were delivered all the same. Call it before the first tick as master.

        No entry was delivered before it was due, so the log from the due time of the first one on is searched.
        """
        pending: list[tuple[int, ConsumeQueue, int]] = []
        since_ms: int | None = None
        for number, offset in enumerate(self._offsets):
            queue = self._store.find_queue(SCHEDULE_TOPIC, number)
            first = None if queue is None else queue.entry(max(offset, queue.min_offset))
            if queue is not None and first is not None:
                pending.append((number, queue, max(offset, queue.min_offset)))
                since_ms = first[2] if since_ms is None else min(first[2], since_ms)
        if since_ms is None:
            return
        delivered = delivered_since(self._store, since_ms - _CLOCK_ERROR_MS)
        for number, queue, offset in pending if delivered else ():
            self._offsets[number] = _skip_delivered(queue, offset, delivered)
        self._due_ms = [0] * len(self._offsets)

    def next_due_ms(self) -> int | None:
        """Return when the next message is due; None if no message is held."""
        return min((self._due_ms[level - 1] for level, at, end in self.progress() if at < end), default=None)

    def _deliver_level(self, number: int, queue: ConsumeQueue, now_ms: int) -> bool:
        offset = min(max(self._offsets[number], queue.min_offset), queue.max_offset)
        latest_ms = now_ms + self._levels_ms[number]
        left = MAX_PER_TICK
        while left > 0 and offset < queue.max_offset:
            entries = queue.entries(offset, min(_BATCH, left))
            if not entries:  # a queue file is missing
                offset = queue.max_offset
                break
            due: list[tuple[int, int]] = []
            later_ms = 0
            for physical_offset, size, due_ms in ENTRY.iter_unpack(entries):
                if now_ms < due_ms <= latest_ms:
                    later_ms = due_ms
                    break
                due.append((physical_offset, size))
            for window in read_windows(self._store, due):
                self._deliver_window(window, now_ms)
            offset += len(due)
            left -= len(due)
            if later_ms:
                self._offsets[number], self._due_ms[number] = offset, later_ms
                return False
        self._offsets[number], self._due_ms[number] = offset, 0
        return offset < queue.max_offset

    def _deliver_window(self, window: LogWindow, now_ms: int) -> None:
        """Copy records of the usual layout directly from the log to the log; `_deliver` handles all others.

        One message object is reused for all of them: creating one per record would cost 0.3 us more.
        """
        start, data, wanted = window
        head_at, append, end_of_data = HEAD.unpack_from, self._writer.append, len(data)
        message = BrokerMessage("", 0, b"", b"", 0, 0, 0, b"")
        for offset, size in wanted:
            at = offset - start
            end = at + size
            if size > _MIN_BYTES and end <= end_of_data:
                (
                    total, magic, crc, _, flag, _, physical_offset, sys_flag, born_ms, born_host, _, _, times, _, length,
                ) = head_at(data, at)  # fmt: skip
                body_at = at + HEAD_BYTES
                properties_at = body_at + length + _TOPIC_BYTES
                if (
                    total == size
                    and physical_offset == offset
                    and magic == MAGIC_V1
                    and not sys_flag & HOST_BITS
                    and length >= 0
                    and properties_at < end
                    and data.startswith(_TOPIC, properties_at - _TOPIC_BYTES)
                    and data[properties_at - 2] << 8 | data[properties_at - 1] == end - properties_at
                ):
                    body, raw = data[body_at : body_at + length], data[properties_at:end]
                    at = raw.rfind(b"\x02REAL_TOPIC\x01")
                    target = _parse_target(raw[at + 1 :]) if at > 0 and len(raw) - at < _MAX_CACHED_TARGET else None
                    if target is not None and crc32(body) & 0x7FFFFFFF == crc:
                        message.topic, message.queue_id = target
                        message.body, message.properties, message.tags_code = body, raw, tags_code_of(raw)
                        message.flag, message.sys_flag, message.reconsume_times = flag, sys_flag, times
                        message.born_ms, message.born_host, message.prepared_offset = born_ms, born_host, offset
                        append(message, now_ms)
                        continue
            self._deliver(window.record(offset, size), now_ms)

    def _deliver(self, record: DeferredRecord | None, now_ms: int) -> None:
        """Deliver a record of any layout."""
        topic, queue_id = ("", 0) if record is None else record.real_target()
        if record is None or not topic or topic == TRANS_HALF_TOPIC or queue_id < 0:
            return
        message = record.message(topic, queue_id)
        if message is not None:
            message.prepared_offset = record.physical_offset
            self._writer.deliver(message, now_ms)

    # Administration

    def table(self) -> DelayOffsetSerializeWrapper:
        """Return the delivered offset of each level that was ever used."""
        offsets = self._offsets if self._confirmed is None else self._confirmed
        return DelayOffsetSerializeWrapper(_used(offsets), self.data_version)

    def runtime_info(self) -> dict[str, str]:
        """Return "next offset,end of queue" of each level, under Apache's names."""
        return {f"scheduleMessageOffset_{level}": f"{at},{end}" for level, at, end in self.progress()}

    def progress(self) -> Iterator[tuple[int, int, int]]:
        """Yield (level, next offset, end of its queue) of each level that was ever used."""
        for number, offset in enumerate(self._offsets):
            queue = self._store.find_queue(SCHEDULE_TOPIC, number)
            if queue is not None:
                yield number + 1, offset, queue.max_offset

    # Persistence

    def load(self, table: Mapping[str, Any]) -> None:
        """Load the contents of delayOffset.json, from this broker or from the master."""
        version, offsets = table.get("dataVersion"), table.get("offsetTable")
        if isinstance(version, dict):
            self.data_version = DataVersion.from_json(version)
        for level, offset in (offsets if isinstance(offsets, dict) else {}).items():
            if str(level).isdigit() and 1 <= int(level) <= len(self._offsets) and isinstance(offset, int) and offset >= 0:
                self._offsets[int(level) - 1] = offset
        self._due_ms = [0] * len(self._offsets)
        self._saved = list(self._offsets)
        if self._confirmed is not None:
            self._confirmed = list(self._offsets)

    def offsets(self) -> list[int]:
        """Return the delivered offsets; level n is at index n - 1."""
        return list(self._offsets)

    def confirm(self, offsets: list[int]) -> None:
        """Mark deliveries below `offsets` as replicated. From now on `table` reports only confirmed offsets."""
        self._confirmed = offsets

    def revert_to_confirmed(self) -> None:
        """Go back to the confirmed offsets: deliveries above them may be truncated and are then repeated."""
        if self._confirmed is not None:
            self._offsets = list(self._confirmed)
            self._saved = list(self._confirmed)
            self._due_ms = [0] * len(self._offsets)

    def has_changed(self) -> bool:
        """Return whether an offset advanced since `to_json`."""
        return self._offsets != self._saved

    def to_json(self, now_ms: int) -> dict[str, Any]:
        """Return the table to save, and mark it as saved. It may be written once the log is durable up to its current end."""
        self._saved = list(self._offsets)
        self.data_version = replace(self.data_version, counter=self.data_version.counter + 1, timestamp=now_ms)
        return {"dataVersion": self.data_version.to_json(), "offsetTable": _used(self._offsets)}


def _used(offsets: list[int]) -> dict[int, int]:
    return {number + 1: offset for number, offset in enumerate(offsets) if offset}


def _skip_delivered(queue: ConsumeQueue, offset: int, delivered: set[int]) -> int:
    """Return the offset behind the last entry from `offset` on whose record was delivered."""
    while entries := queue.entries(offset, _BATCH):
        done = 0
        for number, (physical_offset, _, _) in enumerate(ENTRY.iter_unpack(entries), 1):
            if physical_offset in delivered:
                done = number
        offset += done
        if done * UNIT < len(entries):
            break
    return offset


@lru_cache(maxsize=4096)
def _parse_target(raw: bytes) -> tuple[str, int] | None:
    """Return the destination named by the last properties, as written by `target_properties`; None for any other text."""
    match = _TARGET.fullmatch(raw)
    if match is None or match[1] == TRANS_HALF_TOPIC.encode():
        return None
    return match[1].decode("utf-8", "replace"), int(match[2])
