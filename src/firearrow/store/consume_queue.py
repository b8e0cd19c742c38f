"""Consume queues: for each (topic, queue id) the list of its messages, by queue offset.

An entry is 20 bytes, big-endian:

    0   8  physical offset of the record in the commit log
    8   4  size of the record
    12  8  tags code: Java's hash of the TAGS property, sign-extended; the delivery time for delayed messages

Entry number n is at byte n*20 of the queue's files. Each file has `file_size` bytes and is named after its first byte (20
digits). A zero size ends the queue. Size 0x7FFFFFFF marks an absent message: such entries fill the first file of a queue up to
its first entry, and replace records that were damaged on the disk.

In memory an entry is appended to `tail` together with its record, and written to the file later, in batches: the log can rebuild
what was not written. Queues keep no descriptors; a few recently used ones are shared by all queues.

Invariants of a ConsumeQueue

    min_offset <= max_offset <= next_offset
    tail holds exactly the entries [tail_start, next_offset)
    tail_start <= written <= max_offset: entries below `written` are in the files, only visible entries are written there

Only this module changes the fields of a queue, and CommitLog.append, the hottest path, which has `extend` inline.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from struct import Struct

from firearrow.store.commitlog.segment import parse_segment_name
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk, File, last_nonzero

ENTRY = Struct(">qiq")
UNIT = 20
assert ENTRY.size == UNIT
ABSENT_SIZE = 0x7FFFFFFF
ABSENT_ENTRY = ENTRY.pack(0, ABSENT_SIZE, 0)
_WRITE_BEHIND = 32 * 1024  # bytes; with less, thousands of queues would write the same pages repeatedly

_NO_ENTRY = 1 << 62  # no entry is affected
_KEEP_IN_TAIL = 64  # entries kept in memory after they are written: consumers mostly read the newest
_TOPIC_LIMIT_V1 = 127
# Read-ahead for consumers that work through a backlog: 10 KB at a time, for this many queues.
_READ_AHEAD = 512  # entries
_READ_AHEAD_MIN = 8  # a read of fewer entries is a lookup, not a consumer
_READ_AHEAD_QUEUES = 64
_NO_READ_AHEAD = (0, b"")


class ConsumeQueue:
    """One queue. `plain`: its records have the common layout if they are born on IPv4 (see CommitLog.append)."""

    __slots__ = (
        "base_size",
        "dropped",
        "files",
        "first_file",
        "last_file",
        "long_topic",
        "max_offset",
        "min_offset",
        "next_offset",
        "plain",
        "queue_id",
        "tail",
        "tail_start",
        "topic",
        "topic_name",
        "topic_piece",
        "written",
    )

    def __init__(self, topic: str, queue_id: int, files: QueueFiles, *, plain: bool = True) -> None:
        name = topic.encode()
        self.topic = topic
        self.queue_id = queue_id
        # Topics over 127 bytes need a version 2 record, which has two bytes for the length.
        self.long_topic = len(name) > _TOPIC_LIMIT_V1
        self.plain = plain and not self.long_topic
        self.topic_name = name
        self.topic_piece = len(name).to_bytes(2 if self.long_topic else 1, "big") + name
        self.base_size = 90 + len(self.topic_piece)  # record size without body and properties, hosts of IPv4
        self.next_offset = 0  # queue offset of the next message
        self.max_offset = 0  # entries below are visible
        self.min_offset = 0
        self.tail = bytearray()
        self.tail_start = 0
        self.written = 0
        self.first_file = -1  # first entry of the oldest and of the newest file; -1: no files
        self.last_file = -1
        self.dropped = False  # its topic was deleted
        self.files = files

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, [{self.min_offset}, {self.max_offset}))"

    def entries(self, offset: int, count: int) -> bytes:
        """Return at most `count` visible entries from `offset`: fewer at the end of the queue or where a file is missing."""
        count = min(count, self.max_offset - offset)
        if count <= 0 or offset < 0:
            return b""
        start = offset - self.tail_start
        if start >= 0:
            return bytes(memoryview(self.tail)[start * UNIT : (start + count) * UNIT])
        if start + count <= 0:
            return self.files.read(self, offset, count)
        older = self.files.read(self, offset, -start)
        if len(older) != -start * UNIT:
            return older
        return older + bytes(memoryview(self.tail)[: (start + count) * UNIT])

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code) of a visible entry."""
        data = self.entries(offset, 1)
        return _unpack(data) if data else None

    def reset(self, offset: int) -> None:
        """Empty the queue. Its next message gets `offset`. The caller deletes the files."""
        self.restart_at(offset)
        self.min_offset = offset
        self.first_file = self.last_file = -1

    def restart_at(self, count: int) -> None:
        """Continue behind the first `count` entries, which are in the files. Nothing is kept in memory."""
        self.next_offset = self.max_offset = self.written = self.tail_start = count
        self.tail = bytearray()

    def extend(self, entries: bytes, count: int) -> int:
        """Add the entries of appended records, not visible yet. Return the new `next_offset`."""
        self.tail += entries
        self.next_offset = end = self.next_offset + count
        return end

    def fill_gap(self, queue_offset: int, physical_offset: int) -> None:
        """Add absent entries up to `queue_offset`. `physical_offset` is that of the record which follows."""
        gap = queue_offset - self.next_offset
        self.extend(ENTRY.pack(physical_offset, ABSENT_SIZE, 0) * gap, gap)

    def publish(self, end: int) -> int:
        """Make the entries below `end` visible. Return the max_offset before."""
        start = self.max_offset
        if end > start:
            self.max_offset = end
        return start

    def discard_from(self, offset: int) -> None:
        """Drop the entries from `offset`, none of which is visible."""
        assert offset >= self.max_offset
        del self.tail[(offset - self.tail_start) * UNIT :]
        self.next_offset = offset

    def truncate(self, count: int) -> None:
        """Drop the entries from `count`, visible or written. The caller clears the files."""
        if count >= self.tail_start:
            del self.tail[(count - self.tail_start) * UNIT :]
        else:
            self.tail = bytearray()
            self.tail_start = count
        self.next_offset = self.max_offset = count
        self.written = min(self.written, count)

    def first_at_or_after(self, physical_offset: int) -> int:
        """Return the first visible entry whose record is at or after this log offset, or max_offset."""

        def is_at_or_after(offset: int) -> bool:
            entry = self.entry(offset)
            return entry is not None and entry[0] >= physical_offset and entry[:2] != (0, ABSENT_SIZE)

        return bisect_left(range(self.max_offset), True, lo=self.lowest_entry(), key=is_at_or_after)

    def lowest_entry(self) -> int:
        """Return the oldest entry that is still stored, valid or not."""
        return min(self.first_file if self.first_file >= 0 else self.tail_start, self.max_offset)

    def correct_min(self, log_min: int) -> bool:
        """Set min_offset to the first entry whose record still exists. Return whether it moved."""
        before = self.min_offset
        lowest = self.lowest_entry()
        first = self.entry(lowest)
        if first is not None and first[0] >= log_min and first[1] != ABSENT_SIZE:
            self.min_offset = lowest
        else:
            self.min_offset = self.first_at_or_after(log_min)  # max_offset if none does: empty, numbering continues
        return self.min_offset != before


