"""One file of the commit log: `segment_size` bytes at a fixed place of the endless log.

The file is named after the log offset of its first byte, 20 decimal digits, and has its full length from the moment it
exists (a reader refuses any other length). It starts as one hole.

Zeros written ahead. A write into a hole allocates blocks, and an fdatasync after it has to commit the file system's journal
as well; a write over blocks that are already there does not. Under SYNC_FLUSH the housekeeper therefore writes and syncs
zeros some megabytes ahead of the append position. `zeroed_to` divides the file between the two threads:

- below it the housekeeper never writes again, so the appender writes there without asking;
- an append that reaches past it first moves it, under the lock, and only then writes.

So zeros can never land on a record.
"""

from __future__ import annotations

import os
import threading

from firearrow.store.disk import Bytes, Disk, File

NAME_DIGITS = 20
_ZERO_CHUNK = 1024 * 1024
_ZEROS = bytes(_ZERO_CHUNK)


def segment_name(base: int) -> str:
    return f"{base:020d}"


def parse_segment_name(name: str) -> int | None:
    """The offset a file name stands for, or None when it is no segment name."""
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdecimal() else None


class Segment:
    __slots__ = ("_disk", "_file", "_lock", "base", "path", "size", "zeroed_to")

    def __init__(self, disk: Disk, directory: str, base: int, size: int, file: File | None = None) -> None:
        self.base = base
        self.size = size
        self.path = os.path.join(directory, segment_name(base))
        self.zeroed_to = size  # position in the file; `size` also means: nobody writes zeros ahead here
        self._disk = disk
        self._file = file
        self._lock = threading.Lock()

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    @property
    def end(self) -> int:
        return self.base + self.size

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def write(self, data: Bytes, offset: int) -> None:
        """Writes at a log offset. The caller has checked that it fits."""
        position = offset - self.base
        end = position + len(data)
        if end > self.zeroed_to:
            with self._lock:
                self.zeroed_to = max(self.zeroed_to, end)
        (self._file or self.file).pwrite(data, position)

    def read(self, size: int, offset: int) -> bytes:
        return (self._file or self.file).pread(size, offset - self.base)

    def expect_zeros_from(self, position: int) -> None:
        """From now on zeros are written ahead of the appends, beginning at `position`."""
        self.zeroed_to = position

    def write_zeros(self, upto: int) -> None:
        """Housekeeper: writes zeros up to this position and makes them durable."""
        upto = min(upto, self.size)
        while True:
            with self._lock:
                start = self.zeroed_to
                length = min(_ZERO_CHUNK, upto - start)
                if length <= 0:
                    return
                self.file.pwrite(_ZEROS[:length], start)
                self.zeroed_to = start + length
            # After every chunk: a sync of records that comes now has to write these zeros too, and somebody waits for it.
            self.file.fdatasync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def create_segment(disk: Disk, directory: str, base: int, size: int) -> Segment:
    """Makes the file, at its full length, and makes its name durable."""
    file = disk.open(os.path.join(directory, segment_name(base)), create=True, size=size)
    file.fdatasync()
    disk.fsync_dir(directory)
    return Segment(disk, directory, base, size, file)
