"""The `groupMark` file of a member of an elected group: up to where its log was durable, and up to where it was confirmed.

Two slots of 512 bytes, written in turns, so that one of them is always whole:

    0    8  number of the write; the higher one counts
    8    8  durable      the log below had been synced: a log that ends before it has lost something
    16   8  confirmed    the majority had the log below: what lies above may yet be cut off, and nobody has seen it
    24   8  1 if a record below was found damaged: the next opening looks at the whole log
    32   4  CRC-32 of the above

Both values may lag behind the truth: a member that confirms less than it could learns the rest from its leader.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from firearrow.store.disk import Disk, File

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

    def write(self, mark: Mark) -> None:
        """Survives the process, not the machine. OSError."""
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

    def save(self, mark: Mark) -> None:
        """Durable on return."""
        self.write(mark)
        self.sync()

    def sync(self) -> None:
        if self._file is not None:
            self._file.fdatasync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
