"""File descriptors that are kept for the store.

Connections and files share the process's limit of open files. When it is used up, the store can still open files: it gives up one
of its spare descriptors for each, and gets them back later.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from typing import Final

SPARES: Final = 16
SHORTAGE: Final = (errno.EMFILE, errno.ENFILE)


class DescriptorReserve:
    """Spare descriptors. `system_open` is the operating system's. Any thread."""

    def __init__(self, system_open: Callable[[str, int, int], int] = os.open) -> None:
        self._open = system_open
        self._spares: list[int] = []
        self._wanted = 0
        self._lock = threading.Lock()

    def fill(self, count: int = SPARES) -> None:
        """Take spare descriptors, as many as possible."""
        with self._lock:
            self._wanted = count
            self._refill()

    def close(self) -> None:
        with self._lock:
            self._wanted = 0
            while self._spares:
                os.close(self._spares.pop())

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open a file like os.open, with a spare descriptor if there is no other."""
        try:
            descriptor = self._open(path, flags, mode)
        except OSError as error:
            if error.errno not in SHORTAGE:
                raise
            with self._lock:
                if not self._spares:
                    raise
                os.close(self._spares.pop())
            return self._open(path, flags, mode)
        if len(self._spares) < self._wanted:
            with self._lock:
                self._refill()
        return descriptor

    def _refill(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._spares) < self._wanted:
                self._spares.append(self._open(os.devnull, os.O_RDONLY | os.O_CLOEXEC, 0))
