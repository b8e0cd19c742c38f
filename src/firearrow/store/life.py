"""What a store leaves in its directory about itself: `abort` while it is open, and the checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable

from firearrow.store.atomic_file import write_synced
from firearrow.store.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from firearrow.store.filesystem import Disk
from firearrow.store.threads import Housekeeper


class AbortFile:
    """It is there while the store is open, so that the next opening knows a crash from a clean stop."""

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
    """`now` is what the next one will say."""

    def __init__(self, disk: Disk, root: str, housekeeper: Housekeeper) -> None:
        self.now = Checkpoint()
        self._disk = disk
        self._path = os.path.join(root, "checkpoint")
        self._housekeeper = housekeeper
        self._saving = False

    def load(self) -> Checkpoint:
        self.now = load_checkpoint(self._disk, self._path)
        return self.now

    def save(self) -> None:
        save_checkpoint(self._disk, self._path, self.now)

    def save_later(self, refresh: Callable[[Checkpoint], None], afterwards: Callable[[], None]) -> None:
        """Lets `refresh` bring it up to date; if that changed anything, the housekeeper writes it."""
        before = self.now.encode()
        refresh(self.now)
        after = self.now.encode()
        if after == before or self._saving:
            return
        snapshot = Checkpoint.decode(after)
        self._saving = True

        def save() -> None:
            try:
                save_checkpoint(self._disk, self._path, snapshot)
                afterwards()
            finally:
                self._saving = False

        self._housekeeper.submit(save)
