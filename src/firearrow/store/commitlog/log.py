"""The commit log: every message of every queue, one record after the other, in segments of equal size.

Appending has two steps. `append` builds a record and adds its pieces to the pending group. The record then has its physical
offset and its queue offset, but it is neither written nor visible. `write_out` writes the whole group with one pwrite (one per
segment if the group crosses a boundary).

End of a segment: a record of length L is appended only if L + 8 bytes are left. Otherwise a blank (int32 bytes left, int32 magic
0xCBD43194) closes the segment and the record goes to the next one. Every full segment therefore ends with a blank of at least
8 bytes, and no record spans two segments.

Invariants
- min_offset <= written_offset <= next_offset; equal to next_offset when nothing is pending.
- Everything below written_offset was passed to the operating system without an error.
- After a failed write nothing can be appended: `_limit` is -1, which sends every append to `_roll`, which raises.

The append methods are the hottest code of the broker: attributes are bound once, there is no object per message, and everything
that can fail (range checks in `pack`) is evaluated before any state changes.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING
from zlib import crc32

from firearrow.store.accelerated import native
from firearrow.store.commitlog.segment import Segment, create_segment, parse_segment_name
from firearrow.store.consume_queue import ENTRY, UNIT, ConsumeQueue
from firearrow.store.descriptors import SHORTAGE
from firearrow.store.errors import NotWritableError, StoreError, TooLargeError
from firearrow.store.filesystem import Bytes, Disk
from firearrow.store.settings import StoreSettings
from firearrow.wire import batch
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.record import (
    BACK,
    BATCH_COMMON,
    BATCH_HEAD,
    BLANK_BYTES,
    BORN_HOST_V6,
    FIXED_BYTES,
    FRONT,
    HEAD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_AND_MAGIC,
    STORE_HOST_V6,
    TIMESTAMP,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TYPE,
)

if TYPE_CHECKING:
    from firearrow.store.commitlog.scan import ScanResult


# (physical offset, store time, topic, properties) of a message, for the key index
IndexInput = tuple[int, int, str, bytes]


@dataclass(slots=True, eq=False)
class AppendGroup:
    """Messages written together: the log up to `end_offset`, and the queues touched, with their next offsets after the group.

    `index_input` is for the key index. On a replica it is followed by `scans`, which lie behind it in the log.
    """

    end_offset: int
    store_ms: int
    touched: dict[ConsumeQueue, int]
    index_input: list[IndexInput]
    scans: Sequence[ScanResult] = ()


# PREPARED is 0x4, COMMIT 0x8, ROLLBACK 0xC: this bit is set in the two types that consumers must not see.
NOT_DISPATCHED = 0x4
_UNCOMMON = BORN_HOST_V6 | STORE_HOST_V6 | NOT_DISPATCHED

_OPEN_SEGMENTS = 64
_pack_head = HEAD.pack
_pack_entry = ENTRY.pack
_pack_head_of_batch = BATCH_HEAD.pack

# (flag, body, properties, tags code)
BatchMessage = tuple[int, bytes, bytes, int]


class CommitLog:
    """The log of a store directory. `failure` is set after an I/O error; the log then refuses writes.

    `report` gets the reasons why messages are refused, once each. Any thread.
    """

    def __init__(
        self, settings: StoreSettings, disk: Disk, store_host: bytes, report: Callable[[str], None] = lambda problem: None
    ) -> None:
        self.directory = settings.commit_log_dir
        self.segment_size = settings.mapped_file_size_commit_log
        self.segments: dict[int, Segment] = {}  # by number: base // segment_size
        self.min_offset = 0
        self.next_offset = 0
        self.written_offset = 0
        self.durable_offset = 0  # set by LogDurability: everything below is synced
        self.failure: str | None = None
        self.disk = disk
        self._store_host = store_host
        self._report = report
        self._is_short = False  # no file descriptor was left for the next segment
        self._prepared: dict[int, Segment] = {}
        self._creating = threading.Lock()
        self._opened: deque[Segment] = deque()  # open for reading, oldest first
        self._active: Segment | None = None
        self._limit = -1  # records must end at or below
        self._run_start = 0  # log offset of the first pending piece
        self._pieces: list[bytes] = []
        self._add = self._pieces.extend
        self._rolled: list[tuple[Segment, int, bytes]] = []
        self._touched: dict[ConsumeQueue, int] = {}
        self._index_input: list[IndexInput] = []
        self._add_index_input = self._index_input.append
        self._store_ms = 0

    # Appending

    def append(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        tags_code: int,
        *,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> int:
        """Add a message to the pending group and return its physical offset. Its queue offset is the old `queue.next_offset`.

        The message is passed as separate parameters, because an object per message costs more than the rest of the append.
        """
        if sys_flag & _UNCOMMON or len(born_host) != 8 or not queue.plain:
            return self._append_uncommon(
                queue, body, properties, tags_code, flag, sys_flag, born_ms, born_host, store_ms, reconsume_times, prepared_offset
            )
        body_length = len(body)
        size = queue.base_size + body_length + len(properties)
        offset = self.next_offset
        if offset + size > self._limit:
            offset = self._roll(size)
        queue_offset = queue.next_offset
        if native is not None:
            record, entry = native.record(
                body, properties, queue.topic_piece, queue.queue_id, flag, queue_offset, offset, tags_code,
                sys_flag, born_ms, born_host, store_ms, self._store_host, reconsume_times, prepared_offset,
            )  # fmt: skip
            self._pieces.append(record)
        else:
            head = _pack_head(
                size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, queue.queue_id, flag, queue_offset, offset,
                sys_flag, born_ms, born_host, store_ms, self._store_host, reconsume_times, prepared_offset, body_length,
            )  # fmt: skip
            entry = _pack_entry(offset, size, tags_code)
            self._add((head, body, queue.topic_piece, _PROPERTY_LENGTH[len(properties)], properties))
        tail = queue.tail
        tail += entry
        self._touched[queue] = queue.next_offset = queue_offset + 1
        self._add_index_input((offset, store_ms, queue.topic, properties))
        self.next_offset = offset + size
        return offset

    def append_batch(
        self,
        queue: ConsumeQueue,
        messages: Sequence[BatchMessage],
        *,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int = 0,
    ) -> list[int]:
        """Add several messages with consecutive queue offsets, all in one segment. Return their physical offsets."""
        if not messages:
            return []
        if sys_flag & NOT_DISPATCHED:
            raise ValueError(f"sysFlag {sys_flag:#x}: a batch cannot be part of a transaction")
        for _, _, properties, _ in messages:
            _PROPERTY_LENGTH[len(properties)]  # ValueError before anything is added
        fixed = queue.base_size + len(born_host) + len(self._store_host) - 16
        total = sum(fixed + len(body) + len(properties) for _, body, properties, _ in messages)
        if self.next_offset + total > self._limit:
            self._roll(total)
        return [
            self.append(
                queue, body, properties, tags_code, flag=flag, sys_flag=sys_flag, born_ms=born_ms, born_host=born_host,
                store_ms=store_ms, reconsume_times=reconsume_times,
            )
            for flag, body, properties, tags_code in messages
        ]  # fmt: skip

    def append_batch_body(
        self,
        queue: ConsumeQueue,
        body: bytes,
        *,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int = 0,
    ) -> list[int]:
        """Add the messages of a batch send. ProtocolError if the body is malformed; nothing is added then."""
        end = len(body)
        most = end + end // batch.FIXED_BYTES * queue.base_size
        if sys_flag & _UNCOMMON or len(born_host) != 8 or not queue.plain or self.next_offset + most > self._limit:
            messages = [(flag, text, properties, tags_code_of(properties)) for flag, text, properties in batch.split(body)]
            return self.append_batch(
                queue, messages, sys_flag=sys_flag, born_ms=born_ms, born_host=born_host, store_ms=store_ms,
                reconsume_times=reconsume_times,
            )  # fmt: skip
        shared = BATCH_COMMON.pack(sys_flag, born_ms, born_host, store_ms, self._store_host, reconsume_times, 0)
        if native is None:
            pieces, entries, offsets, property_blocks = batch_records(body, queue, self.next_offset, shared)
        else:
            made = native.batch_records(body, queue.queue_id, queue.next_offset, self.next_offset, shared, queue.topic_piece)
            if made is None:
                raise batch.split_error(body)
            record_bytes, entries, offsets, property_blocks = made
            pieces = [record_bytes]
        self._add(pieces)
        self._touched[queue] = queue.extend(entries, len(offsets))
        self._index_input += zip(offsets, repeat(store_ms), repeat(queue.topic), property_blocks)
        self.next_offset += end + len(offsets) * (queue.base_size - batch.FIXED_BYTES)
        return offsets

    def write_out(self) -> AppendGroup | None:
        """Write the pending group and return it, or None if nothing is pending.

        On an I/O error StoreError: the log refuses further writes, and the caller calls `discard_pending`.
        """
        pieces = self._pieces
        if not pieces and not self._rolled:
            return None
        if self.failure is not None:
            raise self.refusal()
        segment = self._active
        assert segment is not None
        data = b"".join(pieces)
        try:
            for full, start, run in self._rolled:
                full.write(run, start)
            segment.write(data, self._run_start)
        except OSError as error:
            raise self.fail(f"writing {len(data)} bytes to {segment.path} failed: {error}") from error
        pieces.clear()
        self._rolled.clear()
        end = self._run_start = self.written_offset = self.next_offset
        index_input = self._index_input
        if index_input:
            self._store_ms = index_input[-1][1]
        group = AppendGroup(end, self._store_ms, self._touched, index_input)
        self._clear_group()
        return group

    def write_raw(self, data: Bytes) -> None:
        """Add bytes of another broker's log unchanged, across segment boundaries. For replicas only."""
        if self.failure is not None:
            raise self.refusal()
        assert self.next_offset == self.written_offset, "own messages are pending"
        view = memoryview(data)
        while view:
            segment = self._active
            if segment is None or self.next_offset >= segment.end:
                self._activate(self._segment(self.next_offset))
                continue
            part = view[: segment.end - self.next_offset]
            try:
                segment.write(part, self.next_offset)
            except OSError as error:
                raise self.fail(f"writing {len(part)} bytes to {segment.path} failed: {error}") from error
            self.next_offset = self._run_start = self.written_offset = self.next_offset + len(part)
            view = view[len(part) :]

    def remove_raw(self, offset: int) -> None:
        """Zero the raw bytes from `offset` to the end, all in one segment."""
        segment = self.segment_at(offset)
        if segment is not None and offset < self.written_offset:
            segment.write(bytes(self.written_offset - offset), offset)
            self.next_offset = self._run_start = self.written_offset = offset

    def reset_to(self, offset: int) -> None:
        """Move an empty log: its first record will be at `offset`."""
        assert self.next_offset == self.min_offset, "the log is not empty"
        self.delete_segments()
        self.begin(offset)

    def delete_segments(self) -> None:
        """Delete all messages, the newest segments first. Durable on return."""
        for number in sorted(self.segments, reverse=True):
            self.segments.pop(number).delete()
        self.disk.fsync_dir(self.directory)
        self.next_offset = self.written_offset = self.min_offset

    def discard_pending(self) -> list[ConsumeQueue]:
        """Drop the pending group. Return its queues, whose entries the caller discards."""
        queues = list(self._touched)
        self._pieces.clear()
        self._rolled.clear()
        self._clear_group()
        self.next_offset = self._run_start = self.written_offset
        return queues

    def _clear_group(self) -> None:
        self._touched = {}
        self._index_input = []
        self._add_index_input = self._index_input.append

    def fail(self, text: str) -> NotWritableError:
        """Refuse writes from now on. Return the error to raise."""
        if self.failure is None:
            self.failure = text
            self._report(f"{text}; the store takes no writes until the broker is restarted")
        self._limit = -1
        return self.refusal()

    def refusal(self) -> NotWritableError:
        """Return the error for writes after a failure."""
        return NotWritableError(
            f"the store takes no writes since an I/O error: {self.failure}; check the disk, then restart the broker"
        )

    def _append_uncommon(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        tags_code: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int,
        prepared_offset: int,
    ) -> int:
        """`append` for uncommon records: IPv6 hosts, long topics, transaction types without a queue entry."""
        sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
        sys_flag |= _host_bit(born_host, BORN_HOST_V6) | _host_bit(self._store_host, STORE_HOST_V6)
        size = FIXED_BYTES + len(born_host) + len(self._store_host) + len(queue.topic_piece) + len(body) + len(properties)
        offset = self.next_offset
        if offset + size > self._limit:
            offset = self._roll(size)
        dispatched = not sys_flag & NOT_DISPATCHED
        queue_offset = queue.next_offset if dispatched else 0
        start = FRONT.pack(
            size,
            MAGIC_V2 if queue.long_topic else MAGIC_V1,
            crc32(body) & 0x7FFFFFFF,
            queue.queue_id,
            flag,
            queue_offset,
            offset,
            sys_flag,
            born_ms,
        )
        middle = BACK.pack(reconsume_times, prepared_offset, len(body))
        entry = ENTRY.pack(offset, size, tags_code)
        store_time = TIMESTAMP.pack(store_ms)
        property_length = _PROPERTY_LENGTH[len(properties)]
        self._add((start, born_host, store_time, self._store_host, middle, body, queue.topic_piece, property_length, properties))
        if dispatched:
            queue.extend(entry, 1)
        self._touched[queue] = queue.next_offset
        if sys_flag & TRANSACTION_TYPE != TRANSACTION_ROLLBACK:
            self._index_input.append((offset, store_ms, queue.topic, properties))
        self._store_ms = store_ms
        self.next_offset = offset + size
        return offset

    def _roll(self, size: int) -> int:
        """Close the active segment with a blank and open the next. Return the offset for a record of `size` bytes."""
        if self.failure is not None:
            raise self.refusal()
        if size + BLANK_BYTES > self.segment_size:
            raise TooLargeError(
                f"a message of {size} bytes does not fit into a commit-log file of {self.segment_size} bytes; "
                "raise mappedFileSizeCommitLog or send smaller messages"
            )
        active = self._active
        offset = self.next_offset
        # First: if the next segment cannot be created, nothing has changed.
        following = self._segment(active.end if active is not None and offset < active.end else offset)
        if active is not None and offset < active.end:
            self._pieces.append(SIZE_AND_MAGIC.pack(active.end - offset, MAGIC_BLANK))
            self._rolled.append((active, self._run_start, b"".join(self._pieces)))
            self._pieces.clear()
            offset = active.end
        self._activate(following)
        self.next_offset = self._run_start = offset
        return offset

    # Segments

    def load(self, written_size: int = 0) -> list[str]:
        """Find the segments, extend those that are too short, and return descriptions of unexpected files.

        StoreError if the files were written with another size. `written_size`: that size, 0 if unknown.
        """
        problems: list[str] = []
        lengths: dict[int, int] = {}
        self.disk.mkdirs(self.directory)
        for name in self.disk.listdir(self.directory):
            path = os.path.join(self.directory, name)
            base = parse_segment_name(name)
            if base is None:
                problems.append(f"{path}: not the name of a commit-log file, ignored")
            else:
                lengths[base] = self.disk.file_size(path)
        self._check_size(lengths, written_size)
        for base, length in lengths.items():
            segment = Segment(self.disk, self.directory, base, self.segment_size)
            if length < self.segment_size:
                problems.append(f"{segment.path}: {length} bytes instead of {self.segment_size}, extended with zeros")
                segment.file.truncate(self.segment_size)
            self.segments[base // self.segment_size] = segment
        if self.segments:
            self.min_offset = min(self.segments) * self.segment_size
        return problems

    def _check_size(self, lengths: dict[int, int], written_size: int) -> None:
        """Refuse files of another size before any change. A single short file is damage, all of them are another setting."""
        size = self.segment_size
        seen = set(lengths.values()) - {0}
        other = written_size if written_size not in (0, size) else 0
        if not written_size and len(seen) == 1 and seen != {size}:
            other = seen.pop()
        if other or any(length > size for length in lengths.values()) or any(base % size for base in lengths):
            raise StoreError(
                f"mappedFileSizeCommitLog={size} does not fit the files in {self.directory}, which were written with "
                f"{other or max(lengths.values())}; set it to that value"
            )

    def begin(self, end_offset: int) -> None:
        """Continue appending at `end_offset`, behind which the log is zero."""
        self.next_offset = self.written_offset = self._run_start = end_offset
        if not self.segments:
            self.min_offset = end_offset
        self._activate(self._segment(end_offset))

    def segment_at(self, offset: int) -> Segment | None:
        return self.segments.get(offset // self.segment_size)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the log from one segment, none if the segment does not exist."""
        segment = self.segments.get(offset // self.segment_size)
        if segment is None:
            return b""
        if not segment.is_open:
            self._close_idle(segment)
        return segment.read(min(size, segment.end - offset), offset)

    def file_position(self, offset: int, size: int) -> tuple[int, int] | None:
        """Return the descriptor of the file with these bytes and their position in it, or None if they must be read."""
        segment = self.segments.get(offset // self.segment_size)
        if segment is None or offset + size > segment.end:
            return None
        if not segment.is_open:
            self._close_idle(segment)
        descriptor = segment.file.descriptor
        return None if descriptor is None else (descriptor, offset - segment.base)

    def _close_idle(self, opening: Segment) -> None:
        """Limit the number of open files. Only durable segments are closed, which the flusher no longer uses."""
        self._opened.append(opening)
        if len(self._opened) > _OPEN_SEGMENTS:
            oldest = self._opened.popleft()
            if oldest.end <= self.durable_offset:
                oldest.close()

    def sync(self, start: int, end: int) -> None:
        """Make [start, end) durable. Any thread. OSError."""
        for number in range(start // self.segment_size, (end - 1) // self.segment_size + 1):
            segment = self.segments.get(number)
            if segment is not None:
                segment.file.fdatasync()

    def next_segment_to_prepare(self) -> int | None:
        """Return the number of the next segment once the active one is a quarter full and the next does not exist."""
        if self._active is None or self.next_offset - self._active.base < self.segment_size // 4:
            return None
        number = self._active.end // self.segment_size
        return None if number in self._prepared else number

    def prepare(self, number: int) -> None:
        """Create a segment that will be needed next. Housekeeper."""
        with self._creating:
            if number in self.segments or number in self._prepared:
                return
            self._prepared[number] = self._create(number)

    def drop_oldest(self, count: int) -> int:
        """Remove the oldest segments from the log and return its new start. The caller deletes the files."""
        for number in sorted(self.segments)[:count]:
            del self.segments[number]
        self.min_offset = min(self.segments) * self.segment_size
        return self.min_offset

    def close(self) -> None:
        """Close all files and delete segments that were prepared and not used."""
        for segment in self.segments.values():
            segment.close()
        for segment in self._prepared.values():
            segment.delete()
        self._prepared.clear()

    def _activate(self, segment: Segment) -> None:
        """Make a segment the active one."""
        self._active = segment
        self._limit = segment.end - BLANK_BYTES

    def _segment(self, offset: int) -> Segment:
        """Return the segment with `offset`, created if necessary.

        NotWritableError if that fails. A lack of file descriptors passes: the next call tries again.
        """
        number = offset // self.segment_size
        segment = self.segments.get(number)
        if segment is not None:
            return segment
        # Locked, because the housekeeper may be creating the same file.
        with self._creating:
            segment = self._prepared.pop(number, None)
            if segment is None:
                try:
                    segment = self._create(number)
                except OSError as error:
                    if error.errno in SHORTAGE:
                        raise self._descriptors_short(error) from error
                    raise self.fail(f"creating a commit-log file in {self.directory} failed: {error}") from error
            self.segments[number] = segment
        self._is_short = False
        return segment

    def _descriptors_short(self, error: OSError) -> NotWritableError:
        text = (
            f"no commit-log file can be created in {self.directory}: {error}; close connections or raise the limit of open "
            "files (ulimit -n, LimitNOFILE); every send tries again"
        )
        if not self._is_short:
            self._is_short = True
            self._report(text)
        return NotWritableError(text)

    def _create(self, number: int) -> Segment:
        return create_segment(self.disk, self.directory, number * self.segment_size, self.segment_size)


def _host_bit(host: bytes, bit: int) -> int:
    if len(host) not in (8, 20):
        raise ValueError(f"a host is 8 (IPv4) or 20 (IPv6) bytes with its port, not {len(host)}: {host.hex()}")
    return bit if len(host) == 20 else 0


def batch_records(
    body: bytes, queue: ConsumeQueue, offset: int, shared: bytes
) -> tuple[list[bytes], bytes, list[int], list[bytes]]:
    """Return record pieces, queue entries, log offsets and properties of the messages of a batch send.

    The layout is that of wire/batch.py. Messages are split, hashed and packed in one pass: three passes took 1.5 times as long.
    The native implementation does the same.
    """
    pieces: list[bytes] = []
    add = pieces.extend
    entries: list[bytes] = []
    add_entry = entries.append
    property_blocks: list[bytes] = []
    offsets: list[int] = []
    head_at, length_at, pack, pack_entry = batch.head_at, batch.length_at, _pack_head_of_batch, _pack_entry
    queue_id, topic_piece, lengths, tags_code = queue.queue_id, queue.topic_piece, _PROPERTY_LENGTH, tags_code_of
    queue_offset, more, pos, end = queue.next_offset, queue.base_size - batch.FIXED_BYTES, 0, len(body)
    try:
        while pos < end:
            total, flag, length = head_at(body, pos)
            text_at = pos + batch.BODY_AT
            properties_at = text_at + length
            (property_length,) = length_at(body, properties_at)
            pos += total
            if total != batch.FIXED_BYTES + length + property_length or length < 0 or property_length < 0 or pos > end:
                raise batch.split_error(body)
            text = body[text_at:properties_at]
            properties = body[properties_at + 2 : pos]
            size = total + more
            crc = crc32(text) & 0x7FFFFFFF
            head = pack(size, MAGIC_V1, crc, queue_id, flag, queue_offset, offset, shared, length)
            add((head, text, topic_piece, lengths[property_length], properties))
            add_entry(pack_entry(offset, size, tags_code(properties)))
            property_blocks.append(properties)
            offsets.append(offset)
            offset += size
            queue_offset += 1
    except struct.error:
        raise batch.split_error(body) from None
    return pieces, b"".join(entries), offsets, property_blocks


class _PropertyLengths(dict[int, bytes]):
    """Cache of PROPLEN as bytes."""

    def __missing__(self, length: int) -> bytes:
        if length > 0x7FFF:
            raise ValueError(f"properties of {length} bytes: a record holds at most 32767")
        piece = self[length] = length.to_bytes(2, "big")
        return piece


_PROPERTY_LENGTH = _PropertyLengths()

assert ENTRY.size == UNIT
