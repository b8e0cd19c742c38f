"""Pages: Apache's fields and ours, to the byte and when they are damaged."""

from __future__ import annotations

from struct import Struct
from zlib import crc32

import pytest

from firearrow.store.page import PAGE_SIZE, PageFormat, save_page
from tests.store.simdisk import SimulatedDisk

APACHE, OURS = Struct(">qq"), Struct(">qi")
FORMATS = {checks: PageFormat(APACHE, OURS, checks_apache=checks) for checks in (False, True)}


@pytest.mark.parametrize("checks", [False, True])
def test_the_layout(checks: bool) -> None:
    page = FORMATS[checks].encode((1, 2), (3, 4))
    ours = b"FIREARRO" + OURS.pack(3, 4)
    covered = (APACHE.pack(1, 2) if checks else b"") + ours
    expected = APACHE.pack(1, 2).ljust(256, b"\0") + ours + crc32(covered).to_bytes(4, "big")
    assert page == expected.ljust(PAGE_SIZE, b"\0")
    assert FORMATS[checks].decode(page) == ((1, 2), (3, 4))


@pytest.mark.parametrize("checks", [False, True])
def test_ours_counts_only_when_nobody_else_wrote_it(checks: bool) -> None:
    form = FORMATS[checks]
    page = form.encode((1, 2), (3, 4))
    for position in range(PAGE_SIZE):
        damaged = bytearray(page)
        damaged[position] ^= 0x10
        covered = 256 <= position < 256 + 8 + OURS.size + 4 or (checks and position < APACHE.size)
        assert form.decode(bytes(damaged))[1] == (None if covered else (3, 4)), position


@pytest.mark.parametrize("data", [b"", b"\xff" * 3, bytes(100), b"\xff" * PAGE_SIZE])
def test_what_is_short_or_foreign_has_nothing_of_ours(data: bytes) -> None:
    apache, ours = FORMATS[True].decode(data)
    assert apache == APACHE.unpack(data[:16].ljust(16, b"\0"))
    assert ours is None


def test_a_saved_page_outlives_a_power_cut() -> None:
    disk = SimulatedDisk()
    disk.mkdirs("/store")
    for number in (1, 2):
        save_page(disk, "/store/page", FORMATS[True].encode((number, 0), (0, 0)))
    assert disk.file_size("/store/page") == PAGE_SIZE
    assert FORMATS[True].decode(disk.read_bytes("/store/page")) == ((2, 0), (0, 0))
