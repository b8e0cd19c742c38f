"""Atomic replacement of a file on the local file system.

For code above the file-system seam of the store. `firearrow.store.atomic_file` does the same on a `Disk`, so that simulated disks
see every step.
"""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(
    path: Path, data: bytes, *, temporary: Path | None = None, backup: Path | None = None, durable: bool = True
) -> None:
    """Replace the content of `path` so that readers see the old or the new content, also after a crash.

    `temporary` is the file written first, in the same directory (default: `<path>.tmp`). `backup` receives the previous version.
    `durable=False` skips the syncs, for files that need not survive a power cut.
    """
    temporary = temporary or path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    if backup is not None and path.exists():
        os.replace(path, backup)
    os.replace(temporary, path)
    if durable:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
