"""A process without free file descriptors: the store continues with spare ones, refuses, and recovers without a restart."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from firearrow.store.descriptors import DescriptorReserve
from firearrow.store.errors import NotWritableError
from firearrow.store.filesystem import RealDisk, RealFile
from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


class DescriptorTable:
    """A limited number of descriptors."""

    def __init__(self, free: int) -> None:
        self.free = free

    def open(self, path: str, flags: int, mode: int) -> int:
        if not self.free:
            raise OSError(errno.EMFILE, "Too many open files", path)
        self.free -= 1
        return os.open(path, flags, mode)


def test_spare_descriptors_are_used_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = DescriptorTable(free=3)
    close = os.close

    def closing(descriptor: int) -> None:
        table.free += 1
        close(descriptor)

    monkeypatch.setattr(os, "close", closing)
    reserve = DescriptorReserve(table.open)
    reserve.fill(3)
    assert table.free == 0
    path, flags = str(tmp_path / "file"), os.O_RDWR | os.O_CREAT
    opened = [reserve.open(path, flags) for _ in range(3)]
    with pytest.raises(OSError, match="Too many open files"):
        reserve.open(path, flags)
    for descriptor in opened:
        os.close(descriptor)
    os.close(reserve.open(path, flags))
    assert table.free == 1, "two are spare again"
    reserve.close()
    assert table.free == 3


class ScarceDisk(RealDisk):
    """A disk that opens no file while `scarce`."""

    def __init__(self) -> None:
        super().__init__()
        self.scarce = False

    def open(self, path: str, *, create: bool = False, size: int | None = None) -> RealFile:
        if self.scarce:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open(path, create=create, size=size)


def append(store: MessageStore, count: int = 1) -> None:
    """Append messages of which a commit-log file has room for twelve."""
    for _ in range(count):
        store.append(
            store.queue("T", 0), bytes(5_000), b"", 0, flag=0, sys_flag=0, born_ms=1, born_host=HOST, store_ms=1_000
        )  # fmt: skip


def test_store_writes_again_when_descriptors_are_free(tmp_path: Path) -> None:
    disk = ScarceDisk()
    settings = StoreSettings(store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 16)
    store = MessageStore(settings, disk=disk, store_host=HOST, now_ms=lambda: 1_000)
    store.open()
    queue = store.queue("T", 0)
    disk.scarce = True
    append(store, 12)
    for _ in range(3):
        with pytest.raises(NotWritableError, match="every send tries again"):
            append(store)
    group = store.write_out()
    assert group is not None
    assert not store.broken
    assert [problem for problem in store.problems if "no commit-log file can be created" in problem] == store.problems[:1]
    disk.scarce = False
    append(store, 12)
    assert store.write_out() is not None
    store.confirm(store.flush())
    assert queue.max_offset == 24
    assert store.get_messages(queue, 12, 1).count == 1
    store.close()


def test_other_errors_of_a_new_segment_are_final_and_reported(tmp_path: Path) -> None:
    class BrokenDisk(ScarceDisk):
        def open(self, path: str, *, create: bool = False, size: int | None = None) -> RealFile:
            if self.scarce and create:
                raise OSError(errno.EIO, "Input/output error", path)
            return RealDisk.open(self, path, create=create, size=size)

    disk = BrokenDisk()
    settings = StoreSettings(store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 16)
    store = MessageStore(settings, disk=disk, store_host=HOST, now_ms=lambda: 1_000)
    store.open()
    disk.scarce = True
    append(store, 12)
    with pytest.raises(NotWritableError, match="restart the broker"):
        append(store)
    assert store.broken
    assert "the store takes no writes until the broker is restarted" in store.problems[0]
    store.close()
