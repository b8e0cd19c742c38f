"""The state file of a local cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.cli.local_cluster.state import FILE, ClusterError, ClusterState, MemberState, form_of, read

BROKER = MemberState("broker-a", "SYNC_MASTER", "broker-a", "running", 4712, "127.0.0.1:10911", "/srv/x/broker-a")
REPLICA = MemberState("broker-a-1", "SLAVE", "broker-a", "stopped", None, "127.0.0.1:10921", "/srv/x/broker-a-1")
STATE = ClusterState("2m-2s-sync", 4711, "127.0.0.1:9876", [BROKER, REPLICA])


def test_written_state_is_read_back(tmp_path: Path) -> None:
    STATE.write(tmp_path)
    assert read(tmp_path) == STATE
    assert form_of(tmp_path) == "2m-2s-sync"
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_directory_without_a_cluster_has_no_form_and_cannot_be_read(tmp_path: Path) -> None:
    assert form_of(tmp_path) is None
    with pytest.raises(ClusterError, match=f"no cluster in {tmp_path}: start one with"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"members": [{"name": "x"}]}', '{"members": [], "unknown": 1}'])
def test_malformed_state_file_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ClusterError, match="is not a cluster state file"):
        read(tmp_path)
    with pytest.raises(ClusterError, match="is not a cluster state file"):
        form_of(tmp_path)


def test_unknown_member_is_reported_with_a_suggestion() -> None:
    assert STATE.member("broker-a-1") is REPLICA
    with pytest.raises(ClusterError, match=r"no such member 'broker-b'.*broker-a.*the members are broker-a, broker-a-1"):
        STATE.member("broker-b")
