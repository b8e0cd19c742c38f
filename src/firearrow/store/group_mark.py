"""The `groupMark` file of a member of an elected group: up to where its log was durable, and up to where it was confirmed.

Two slots of 512 bytes, written in turns, so that one of them is always whole:

    0    8  number of the write; the higher one counts
    8    8  durable      the log below had been synced: a log that ends before it has lost something
    16   8  confirmed    the majority had the log below: what lies above may yet be cut off, and nobody has seen it
    24   8  1 if a record below was found damaged: the next opening looks at the whole log
    32   4  CRC-32 of the above

With SYNC_FLUSH `durable` is written and synced after every flush, before anybody hears of it: if something is missing that a
member has told the others it has, it knows. `confirmed` may lag behind the truth: a member that confirms less than it could
learns the rest from its leader.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from firearrow.store.filesystem import Disk, File

FILE_NAME = "groupMark"
_SLOT = 512
_FIELDS = Struct(">QQQQ")
_CRC = Struct(">I")


@dataclass(slots=True)
class Mark:
    durable: int = 0
    confirmed: int = 0
    damaged: bool = False


class MarkFile:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = os.path.join(directory, FILE_NAME)
        self._number = 0
        self._file: File | None = None
        self._lock = threading.Lock()  # the flusher writes, too
        self.mark = Mark()
        if disk.exists(self._path):
            self._load(disk.read_bytes(self._path))

    def _load(self, text: bytes) -> None:
        size = _FIELDS.size
        for at in (0, _SLOT):
            slot = text[at : at + size + _CRC.size]
            if len(slot) == size + _CRC.size and _CRC.unpack_from(slot, size)[0] == crc32(slot[:size]):
                number, durable, confirmed, damaged = _FIELDS.unpack_from(slot)
                if number > self._number:
                    self._number = number
                    self.mark = Mark(durable, confirmed, bool(damaged))

    def synced(self, durable: int) -> None:
        """The log is durable up to there; so is the mark, on return. Any thread. OSError."""
        with self._lock:
            known = self.mark
            if durable > known.durable:
                self._write(Mark(durable, known.confirmed, known.damaged))
                self.sync()

    def note(self, durable: int, confirmed: int) -> None:
        """Survives the process, not the machine. A thread that flushes may know of more that is durable. OSError."""
        with self._lock:
            known = self.mark
            mark = Mark(max(durable, known.durable), confirmed, known.damaged)
            if mark != known:
                self._write(mark)

    def save(self, mark: Mark) -> None:
        """Whatever was said before: this is so, and durable on return. Nothing is being flushed meanwhile."""
        with self._lock:
            self._write(mark)
            self.sync()

    def damage(self) -> None:
        """Durable on return."""
        with self._lock:
            self._write(Mark(self.mark.durable, self.mark.confirmed, damaged=True))
            self.sync()

    def sync(self) -> None:
        if self._file is not None:
            self._file.fdatasync()

    def _write(self, mark: Mark) -> None:
        self.mark = mark
        self._number += 1
        slot = _FIELDS.pack(self._number, mark.durable, mark.confirmed, mark.damaged)
        file = self._file
        if file is None:
            new = not self._disk.exists(self._path)
            file = self._file = self._disk.open(self._path, create=True)
            if new:
                self._disk.fsync_dir(os.path.dirname(self._path))
        file.pwrite(slot + _CRC.pack(crc32(slot)), self._number % 2 * _SLOT)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
