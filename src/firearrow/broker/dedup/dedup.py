"""Deduplication of repeated sends.

A producer whose reply was lost sends again and cannot know that the first send was stored. A repeat is recognised in two ways:

**Idempotent producers.** A message carries its producer, `__PRODUCER_ID` (up to 128 bytes), and a number, `__PRODUCER_SEQ` (0 to
2^63 - 1). The broker stores each number once for every pair of producer and queue. A repeat is answered with the first result:
queue, queue offset, message ids. Numbers may have gaps and may arrive in any order, since several sends may be in flight. A
producer counts up, per queue or globally, and takes a new id when it has lost its counter.

**Unique keys.** For other clients: with `deduplicateUniqKeyWindowMs`, a UNIQ_KEY that recurs on its topic within so many
milliseconds is a repeat. Clients keep the key when they retry, possibly to another queue.

In an elected group a follower repeats a message that it forwards to the leader if it gets no answer (ha/elected/forwarding.py).
Such messages are remembered by their unique keys for some seconds, whatever the settings say.

This applies to single messages and batches, and to delayed and half messages (the first result is then that of the held record).
It does not apply to retry and dead-letter topics: a consumer sends a message there on every failure, with its old properties.
Applications that forward consumed messages with their properties should remove those of the producer.

State:
- for each pair at least its last `idempotentProducerWindow` numbers. An older number may or may not have been stored: it is
  rejected with 13.
- `idempotentProducerMaxNum` pairs. The least recently used one is evicted first; its numbers would be stored again.
- the newest `deduplicateUniqKeyMaxNum` keys.

All state is a function of the log: snapshot.py restores it at the start.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from firearrow.broker.dedup.windows import Producers, ProducerWindow
from firearrow.broker.message import read_message
from firearrow.broker.requests.responses import Refused
from firearrow.broker.send.validation import MAX_PRODUCER_ID_BYTES, MAX_SEQUENCE, SUSPICIOUS, producer_sequence
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.timer.admission import recall_handle
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire import batch, properties
from firearrow.wire.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from firearrow.wire.record import TRANSACTION_COMMIT, Record

_NOT_HERE = (RETRY_PREFIX, DLQ_PREFIX)
_WAITING_TOPICS = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC))
PASSED_ON = 0x4  # flag of a request that another member of the elected group forwards
_PASSED_ON_MS = 10_000  # a member that lost the connection, or takes another for the leader, tries again within 3 s
_PASSED_ON_MOST = 200_000
_FRESH_LOOK = 1_024  # fresh results between two searches for those that are readable in the log


class StoredResult(NamedTuple):
    """The result of a send, as it was answered the first time."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    unique_key: bytes
    store_ms: int
    more: dict[str, str] | None = None  # additional fields of the reply


class DedupClaim(NamedTuple):
    """A message to be stored. `first` is set for a repeat, which must not be stored."""

    first: StoredResult | None
    window: ProducerWindow | None
    sequence: int
    key: bytes | None  # under which it is remembered, if unique keys are
    passed_on: bool = False


class SequenceRun(NamedTuple):
    """A batch of one producer with increasing numbers above all earlier ones in the queue: none is a repeat."""

    window: ProducerWindow
    sequences: list[int]
    properties: list[bytes]  # as far as they stand before the number


class _FreshBatch(NamedTuple):
    """Offsets and properties of a batch's messages, which a repeat needs until they can be read from the log."""

    queue_id: int
    queue_offset: int
    offsets: Sequence[int]
    properties: list[bytes]
    store_ms: int

    def first(self, offset: int) -> StoredResult:
        at = self.offsets.index(offset)
        unique_key = properties.find(self.properties[at], b"UNIQ_KEY") or b""
        return StoredResult(self.queue_id, self.queue_offset + at, offset, unique_key, self.store_ms)


