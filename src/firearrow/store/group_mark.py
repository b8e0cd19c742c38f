"""The `groupMark` file of a member of an elected group: how far its log was durable and confirmed.

Two slots of 512 bytes, written alternately, so that one of them is always valid:

    0    8  sequence number; the higher one is current
    8    8  durable      the log below was synced: a log that ends before has lost data
    16   8  confirmed    a majority had the log below; the log above may be truncated and is not visible
    24   8  1 if a record below was found damaged: the next opening scans the whole log
    32   4  CRC-32 of the above

Under SYNC_FLUSH `durable` is saved after every flush, before the flush is reported. A member therefore detects the loss of data
that it has acknowledged. `confirmed` may lag: a member that confirms less than it could learns the rest from its leader.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from firearrow.store.filesystem import Disk, File, LazyFile

FILE_NAME = "groupMark"
_SLOT = 512
_FIELDS = Struct(">QQQQ")
_CRC = Struct(">I")


@dataclass(slots=True)
class GroupMark:
    """Log offsets up to which a member's log is durable and confirmed."""

    durable: int = 0
    confirmed: int = 0
    damaged: bool = False


class GroupMarkFile(LazyFile):
    """The mark on disk; `mark` is its current value."""

    def __init__(self, disk: Disk, directory: str) -> None:
        super().__init__(disk, os.path.join(directory, FILE_NAME))
        self._sequence = 0
        self._lock = threading.Lock()  # the flusher also writes
        self.mark = GroupMark()
        if disk.exists(self.path):
            self._load(disk.read_bytes(self.path))

    def _load(self, text: bytes) -> None:
        size = _FIELDS.size
        for at in (0, _SLOT):
            slot = text[at : at + size + _CRC.size]
            if len(slot) == size + _CRC.size and _CRC.unpack_from(slot, size)[0] == crc32(slot[:size]):
                sequence, durable, confirmed, damaged = _FIELDS.unpack_from(slot)
                if sequence > self._sequence:
                    self._sequence = sequence
                    self.mark = GroupMark(durable, confirmed, bool(damaged))

    def save_durable(self, durable: int) -> None:
        """Record that the log is durable up to `durable`. Durable on return. Any thread. OSError."""
        with self._lock:
            current = self.mark
            if durable > current.durable:
                self._write(GroupMark(durable, current.confirmed, current.damaged))
                self.sync()

    def note(self, durable: int, confirmed: int) -> None:
        """Record the progress without a sync. The flusher may have recorded a higher `durable`. OSError."""
        with self._lock:
            current = self.mark
            mark = GroupMark(max(durable, current.durable), confirmed, current.damaged)
            if mark != current:
                self._write(mark)

    def save(self, mark: GroupMark) -> None:
        """Replace the mark, even by lower values. No flush may be in progress. Durable on return."""
        with self._lock:
            self._write(mark)
            self.sync()

    def save_damaged(self) -> None:
        """Record that a record cannot be read. Durable on return."""
        with self._lock:
            if not self.mark.damaged:
                self._write(GroupMark(self.mark.durable, self.mark.confirmed, damaged=True))
                self.sync()

    def sync(self) -> None:
        if self._file is not None:
            self._file.fdatasync()

    def _write(self, mark: GroupMark) -> None:
        self.mark = mark
        self._sequence += 1
        slot = _FIELDS.pack(self._sequence, mark.durable, mark.confirmed, mark.damaged)
        self.file.pwrite(slot + _CRC.pack(crc32(slot)), self._sequence % 2 * _SLOT)

    def _open(self) -> File:
        new = not self._disk.exists(self.path)
        file = self._disk.open(self.path, create=True)
        if new:
            self._disk.fsync_dir(os.path.dirname(self.path))
        return file
