"""Delay levels: messages with the property DELAY wait in SCHEDULE_TOPIC_XXXX, one queue per level, until they are due.

A level is a number from 1; `messageDelayLevel` gives its delay ("1s 5s 10s ... 2h": level 1 is one second). All messages of a
level wait equally long, so its queue is in order of due time, and the first one tells for all: a million waiting messages cost a
tick one comparison. When a message is stored, its due time goes into the queue entry in the place of the tags code.

    send, DELAY=3  --place-->  SCHEDULE_TOPIC_XXXX, queue 2  --due-->  its REAL_TOPIC and REAL_QID, with all its properties

How far each level was delivered is saved to `config/delayOffset.json`. The file never says more than what is durable in the log:
after a crash a message may be delivered again, never left out.

Invariants
- Nothing is delivered before it is due, except when the clock was set back: an entry due later than now + delay is due now.
- A level's offset moves only over entries that were delivered, or can never be (their record is gone).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from zlib import crc32

from firearrow.broker.deferred.records import DeferredRecord, LogWindow, parse_long, read_neighbours
from firearrow.broker.deferred.router import target_properties
from firearrow.broker.message import HOST_BITS, PREPARED, TRANSACTION_BITS, BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.broker.send.internal import InternalWriter
from firearrow.store.consume_queue import ENTRY, ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire import properties
from firearrow.wire.bodies import DataVersion, DelayOffsetSerializeWrapper
from firearrow.wire.codes import ResponseCode
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from firearrow.wire.record import HEAD, HEAD_BYTES, MAGIC_V1

MAX_A_TICK = 2_000  # deliveries of one level in one tick: the loop has others to serve
_RUN = 256  # queue entries looked at together
_INT32 = 1 << 31
_SAYS = b"\x02DELAY\x01%d\x02"
_BOUND = re.compile(rb"REAL_TOPIC\x01([^\x01\x02]+)\x02REAL_QID\x01([0-9]{1,9})\x02")
_LONGEST_BOUND = 512  # bytes of the last two properties: longer ones are not worth remembering
_TOPIC = bytes((len(SCHEDULE_TOPIC),)) + SCHEDULE_TOPIC.encode()
_TOPIC_BYTES = len(_TOPIC) + 2  # with the length of the properties
_LEAST_BYTES = HEAD_BYTES + _TOPIC_BYTES


class DelayService:
    def __init__(self, levels_ms: list[int], store: MessageStore, inner: InternalWriter) -> None:
        self.data_version = DataVersion(counter=0, state_version=0, timestamp=0)
        self._levels_ms = levels_ms
        self._store = store
        self._inner = inner
        self._offsets = [0] * len(levels_ms)  # next entry to deliver, by level - 1
        self._due_ms = [0] * len(levels_ms)  # when that entry is due; 0: not looked at yet
        self._saved = list(self._offsets)
        self._safe: list[int] | None = None  # of a member of an elected group: what is delivered so far cannot be taken back

    # Coming in.

    def defer(self, message: BrokerMessage, now_ms: int) -> bool:
        """Redirect a message with a delay level to the queue of its level; False if it has none or is a half message."""
        level = self._level(message)
        if level == 0:
            return False
        raw = message.properties
        if raw.find(b"REAL_") >= 0 or raw.find(_SAYS % level) < 0 or raw.count(b"DELAY\x01") > 1:
            # It was delayed before, or asks for a level that there is not: what it says is put right.
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

    # Going out.

    def tick(self, now_ms: int) -> bool:
        """Delivers what is due. True when more is due than one tick may deliver."""
        more = False
        for number, due_ms in enumerate(self._due_ms):
            if due_ms <= now_ms:
                queue = self._store.find_queue(SCHEDULE_TOPIC, number)
                if queue is not None and self._offsets[number] < queue.max_offset:
                    more |= self._deliver_level(number, queue, now_ms)
        return more

    def next_due_ms(self) -> int | None:
        """When a tick will have something to deliver; None: nothing is known to wait."""
        waiting = [
            due_ms
            for number, due_ms in enumerate(self._due_ms)
            if (queue := self._store.find_queue(SCHEDULE_TOPIC, number)) is not None and self._offsets[number] < queue.max_offset
        ]
        return min(waiting, default=None)

    def _deliver_level(self, number: int, queue: ConsumeQueue, now_ms: int) -> bool:
        offset = min(max(self._offsets[number], queue.min_offset), queue.max_offset)
        latest_ms = now_ms + self._levels_ms[number]
        left = MAX_A_TICK
        while left > 0 and offset < queue.max_offset:
            entries = queue.entries(offset, min(_RUN, left))
            if not entries:  # a file of the queue is missing
                offset = queue.max_offset
                break
            due: list[tuple[int, int]] = []
            later_ms = 0
            for physical_offset, size, due_ms in ENTRY.iter_unpack(entries):
                if now_ms < due_ms <= latest_ms:
                    later_ms = due_ms
                    break
                due.append((physical_offset, size))
            for neighbours in read_neighbours(self._store, due):
                self._deliver_all(neighbours, now_ms)
            offset += len(due)
            left -= len(due)
            if later_ms:
                self._offsets[number], self._due_ms[number] = offset, later_ms
                return False
        self._offsets[number], self._due_ms[number] = offset, 0
        return offset < queue.max_offset

    def _deliver_all(self, neighbours: LogWindow, now_ms: int) -> None:
        """Copy records of the usual layout directly from the log to the log; `_deliver` handles all others.

        One message object is reused for all of them: creating one per record would cost 0.3 us more.
        """
        start, data, wanted = neighbours
        head_at, append, end_of_data = HEAD.unpack_from, self._inner.append, len(data)
        message = BrokerMessage("", 0, b"", b"", 0, 0, 0, b"")
        for offset, size in wanted:
            at = offset - start
            end = at + size
            if size > _LEAST_BYTES and end <= end_of_data:
                (
                    total, magic, crc, _, flag, _, physical_offset, sys_flag, born_ms, born_host, _, _, times, _, length,
                ) = head_at(data, at)  # fmt: skip
                body_at = at + HEAD_BYTES
                names_at = body_at + length + _TOPIC_BYTES
                if (
                    total == size
                    and physical_offset == offset
                    and magic == MAGIC_V1
                    and not sys_flag & HOST_BITS
                    and length >= 0
                    and names_at < end
                    and data.startswith(_TOPIC, names_at - _TOPIC_BYTES)
                    and data[names_at - 2] << 8 | data[names_at - 1] == end - names_at
                ):
                    body, raw = data[body_at : body_at + length], data[names_at:end]
                    bound = raw.rfind(b"\x02REAL_TOPIC\x01")
                    there = _parse_target(raw[bound + 1 :]) if bound > 0 and end - names_at - bound < _LONGEST_BOUND else None
                    if there is not None and crc32(body) & 0x7FFFFFFF == crc:
                        message.topic, message.queue_id = there
                        message.body, message.properties, message.tags_code = body, raw, tags_code_of(raw)
                        message.flag, message.sys_flag, message.reconsume_times = flag, sys_flag, times
                        message.born_ms, message.born_host = born_ms, born_host
                        append(message, now_ms)
                        continue
            self._deliver(neighbours.record(offset, size), now_ms)

    def _deliver(self, record: DeferredRecord | None, now_ms: int) -> None:
        """The same for records of any shape."""
        topic, queue_id = ("", 0) if record is None else record.real_target()
        if record is None or not topic or topic == TRANS_HALF_TOPIC or queue_id < 0:
            return
        message = record.message(topic, queue_id)
        if message is not None:
            self._inner.deliver(message, now_ms)

    # What operators and replicas ask for.

    def table(self) -> DelayOffsetSerializeWrapper:
        """How far each level is delivered, of those that were ever used."""
        return DelayOffsetSerializeWrapper(_used(self._offsets if self._safe is None else self._safe), self.data_version)

    def figures(self) -> dict[str, str]:
        """For the state of the broker, under Apache's names: offset to be delivered next, end of the queue."""
        queues = {number: self._store.find_queue(SCHEDULE_TOPIC, number) for number in range(len(self._offsets))}
        return {
            f"scheduleMessageOffset_{number + 1}": f"{self._offsets[number]},{queue.max_offset}"
            for number, queue in queues.items()
            if queue is not None
        }

    # On the disk.

    def load(self, table: Mapping[str, Any]) -> None:
        """Takes over what delayOffset.json held, here or at the master."""
        version, offsets = table.get("dataVersion"), table.get("offsetTable")
        if isinstance(version, dict):
            self.data_version = DataVersion.from_json(version)
        for level, offset in (offsets if isinstance(offsets, dict) else {}).items():
            if str(level).isdigit() and 1 <= int(level) <= len(self._offsets) and isinstance(offset, int) and offset >= 0:
                self._offsets[int(level) - 1] = offset
        self._due_ms = [0] * len(self._offsets)
        self._saved = list(self._offsets)
        if self._safe is not None:
            self._safe = list(self._offsets)

    def offsets(self) -> list[int]:
        """By level - 1."""
        return list(self._offsets)

    def confirmed(self, offsets: list[int]) -> None:
        """What was delivered below these offsets is confirmed: others are told of no more from now on."""
        self._safe = offsets

    def take_back(self) -> None:
        """What was delivered and not confirmed may be gone: it is delivered again, if this broker does it."""
        if self._safe is not None:
            self._offsets = list(self._safe)
            self._saved = list(self._safe)
            self._due_ms = [0] * len(self._offsets)

    def changed(self) -> bool:
        return self._offsets != self._saved

    def to_json(self, now_ms: int) -> dict[str, Any]:
        """What to save, marked as saved. The caller writes it when the log is durable up to where it ends now."""
        self._saved = list(self._offsets)
        version = self.data_version
        self.data_version = DataVersion(counter=version.counter + 1, state_version=version.state_version, timestamp=now_ms)
        return {"dataVersion": self.data_version.to_json(), "offsetTable": _used(self._offsets)}


def _used(offsets: list[int]) -> dict[int, int]:
    return {number + 1: offset for number, offset in enumerate(offsets) if offset}


@lru_cache(maxsize=4096)
def _parse_target(raw: bytes) -> tuple[str, int] | None:
    """Return the destination named by the last properties, as written by `target_properties`; None for any other text."""
    match = _BOUND.fullmatch(raw)
    if match is None or match[1] == TRANS_HALF_TOPIC.encode():
        return None
    return match[1].decode("utf-8", "replace"), int(match[2])
