"""Atomic replacement of local files."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.atomic_file import replace_file


@pytest.mark.parametrize("durable", [True, False])
def test_content_is_replaced_and_no_temporary_file_remains(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "state.json"
    replace_file(path, b"first", durable=durable)
    replace_file(path, b"2", durable=durable)
    assert path.read_bytes() == b"2"
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_backup_receives_the_previous_version(tmp_path: Path) -> None:
    path, backup = tmp_path / "offsets.json", tmp_path / "offsets.json.bak"
    replace_file(path, b"1", backup=backup)
    assert not backup.exists()
    replace_file(path, b"2", backup=backup)
    assert (path.read_bytes(), backup.read_bytes()) == (b"2", b"1")


def test_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_file(path, b"old")
    with pytest.raises(OSError, match="No such file"):
        replace_file(path, b"new", temporary=tmp_path / "absent" / "state.tmp")
    assert path.read_bytes() == b"old"
