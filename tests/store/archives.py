"""Store directories written by Apache RocketMQ 5.5.0, each with a manifest of what is in it (tests/fixtures/store)."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from firearrow.store.filesystem import Disk
from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings

FIXTURES = Path(__file__).parent.parent / "fixtures" / "store"
STORE_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def manifest(case: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress((FIXTURES / f"{case}.manifest.json.gz").read_bytes()))
    return loaded


def unpack(case: str, target: Path) -> Path:
    """Unpack a store directory to `target`."""
    with tarfile.open(FIXTURES / f"{case}.tar.gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(target, filter="data")
        else:  # before 3.11.4
            archive.extractall(target)
    return target / "store"


def settings_of(case: dict[str, Any], root: Path) -> StoreSettings:
    config = case["brokerConfig"]
    return StoreSettings(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=int(config["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(config["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=int(config["maxHashSlotNum"]),
        max_index_num=int(config["maxIndexNum"]),
        max_transfer_bytes_on_message_in_memory=1 << 20,
    )


def open_store(
    case: dict[str, Any], root: Path, disk: Disk | None = None, now_ms: Callable[[], int] | None = None
) -> MessageStore:
    at_ms = int(case["capturedAtMs"])
    store = MessageStore(
        settings_of(case, root), disk=disk, store_host=STORE_HOST, now_ms=now_ms or (lambda: at_ms), memory_bytes=1 << 33
    )
    store.open()
    return store
