"""Consume queues: for each (topic, queue id) the list of its messages, by queue offset.

An entry is 20 bytes, big-endian:

    0   8  physical offset of the record in the commit log
    8   4  size of the record
    12  8  tags code: Java's hash of the TAGS property, sign-extended; the delivery time for delayed messages

Entry number n is at byte n*20 of the queue's files, each `file_size` bytes long and named after the byte it starts with
(20 digits). A zero size ends the queue. Size 0x7FFFFFFF says "no message here": such units fill a queue's first file up to
the entry it begins with, and stand for records that were damaged on the disk.

In memory an entry is appended to `tail` the moment its record is, and written to the file some time later, many at once: the
log can always rebuild what was not. No queue keeps a descriptor; a few recently used ones are kept open for all together.

Invariants of a ConsumeQueue

    min_offset <= max_offset <= next_offset
    tail holds exactly the entries [tail_start, next_offset)
    tail_start <= written <= max_offset: entries below `written` are in the files, only visible entries are written there
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct

from firearrow.store.commitlog.segment import parse_segment_name
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk, File

ENTRY = Struct(">qiq")
UNIT = 20
assert ENTRY.size == UNIT
ABSENT_SIZE = 0x7FFFFFFF
ABSENT_ENTRY = ENTRY.pack(0, ABSENT_SIZE, 0)
_WRITE_BEHIND = 32 * 1024  # bytes; less, in thousands of queues, would be written page by page over and over

_NOWHERE = 1 << 62  # no entry is affected
_BLOCK = 4096  # holes of a sparse file begin at such boundaries
_KEEP_IN_TAIL = 64  # entries kept in memory after they were written: consumers mostly read the newest
_TOPIC_LIMIT_V1 = 127
# A reader that works through a backlog comes back for the entries behind those it got: 10 KB at a time, for so many queues.
_AHEAD = 512  # entries
_AHEAD_WORTH = 8  # a read of fewer entries is a look-up, not a reader
_AHEAD_QUEUES = 64


_NOTHING = (0, b"")


class ConsumeQueue:
    __slots__ = (
        "base_size",
        "dirty_since_ms",
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
        "topic_piece",
        "written",
    )

    def __init__(self, topic: str, queue_id: int, files: QueueFiles, *, plain: bool = True) -> None:
        name = topic.encode()
        self.topic = topic
        self.queue_id = queue_id
        # Topics over 127 characters need a record of version 2, with two bytes for the length.
        self.long_topic = len(name) > _TOPIC_LIMIT_V1
        self.plain = plain and not self.long_topic  # its records are of the common kind, if born on IPv4
        self.topic_piece = len(name).to_bytes(2 if self.long_topic else 1, "big") + name
        self.base_size = 90 + len(self.topic_piece)  # record size without body and properties, hosts of IPv4
        self.next_offset = 0  # the next message gets this
        self.max_offset = 0  # below: visible
        self.min_offset = 0
        self.tail = bytearray()
        self.tail_start = 0
        self.written = 0
        self.first_file = -1  # first entry of the oldest and of the newest file; -1: no file
        self.last_file = -1
        self.dirty_since_ms = 0  # 0: everything visible is written
        self.dropped = False
        self.files = files

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, [{self.min_offset}, {self.max_offset}))"

    def entries(self, offset: int, count: int) -> bytes:
        """The visible entries from `offset` on, at most `count`; fewer at the end of the queue or where a file is missing."""
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
        """(physical offset, size, tags code) of one visible entry."""
        data = self.entries(offset, 1)
        return _unpack(data) if data else None

    def reset(self, offset: int) -> None:
        """Empties the queue; its next message gets `offset`. Files are the caller's business."""
        self.next_offset = self.max_offset = self.min_offset = self.tail_start = self.written = offset
        self.tail = bytearray()
        self.first_file = self.last_file = -1

    def first_at_or_after(self, physical_offset: int) -> int:
        """The first visible entry whose record lies at or after this log offset; max_offset when there is none."""
        low, high = self.lowest_entry(), self.max_offset
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry is None or entry[0] < physical_offset or (entry[1] == ABSENT_SIZE and entry[0] == 0):
                low = middle + 1
            else:
                high = middle
        return low

    def lowest_entry(self) -> int:
        """The oldest entry that is still kept, valid or not."""
        return min(self.first_file if self.first_file >= 0 else self.tail_start, self.max_offset)

    def correct_min(self, log_min: int) -> bool:
        """Sets min_offset to the first entry whose record still exists; whether that moved it."""
        before = self.min_offset
        lowest = self.lowest_entry()
        first = self.entry(lowest)
        if first is not None and first[0] >= log_min and first[1] != ABSENT_SIZE:
            self.min_offset = lowest
        else:
            self.min_offset = self.first_at_or_after(log_min)  # max_offset when all are gone: empty, but it keeps its numbering
        return self.min_offset != before


