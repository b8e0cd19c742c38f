"""A file of one page of 4096 bytes: Apache's numbers at its beginning, ours behind them. All of it is big-endian.

    0     Apache's fields
    256   "FIREARRO"; Apache keeps what stands there as it is
    264   our fields
    ...   CRC-32 of the mark and our fields; where the format says so, Apache's fields go before them: once Apache has written
          the page, what is ours no longer counts

Everything is in the page's first sector, which a disk writes whole or not at all: the page is overwritten in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any
from zlib import crc32

from firearrow.store.filesystem import Disk

PAGE_SIZE = 4096
_OURS_AT = 256
_MARK = b"FIREARRO"
_MARK_AND_FIELDS_AT = _OURS_AT + len(_MARK)
_CRC = Struct(">I")
_SECTOR = 512


@dataclass(frozen=True, slots=True)
class PageFormat:
    apache: Struct
    ours: Struct
    checks_apache: bool  # whether the CRC covers Apache's fields

    def __post_init__(self) -> None:
        assert self.apache.size <= _OURS_AT
        assert self._crc_at + _CRC.size <= _SECTOR

    def encode(self, apache: tuple[Any, ...], ours: tuple[Any, ...]) -> bytes:
        page = bytearray(PAGE_SIZE)
        self.apache.pack_into(page, 0, *apache)
        page[_OURS_AT:_MARK_AND_FIELDS_AT] = _MARK
        self.ours.pack_into(page, _MARK_AND_FIELDS_AT, *ours)
        _CRC.pack_into(page, self._crc_at, self._checksum(page))
        return bytes(page)

    def decode(self, data: bytes) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
        """Apache's fields, zeros where the page is too short, and ours: None when they are not there or do not count."""
        page = data.ljust(PAGE_SIZE, b"\0")
        marked = page[_OURS_AT:_MARK_AND_FIELDS_AT] == _MARK
        whole = marked and _CRC.unpack_from(page, self._crc_at)[0] == self._checksum(page)
        return self.apache.unpack_from(page), self.ours.unpack_from(page, _MARK_AND_FIELDS_AT) if whole else None

    @property
    def _crc_at(self) -> int:
        return _MARK_AND_FIELDS_AT + self.ours.size

    def _checksum(self, page: bytes | bytearray) -> int:
        before = crc32(page[: self.apache.size]) if self.checks_apache else 0
        return crc32(page[_OURS_AT : self._crc_at], before)


def save_page(disk: Disk, path: str, page: bytes) -> None:
    """On the disk when this returns."""
    file = disk.open(path, create=True, size=PAGE_SIZE)
    try:
        file.pwrite(page, 0)
        file.fdatasync()
    finally:
        file.close()
