"""Files and directories of the operating system: their modes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.store import atomic_file
from firearrow.store.filesystem import RealDisk
from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings
from firearrow.wire.message_ids import host_bytes

HOST = host_bytes("127.0.0.1", 10911)


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root.parent)): path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))}


def fill(root: Path) -> None:
    """Store a message with a key and stop cleanly, so that every kind of file is written."""
    store = MessageStore(StoreSettings(store_path_root_dir=str(root)), store_host=HOST, now_ms=lambda: 1)
    store.open()
    queue = store.queue("T", 0)
    raw = b"KEYS\x01k\x02"
    store.append(queue, b"body", raw, 0, flag=0, sys_flag=0, born_ms=1, born_host=HOST, store_ms=1)
    group = store.write_out()
    assert group is not None
    store.confirm(group.end_offset)
    store.close()
    atomic_file.save_table(RealDisk(), str(root / "config" / "topics.json"), {})


def test_store_is_readable_by_its_owner_only(tmp_path: Path, no_umask: None) -> None:
    root = tmp_path / "new" / "store"
    fill(root)
    found = modes(root.parent)
    assert len(found) > 10
    assert {path: oct(mode) for path, mode in found.items() if mode & 0o077} == {}
    assert all(mode == (0o700 if (tmp_path / path).is_dir() else 0o600) for path, mode in found.items())


def test_existing_files_are_used_and_keep_their_modes(tmp_path: Path, no_umask: None) -> None:
    root = tmp_path / "store"
    fill(root)
    segment = next((root / "commitlog").iterdir())
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    fill(root)
    assert (root.stat().st_mode & 0o777, segment.stat().st_mode & 0o777) == (0o755, 0o644)
