"""The commit log: every message of every queue, one record after the other, in segments of equal size.

Appending has two steps. `append` builds a record and adds its pieces to the pending group; the record has its place and its
queue offset from then on, but nothing is on the disk and nobody can read it. `write_out` writes the whole group with one
pwrite (one per segment when the group crosses a boundary). Group after group, never message after message.

End of a segment: a record of length L is appended only if L + 8 bytes are left; otherwise a blank (int32 bytes left, int32
magic 0xCBD43194) closes the segment and the record goes to the next one. So every full segment ends with a blank of at
least 8 bytes, and no record spans two segments.

Invariants
- min_offset <= written_offset <= next_offset; equal to next_offset when nothing is pending.
- Everything below written_offset was handed to the operating system without an error.
- After a failed write nothing can be appended any more: `_limit` is then -1, which sends every append to `_roll`, which refuses.

The append methods are the hottest code of the broker: attributes bound once, no object per message, everything that can fail
(range checks in `pack`) evaluated before anything is changed.

What one write of the commit log was about, handed on to whoever derives queues and index from it.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from firearrow.store.accelerated import native
from firearrow.store.commitlog.segment import Segment, create_segment, parse_segment_name
from firearrow.store.consume_queue import ENTRY, UNIT, ConsumeQueue
from firearrow.store.errors import NotWritableError, StoreError, TooLargeError
from firearrow.store.filesystem import Bytes, Disk
from firearrow.store.settings import StoreSettings
from firearrow.wire import batch
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.record import (
    BORN_HOST_V6,
    HEAD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    STORE_HOST_V6,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TYPE,
)

if TYPE_CHECKING:
    from firearrow.store.commitlog.scan import ScanResult


# (physical offset, store time, topic, properties): what the key index wants to know of a message
IndexInput = tuple[int, int, str, bytes]


class AppendGroup:
    """What one `write_out` wrote: the log up to `end_offset`; the queues touched, each with its next offset after the group.

    For the key index: `index_input`, and, of a replica, `scans`, which lie behind it in the log.
    """

    __slots__ = ("end_offset", "index_input", "scans", "store_ms", "touched")

    def __init__(
        self,
        end_offset: int,
        store_ms: int,
        touched: dict[ConsumeQueue, int],
        index_input: list[IndexInput],
        scans: Sequence[ScanResult] = (),
    ) -> None:
        self.end_offset = end_offset
        self.store_ms = store_ms
        self.touched = touched
        self.index_input = index_input
        self.scans = scans


BLANK = Struct(">ii")
BLANK_SIZE = 8
# PREPARED is 0x4, COMMIT 0x8, ROLLBACK 0xC: this bit is set in those two that no consumer may see.
NOT_DISPATCHED = 0x4
_NEEDS_CARE = BORN_HOST_V6 | STORE_HOST_V6 | NOT_DISPATCHED

_OPEN_SEGMENTS = 64
_pack_head = HEAD.pack
_pack_entry = ENTRY.pack
_HEAD_START = Struct(">iiiiiqqiq")
_MIDDLE = Struct(">iqi")
# The head once more, with what the messages of a batch have in common as one piece: sysFlag to PREPAREDTRANSACTIONOFFSET.
_SAME_IN_BATCH = Struct(">iq8sq8siq")
_pack_head_of_batch = Struct(f">iiiiiqq{_SAME_IN_BATCH.size}si").pack
_Q = Struct(">q")

_batch_head_at = Struct(">i8xii").unpack_from  # total, flag, body length
_batch_length_at = Struct(">h").unpack_from

# (flag, body, properties, tags code)
BatchMessage = tuple[int, bytes, bytes, int]


class CommitLog:
    def __init__(self, settings: StoreSettings, disk: Disk, store_host: bytes) -> None:
        self.directory = settings.commit_log_dir
        self.segment_size = settings.mapped_file_size_commit_log
        self.segments: dict[int, Segment] = {}  # by number: base // segment_size
        self.min_offset = 0
        self.next_offset = 0
        self.written_offset = 0
        self.durable_offset = 0  # kept by the store: everything below is synced
        self.failure: str | None = None
        self._disk = disk
        self._store_host = store_host
        self._prepared: dict[int, Segment] = {}
        self._creating = threading.Lock()
        self._opened: deque[Segment] = deque()  # opened for reading, oldest first
        self._active: Segment | None = None
        self._limit = -1  # no record may end above
        self._run_start = 0  # where the first pending piece belongs
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
        """Adds a message to the pending group; returns its physical offset. Its queue offset was `queue.next_offset`."""
        if sys_flag & _NEEDS_CARE or len(born_host) != 8 or not queue.plain:
            return self._append_any(
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
        """Adds several messages with consecutive queue offsets, all in one segment; returns their physical offsets."""
        if not messages:
            return []
        if sys_flag & NOT_DISPATCHED:
            raise ValueError(f"sysFlag {sys_flag:#x}: a batch cannot be part of a transaction")
        base_size = queue.base_size
        sizes = [base_size + len(body) + len(properties) for _, body, properties, _ in messages]
        total = sum(sizes) + (len(born_host) + len(self._store_host) - 16) * len(sizes)
        if self.next_offset + total > self._limit:
            self._roll(total)
        if sys_flag & _NEEDS_CARE or len(born_host) != 8 or not queue.plain:
            return [
                self._append_any(
                    queue, body, properties, tags_code, flag, sys_flag, born_ms, born_host, store_ms, reconsume_times, 0
                )
                for flag, body, properties, tags_code in messages
            ]
        offset = self.next_offset
        queue_offset = queue.next_offset
        pieces: list[bytes] = []
        add = pieces.extend
        entries: list[bytes] = []
        add_entry = entries.append
        offsets = []
        pack, pack_entry = _pack_head_of_batch, _pack_entry
        same = _SAME_IN_BATCH.pack(sys_flag, born_ms, born_host, store_ms, self._store_host, reconsume_times, 0)
        queue_id, topic_piece, lengths = queue.queue_id, queue.topic_piece, _PROPERTY_LENGTH
        for (flag, body, properties, tags_code), size in zip(messages, sizes, strict=True):
            crc = crc32(body) & 0x7FFFFFFF
            head = pack(size, MAGIC_V1, crc, queue_id, flag, queue_offset, offset, same, len(body))
            add((head, body, topic_piece, lengths[len(properties)], properties))
            add_entry(pack_entry(offset, size, tags_code))
            offsets.append(offset)
            offset += size
            queue_offset += 1
        self._add(pieces)
        queue.tail += b"".join(entries)
        self._touched[queue] = queue.next_offset = queue_offset
        self._index_input += zip(offsets, repeat(store_ms), repeat(queue.topic), [message[2] for message in messages])
        self.next_offset = offset
        return offsets

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
        """`append_batch` of the body of a batch send. ProtocolError if it is none; nothing is added then."""
        end = len(body)
        most = end + end // batch.FIXED_BYTES * queue.base_size
        if sys_flag & _NEEDS_CARE or len(born_host) != 8 or not queue.plain or self.next_offset + most > self._limit:
            messages = [(flag, text, raw, tags_code_of(raw)) for flag, text, raw in batch.split(body)]
            return self.append_batch(
                queue, messages, sys_flag=sys_flag, born_ms=born_ms, born_host=born_host, store_ms=store_ms,
                reconsume_times=reconsume_times,
            )  # fmt: skip
        same = _SAME_IN_BATCH.pack(sys_flag, born_ms, born_host, store_ms, self._store_host, reconsume_times, 0)
        if native is None:
            pieces, entries, offsets, raws = _batch_records(body, queue, self.next_offset, same)
        else:
            made = native.batch_records(body, queue.queue_id, queue.next_offset, self.next_offset, same, queue.topic_piece)
            if made is None:
                raise batch.broken(body)
            record_bytes, entries, offsets, raws = made
            pieces = [record_bytes]
        self._add(pieces)
        queue.tail += entries
        self._touched[queue] = queue.next_offset = queue.next_offset + len(offsets)
        self._index_input += zip(offsets, repeat(store_ms), repeat(queue.topic), raws)
        self.next_offset += end + len(offsets) * (queue.base_size - batch.FIXED_BYTES)
        return offsets

    def write_out(self) -> AppendGroup | None:
        """Writes everything pending. On an I/O error: StoreError, and the log takes no more writes.

        The caller takes the queue offsets back then (`touched` names the queues).
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
        self._forget_group()
        return group

    def write_raw(self, data: Bytes) -> None:
        """Adds bytes of another broker's log as they are, whatever segments they belong to. For replicas only."""
        if self.failure is not None:
            raise self.refusal()
        assert self.next_offset == self.written_offset, "messages of its own are pending"
        view = memoryview(data)
        while view:
            segment = self._active
            if segment is None or self.next_offset >= segment.end:
                self._activate(self.next_offset)
                continue
            part = view[: segment.end - self.next_offset]
            try:
                segment.write(part, self.next_offset)
            except OSError as error:
                raise self.fail(f"writing {len(part)} bytes to {segment.path} failed: {error}") from error
            self.next_offset = self._run_start = self.written_offset = self.next_offset + len(part)
            view = view[len(part) :]

    def take_back_raw(self, offset: int) -> None:
        """What was added raw from `offset` on, all of it in one segment, is not there any more."""
        segment = self.segment_at(offset)
        if segment is not None and offset < self.written_offset:
            segment.write(bytes(self.written_offset - offset), offset)
            self.next_offset = self._run_start = self.written_offset = offset

    def begin_anew(self, offset: int) -> None:
        """An empty log goes to another place: its first record will lie at `offset`."""
        assert self.next_offset == self.min_offset, "there are messages"
        for segment in self.segments.values():
            segment.close()
            self._disk.unlink(segment.path)
        self.segments.clear()
        self.begin(offset)

    def forget_pending(self) -> list[ConsumeQueue]:
        """Drops what is pending and returns the queues whose offsets have to be taken back."""
        queues = list(self._touched)
        self._pieces.clear()
        self._rolled.clear()
        self._forget_group()
        self.next_offset = self._run_start = self.written_offset
        return queues

    def _forget_group(self) -> None:
        self._touched = {}
        self._index_input = []
        self._add_index_input = self._index_input.append

    def fail(self, text: str) -> NotWritableError:
        """No write is taken from now on; returns the error to raise."""
        if self.failure is None:
            self.failure = text
        self._limit = -1
        return self.refusal()

    def refusal(self) -> NotWritableError:
        return NotWritableError(
            f"the store takes no writes since an I/O error: {self.failure}; check the disk, then restart the broker"
        )

    def _append_any(
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
        """`append` for records of the uncommon kinds: IPv6 hosts, a long topic, transaction states without a queue entry."""
        sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
        sys_flag |= _host_bit(born_host, BORN_HOST_V6) | _host_bit(self._store_host, STORE_HOST_V6)
        size = 74 + len(born_host) + len(self._store_host) + len(queue.topic_piece) + len(body) + len(properties)
        offset = self.next_offset
        if offset + size > self._limit:
            offset = self._roll(size)
        dispatched = not sys_flag & NOT_DISPATCHED
        queue_offset = queue.next_offset if dispatched else 0
        start = _HEAD_START.pack(
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
        middle = _MIDDLE.pack(reconsume_times, prepared_offset, len(body))
        entry = ENTRY.pack(offset, size, tags_code)
        store_time = _Q.pack(store_ms)
        property_length = _PROPERTY_LENGTH[len(properties)]
        self._add((start, born_host, store_time, self._store_host, middle, body, queue.topic_piece, property_length, properties))
        if dispatched:
            queue.tail += entry
            queue.next_offset = queue_offset + 1
        self._touched[queue] = queue.next_offset
        if sys_flag & TRANSACTION_TYPE != TRANSACTION_ROLLBACK:
            self._index_input.append((offset, store_ms, queue.topic, properties))
        self._store_ms = store_ms
        self.next_offset = offset + size
        return offset

    def _roll(self, size: int) -> int:
        """Closes the active segment with a blank and goes on in the next; returns the offset for a record of `size` bytes."""
        if self.failure is not None:
            raise self.refusal()
        if size + BLANK_SIZE > self.segment_size:
            raise TooLargeError(
                f"a message of {size} bytes does not fit into a commit-log file of {self.segment_size} bytes; "
                "raise mappedFileSizeCommitLog or send smaller messages"
            )
        active = self._active
        offset = self.next_offset
        if active is not None and offset < active.end:
            self._pieces.append(BLANK.pack(active.end - offset, MAGIC_BLANK))
            self._rolled.append((active, self._run_start, b"".join(self._pieces)))
            self._pieces.clear()
            offset = active.end
        self._activate(offset)
        self.next_offset = self._run_start = offset
        return offset

    # Segments

    def load(self, written_size: int = 0) -> list[str]:
        """Finds the segments; returns what is odd about the directory, in words. A file cut short gets its length again.

        Raises StoreError when the files were written with another size: `written_size`, if that is known.
        """
        odd = []
        lengths: dict[int, int] = {}
        self._disk.mkdirs(self.directory)
        for name in self._disk.listdir(self.directory):
            path = os.path.join(self.directory, name)
            base = parse_segment_name(name)
            if base is None:
                odd.append(f"{path}: not the name of a commit-log file, ignored")
            else:
                lengths[base] = self._disk.file_size(path)
        self._check_size(lengths, written_size)
        for base, length in lengths.items():
            segment = Segment(self._disk, self.directory, base, self.segment_size)
            if length < self.segment_size:
                odd.append(f"{segment.path}: {length} bytes instead of {self.segment_size}, extended with zeros")
                segment.file.truncate(self.segment_size)
            self.segments[base // self.segment_size] = segment
        if self.segments:
            self.min_offset = min(self.segments) * self.segment_size
        return odd

    def _check_size(self, lengths: dict[int, int], written_size: int) -> None:
        """Before anything is touched: one short file is damage, all of them together are another setting."""
        size = self.segment_size
        seen = set(lengths.values()) - {0}
        other = written_size if written_size not in (0, size) else 0
        if not written_size and len(seen) == 1 and seen != {size}:
            other = seen.pop()
        if other or any(length > size for length in lengths.values()) or any(base % size for base in lengths):
            raise StoreError(
                f"mappedFileSizeCommitLog={size} does not fit the files in {self.directory}, which were written with "
                f"{other or max(lengths.values())}; set it to that"
            )

    def begin(self, end_offset: int) -> None:
        """Appends go on at `end_offset`: recovery is done. The bytes from there on are zeros."""
        self.next_offset = self.written_offset = self._run_start = end_offset
        if not self.segments:
            self.min_offset = end_offset
        self._activate(end_offset)

    def segment_at(self, offset: int) -> Segment | None:
        return self.segments.get(offset // self.segment_size)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the log from one segment; empty when the segment is not there (any more)."""
        segment = self.segments.get(offset // self.segment_size)
        if segment is None:
            return b""
        if not segment.is_open:
            self._close_idle(segment)
        return segment.read(min(size, segment.end - offset), offset)

    def place(self, offset: int, size: int) -> tuple[int, int] | None:
        """The descriptor and the position of these bytes in the file they are in; None when they have to be read."""
        segment = self.segments.get(offset // self.segment_size)
        if segment is None or offset + size > segment.end:
            return None
        if not segment.is_open:
            self._close_idle(segment)
        descriptor = segment.file.descriptor
        return None if descriptor is None else (descriptor, offset - segment.base)

    def _close_idle(self, opening: Segment) -> None:
        """Keeps the number of open files small. Only durable segments are closed: the flusher has nothing to do with them."""
        self._opened.append(opening)
        if len(self._opened) > _OPEN_SEGMENTS:
            oldest = self._opened.popleft()
            if oldest.end <= self.durable_offset:
                oldest.close()

    def sync(self, start: int, end: int) -> None:
        """Makes [start, end) durable. Any thread. Raises OSError."""
        for number in range(start // self.segment_size, (end - 1) // self.segment_size + 1):
            segment = self.segments.get(number)
            if segment is not None:
                segment.file.fdatasync()

    def wants_next_segment(self) -> int | None:
        """The number of the segment to prepare, once the active one is a quarter full."""
        if self._active is None or self.next_offset - self._active.base < self.segment_size // 4:
            return None
        number = self._active.end // self.segment_size
        return None if number in self._prepared else number

    def prepare(self, number: int) -> None:
        """Housekeeper: makes the segment that will be needed next."""
        with self._creating:
            if number in self.segments or number in self._prepared:
                return
            self._prepared[number] = self._create(number)

    def drop_oldest(self, count: int) -> int:
        """Takes the oldest segments out of the log; returns its new start. Their files are the caller's business."""
        for number in sorted(self.segments)[:count]:
            del self.segments[number]
        self.min_offset = min(self.segments) * self.segment_size
        return self.min_offset

    def close(self) -> None:
        """Closes every file; a segment that was prepared and not used is deleted."""
        for segment in self.segments.values():
            segment.close()
        for segment in self._prepared.values():
            segment.close()
            self._disk.unlink(segment.path)
        self._prepared.clear()

    def _activate(self, offset: int) -> None:
        """Makes the segment that holds `offset` the one to append to."""
        number = offset // self.segment_size
        segment = self.segments.get(number)
        if segment is None:
            # Under the lock: the housekeeper may be making this very file.
            with self._creating:
                segment = self._prepared.pop(number, None)
                if segment is None:
                    try:
                        segment = self._create(number)
                    except OSError as error:
                        raise self.fail(f"creating a commit-log file in {self.directory} failed: {error}") from error
                self.segments[number] = segment
        self._active = segment
        self._limit = segment.end - BLANK_SIZE

    def _create(self, number: int) -> Segment:
        return create_segment(self._disk, self.directory, number * self.segment_size, self.segment_size)


def _host_bit(host: bytes, bit: int) -> int:
    if len(host) not in (8, 20):
        raise ValueError(f"a host is 8 (IPv4) or 20 (IPv6) bytes with its port, not {len(host)}: {host.hex()}")
    return bit if len(host) == 20 else 0


def _batch_records(
    body: bytes, queue: ConsumeQueue, offset: int, same: bytes
) -> tuple[list[bytes], bytes, list[int], list[bytes]]:
    """What the log and the queue get from the body of a batch send: pieces of records, entries, log offsets, properties.

    The layout is that of wire/batch.py. Messages are cut, hashed and packed in one pass: three passes over the same few hundred
    bytes, each with its own tuples, took half as long again. The C part does the same.
    """
    pieces: list[bytes] = []
    add = pieces.extend
    entries: list[bytes] = []
    add_entry = entries.append
    raws: list[bytes] = []
    offsets: list[int] = []
    head_at, length_at, pack, pack_entry = _batch_head_at, _batch_length_at, _pack_head_of_batch, _pack_entry
    queue_id, topic_piece, lengths, tags_code = queue.queue_id, queue.topic_piece, _PROPERTY_LENGTH, tags_code_of
    queue_offset, more, pos, end = queue.next_offset, queue.base_size - batch.FIXED_BYTES, 0, len(body)
    try:
        while pos < end:
            total, flag, length = head_at(body, pos)
            text_at = pos + 20
            raw_at = text_at + length
            (raw_length,) = length_at(body, raw_at)
            pos += total
            if total != batch.FIXED_BYTES + length + raw_length or length < 0 or raw_length < 0 or pos > end:
                raise batch.broken(body)
            text = body[text_at:raw_at]
            raw = body[raw_at + 2 : pos]
            size = total + more
            crc = crc32(text) & 0x7FFFFFFF
            head = pack(size, MAGIC_V1, crc, queue_id, flag, queue_offset, offset, same, length)
            add((head, text, topic_piece, lengths[raw_length], raw))
            add_entry(pack_entry(offset, size, tags_code(raw)))
            raws.append(raw)
            offsets.append(offset)
            offset += size
            queue_offset += 1
    except struct.error:
        raise batch.broken(body) from None
    return pieces, b"".join(entries), offsets, raws


class _PropertyLengths(dict[int, bytes]):
    """PROPLEN as bytes, for lengths seen so far."""

    def __missing__(self, length: int) -> bytes:
        if length > 0x7FFF:
            raise ValueError(f"properties of {length} bytes: at most 32767 fit into a record")
        piece = self[length] = length.to_bytes(2, "big")
        return piece


_PROPERTY_LENGTH = _PropertyLengths()

assert ENTRY.size == UNIT
