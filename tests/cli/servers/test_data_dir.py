from __future__ import annotations

import os
from pathlib import Path

import pytest

from firearrow.cli.servers.data_dir import DataDir, DataDirError


def test_directory_is_locked_exclusively(tmp_path: Path) -> None:
    first, second = DataDir(str(tmp_path / "d")), DataDir(str(tmp_path / "d"))
    first.acquire(1)
    with pytest.raises(DataDirError, match=f"is in use by process {os.getpid()}"):
        second.acquire(1)
    first.release()
    second.acquire(1)
    second.release()
    second.release()


def test_directory_of_one_broker_is_rejected_for_several(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    directory = DataDir(str(tmp_path))
    with pytest.raises(DataDirError, match="single broker"):
        directory.acquire(2)
    directory.acquire(1)
    directory.release()


def test_directory_of_several_brokers_is_rejected_for_one(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b", "broker-c"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    directory = DataDir(str(tmp_path))
    with pytest.raises(DataDirError, match="--brokers 3"):
        directory.acquire(1)
    directory.acquire(3)
    directory.release()
