"""The broker's small tables on disk: `config/topics.json`, `subscriptionGroup.json`, `consumerOffset.json` and their like.

How a table is saved so that a crash costs nothing is the store's knowledge (store/tables.py). Here is only which directory.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import orjson

from firearrow.store import atomic_file
from firearrow.store.filesystem import Disk
from firearrow.wire import fastjson

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


Save = Callable[[dict[str, Any]], None]
Submit = Callable[[Callable[[], None]], None]


def run_at_once(job: Callable[[], None]) -> None:
    job()


class TableFile:
    """`save` writes a table; `make` gives the table as it is now; `submit` runs a job in the background."""

    def __init__(self, save: Save, make: Callable[[], dict[str, Any]], submit: Submit = run_at_once) -> None:
        self._submit = submit
        self._save = save
        self._make = make
        self._writing = threading.Lock()
        self._waiting = False

    def now(self) -> None:
        # The lock orders the writers; the table is made inside it, so the last to write has the newest.
        with self._writing:
            self._save(self._make())

    def soon(self) -> None:
        if self._waiting:
            return
        self._waiting = True
        self._submit(self._write_what_waits)

    def _write_what_waits(self) -> None:
        self._waiting = False  # before the table is made: a change after this asks for another write
        self.now()


class EntryTexts:
    """The entries of a table as they stand in its file, ready to be joined."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}

    def put(self, name: str, value: dict[str, Any]) -> None:
        text = fastjson.dumps_pretty(value).replace(b"\n", b"\n\t\t")
        self._texts[name] = orjson.dumps(name) + b":" + text

    def pop(self, name: str) -> None:
        self._texts.pop(name, None)

    def joined(self) -> orjson.Fragment:
        """A value that the JSON writers put down as it is: the map of all entries, in the place of a file's second level."""
        texts = list(self._texts.values())
        return orjson.Fragment(b"{\n\t\t" + b",\n\t\t".join(texts) + b"\n\t}" if texts else b"{}")