class Dedup:
    def __init__(self, settings: BrokerSettings, store: MessageStore) -> None:
        self.producers = Producers(settings.idempotent_producer_max_num, settings.idempotent_producer_window)
        self.keys: UniqueKeyWindow | None = None
        if settings.deduplicate_uniq_key_window_ms:
            self.enable_keys(settings.deduplicate_uniq_key_window_ms, settings.deduplicate_uniq_key_max_num)
        self._passed_on = UniqueKeyWindow(_PASSED_ON_MS, _PASSED_ON_MOST)
        self._store = store
        self._broker_name = settings.broker_name
        self._fresh: dict[int, StoredResult] = {}  # by physical offset: what cannot be read from the log yet
        self._fresh_batches: deque[_FreshBatch] = deque()  # the same of whole batches, in the order of the log
        self._next_look = _FRESH_LOOK

    def enable_keys(self, window_ms: int, max_num: int) -> None:
        """Recognise repeated messages by their unique keys."""
        self.keys = UniqueKeyWindow(window_ms, max_num)

    def disable_keys(self) -> None:
        self.keys = None

    def claim(
        self, queue: ConsumeQueue, sequence: tuple[str, int] | None, unique_key: bytes, now_ms: int, *, passed_on: bool = False
    ) -> DedupClaim | None:
        """Claim a message. None: the message is not deduplicated. Rejects (13) a number that is too old to be recognised."""
        if queue.topic.startswith(_NOT_HERE):
            return None
        window, number, key = None, 0, None
        if sequence is not None:
            producer, number = sequence
            window = self.producers.window(producer, queue.topic, queue.queue_id)
            at = window.find(number)
            if at is not None:
                return DedupClaim(self._first_of(window, at, queue.queue_id, unique_key), window, number, None)
        for keys in (self.keys, self._passed_on if passed_on else None):
            if keys is None or not unique_key:
                continue
            key = _key(queue.topic, unique_key)
            offset = keys.find(key, now_ms)
            first = None if offset is None else self._read(offset)
            if first is not None and now_ms - first.store_ms <= keys.window_ms:
                return DedupClaim(first, None, 0, None)
        return None if window is None and key is None else DedupClaim(None, window, number, key, passed_on)

    def stored(self, claim: DedupClaim, first: StoredResult) -> None:
        """Record the result of a claimed message."""
        offset = first.physical_offset
        self._fresh[offset] = first
        if len(self._fresh) >= self._next_look:
            readable = self._store.confirm_offset
            self._fresh = {offset: first for offset, first in self._fresh.items() if offset >= readable}
            self._next_look = 2 * len(self._fresh) + _FRESH_LOOK
        if claim.window is not None:
            claim.window.add(claim.sequence, first.queue_offset, offset)
            self.producers.changes += 1
        if claim.key is None:
            return
        if self.keys is not None and self.keys.learns:
            self.keys.add(claim.key, offset, first.store_ms)
        if claim.passed_on:
            self._passed_on.add(claim.key, offset, first.store_ms)

    def claim_new(self, queue: ConsumeQueue, body: bytes) -> SequenceRun | None:
        """Claim a batch that is new as a whole. None: its messages must be claimed one by one."""
        if self.keys is not None or queue.topic.startswith(_NOT_HERE):
            return None
        found = rising_numbers(body)
        if found is None:
            return None
        producer, numbers, blocks = found
        window = self.producers.window(producer, queue.topic, queue.queue_id)
        return SequenceRun(window, numbers, blocks) if numbers[0] > window.highest else None

    def stored_new(self, claim: SequenceRun, queue: ConsumeQueue, offsets: Sequence[int], now_ms: int) -> None:
        """Record the result of a batch claimed as a whole, at the end of its queue."""
        fresh, readable = self._fresh_batches, self._store.confirm_offset
        while fresh and fresh[0].offsets[-1] < readable:
            fresh.popleft()
        queue_offset = queue.next_offset - len(offsets)
        fresh.append(_FreshBatch(queue.queue_id, queue_offset, offsets, claim.properties, now_ms))
        claim.window.extend(claim.sequences, range(queue_offset, queue.next_offset), offsets)
        self.producers.changes += 1

    def forget(self, topic: str) -> None:
        """Drop the state of a deleted topic; a new topic of the same name starts empty."""
        self.producers.forget(topic)
        for keys in (self.keys, self._passed_on):
            if keys is not None:
                keys.forget(_key(topic, b""))

    def replay(self, record: Record) -> None:
        """Restore the state of a send from its record. Records are passed in log order."""
        known = properties.find
        topic, queue_id = _destination(record)
        waiting = record.topic in _WAITING_TOPICS
        if not topic or topic.startswith(_NOT_HERE) or not self._in_its_queue(record):
            return
        try:
            sequence = producer_sequence(record.properties)
        except Refused:  # written by a broker without support for these properties
            sequence = None
        if sequence is not None:
            window = self.producers.window(sequence[0], topic, queue_id)
            if not window.knows(sequence[1]):
                window.add(sequence[1], record.queue_offset, record.physical_offset)
        if self.keys is None:
            return
        # A record stored again when it became due or was committed is not a repeated send.
        again = record.sys_flag & TRANSACTION_COMMIT or known(record.properties, b"REAL_TOPIC") is not None
        unique_key = known(record.properties, b"UNIQ_KEY")
        if unique_key is not None and (waiting or not again):
            self.keys.replay(_key(topic, unique_key), record.physical_offset, record.store_timestamp)

    def _first_of(self, window: ProducerWindow, at: int, queue_id: int, own_key: bytes) -> StoredResult:
        offset = window.physical_offsets[at]
        return self._read(offset) or StoredResult(queue_id, window.queue_offsets[at], offset, own_key, 0)

    def _read(self, physical_offset: int) -> StoredResult | None:
        """Return the result of the record there; None if it is no longer in the log."""
        fresh = self._fresh.get(physical_offset)
        if fresh is not None:
            return fresh
        for sent in self._fresh_batches:
            if sent.offsets[0] <= physical_offset <= sent.offsets[-1] and physical_offset in sent.offsets:
                return sent.first(physical_offset)
        record = read_message(self._store, physical_offset)
        if record is None:
            return None
        topic, queue_id = _destination(record)
        unique_key = properties.find(record.properties, b"UNIQ_KEY") or b""
        more = None
        out_ms = properties.find(record.properties, b"TIMER_OUT_MS")
        if record.topic == TIMER_TOPIC and out_ms is not None and out_ms.isdigit():
            handle = recall_handle(topic, self._broker_name, int(out_ms) + 1, unique_key.decode("utf-8", "replace"))
            more = {"recallHandle": handle}
        return StoredResult(queue_id, record.queue_offset, physical_offset, unique_key, record.store_timestamp, more)

    def _in_its_queue(self, record: Record) -> bool:
        """Return False for a record of a topic that was deleted, and possibly recreated, since."""
        queue = self._store.find_queue(record.topic, record.queue_id)
        if queue is None or not queue.min_offset <= record.queue_offset < queue.max_offset:
            return False
        entry = queue.entry(record.queue_offset)
        return entry is not None and entry[0] == record.physical_offset