def _unpack(data: bytes) -> tuple[int, int, int]:
    offset, size, tags_code = ENTRY.unpack(data)
    return offset, size, tags_code


class QueueWrite:
    """The visible entries of a queue that are only in memory, as they are now, on their way to the files."""

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
        self.paths: list[str] = []  # written, not synced
        self.directories: list[str] = []  # with new names, not synced


class QueueFiles:
    """The files of all consume queues under one directory, and the few descriptors kept open."""

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
        self._ahead: dict[ConsumeQueue, tuple[int, bytes]] = {}  # first entry and entries read ahead; in order of reading

    def directory(self, queue: ConsumeQueue) -> str:
        return os.path.join(self.root, queue.topic, str(queue.queue_id))

    def stored_queues(self) -> Iterator[tuple[str, int]]:
        """Topic and queue id of every queue that has a directory."""
        for topic in self.disk.listdir(self.root):
            path = os.path.join(self.root, topic)
            for name in self.disk.listdir(path) if self.disk.is_dir(path) else ():
                if name.isascii() and name.isdecimal():
                    yield topic, int(name)

    def check_size(self, written_size: int) -> None:
        """Raises StoreError when the files were written with another size: `written_size`, 0 if that is not known."""
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
                f"{other}; set it to that"
            )

    def read(self, queue: ConsumeQueue, offset: int, count: int) -> bytes:
        """Entries from the files only; the caller knows that they were written."""
        if count < _AHEAD_WORTH:
            return self._read(queue, offset, count)
        start, ahead = self._ahead.get(queue, _NOTHING)
        at = (offset - start) * UNIT
        size = count * UNIT
        if at < 0 or at + size > len(ahead):
            # Entries in the files do not change; what is cut off or deleted is forgotten here too.
            start, at = offset, 0
            ahead = self._read(queue, offset, max(count, min(_AHEAD, queue.written - offset)))
            self._ahead.pop(queue, None)
            self._ahead[queue] = (start, ahead)
            if len(self._ahead) > _AHEAD_QUEUES:
                del self._ahead[next(iter(self._ahead))]
        return ahead[at : at + size]

    def _read(self, queue: ConsumeQueue, offset: int, count: int) -> bytes:
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
        """One entry from the files, visible or not."""
        data = self.read(queue, offset, 1)
        return _unpack(data) if len(data) == UNIT else None

    def flush(self, queue: ConsumeQueue) -> None:
        """Writes the visible entries that are only in memory, here and now."""
        write = QueueWrite(queue)
        self.perform(write)
        self.apply(write)

    def perform(self, write: QueueWrite) -> None:
        """The part of a flush that takes time: creates files and writes entries. Any thread, one at a time for a queue.

        When it raises, nothing has changed that another attempt would not write again.
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
            file = self.disk.open(path, create=new, size=self.file_size)
            try:
                if new and write.first_file < 0 and offset > base:
                    file.pwrite(ABSENT_ENTRY * (offset - base), 0)
                entries = write.entries[(offset - write.start) * UNIT : (stop - write.start) * UNIT]
                file.pwrite(entries, (offset - base) * UNIT)
                if len(entries) >= _WRITE_BEHIND:
                    file.write_behind((offset - base) * UNIT, len(entries))
            finally:
                file.close()
            if new:
                write.directories.append(os.path.dirname(path))
                write.last_file = base
                if write.first_file < 0:
                    write.first_file = base
            write.paths.append(path)
            offset = stop

    def apply(self, write: QueueWrite) -> None:
        """The owner's part: the entries are in the files now; all but the newest are forgotten."""
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
        """Finds out which files a queue has: sets first_file and last_file.

        Returns what is wrong with them, each with the first entry that is affected. A file that is too short gets its length.
        """
        directory = self.directory(queue)
        bases: list[int] = []
        wrong: list[tuple[int, str]] = []
        for name in self.disk.listdir(directory):
            byte_offset = parse_segment_name(name)
            path = os.path.join(directory, name)
            size = self.disk.file_size(path)
            if byte_offset is None or byte_offset % self.file_size or size > self.file_size:
                wrong.append((_NOWHERE, f"{path}: not a consume-queue file of {self.file_size} bytes, ignored"))
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
        """Takes the files that hold only entries below `offset` out of the queue, never the newest; returns their paths."""
        paths = []
        self._ahead.pop(queue, None)
        while queue.first_file >= 0 and queue.first_file < queue.last_file and queue.first_file + self.per_file <= offset:
            paths.append(self._path(queue, queue.first_file))
            self._forget(paths[-1])
            queue.first_file += self.per_file
        return paths

    def remove_all(self, queue: ConsumeQueue) -> None:
        """Deletes every file of a queue."""
        self._ahead.pop(queue, None)
        directory = self.directory(queue)
        for name in self.disk.listdir(directory):
            path = os.path.join(directory, name)
            self._forget(path)
            if parse_segment_name(name) is not None:
                self.disk.unlink(path)
        queue.first_file = queue.last_file = -1

    def clear_from(self, queue: ConsumeQueue, offset: int) -> None:
        """Leaves nothing behind entry `offset` - 1: later files are deleted, the rest of the last one is zeroed."""
        self._ahead.pop(queue, None)
        while queue.last_file >= 0 and queue.last_file >= offset and queue.last_file > queue.first_file:
            path = self._path(queue, queue.last_file)
            self._forget(path)
            if self.disk.exists(path):
                self.disk.unlink(path)
            queue.last_file -= self.per_file
        if queue.last_file < 0:
            return
        path = self._path(queue, queue.last_file)
        file = self._file(path)
        position = (offset - queue.last_file) * UNIT
        block_end = min(position - position % -_BLOCK, self.file_size)
        if any(file.pread(block_end - position, position)) or not self._only_zeros(file, block_end):
            file.truncate(position)
            file.truncate(self.file_size)
            self.unsynced.add(path)

    def _only_zeros(self, file: File, position: int) -> bool:
        while position < self.file_size:
            data_at = file.next_data(position)
            if data_at is None or data_at >= self.file_size:
                return True
            data = file.pread(min(1 << 20, self.file_size - data_at), data_at)
            if any(data):
                return False
            position = data_at + len(data)
        return True

    def forget(self, topic: str) -> str:
        """Closes what is open of a topic; returns its directory, for the caller to delete."""
        path = os.path.join(self.root, topic)
        for queue in [queue for queue in self._ahead if queue.topic == topic]:
            del self._ahead[queue]
        for name in [name for name in self._open if name.startswith(path + os.sep)]:
            self._forget(name)
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
        self._keep(path, file)
        return file

    def _keep(self, path: str, file: File) -> None:
        self._open[path] = file
        if len(self._open) > self._open_limit:
            oldest = next(iter(self._open))
            self._open.pop(oldest).close()

    def _forget(self, path: str) -> None:
        self.unsynced.discard(path)
        file = self._open.pop(path, None)
        if file is not None:
            file.close()
