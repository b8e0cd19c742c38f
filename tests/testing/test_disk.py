"""The memory disk behaves like a directory and loses unsynced data in a power cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.store.errors import StoreLockedError
from firearrow.store.filesystem import Disk, RealDisk
from firearrow.testing import MemoryDisk
from firearrow.testing.disk import PAGE


@pytest.fixture(params=["real", "memory"])
def disk_and_root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    if request.param == "real":
        yield RealDisk(), str(tmp_path)
    else:
        disk = MemoryDisk(lambda: 1_000)
        disk.mkdirs("/store")
        yield disk, "/store"


def test_files_and_directories(disk_and_root: tuple[Disk, str]) -> None:
    disk, root = disk_and_root
    disk.mkdirs(f"{root}/a/b")
    assert disk.is_dir(f"{root}/a/b")
    assert disk.listdir(f"{root}/a") == ["b"]
    assert disk.listdir(f"{root}/nothing") == []
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/a/b/file")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/nowhere/file", create=True)
    file = disk.open(f"{root}/a/b/file", create=True, size=10_000)
    assert file.size() == disk.file_size(f"{root}/a/b/file") == 10_000
    file.pwrite(b"hello", 4_094)
    assert file.pread(10, 4_092) == b"\0\0hello\0\0\0"
    assert file.pread(10, 9_995) == b"\0" * 5
    assert file.pread(10, 20_000) == b""
    disk.rename(f"{root}/a/b/file", f"{root}/a/moved")
    assert not disk.exists(f"{root}/a/b/file")
    assert disk.read_bytes(f"{root}/a/moved")[4_094:4_099] == b"hello"
    disk.unlink(f"{root}/a/moved")
    with pytest.raises(FileNotFoundError):
        disk.read_bytes(f"{root}/a/moved")
    disk.open(f"{root}/a/b/last", create=True)
    disk.rmtree(f"{root}/a")
    assert not disk.exists(f"{root}/a/b/last")
    assert disk.listdir(root) == []


def test_file_behaves_like_an_array_of_bytes(disk_and_root: tuple[Disk, str]) -> None:
    disk, root = disk_and_root
    rng = random.Random(20_240_607)
    file, expected = disk.open(f"{root}/file", create=True), bytearray()
    for _ in range(400):
        offset, size = rng.randrange(3 * PAGE), rng.choice((0, 1, 10, PAGE, 2 * PAGE + 1))
        choice = rng.random()
        if choice < 0.5:
            data = rng.randbytes(size)
            if data:
                expected.extend(bytes(max(0, offset - len(expected))))
                expected[offset : offset + size] = data
                file.pwrite(data, offset)
        elif choice < 0.6:
            del expected[offset:]
            expected.extend(bytes(offset - len(expected)))
            file.truncate(offset)
        assert file.pread(size, offset) == bytes(expected[offset : offset + size])
        assert file.size() == len(expected)
    assert disk.read_bytes(f"{root}/file") == bytes(expected)


def test_lock_is_exclusive() -> None:
    disk = MemoryDisk(lambda: 0)
    disk.mkdirs("/store")
    lock = disk.lock("/store/lock")
    with pytest.raises(StoreLockedError, match="/store"):
        disk.lock("/store/lock")
    lock.release()
    disk.lock("/store/lock")


def test_holes_are_skipped() -> None:
    disk = MemoryDisk(lambda: 0)
    file = disk.open("/file", create=True, size=100 * PAGE)
    assert file.next_data(0) is None
    file.pwrite(b"x", 50 * PAGE + 7)
    assert file.next_data(0) == 50 * PAGE
    assert file.next_data(50 * PAGE + 8) == 50 * PAGE + 8
    assert file.next_data(51 * PAGE) is None


def test_kill_keeps_written_and_power_cut_keeps_synced_bytes() -> None:
    disk = MemoryDisk(lambda: 0)
    file = disk.open("/file", create=True)
    file.pwrite(b"synced", 0)
    file.fdatasync()
    file.pwrite(b"LATE", 0)
    file.pwrite(b"more", 2 * PAGE)
    killed = disk.left_behind(power_cut=False)
    dark = killed.left_behind(power_cut=True)
    file.pwrite(b"the dead write on", 0)
    assert killed.read_bytes("/file")[:6] == b"LATEed"
    assert killed.file_size("/file") == 2 * PAGE + 4
    assert dark.read_bytes("/file") == b"synced"
    assert killed.boot_id() == disk.boot_id() != dark.boot_id()
    killed.lock("/lock")  # the previous owner was killed
