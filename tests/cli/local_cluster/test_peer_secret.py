"""The secret of a local cluster that listens beyond loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.cli.local_cluster.peer_secret import FILE, peer_secret_settings


def test_cluster_on_loopback_has_none(tmp_path: Path) -> None:
    assert peer_secret_settings(tmp_path, "127.0.0.1", {}) == {}
    assert list(tmp_path.iterdir()) == []


def test_cluster_on_other_addresses_keeps_a_random_secret(tmp_path: Path) -> None:
    settings = peer_secret_settings(tmp_path, "0.0.0.0", {})
    path = tmp_path / FILE
    assert settings == {"peerSecretFile": str(path)}
    assert (path.stat().st_mode & 0o777, len(path.read_text().strip())) == (0o600, 64)
    text = path.read_text()
    peer_secret_settings(tmp_path, "0.0.0.0", {})
    assert path.read_text() == text


@pytest.mark.parametrize("key", ["peerSecretFile", "authenticationEnabled", "peerUseTLS", "allowUnauthenticatedPeers"])
def test_settings_of_the_operator_win(tmp_path: Path, key: str) -> None:
    assert peer_secret_settings(tmp_path, "0.0.0.0", {key: "x"}) == {}
