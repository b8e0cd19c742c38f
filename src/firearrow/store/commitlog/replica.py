"""The commit log as a copy of another broker's log.

The log of a replica is the master's log, byte for byte and at the same offsets. `ReplicaLog` writes the bytes as they come and
truncates them where an elected group decides so. `ReplicaIndexer` finds the records in them.

    bytes --write_raw--> the log --index_new_records--> unconfirmed records --MessageStore.confirm--> visible
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from zlib import crc32

import numpy as np

from firearrow.config.delay_levels import parse_delay_levels
from firearrow.store.commitlog.log import NOT_DISPATCHED, AppendGroup, CommitLog, IndexInput
from firearrow.store.commitlog.scan import SCHEDULE_TOPIC, ScanResult, Stop, scan
from firearrow.store.commitlog.segment import SegmentPreallocator
from firearrow.store.commitlog.truncation import move_segments_aside, truncate_log
from firearrow.store.commitlog.unconfirmed import UnconfirmedGroups
from firearrow.store.commitlog.verification import is_intact
from firearrow.store.consume_queue import ENTRY, UNIT, ConsumeQueue, ConsumeQueues
from firearrow.store.dispatcher import Dispatcher
from firearrow.store.durability import LogDurability
from firearrow.store.errors import StoreError
from firearrow.store.queue_recovery import queue_entries, runs_by_queue
from firearrow.store.settings import StoreSettings
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.record import (
    BLANK_BYTES,
    BORN_HOST_V6,
    FIXED_BYTES_V1,
    HEAD,
    HEAD_BYTES,
    MAGIC_V1,
    SIZE_AND_MAGIC,
    STORE_HOST_V6,
)

_FEW_RECORDS_BYTES = 32 * 1024
_TOPIC_CACHE_LIMIT = 10_000
_UNUSUAL = BORN_HOST_V6 | STORE_HOST_V6 | NOT_DISPATCHED
_LARGEST_GAP = 1_000_000  # entries; a queue offset further ahead is damaged
_CHUNK = 4 * 1024 * 1024


class FollowError(StoreError):
    """The other broker's bytes do not continue the log here."""