def _unpack(data: bytes) -> tuple[int, int, int]:
    offset, size, tags_code = ENTRY.unpack(data)
    return offset, size, tags_code


class QueueWrite:
    """A snapshot of the visible entries of a queue that are not in its files yet."""

    __slots__ = ("directories", "end", "entries", "first_file", "last_file", "paths", "queue", "start")

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.start = queue.written
        self.end = queue.max_offset
        self.entries = bytes(
            memoryview(queue.tail)[(self.start - queue.tail_start) * UNIT : (self.end - queue.tail_start) * UNIT]
        )
        self.first_file = queue.first_file
        self.last_file = queue.last_file
        self.paths: list[str] = []  # written and unsynced
        self.directories: list[str] = []  # with new names, unsynced


class QueueFiles:
    """The files of all consume queues under one directory, and a cache of open descriptors."""

    def __init__(self, disk: Disk, root: str, file_size: int, open_limit: int = 64) -> None:
        assert file_size % UNIT == 0
        self.disk = disk
        self.root = root
        self.file_size = file_size
        self.per_file = file_size // UNIT
        self.unsynced: set[str] = set()  # files written since the last sync
        self.unsynced_dirs: set[str] = set()
        self._open: dict[str, File] = {}  # in order of use
        self._open_limit = open_limit
        self._read_ahead: dict[ConsumeQueue, tuple[int, bytes]] = {}  # (first entry, entries), in order of reading

    def directory(self, queue: ConsumeQueue) -> str:
        return os.path.join(self.root, queue.topic, str(queue.queue_id))

    def stored_queues(self) -> Iterator[tuple[str, int]]:
        """Yield topic and queue id of every queue that has a directory."""
        for topic in self.disk.listdir(self.root):
            path = os.path.join(self.root, topic)
            for name in self.disk.listdir(path) if self.disk.is_dir(path) else ():
                if name.isascii() and name.isdecimal():
                    yield topic, int(name)

    def check_size(self, written_size: int) -> None:
        """Raise StoreError if the files were written with another size. `written_size`: that size, 0 if unknown."""
        other = written_size if written_size not in (0, self.file_size) else 0
        if not written_size:
            seen: set[int] = set()
            for topic, queue_id in self.stored_queues():
                directory = os.path.join(self.root, topic, str(queue_id))
                seen.update(self.disk.file_size(os.path.join(directory, name)) for name in self.disk.listdir(directory))
                if self.file_size in seen:
                    break
            seen.discard(0)
            other = seen.pop() if len(seen) == 1 and self.file_size not in seen else 0
        if other:
            raise StoreError(
                f"mappedFileSizeConsumeQueue={self.file_size} does not fit the files in {self.root}, which were written with "
                f"{other}; set it to that value"
            )

    def read(self, queue: ConsumeQueue, offset: int, count: int) -> bytes:
        """Read entries from the files. The caller knows that they are written."""
        if count < _READ_AHEAD_MIN:
            return self.read_stored(queue, offset, count)
        start, ahead = self._read_ahead.get(queue, _NO_READ_AHEAD)
        at = (offset - start) * UNIT
        size = count * UNIT
        if at < 0 or at + size > len(ahead):
            # Entries in the files do not change. Truncation and deletion also invalidate this cache.
            start, at = offset, 0
            ahead = self.read_stored(queue, offset, max(count, min(_READ_AHEAD, queue.written - offset)))
            self._read_ahead.pop(queue, None)
            self._read_ahead[queue] = (start, ahead)
            if len(self._read_ahead) > _READ_AHEAD_QUEUES:
                del self._read_ahead[next(iter(self._read_ahead))]
        return ahead[at : at + size]

    def read_stored(self, queue: ConsumeQueue, offset: int, count: int) -> bytes:
        """Read entries without keeping more of them in memory."""
        pieces = []
        while count > 0:
            base = offset - offset % self.per_file
            if not queue.first_file <= base <= queue.last_file or queue.first_file < 0:
                break
            n = min(count, base + self.per_file - offset)
            try:
                data = self._file(self._path(queue, base)).pread(n * UNIT, (offset - base) * UNIT)
            except FileNotFoundError:
                break
            pieces.append(data)
            if len(data) != n * UNIT:
                break
            offset += n
            count -= n
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def entry(self, queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
        """Return an entry from the files, visible or not."""
        data = self.read(queue, offset, 1)
        return _unpack(data) if len(data) == UNIT else None

    def rewrite(self, queue: ConsumeQueue, offset: int, entry: bytes) -> None:
        """Replace a damaged entry in its file."""
        base = offset - offset % self.per_file
        path = self._path(queue, base)
        self._read_ahead.pop(queue, None)
        self._file(path).pwrite(entry, (offset - base) * UNIT)
        self.unsynced.add(path)

    def flush(self, queue: ConsumeQueue) -> None:
        """Write the visible entries that are only in memory, in the caller's thread."""
        write = QueueWrite(queue)
        self.perform(write)
        self.apply(write)

    def perform(self, write: QueueWrite) -> None:
        """Create files and write entries: the slow part of a flush. Any thread, but one at a time for a queue.

        After an exception another attempt writes everything again.
        """
        queue, offset = write.queue, write.start
        while offset < write.end:
            base = offset - offset % self.per_file
            stop = min(write.end, base + self.per_file)
            path = self._path(queue, base)
            new = base > write.last_file
            if new and write.first_file < 0:
                directory = self.directory(queue)
                self.disk.mkdirs(directory, durable=False)
                write.directories += (self.root, os.path.dirname(directory))
            with closing(self.disk.open(path, create=new, size=self.file_size)) as file:
                if new and write.first_file < 0 and offset > base:
                    file.pwrite(ABSENT_ENTRY * (offset - base), 0)
                entries = write.entries[(offset - write.start) * UNIT : (stop - write.start) * UNIT]
                file.pwrite(entries, (offset - base) * UNIT)
                if len(entries) >= _WRITE_BEHIND:
                    file.write_behind((offset - base) * UNIT, len(entries))
            if new:
                write.directories.append(os.path.dirname(path))
                write.last_file = base
                if write.first_file < 0:
                    write.first_file = base
            write.paths.append(path)
            offset = stop

    def apply(self, write: QueueWrite) -> None:
        """Take note, in the owner's thread, that the entries are in the files. Only the newest stay in memory."""
        queue = write.queue
        if write.start == write.end:
            return
        self.unsynced.update(write.paths)
        self.unsynced_dirs.update(write.directories)
        if queue.first_file < 0:
            queue.first_file = write.first_file
        queue.last_file = write.last_file
        queue.written = write.end
        surplus = write.end - _KEEP_IN_TAIL - queue.tail_start
        if surplus > _KEEP_IN_TAIL:
            del queue.tail[: surplus * UNIT]
            queue.tail_start += surplus

    def load(self, queue: ConsumeQueue) -> list[tuple[int, str]]:
        """Find the files of a queue and set first_file and last_file. Files that are too short are extended.

        Return the problems found, each with the first entry affected.
        """
        directory = self.directory(queue)
        bases: list[int] = []
        wrong: list[tuple[int, str]] = []
        for name in self.disk.listdir(directory):
            byte_offset = parse_segment_name(name)
            path = os.path.join(directory, name)
            size = self.disk.file_size(path)
            if byte_offset is None or byte_offset % self.file_size or size > self.file_size:
                wrong.append((_NO_ENTRY, f"{path}: not a consume-queue file of {self.file_size} bytes, ignored"))
                continue
            base = byte_offset // UNIT
            if size < self.file_size:
                wrong.append((base + size // UNIT, f"{path}: {size} bytes instead of {self.file_size}"))
                self._file(path).truncate(self.file_size)
                self.unsynced.add(path)
            if bases and base != bases[-1] + self.per_file:
                wrong.append((bases[-1] + self.per_file, f"{path}: the file before it is missing"))
                bases.clear()
            bases.append(base)
        if bases:
            queue.first_file, queue.last_file = bases[0], bases[-1]
        return wrong

    def remove_below(self, queue: ConsumeQueue, offset: int) -> list[str]:
        """Detach the files with entries below `offset` only, except for the newest file. Return their paths."""
        paths = []
        self._read_ahead.pop(queue, None)
        while queue.first_file >= 0 and queue.first_file < queue.last_file and queue.first_file + self.per_file <= offset:
            paths.append(self._path(queue, queue.first_file))
            self._close_file(paths[-1])
            queue.first_file += self.per_file
        return paths

    def remove_detached(self, queue: ConsumeQueue) -> None:
        """Delete the files below the first one, whose deletion a power cut has undone in part."""
        directory = self.directory(queue)
        for name in self.disk.listdir(directory):
            byte_offset = parse_segment_name(name)
            if byte_offset is not None and byte_offset < queue.first_file * UNIT:
                self._close_file(os.path.join(directory, name))
                self.disk.unlink(os.path.join(directory, name))

    def remove_all(self, queue: ConsumeQueue) -> None:
        """Delete every file of a queue."""
        self._read_ahead.pop(queue, None)
        directory = self.directory(queue)
        for name in self.disk.listdir(directory):
            path = os.path.join(directory, name)
            self._close_file(path)
            if parse_segment_name(name) is not None:
                self.disk.unlink(path)
        queue.first_file = queue.last_file = -1

    def clear_from(self, queue: ConsumeQueue, offset: int) -> None:
        """Erase the entries from `offset`: delete later files and zero the rest of the last one."""
        self._read_ahead.pop(queue, None)
        while queue.last_file >= 0 and queue.last_file >= offset and queue.last_file > queue.first_file:
            path = self._path(queue, queue.last_file)
            self._close_file(path)
            if self.disk.exists(path):
                self.disk.unlink(path)
            queue.last_file -= self.per_file
        if queue.last_file < 0:
            return
        path = self._path(queue, queue.last_file)
        file = self._file(path)
        position = (offset - queue.last_file) * UNIT
        if last_nonzero(file, position, self.file_size) is not None:
            file.truncate(position)
            file.truncate(self.file_size)
            self.unsynced.add(path)

    def detach(self, topic: str) -> str:
        """Close the open files of a topic. Return its directory, for the caller to delete."""
        path = os.path.join(self.root, topic)
        for queue in [queue for queue in self._read_ahead if queue.topic == topic]:
            del self._read_ahead[queue]
        for name in [name for name in self._open if name.startswith(path + os.sep)]:
            self._close_file(name)
        return path

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _path(self, queue: ConsumeQueue, base: int) -> str:
        return f"{self.root}{os.sep}{queue.topic}{os.sep}{queue.queue_id}{os.sep}{base * UNIT:020d}"

    def _file(self, path: str) -> File:
        file = self._open.pop(path, None)
        if file is None:
            file = self.disk.open(path)
        self._open[path] = file
        if len(self._open) > self._open_limit:
            oldest = next(iter(self._open))
            self._open.pop(oldest).close()
        return file

    def _close_file(self, path: str) -> None:
        self.unsynced.discard(path)
        file = self._open.pop(path, None)
        if file is not None:
            file.close()


class ConsumeQueues(dict[tuple[str, int], ConsumeQueue]):
    """All queues of a store, by topic and queue id."""

    def __init__(self, files: QueueFiles, *, plain: bool) -> None:
        super().__init__()
        self.files = files
        self._plain = plain

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue. ValueError if the topic cannot be a directory name. A queue without messages has no files."""
        queue = self.get((topic, queue_id))
        if queue is None:
            check_directory_name(topic)
            if queue_id < 0:
                raise ValueError(f"queue id {queue_id} of topic {topic!r}: expected 0 or more")
            queue = self[topic, queue_id] = ConsumeQueue(topic, queue_id, self.files, plain=self._plain)
        return queue

    def topics(self) -> set[str]:
        """Return the topics that have or had messages here."""
        return {topic for topic, _ in self}

    def drop(self, topic: str) -> str:
        """Remove the queues of a topic. Return the directory of their files, for the caller to delete."""
        for key in [key for key in self if key[0] == topic]:
            self.pop(key).dropped = True
        return self.files.detach(topic)


def check_directory_name(topic: str) -> None:
    """Raise ValueError for a topic whose directory would be outside the store. The broker has stricter rules."""
    unfit = not topic or topic in (".", "..") or "/" in topic or os.sep in topic or min(topic) < " "
    if unfit or len(topic.encode()) > 255:
        raise ValueError(f"topic {topic!r} cannot be the name of a directory")
