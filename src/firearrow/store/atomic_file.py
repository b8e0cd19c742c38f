"""The small tables of `config/`: topics, groups, consumer offsets, delay offsets. One JSON file each, replaced as a whole.

Saving writes `<file>.tmp`, syncs it, renames the present file to `<file>.bak`, renames the temporary one to `<file>` and
syncs the directory. At every moment one of `<file>` and `<file>.bak` is complete: a power cut costs at most the save that
it interrupts.

Loading takes the file or, when that is missing, empty or no JSON, the `.bak`. A file found damaged is moved aside as
`<file>.damaged`, so that the next save cannot push it over the good `.bak`. No file at all is no table yet. A damaged file
without a good `.bak` is an error: to go on with an empty table would silently forget topics or offsets.

The text is Apache's (tabs, bare integer keys), written and read by `wire.fastjson`, so either broker can use the other's files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk
from firearrow.wire.errors import ProtocolError
from firearrow.wire.fastjson import dumps_pretty, loads

BACKUP = ".bak"
TEMPORARY = ".tmp"
DAMAGED = ".damaged"


class TableError(StoreError):
    """A table's file and its backup are both unreadable."""


def load(disk: Disk, path: str, warn: Callable[[str], None] | None = None) -> Any | None:
    """The table's value; None when there is no table yet. `warn` hears why the backup was taken."""
    value, problem = _read(disk, path)
    if problem is None:
        return value
    backup, backup_problem = _read(disk, path + BACKUP)
    if backup_problem is not None:
        if problem in _NOTHING and backup_problem in _NOTHING:
            return None
        raise TableError(
            f"table {path} {problem} and {path + BACKUP} {backup_problem}; put back a copy of either, "
            "or delete both to go on with an empty table"
        )
    if problem != _MISSING:
        disk.rename(path, path + DAMAGED)
    if warn is not None:
        kept = "" if problem == _MISSING else f" (kept as {path + DAMAGED})"
        warn(f"table {path} {problem}{kept}; the previous version {path + BACKUP} was loaded")
    return backup


def save(disk: Disk, path: str, value: Any) -> None:
    save_text(disk, path, dumps_pretty(value))


def save_text(disk: Disk, path: str, text: bytes) -> None:
    """Replaces the file. Durable on return; after an OSError either the old or the new text is loaded."""
    directory = os.path.dirname(path)
    disk.mkdirs(directory)
    temporary = path + TEMPORARY
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(text, 0)
        file.fdatasync()
    finally:
        file.close()
    if disk.exists(path):
        disk.rename(path, path + BACKUP)
    disk.rename(temporary, path)
    disk.fsync_dir(directory)


_MISSING = "is missing"
_EMPTY = "is empty"
_NOTHING = (_MISSING, _EMPTY)


def _read(disk: Disk, path: str) -> tuple[Any, str | None]:
    """The value, or what is wrong with the file. An I/O error is raised: the file may well be good."""
    if not disk.exists(path):
        return None, _MISSING
    text = disk.read_bytes(path)
    if not text.strip():
        return None, _EMPTY
    try:
        return loads(text), None
    except ProtocolError as error:
        return None, f"is damaged ({error})"