class ReplicaIndexer:
    """Finds the records in copied bytes and adds their queue entries.

    The bytes arrive in pieces that need not end at a record boundary. Complete records get their queue entries and go to the key
    index, many at a time (`scan`), as in recovery. Indexing rarely is cheap: the cost depends little on the number of records.

    Invariants
    - A record or a blank begins, or will begin, at `position`. All bytes from there to the end of the log are in `_rest`, except
      for the filler behind a blank, which is skipped as it arrives.
    - Bytes at `position` that are no record end the replication, with a FollowError that names the remedy. They stay in the log:
      a recovery finds them behind its end, keeps a copy and zeroes them.

    `note` receives descriptions of unexpected records.
    """

    def __init__(
        self,
        settings: StoreSettings,
        queue_of: Callable[[str, int], ConsumeQueue],
        drop_topic: Callable[[str, int], None],
        note: Callable[[str], None],
        position: int,
    ) -> None:
        self.position = position
        self.broken = False  # the bytes at `position` are no record
        self._segment_size = settings.mapped_file_size_commit_log
        self._check_crc = settings.check_crc_on_recover
        self._delay_levels_ms = parse_delay_levels(settings.message_delay_level)
        self._directory = settings.store_path_root_dir
        self._queue_of = queue_of
        self._drop_topic = drop_topic
        self._note = note
        self._rest: list[bytes] = []
        self.unindexed_bytes = 0
        self._needed = BLANK_BYTES  # bytes of the next record, as far as known
        self._filler = 0  # bytes of the filler that have not arrived yet
        self._store_ms = 0
        self._topics: dict[bytes, str] = {}  # known topics that `_index_few` may handle

    def add(self, data: bytes) -> None:
        """Take note of bytes that were written at the end of the log."""
        self._rest.append(data)
        self.unindexed_bytes += len(data)

    def index_new_records(self) -> AppendGroup | None:
        """Return the records that have become complete since the last call, None if there are none. FollowError."""
        touched: dict[ConsumeQueue, int] = {}
        index_input: list[IndexInput] = []
        scans: list[ScanResult] = []
        before = self.position
        while self.unindexed_bytes and (self._filler or self.unindexed_bytes >= self._needed):
            buffer = self._rest[0] if len(self._rest) == 1 else b"".join(self._rest)
            if self._filler:
                used = self._skip_filler(buffer)
            else:
                few = len(buffer) <= _FEW_RECORDS_BYTES and not scans
                used = self._index_few(buffer, touched, index_input) if few else 0
                used = used or self._index_many(buffer, touched, scans)
            self._rest = [buffer[used:]] if used < len(buffer) else []
            self.unindexed_bytes = len(buffer) - used
        if self.position == before:
            return None
        return AppendGroup(self.position, self._store_ms, touched, index_input, scans)

    def _skip_filler(self, buffer: bytes) -> int:
        skipped = min(self._filler, len(buffer))
        self._filler -= skipped
        if not self._filler:
            self.position = self._segment_end()
        return skipped

    def _segment_end(self) -> int:
        return self.position - self.position % self._segment_size + self._segment_size

    def _index_few(self, buffer: bytes, touched: dict[ConsumeQueue, int], index_input: list[IndexInput]) -> int:
        """Index the common records at the start of the buffer one by one, which is faster for a few. Return their bytes."""
        at, left = 0, min(len(buffer), self._segment_end() - self.position)
        self._needed = BLANK_BYTES
        while left - at >= BLANK_BYTES:
            size, magic = SIZE_AND_MAGIC.unpack_from(buffer, at)
            if magic != MAGIC_V1 or size < FIXED_BYTES_V1:
                break
            end = at + size
            if end > left:
                if self.position + size < self._segment_end():
                    self._needed = size
                break
            head = HEAD.unpack_from(buffer, at)
            _, _, _, queue_id, _, queue_offset, offset, sys_flag, _, _, store_ms, _, _, _, body_length = head
            body_end = at + HEAD_BYTES + body_length
            if sys_flag & _UNUSUAL or queue_id < 0 or body_length < 0 or body_end + 3 > end or offset != self.position:
                break
            topic_end = body_end + 1 + buffer[body_end]
            topic = self._topics.get(buffer[body_end + 1 : topic_end])
            if topic is None or topic_end + 2 + int.from_bytes(buffer[topic_end : topic_end + 2], "big") != end:
                break
            if self._check_crc and crc32(buffer[at + HEAD_BYTES : body_end]) & 0x7FFFFFFF != head[2]:
                break
            properties = buffer[topic_end + 2 : end]
            queue = self._queue_of(topic, queue_id)
            entry = ENTRY.pack(offset, size, tags_code_of(properties))
            if queue_offset == queue.next_offset:
                touched[queue] = queue.extend(entry, 1)
            else:
                queue = self._add_entry(queue, queue_offset, offset, entry)
                touched[queue] = queue.next_offset
            index_input.append((offset, store_ms, topic, properties))
            self._store_ms = store_ms
            self.position += size
            at = end
        return at

    def _index_many(self, buffer: bytes, touched: dict[ConsumeQueue, int], scans: list[ScanResult]) -> int:
        """Index the complete records at the start of the buffer. Return their bytes."""
        segment_end = self._segment_end()
        here = buffer if len(buffer) <= segment_end - self.position else buffer[: segment_end - self.position]
        result = scan(here, self.position, check_crc=self._check_crc, delay_levels_ms=self._delay_levels_ms)
        if len(result):
            self._store_ms = int(result.store_ms[-1])
            self._extend_queues(result, touched)
            scans.append(result)
        self.position += result.end
        left = segment_end - self.position
        self._needed = BLANK_BYTES
        if result.stop is Stop.END and max(result.needed, BLANK_BYTES) <= left:
            self._needed = max(result.needed, BLANK_BYTES)
        elif result.stop is Stop.BLANK and SIZE_AND_MAGIC.unpack_from(here, result.end)[0] == left:
            self._filler = left
        elif left:
            self.broken = True
            raise FollowError(self._mismatch(result.stop))
        return result.end

    def _mismatch(self, stop: Stop) -> str:
        position = self.position
        if stop is Stop.BLANK:
            return (
                f"the master's segment ends at log offset {position}, the one here does not: mappedFileSizeCommitLog is "
                f"{self._segment_size} here and different there; set it as on the master, move {self._directory} away and restart"
            )
        return (
            f"the master's bytes at log offset {position} do not continue the log here ({stop.value}): this log is damaged or "
            f"belongs to another master; move {self._directory} away and restart to copy everything again"
        )

    def _extend_queues(self, result: ScanResult, touched: dict[ConsumeQueue, int]) -> None:
        picked, keys, entries = queue_entries(result, np.arange(len(result.topics)))
        order = np.argsort(keys, kind="stable")
        entries = entries[order]
        data = entries.tobytes()
        queue_offsets = result.queue_offset[picked[order]].tolist()
        for topic_number, queue_id, begin, end in runs_by_queue(keys[order]):
            topic = result.topics[topic_number]
            try:
                queue = self._queue_of(topic, queue_id)
            except ValueError as error:
                self._note(str(error))
                continue
            if topic != SCHEDULE_TOPIC and len(self._topics) < _TOPIC_CACHE_LIMIT:
                self._topics[topic.encode()] = topic
            run = data[begin * UNIT : end * UNIT]
            first = queue_offsets[begin]
            if first == queue.next_offset and queue_offsets[end - 1] - first == end - begin - 1:
                queue.extend(run, end - begin)
            else:
                for i in range(begin, end):
                    entry = data[i * UNIT : (i + 1) * UNIT]
                    queue = self._add_entry(queue, queue_offsets[i], int(entries["offset"][i]), entry)
            touched[queue] = queue.next_offset

    def _add_entry(self, queue: ConsumeQueue, queue_offset: int, offset: int, entry: bytes) -> ConsumeQueue:
        """Add an entry whose queue offset may not be the next one. Return its queue."""
        gap = queue_offset - queue.next_offset
        unused = queue.next_offset == queue.lowest_entry() and not queue.tail
        if gap and unused:
            queue.reset(queue_offset)  # the log here begins later than the queue
        elif gap < 0 and queue_offset == 0:
            self._drop_topic(queue.topic, offset)  # the topic was deleted and created again
            queue = self._queue_of(queue.topic, queue.queue_id)
        elif gap < 0 or gap > _LARGEST_GAP:
            self._note(f"{queue.topic} queue {queue.queue_id}: a record has the invalid queue offset {queue_offset}; skipped")
            return queue
        elif gap:
            self._note(f"{queue.topic} queue {queue.queue_id}: offsets {queue.next_offset} to {queue_offset - 1} have no message")
            queue.fill_gap(queue_offset, offset)
        queue.extend(entry, 1)
        return queue


