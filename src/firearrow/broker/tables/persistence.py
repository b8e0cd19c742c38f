"""The broker's small tables on disk: `config/topics.json`, `subscriptionGroup.json`, `consumerOffset.json` and their like.

How a table is saved so that a crash costs nothing is the store's knowledge (store/tables.py). Here is only which directory.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from firearrow.store import atomic_file
from firearrow.store.filesystem import Disk

log = logging.getLogger("firearrow.broker")


class ConfigFiles:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def load(self, name: str) -> dict[str, Any]:
        """What the file holds; empty when there is none."""
        value = atomic_file.load_table(self._disk, self._path(name), log.warning)
        return value if isinstance(value, dict) else {}

    def saver(self, name: str) -> Callable[[dict[str, Any]], None]:
        """A function that saves a table under this name; it is on the disk when the function returns."""
        path = self._path(name)
        return lambda table: atomic_file.save_table(self._disk, path, table)

    def save_text(self, name: str, text: bytes) -> None:
        atomic_file.save_table_text(self._disk, self._path(name), text)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)
