"""The log as a copy of another broker's: its bytes are taken as they are, and taken back where a group decides so.

    bytes --write_raw--> the log --look_at_raw--> whole records, that wait to be confirmed --MessageStore.confirm--> readable

Of a member of an elected group the mark says how far the log was durable and confirmed (mark.py).

Following another broker's log: its bytes are written as they come, and records are looked for in them afterwards.

The log of a replica is the master's log, byte for byte and at the same offsets: records, the blank that closes a segment and
whatever lies behind it. Bytes arrive in pieces that know nothing of records. Whole records, as far as they have arrived, get
their queue entries and go to the key index, many at a time (`columns.scan`), the same way as in recovery.

    add(data)                     these bytes were written at the end of the log
    look() -> AppendGroup | None  the records that have become whole since the last look, ready to be confirmed

Looking seldom is cheap: what a look costs depends little on how many records it finds.

Invariants
- `position` is where a record, or a blank, begins, or where one will; everything from there to the end of the log is in `_rest`,
  but for filler behind a blank, which is passed over as it comes. The position is behind it when all of it has come.
- Bytes that are no record at `position` end the following, with a FollowError that says what to do. The bytes stay where they
  are: a recovery finds them behind the end of the log, keeps a copy and zeroes their place.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from zlib import crc32

import numpy as np

from firearrow.config.delay_levels import parse_delay_levels
from firearrow.store.checkpoint import CheckpointFile
from firearrow.store.commitlog.log import BLANK_SIZE, NOT_DISPATCHED, AppendGroup, CommitLog, IndexInput
from firearrow.store.commitlog.reader import StoreReader
from firearrow.store.commitlog.scan import SCHEDULE_TOPIC, ScanResult, Stop, scan
from firearrow.store.commitlog.segment import SegmentPreallocator
from firearrow.store.commitlog.truncation import cut_log, forget_groups, pieces, take_back
from firearrow.store.consume_queue import ABSENT_SIZE, ENTRY, UNIT, ConsumeQueue
from firearrow.store.dispatcher import Dispatcher
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk
from firearrow.store.group_mark import Mark, MarkFile
from firearrow.store.key_index.index import KeyIndex
from firearrow.store.queue_table import QueueTable, save_queue_table
from firearrow.store.settings import StoreSettings
from firearrow.store.threads import Flusher, Housekeeper
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.record import (
    BORN_HOST_V6,
    FIXED_BYTES_V1,
    HEAD,
    MAGIC_V1,
    STORE_HOST_V6,
)

_I32 = Struct(">i")
_SIZE_AND_MAGIC = Struct(">ii")
_FEW_BYTES = 32 * 1024
_MOST_TOPICS = 10_000
_UNUSUAL = BORN_HOST_V6 | STORE_HOST_V6 | NOT_DISPATCHED
_LARGEST_GAP = 1_000_000  # entries; a queue offset further ahead is damaged
_ENTRY_TYPE = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


class FollowError(StoreError):
    """What the other broker sends cannot follow what is here."""


class ReplicaIndexer:
    """`queue_of` and `drop_topic` are the store's; `note` gets what is odd, in words."""

    def __init__(
        self,
        settings: StoreSettings,
        queue_of: Callable[[str, int], ConsumeQueue],
        drop_topic: Callable[[str], None],
        note: Callable[[str], None],
        position: int,
    ) -> None:
        self.position = position
        self.broken = False  # what came was no record
        self._segment_size = settings.mapped_file_size_commit_log
        self._check_crc = settings.check_crc_on_recover
        self._delay_levels_ms = parse_delay_levels(settings.message_delay_level)
        self._directory = settings.store_path_root_dir
        self._queue_of = queue_of
        self._drop_topic = drop_topic
        self._note = note
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._needed = BLANK_SIZE  # with fewer bytes there is nothing to look at
        self._filler = 0  # bytes behind a blank that have not arrived yet
        self._store_ms = 0
        self._topics: dict[bytes, str] = {}  # seen already, of the ordinary kind, fit to have queues

    @property
    def unseen_bytes(self) -> int:
        return self._rest_bytes

    def add(self, data: bytes) -> None:
        self._rest.append(data)
        self._rest_bytes += len(data)

    def take(self, data: bytes) -> AppendGroup | None:
        self.add(data)
        return self.look()

    def look(self) -> AppendGroup | None:
        touched: dict[ConsumeQueue, int] = {}
        index_input: list[IndexInput] = []
        scans: list[ScanResult] = []
        before = self.position
        while self._rest_bytes and (self._filler or self._rest_bytes >= self._needed):
            buffer = self._rest[0] if len(self._rest) == 1 else b"".join(self._rest)
            if self._filler:
                used = self._pass_filler(buffer)
            else:
                few = len(buffer) <= _FEW_BYTES and not scans
                used = self._pass_few(buffer, touched, index_input) if few else 0
                used = used or self._pass_records(buffer, touched, scans)
            self._rest = [buffer[used:]] if used < len(buffer) else []
            self._rest_bytes = len(buffer) - used
        if self.position == before:
            return None
        return AppendGroup(self.position, self._store_ms, touched, index_input, scans)

    def _pass_filler(self, buffer: bytes) -> int:
        passed = min(self._filler, len(buffer))
        self._filler -= passed
        if not self._filler:
            self.position = self._segment_end()
        return passed

    def _segment_end(self) -> int:
        return self.position - self.position % self._segment_size + self._segment_size

    def _pass_few(self, buffer: bytes, touched: dict[ConsumeQueue, int], index_input: list[IndexInput]) -> int:
        """As `_pass_records`, one after the other: for a few records that is quicker. Stops at what is out of the ordinary."""
        at, left = 0, min(len(buffer), self._segment_end() - self.position)
        self._needed = BLANK_SIZE
        while left - at >= BLANK_SIZE:
            size, magic = _SIZE_AND_MAGIC.unpack_from(buffer, at)
            if magic != MAGIC_V1 or size < FIXED_BYTES_V1:
                break
            end = at + size
            if end > left:
                if self.position + size < self._segment_end():
                    self._needed = size
                break
            head = HEAD.unpack_from(buffer, at)
            queue_id, queue_offset, offset, sys_flag, store_ms, body_length = (
                head[3],
                head[5],
                head[6],
                head[7],
                head[10],
                head[14],
            )
            body_end = at + HEAD.size + body_length
            if sys_flag & _UNUSUAL or queue_id < 0 or body_length < 0 or body_end + 3 > end or offset != self.position:
                break
            topic_end = body_end + 1 + buffer[body_end]
            topic = self._topics.get(buffer[body_end + 1 : topic_end])
            if topic is None or topic_end + 2 + int.from_bytes(buffer[topic_end : topic_end + 2], "big") != end:
                break
            if self._check_crc and crc32(buffer[at + HEAD.size : body_end]) & 0x7FFFFFFF != head[2]:
                break
            raw = buffer[topic_end + 2 : end]
            queue = self._queue_of(topic, queue_id)
            entry = ENTRY.pack(offset, size, tags_code_of(raw))
            if queue_offset == queue.next_offset:
                queue.tail += entry
                queue.next_offset += 1
            else:
                queue = self._extend_by_one(queue, queue_offset, entry)
            touched[queue] = queue.next_offset
            index_input.append((offset, store_ms, topic, raw))
            self._store_ms = store_ms
            self.position += size
            at = end
        return at

    def _pass_records(self, buffer: bytes, touched: dict[ConsumeQueue, int], scans: list[ScanResult]) -> int:
        """Takes the whole records at the start of the buffer; returns how many bytes they have."""
        segment_end = self._segment_end()
        here = buffer if len(buffer) <= segment_end - self.position else buffer[: segment_end - self.position]
        result = scan(here, self.position, check_crc=self._check_crc, delay_levels_ms=self._delay_levels_ms)
        if len(result):
            self._store_ms = int(result.store_ms[-1])
            self._extend_queues(result, touched)
            scans.append(result)
        self.position += result.end
        left = segment_end - self.position
        self._needed = BLANK_SIZE
        if result.stop is Stop.END and max(result.needed, BLANK_SIZE) <= left:
            self._needed = max(result.needed, BLANK_SIZE)
        elif result.stop is Stop.BLANK and _I32.unpack_from(here, result.end)[0] == left:
            self._filler = left
        elif left:
            self.broken = True
            raise FollowError(self._complaint(result.stop))
        return result.end

    def _complaint(self, stop: Stop) -> str:
        place = self.position
        if stop is Stop.BLANK:
            return (
                f"at log offset {place} the master's segment ends, and the one here does not: mappedFileSizeCommitLog is "
                f"{self._segment_size} here and another there; set it as there, move {self._directory} away and start again"
            )
        return (
            f"the master's bytes at log offset {place} are no record that could follow the log here ({stop.value}): this log is "
            f"damaged or belongs to another master; move {self._directory} away and start again, all is then copied anew"
        )

    def _extend_queues(self, result: ScanResult, touched: dict[ConsumeQueue, int]) -> None:
        picked = np.flatnonzero((result.sys_flag & NOT_DISPATCHED) == 0)
        if not len(picked):
            return
        keys = (result.topic_id[picked] << 32) | (result.queue_id[picked] & 0xFFFFFFFF)
        if len(picked) > 1:
            order = np.argsort(keys, kind="stable")
            keys, picked = keys[order], picked[order]
        entries = np.empty(len(picked), _ENTRY_TYPE)
        entries["offset"] = result.offset[picked]
        entries["size"] = result.size[picked]
        entries["tags_code"] = result.tags_code[picked]
        data = entries.tobytes()
        queue_offsets = result.queue_offset[picked].tolist()
        bounds = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
        for begin, end in pairwise(bounds):
            key = int(keys[begin])
            topic, queue_id = result.topics[key >> 32], (key & 0xFFFFFFFF) - ((key & 0x80000000) << 1)
            try:
                queue = self._queue_of(topic, queue_id)
            except ValueError as error:
                self._note(str(error))
                continue
            if topic != SCHEDULE_TOPIC and len(self._topics) < _MOST_TOPICS:
                self._topics[topic.encode()] = topic
            run = data[begin * UNIT : end * UNIT]
            first = queue_offsets[begin]
            if first == queue.next_offset and queue_offsets[end - 1] - first == end - begin - 1:
                queue.tail += run
                queue.next_offset += end - begin
            else:
                for i in range(begin, end):
                    queue = self._extend_by_one(queue, queue_offsets[i], data[i * UNIT : (i + 1) * UNIT])
            touched[queue] = queue.next_offset

    def _extend_by_one(self, queue: ConsumeQueue, queue_offset: int, entry: bytes) -> ConsumeQueue:
        """Adds one entry that may not be the next in line; returns its queue."""
        gap = queue_offset - queue.next_offset
        unused = queue.next_offset == queue.lowest_entry() and not queue.tail
        if gap and unused:
            queue.reset(queue_offset)  # the log here begins later than the queue does
        elif gap < 0 and queue_offset == 0:
            self._drop_topic(queue.topic)  # it was deleted and made again
            queue = self._queue_of(queue.topic, queue.queue_id)
        elif gap < 0 or gap > _LARGEST_GAP:
            self._note(f"{queue.topic} queue {queue.queue_id}: a record claims queue offset {queue_offset}; left out")
            return queue
        elif gap:
            self._note(f"{queue.topic} queue {queue.queue_id}: offsets {queue.next_offset} to {queue_offset - 1} have no message")
            queue.tail += ENTRY.pack(ENTRY.unpack(entry)[0], ABSENT_SIZE, 0) * gap
            queue.next_offset = queue_offset
        queue.tail += entry
        queue.next_offset += 1
        return queue


