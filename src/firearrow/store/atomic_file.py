"""Small files that a crash or a power cut cannot damage: replaced files, JSON tables, and pages.

Replaced files: `replace` writes `<file>.tmp`, syncs it, renames it to `<file>` and syncs the directory.

JSON tables (`config/`: topics, groups, consumer and delay offsets) are replaced and keep the previous version in `<file>.bak`.
At every moment one of `<file>` and `<file>.bak` is complete, so a power cut costs at most the save that it interrupts. Loading
uses the `.bak` when the file is missing, empty or not JSON. A damaged file is renamed to `<file>.damaged`, so that the next save
does not move it over the good `.bak`. Without a good `.bak` a damaged file is an error, because an empty table would silently
forget topics or offsets. The text is Apache's (tabs, bare integer keys), so that either broker can use the other's files.

Pages are files of 4096 bytes with Apache's numbers at the beginning and ours behind them, all big-endian:

    0     Apache's fields
    256   "FIREARRO"; Apache leaves these bytes as they are
    264   our fields
    ...   CRC-32 of the magic and our fields, where the format says so preceded by Apache's fields: our fields then become
          invalid when Apache writes the page

All fields are in the first sector, which a disk writes completely or not at all. Pages are therefore overwritten in place.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from struct import Struct
from typing import Any
from zlib import crc32

from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk
from firearrow.wire.errors import ProtocolError
from firearrow.wire.fastjson import dumps_pretty, loads

BACKUP = ".bak"
TEMPORARY = ".tmp"
DAMAGED = ".damaged"

PAGE_SIZE = 4096
_OURS_AT = 256
_MAGIC = b"FIREARRO"
_FIELDS_AT = _OURS_AT + len(_MAGIC)
_CRC = Struct(">I")
_SECTOR = 512


class TableError(StoreError):
    """A table file and its backup are both unreadable."""


def replace(disk: Disk, path: str, data: bytes, *, backup: str | None = None) -> None:
    """Replace the content of a file. `backup` receives the previous version.

    Durable on return. After an OSError the file, or its backup, has the old or the new content.
    """
    temporary = path + TEMPORARY
    write_synced(disk, temporary, data)
    if backup is not None and disk.exists(path):
        disk.rename(path, backup)
    disk.rename(temporary, path)
    disk.fsync_dir(os.path.dirname(path))


def write_synced(disk: Disk, path: str, data: bytes) -> None:
    """Write a whole file and sync it. The caller syncs the directory."""
    with closing(disk.open(path, create=True)) as file:
        file.truncate(0)
        file.pwrite(data, 0)
        file.fdatasync()


def load_table(disk: Disk, path: str, warn: Callable[[str], None] | None = None) -> Any | None:
    """Return the value of a JSON table, None when it was never saved. `warn` receives the reason if the backup was loaded."""
    value, problem = _read(disk, path)
    if problem is None:
        return value
    backup, backup_problem = _read(disk, path + BACKUP)
    if backup_problem is not None:
        if problem in _ABSENT and backup_problem in _ABSENT:
            return None
        raise TableError(
            f"table {path} {problem} and {path + BACKUP} {backup_problem}; restore a copy of either, "
            "or delete both to continue with an empty table"
        )
    if problem != _MISSING:
        disk.rename(path, path + DAMAGED)
    if warn is not None:
        kept = "" if problem == _MISSING else f" (kept as {path + DAMAGED})"
        warn(f"table {path} {problem}{kept}; the previous version {path + BACKUP} was loaded")
    return backup


def save_table(disk: Disk, path: str, value: Any) -> None:
    """Save a value as a JSON table. Durable on return."""
    save_table_text(disk, path, dumps_pretty(value))


def save_table_text(disk: Disk, path: str, text: bytes) -> None:
    """Save a table that is already encoded. Durable on return."""
    disk.mkdirs(os.path.dirname(path))
    replace(disk, path, text, backup=path + BACKUP)


_MISSING = "is missing"
_EMPTY = "is empty"
_ABSENT = (_MISSING, _EMPTY)


def _read(disk: Disk, path: str) -> tuple[Any, str | None]:
    """Return the value of a table file, or a description of the problem. I/O errors are raised: the file may be intact."""
    if not disk.exists(path):
        return None, _MISSING
    text = disk.read_bytes(path)
    if not text.strip():
        return None, _EMPTY
    try:
        return loads(text), None
    except ProtocolError as error:
        return None, f"is damaged ({error})"


@dataclass(frozen=True, slots=True)
class PageFormat:
    """Field layout of a page. `checks_apache`: whether the CRC covers Apache's fields."""

    apache: Struct
    ours: Struct
    checks_apache: bool

    def __post_init__(self) -> None:
        assert self.apache.size <= _OURS_AT
        assert self._crc_at + _CRC.size <= _SECTOR

    def encode(self, apache: tuple[Any, ...], ours: tuple[Any, ...]) -> bytes:
        page = bytearray(PAGE_SIZE)
        self.apache.pack_into(page, 0, *apache)
        page[_OURS_AT:_FIELDS_AT] = _MAGIC
        self.ours.pack_into(page, _FIELDS_AT, *ours)
        _CRC.pack_into(page, self._crc_at, self._checksum(page))
        return bytes(page)

    def decode(self, data: bytes) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
        """Return Apache's fields, zeros where the page is too short, and ours, None when they are absent or invalid."""
        page = data.ljust(PAGE_SIZE, b"\0")
        marked = page[_OURS_AT:_FIELDS_AT] == _MAGIC
        valid = marked and _CRC.unpack_from(page, self._crc_at)[0] == self._checksum(page)
        return self.apache.unpack_from(page), self.ours.unpack_from(page, _FIELDS_AT) if valid else None

    @property
    def _crc_at(self) -> int:
        return _FIELDS_AT + self.ours.size

    def _checksum(self, page: bytes | bytearray) -> int:
        before = crc32(page[: self.apache.size]) if self.checks_apache else 0
        return crc32(page[_OURS_AT : self._crc_at], before)


def save_page(disk: Disk, path: str, page: bytes) -> None:
    """Overwrite a page. Durable on return, except for the name of a new file."""
    with closing(disk.open(path, create=True, size=PAGE_SIZE)) as file:
        file.pwrite(page, 0)
        file.fdatasync()
