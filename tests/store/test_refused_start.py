"""An opening that fails because of a setting leaves the directory unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.store.errors import StoreError
from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings
from firearrow.wire.message_ids import host_bytes
from tests.store.simdisk import SimulatedDisk

ROOT = "/store"
SIZES = {"mapped_file_size_commit_log": 8192, "mapped_file_size_consume_queue": 400}
HOST = host_bytes("127.0.0.1", 10911)


def opened(disk: SimulatedDisk, **other: Any) -> MessageStore:
    settings = StoreSettings(store_path_root_dir=ROOT, message_index_enable=False, **(SIZES | other))
    store = MessageStore(settings, disk=disk, store_host=HOST, now_ms=lambda: 1_700_000_000_000)
    store.open()
    return store


def filled() -> SimulatedDisk:
    disk = SimulatedDisk()
    store = opened(disk)
    for number in range(50):
        body = b"%d" % number
        store.append(
            store.queue("Orders", 0), body, b"", 0, flag=0, sys_flag=0, born_ms=1, born_host=HOST, store_ms=1_700_000_000_000
        )
    store.write_out()
    store.confirm(store.flush())
    store.close()
    return disk


def contents(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: disk.read_bytes(path) for path in disk.files(ROOT)}


@pytest.mark.parametrize("other", [{"mapped_file_size_commit_log": 16384}, {"mapped_file_size_consume_queue": 800}])
@pytest.mark.parametrize("known", [True, False], ids=["our checkpoint", "no checkpoint"])
def test_wrong_file_sizes_are_rejected_after_a_clean_stop(other: dict[str, int], known: bool) -> None:
    disk = filled()
    if not known:
        disk.unlink(f"{ROOT}/checkpoint")
    before = contents(disk)
    assert f"{ROOT}/abort" not in before
    for _ in range(2):  # the lock is given back, too
        with pytest.raises(StoreError, match=r"does not fit the files in .*; set it to that"):
            opened(disk, **other)
        assert contents(disk) == before
    store = opened(disk)
    assert store.queue("Orders", 0).max_offset == 50
    store.close()


def test_wrong_file_sizes_after_a_crash_keep_the_abort_file() -> None:
    disk = filled()
    disk.open(f"{ROOT}/abort", create=True).close()
    before = contents(disk)
    with pytest.raises(StoreError, match="does not fit"):
        opened(disk, mapped_file_size_commit_log=16384)
    assert contents(disk).keys() == before.keys()