@dataclass(frozen=True, slots=True)
class StoreParts:
    """What a store is made of, for those who need more than one part."""

    settings: StoreSettings
    disk: Disk
    root: str
    log: CommitLog
    reader: StoreReader
    flusher: Flusher
    housekeeper: Housekeeper
    dispatcher: Dispatcher
    index: KeyIndex | None
    ahead: SegmentPreallocator
    checkpoint: CheckpointFile
    unconfirmed: deque[AppendGroup]
    problems: list[str]
    queue: Callable[[str, int], ConsumeQueue]
    drop_topic: Callable[[str], None]
    topics: Callable[[], set[str]]
    now_ms: Callable[[], int]


class ReplicaLog:
    def __init__(self, parts: StoreParts) -> None:
        self.mark_file: MarkFile | None = None  # of a member
        self.follower: ReplicaIndexer | None = None  # while it is a copy
        self._parts = parts

    # Copying

    def append_raw(self, data: bytes, offset: int) -> AppendGroup | None:
        """Takes bytes of another broker's log, which begin at `offset`, as they are; this store is its replica from then on.

        Returns the group of records that became whole; `confirm` makes it readable. An empty log begins wherever the first
        bytes do. FollowError when the bytes cannot follow what is here.
        """
        self.write_raw(data, offset)
        return self.look_at_raw()

    def write_raw(self, data: bytes, offset: int) -> int:
        """The first half of `append_raw`: nobody has looked at the records yet. Returns how many bytes nobody has looked at."""
        parts = self._parts
        log = parts.log
        if self.follower is None or log.next_offset == log.min_offset != offset:
            self._begin_following(offset)
        assert self.follower is not None
        if offset != log.next_offset:
            raise FollowError(f"bytes of log offset {offset} cannot follow a log that ends at {log.next_offset}")
        log.write_raw(data)
        if parts.settings.sync_flush:
            parts.flusher.request(log.written_offset)
        if log.written_offset >= parts.ahead.due:
            parts.ahead.look()
        self.follower.add(data)
        return self.follower.unseen_bytes

    def look_at_raw(self) -> AppendGroup | None:
        """The second half: for many pieces at once it costs much less."""
        group = self.follower.look() if self.follower is not None else None
        if group is not None:
            self._parts.unconfirmed.append(group)
        return group

    def follow_no_more(self) -> None:
        """What is appended from now on is this broker's own."""
        self.follower = None

    def follow_from(self, offset: int) -> None:
        """Records from `offset` on are in the log already: they wait to be confirmed."""
        log, follower = self._parts.log, self._new_follower(offset)
        for data in pieces(log, offset, log.written_offset):
            group = follower.take(data)
            if group is not None:
                self._parts.unconfirmed.append(group)

    def _begin_following(self, offset: int) -> None:
        parts = self._parts
        log = parts.log
        if log.next_offset == log.min_offset != offset:
            if offset % log.segment_size:
                raise FollowError(
                    f"the master's log begins at {offset}, where no segment of {log.segment_size} bytes does; set "
                    "mappedFileSizeCommitLog as there"
                )
            log.begin_anew(offset)
            parts.flusher.flushed_offset = log.durable_offset = parts.reader.confirm_offset = offset
            parts.checkpoint.now.flushed_offset = offset
            parts.dispatcher.begin(offset, 0, None, clean=True, now_ms=parts.now_ms())
        self._new_follower(log.next_offset)

    def _new_follower(self, offset: int) -> ReplicaIndexer:
        parts = self._parts
        self.follower = ReplicaIndexer(parts.settings, parts.queue, parts.drop_topic, parts.problems.append, offset)
        return self.follower

    # Of a member of an elected group

    def cut(self, offset: int) -> None:
        """Takes back everything behind `offset`, where a record ends, above what is confirmed. Durable on return.

        The bytes that were there are kept in `commitlog_cut`.
        """
        parts = self._parts
        log, confirmed = parts.log, parts.reader.confirm_offset
        if not confirmed <= offset <= log.written_offset:
            raise StoreError(
                f"the log cannot be cut at {offset}: it is confirmed up to {confirmed} and ends at {log.written_offset}"
            )
        self.take_back()
        self._rewind(offset)
        cut_log(parts.disk, log, offset, os.path.join(parts.root, "commitlog_cut"), parts.now_ms())
        log.begin(offset)
        forget_groups(parts.unconfirmed, offset)
        self.follow_from(parts.unconfirmed[-1].end_offset if parts.unconfirmed else parts.reader.confirm_offset)

    def begin_anew(self, offset: int) -> None:
        """Gives up everything that is here: the log begins at `offset`, where the others' logs begin. Durable on return."""
        parts = self._parts
        log, disk = parts.log, parts.disk
        self.take_back()
        parts.unconfirmed.clear()
        for topic in parts.topics():
            parts.drop_topic(topic)
        self._rewind(0)
        if parts.index is not None:
            parts.index.truncate_to(0)
        save_queue_table(disk, os.path.join(parts.root, "queueTable"), QueueTable())
        for number in sorted(log.segments, reverse=True):
            segment = log.segments.pop(number)
            segment.close()
            disk.unlink(segment.path)
        disk.fsync_dir(log.directory)
        log.next_offset = log.written_offset = log.min_offset
        self._begin_following(offset)
        self.set_mark()

    def take_back(self) -> None:
        """The pending group is lost: its queues continue where the last written group left them."""
        take_back(self._parts.log.forget_pending(), self._parts.unconfirmed)

    def found_damaged(self) -> None:
        """A record cannot be read: the next opening looks for the place, and ends the log there."""
        if self.mark_file is not None:
            self.mark_file.damage()

    def set_mark(self) -> None:
        """Nothing is being flushed: the mark says what is so, also when that is less than before. Durable on return."""
        if self.mark_file is not None:
            known = self.mark_file.mark
            self.mark_file.save(Mark(self._parts.flusher.flushed_offset, self._parts.reader.confirm_offset, known.damaged))

    def _rewind(self, offset: int) -> None:
        """Nothing that is written down, or is about to be, may speak of the log behind `offset` any more."""
        parts, checkpoint = self._parts, self._parts.checkpoint
        parts.housekeeper.drain()
        parts.flusher.rewind(offset)
        parts.log.durable_offset = min(parts.log.durable_offset, offset)
        self.set_mark()
        checkpoint.now.flushed_offset = min(checkpoint.now.flushed_offset, offset)
        checkpoint.save()
