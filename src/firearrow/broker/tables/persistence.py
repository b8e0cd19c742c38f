"""Persistence of the broker's tables: `config/topics.json`, `subscriptionGroup.json`, `consumerOffset.json` and others.

An operator's change is on disk before it is acknowledged. Entries created on the way (a topic by a send, a group by a heartbeat)
must not block the event loop: they are saved soon, in the background, many changes with one write. Files are replaced atomically
(store/atomic_file.py).

Invariants:
- Older contents never overwrite newer ones, whichever thread writes.
- After `TableFile.soon`, a write that begins later includes the change.

The text of a table is joined from the texts of its entries, so a table of thousands is written as fast as its bytes. An entry is
rendered when it is first written, mostly in the background: rendering costs more than everything else about a new entry.
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
from firearrow.wire.body_schema import Body, EncodedEntries

log = logging.getLogger("firearrow.broker")


class ConfigFiles:
    """The JSON files of one `config` directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def load(self, name: str) -> dict[str, Any]:
        """Return the contents of a file; empty if it does not exist."""
        value = atomic_file.load_table(self._disk, self._path(name), log.warning)
        return value if isinstance(value, dict) else {}

    def saver(self, name: str) -> Callable[[dict[str, Any]], None]:
        """Return a function that saves a table under this name. The table is on disk when it returns."""
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
    """The file of one table. `save` writes it, `make` returns its contents, `submit` runs a job in the background."""

    def __init__(self, save: Save, make: Callable[[], dict[str, Any]], submit: Submit = run_at_once) -> None:
        self._submit = submit
        self._save = save
        self._make = make
        self._writing = threading.Lock()
        self._scheduled = False

    def now(self) -> None:
        """Write the table and return when it is on disk."""
        # The lock orders the writers. The contents are taken inside it, so the last write has the newest.
        with self._writing:
            self._save(self._make())

    def soon(self) -> None:
        """Schedule a write in the background."""
        if self._scheduled:
            return
        self._scheduled = True
        self._submit(self._write_pending)

    def _write_pending(self) -> None:
        self._scheduled = False  # before the contents are taken: a later change schedules another write
        self.now()


class EntryTexts:
    """The entries of a table, which are never modified, and their texts.

    Only one thread calls `joined` at a time. Another may change entries meanwhile, since copying them is one atomic step.
    """

    def __init__(self) -> None:
        self._values: dict[str, Body | dict[str, Any]] = {}
        self._encoded = EncodedEntries(_entry_text)

    def put(self, name: str, value: Body | dict[str, Any]) -> None:
        self._values[name] = value

    def pop(self, name: str) -> None:
        self._values.pop(name, None)

    def joined(self) -> orjson.Fragment:
        """Return the map of all entries as a JSON fragment for the second level of the file."""
        texts = self._encoded.texts(self._values.copy())
        return orjson.Fragment(b"{\n\t\t" + b",\n\t\t".join(texts) + b"\n\t}" if texts else b"{}")


def _entry_text(name: str, value: Body | dict[str, Any]) -> bytes:
    text = fastjson.dumps_pretty(value.to_json() if isinstance(value, Body) else value)
    return orjson.dumps(name) + b":" + text.replace(b"\n", b"\n\t\t")