class UniqueKeyWindow:
    """Unique keys of the last milliseconds and their offsets.

    There are two generations; the older is dropped as a whole when the younger is as old as the window.
    """

    def __init__(self, window_ms: int, max_num: int) -> None:
        self.window_ms = window_ms
        self.learns = True  # what is stored from now on
        self._half = max(1, max_num // 2)
        self._young: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}
        self._since_ms = 0

    def stop_learning(self) -> None:
        """Recognise only the keys known so far."""
        self.learns = False

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def find(self, key: bytes, now_ms: int) -> int | None:
        """Return the physical offset of the message, which may be older than the window."""
        self._turn(now_ms)
        offset = self._young.get(key)
        return self._old.get(key) if offset is None else offset

    def add(self, key: bytes, physical_offset: int, now_ms: int) -> None:
        self._young[key] = physical_offset
        if len(self._young) >= self._half:
            self._next_generation(now_ms)

    def replay(self, key: bytes, physical_offset: int, store_ms: int) -> None:
        if self.find(key, store_ms) is None:
            self.add(key, physical_offset, store_ms)

    def forget(self, prefix: bytes) -> None:
        for generation in (self._young, self._old):
            for key in [key for key in generation if key.startswith(prefix)]:
                del generation[key]

    def _turn(self, now_ms: int) -> None:
        if now_ms - self._since_ms > self.window_ms:
            if now_ms - self._since_ms > 2 * self.window_ms:
                self._young = {}
            self._next_generation(now_ms)

    def _next_generation(self, now_ms: int) -> None:
        self._old, self._young, self._since_ms = self._young, {}, now_ms


def _destination(record: Record) -> tuple[str, int]:
    """Return the topic and queue that a message was sent to, also while it is held."""
    if record.topic not in _WAITING_TOPICS:
        return record.topic, record.queue_id
    topic = (properties.find(record.properties, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
    number = properties.find(record.properties, b"REAL_QID") or b"0"
    return topic, int(number) if number.isdigit() else 0


def _key(topic: str, unique_key: bytes) -> bytes:
    return b"%b\0%b" % (topic.encode(), unique_key)


_PRODUCER: Final = b"\x02__PRODUCER_ID\x01"
_NUMBER: Final = b"\x02__PRODUCER_SEQ\x01"
_MOST_DIGITS: Final = len(str(MAX_SEQUENCE))
_head_at = struct.Struct(">i12xi").unpack_from  # total, body length


def rising_numbers(body: bytes) -> tuple[str, list[int], list[bytes]] | None:
    """Return producer, numbers and properties of a batch in the form our clients write it, in one pass.

    In this form the properties of each message end with `__PRODUCER_ID`, the same for all, and an increasing `__PRODUCER_SEQ`.
    None for any other batch, and for one with properties that need validation: its messages are claimed one by one, which takes
    ten times as long. Invalid lengths are detected by the append.
    """
    numbers: list[int] = []
    blocks: list[bytes] = []
    mark = b""
    pos, end = 0, len(body)
    try:
        while pos < end:
            total, text_length = _head_at(body, pos)
            if total < batch.FIXED_BYTES or text_length < 0:
                return None
            raw = body[pos + batch.FIXED_BYTES + text_length : pos + total]
            mark = mark or _producer_mark(raw)
            block, _, number = raw.partition(mark)
            digits = number[:-1]
            if not digits.isdigit() or len(digits) > _MOST_DIGITS or number[-1] != 2 or SUSPICIOUS in block:
                return None
            numbers.append(int(digits))
            blocks.append(block)
            pos += total
    except (struct.error, ValueError):  # too short; no mark
        return None
    if not numbers or numbers[-1] > MAX_SEQUENCE or any(later <= number for number, later in pairwise(numbers)):
        return None
    return mark[len(_PRODUCER) : -len(_NUMBER)].decode("utf-8", "replace"), numbers, blocks


def _producer_mark(raw: bytes) -> bytes:
    """Return the part of the properties before the number. Raises ValueError for any other form."""
    at = raw.index(_PRODUCER)
    producer, found, _ = raw[at + len(_PRODUCER) :].partition(_NUMBER)
    if not producer or not found or b"\x02" in producer or len(producer) > MAX_PRODUCER_ID_BYTES:
        raise ValueError("no producer")
    return _PRODUCER + producer + _NUMBER
