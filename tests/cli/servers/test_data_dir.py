from __future__ import annotations

import os
from pathlib import Path

import pytest

from firearrow.cli.servers.data_dir import DataDir, DataDirError


def test_one_at_a_time(tmp_path: Path) -> None:
    first, second = DataDir(str(tmp_path / "d")), DataDir(str(tmp_path / "d"))
    first.acquire(1)
    with pytest.raises(DataDirError, match=f"is in use by process {os.getpid()}"):
        second.acquire(1)
    first.release()
    second.acquire(1)
    second.release()
    second.release()


def test_a_directory_for_one_is_not_one_for_several(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    directory = DataDir(str(tmp_path))
    with pytest.raises(DataDirError, match="single broker"):
        directory.acquire(2)
    directory.acquire(1)
    directory.release()


def test_a_directory_for_several_is_not_one_for_one(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b", "broker-c"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    directory = DataDir(str(tmp_path))
    with pytest.raises(DataDirError, match="--brokers 3"):
        directory.acquire(1)
    directory.acquire(3)
    directory.release()
