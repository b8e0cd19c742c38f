"""The file with the secret of a group."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from firearrow.config.fields import SettingError
from firearrow.ha.peers.secret import SecretFile

OLD, NEW = b"0123456789abcdef-old", b"0123456789abcdef-new"


def write(path: Path, text: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text)
    path.chmod(mode)
    return path


def test_lines_are_secrets_in_order(tmp_path: Path) -> None:
    path = write(tmp_path / "secret", b"# of group G\n" + NEW + b"\n\n  " + OLD + b"  \r\n")
    assert SecretFile(str(path)).current() == [NEW, OLD]


def test_replaced_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "secret", OLD)
    secrets = SecretFile(str(path))
    os.replace(write(tmp_path / "next", NEW), path)
    assert secrets.current() == [NEW]


@pytest.mark.parametrize("text", [b"", b"\n#x\n", b"short"])
def test_unusable_replacement_is_ignored_with_an_error(tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "secret", OLD)
    secrets = SecretFile(str(path))
    os.replace(write(tmp_path / "next", text), path)
    assert secrets.current() == [OLD]
    assert "keeping the previous secret" in caplog.text


@pytest.mark.parametrize("text", [None, b"", b"short"])
def test_unusable_file_is_named(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "secret"
    if text is not None:
        write(path, text)
    with pytest.raises(SettingError, match=f"peerSecretFile={path}"):
        SecretFile(str(path))


def test_readable_file_is_reported_without_its_content(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "secret", OLD, 0o644)
    SecretFile(str(path))
    assert f"chmod 600 {path}" in caplog.text
    assert OLD.decode() not in caplog.text