class ReplicaLog:
    """Copying and truncation of the log. `note` receives descriptions of unexpected records."""

    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog,
        durability: LogDurability,
        groups: UnconfirmedGroups,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        preallocator: SegmentPreallocator,
        note: Callable[[str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._log = log
        self._durability = durability
        self._groups = groups
        self._queues = queues
        self._dispatcher = dispatcher
        self._preallocator = preallocator
        self._note = note
        self._now_ms = now_ms
        self.mark_damaged = durability.mark_damaged
        self._indexer: ReplicaIndexer | None = None  # while the log is a copy

    @property
    def queues_end(self) -> int:
        """End of the records that have their queue entries, visible or not."""
        return self._indexer.position if self._indexer is not None else self._log.next_offset

    # Copying

    def write_raw(self, data: bytes, offset: int) -> int:
        """Write bytes of another broker's log, without indexing them. Return the number of bytes to index.

        The store is a replica from then on. An empty log begins at the first bytes. FollowError if the bytes do not continue the
        log here.
        """
        log = self._log
        if self._indexer is None or log.next_offset == log.min_offset != offset:
            self._start_copy(offset)
        assert self._indexer is not None
        if offset != log.next_offset:
            raise FollowError(f"bytes of log offset {offset} cannot follow a log that ends at {log.next_offset}")
        log.write_raw(data)
        self._durability.written(log.written_offset)
        if log.written_offset >= self._preallocator.next_check_offset:
            self._preallocator.check()
        self._indexer.add(data)
        return self._indexer.unindexed_bytes

    def index_new_records(self) -> AppendGroup | None:
        """Index what `write_raw` has written and return the group of records that became complete. FollowError.

        Once for many pieces costs much less than once for each.
        """
        group = self._indexer.index_new_records() if self._indexer is not None else None
        if group is not None:
            self._groups.add(group)
        return group

    def stop_copying(self) -> None:
        """Accept messages of this broker again."""
        self._indexer = None

    def index_from(self, offset: int) -> None:
        """Index the records that are already in the log from `offset`, as unconfirmed."""
        indexer = self._new_indexer(offset)
        for data in _chunks(self._log, offset, self._log.written_offset):
            indexer.add(data)
            self.index_new_records()

    def remove_incomplete_record(self) -> None:
        """Remove the beginning of a record at the end of the log. The master sends it again."""
        if self._indexer is not None and not self._indexer.broken:
            self._log.remove_raw(self._indexer.position)
            self._durability.truncated(self._log.written_offset)

    def _start_copy(self, offset: int) -> None:
        log = self._log
        if log.next_offset == log.min_offset != offset:
            if offset % log.segment_size:
                raise FollowError(
                    f"the master's log begins at {offset}, which is no segment boundary here ({log.segment_size} bytes); set "
                    "mappedFileSizeCommitLog as on the master"
                )
            self._start_empty_log(offset)
        self._new_indexer(log.next_offset)

    def _start_empty_log(self, offset: int) -> None:
        self._log.reset_to(offset)
        self._durability.reset_to(offset)
        self._groups.begin(offset, 0)
        self._dispatcher.begin(offset, 0, None, clean=True, now_ms=self._now_ms())

    def _new_indexer(self, offset: int) -> ReplicaIndexer:
        queues, dispatcher = self._queues, self._dispatcher
        self._indexer = ReplicaIndexer(self._settings, queues.get_or_create, dispatcher.drop_topic, self._note, offset)
        return self._indexer

    # Repair

    def repair(self, offset: int, record: bytes) -> bool:
        """Replace a damaged record by the one that another broker has at the same offset of the same log. Durable on return.

        Return False, without a change, if the record is not intact, does not belong here, or is intact here. A crash meanwhile
        leaves a record that is still recognised as damaged.
        """
        log = self._log
        segment = log.segment_at(offset)
        end = offset + len(record)
        if segment is None or not log.min_offset <= offset < end <= min(segment.end, self._groups.confirm_offset):
            return False
        if not is_intact(record, offset) or is_intact(log.read(offset, len(record)), offset):
            return False
        segment.write(record, offset)
        segment.file.fdatasync()
        return True

    # Truncation, in an elected group

    def truncate(self, offset: int) -> None:
        """Remove the log behind `offset`, a record boundary that is not below the confirmed offset. Durable on return.

        The removed bytes are kept in `commitlog_cut`.
        """
        log, confirmed = self._log, self._groups.confirm_offset
        if not confirmed <= offset <= log.written_offset:
            raise StoreError(
                f"cannot truncate the log at {offset}: it is confirmed up to {confirmed} and ends at {log.written_offset}"
            )
        self.discard_pending()
        self._durability.rewind(offset, confirmed)
        self._dispatcher.log_truncated(offset)
        directory = os.path.join(self._settings.store_path_root_dir, "commitlog_cut")
        truncate_log(log, offset, directory, self._now_ms())
        log.begin(offset)
        self._groups.drop_above(offset)
        self.index_from(self._groups.end_offset)

    def reset_to(self, offset: int) -> None:
        """Discard everything. The log continues at `offset`, where the logs of the other members begin. Durable on return.

        The segments are moved to `commitlog.discarded-<time>`: the decision was another member's, and may have been wrong.
        """
        self.discard_pending()
        self._groups.clear()
        self._durability.rewind(0, self._groups.confirm_offset)
        self._dispatcher.drop_everything()
        move_segments_aside(self._log, self._now_ms())
        self._start_empty_log(offset)
        self._new_indexer(offset)
        self._durability.save_mark(self._groups.confirm_offset)

    def discard_pending(self) -> None:
        """Discard the messages that are appended and not written. Their queues continue behind the last written group."""
        self._groups.discard_entries(self._log.discard_pending())


def _chunks(log: CommitLog, start: int, end: int) -> Iterator[bytes]:
    """Yield the log in [start, end)."""
    while start < end:
        data = log.read(start, min(_CHUNK, end - start))
        assert data, f"the log has no bytes at {start}"
        yield data
        start += len(data)
