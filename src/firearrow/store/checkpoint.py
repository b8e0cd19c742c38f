"""The `checkpoint` file, which records how far the store was durable, and the `abort` file.

`abort` exists while the store is open: the next opening finds it after a crash.

The checkpoint is a page (atomic_file.py), zeros elsewhere:

    0    8  physicMsgTimestamp    store time of the last durable message of the log
    8    8  logicsMsgTimestamp    the same for consume-queue entries
    16   8  indexMsgTimestamp     end time of the last full index file
    24   8  masterFlushedOffset   0 (set by slaves)
    32   8  confirmPhyOffset      offset of the last valid record, after a recovery
    40   8  logicsPhysicalOffset  offset of the record that logicsMsgTimestamp belongs to
    256  8  "FIREARRO"            our fields follow
    264  8  flushed offset        the log below was durable
    272  16 boot id               of the machine when the store was last open
    288  4  size of a commit-log file
    292  4  size of a consume-queue file
    296  4  CRC-32 of bytes 256 to 295

Flushed offset and boot id distinguish damage from a torn tail. After a power cut, that is with another boot id, unreadable bytes
above the flushed offset may never have been written completely; those below had been durable and are damaged. Without a power
cut every completed write is on the disk. The sizes distinguish damage from a changed setting.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import astuple, dataclass
from struct import Struct

from firearrow.store.atomic_file import PageFormat, save_page, write_synced
from firearrow.store.filesystem import Disk
from firearrow.store.threads import Housekeeper

_PAGE = PageFormat(Struct(">qqqqqq"), Struct(">q16sii"), checks_apache=False)


@dataclass(slots=True)
class Checkpoint:
    """Values of the checkpoint file. Times are store times."""

    physic_msg_ms: int = 0
    logics_msg_ms: int = 0
    index_msg_ms: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0
    flushed_offset: int = 0  # 0: unknown, written by an Apache broker
    boot_id: bytes = b""
    segment_size: int = 0  # 0: unknown
    queue_file_size: int = 0

    @property
    def min_ms(self) -> int:
        """Store time up to which log and consume queues are durable, minus a margin of three seconds."""
        return max(0, min(self.physic_msg_ms, self.logics_msg_ms) - 3000)

    def encode(self) -> bytes:
        fields = astuple(self)
        return _PAGE.encode(fields[:6], fields[6:])

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint:
        """Decode a checkpoint. Fields of a short or foreign file are zero, which means unknown."""
        apache, ours = _PAGE.decode(data)
        checkpoint = cls(*apache, *(ours or ()))
        if not any(checkpoint.boot_id):
            checkpoint.boot_id = b""
        return checkpoint


def load_checkpoint(disk: Disk, path: str) -> Checkpoint:
    return Checkpoint.decode(disk.read_bytes(path)) if disk.exists(path) else Checkpoint()


def save_checkpoint(disk: Disk, path: str, checkpoint: Checkpoint) -> None:
    save_page(disk, path, checkpoint.encode())


class AbortFile:
    """Marker that exists while the store is open and distinguishes a crash from a clean stop."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._path = os.path.join(root, "abort")

    @property
    def exists(self) -> bool:
        return self._disk.exists(self._path)

    def write(self) -> None:
        write_synced(self._disk, self._path, str(os.getpid()).encode())
        self._disk.fsync_dir(self._root)

    def remove(self) -> None:
        if self.exists:
            self._disk.unlink(self._path)


class CheckpointFile:
    """The checkpoint on disk. `current` holds the values of the next save."""

    def __init__(self, disk: Disk, root: str, housekeeper: Housekeeper) -> None:
        self.current = Checkpoint()
        self._disk = disk
        self._path = os.path.join(root, "checkpoint")
        self._housekeeper = housekeeper
        self._saving = False

    def load(self) -> Checkpoint:
        self.current = load_checkpoint(self._disk, self._path)
        return self.current

    def save(self) -> None:
        save_checkpoint(self._disk, self._path, self.current)

    def save_later(self, refresh: Callable[[Checkpoint], None], afterwards: Callable[[], None]) -> None:
        """Update the values with `refresh`. If they changed, let the housekeeper save them and call `afterwards`."""
        before = self.current.encode()
        refresh(self.current)
        after = self.current.encode()
        if after == before or self._saving:
            return
        self._saving = True

        def save() -> None:
            try:
                save_page(self._disk, self._path, after)
                afterwards()
            finally:
                self._saving = False

        self._housekeeper.submit(save)
