"""When a table's file is written: now, or soon and in the background.

What an operator changes is on the disk before he is answered. What comes into being on the way (a topic by a send, a group by a
heartbeat) must not hold up the event loop for a disk: it is saved soon, by the store's housekeeper, many changes with one write.

Invariants
- What is older never overwrites what is newer, whichever thread writes.
- After `soon`, a write that begins later includes the change.

The table's text is made by joining the texts of its entries, each made once: a table of thousands is written as quickly as its
bytes, and making the text in another thread is safe, since taking the entries is one step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import orjson

from firearrow.wire import fastjson

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
