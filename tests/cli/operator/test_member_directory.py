"""`firearrow broker rejoin` and `seed` on store directories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firearrow.cli.main import run
from firearrow.ha.raft.hard_state import HardState, LogIdentity, load_hard_state, save_hard_state
from firearrow.store.filesystem import RealDisk

STATE = HardState(7, "n1", identity=LogIdentity("broker-a", "n0", 5, 6))


def saved(directory: Path) -> HardState | None:
    return load_hard_state(RealDisk(), str(directory / "currterm"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    save_hard_state(RealDisk(), str(tmp_path / "currterm"), STATE)
    return tmp_path


def test_rejoin_quarantines_the_member(directory: Path) -> None:
    assert run(["broker", "rejoin", str(directory), "--yes"]) == 0
    state = saved(directory)
    assert state is not None
    assert state.identity.log_id != STATE.identity.log_id
    assert replace(state, identity=STATE.identity) == HardState(7, "n1", True, STATE.identity)


def test_seed_declares_the_log_authoritative(directory: Path) -> None:
    run(["broker", "rejoin", str(directory), "--yes"])
    assert run(["broker", "seed", str(directory), "--yes"]) == 0
    state = saved(directory)
    assert state is not None
    assert (state.quarantined, state.seed, state.term) == (False, True, 7)


def test_seed_accepts_an_empty_directory(tmp_path: Path) -> None:
    assert run(["broker", "seed", str(tmp_path), "--yes"]) == 0
    assert saved(tmp_path) == HardState(seed=True)


def test_directory_of_another_kind_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "rejoin", str(tmp_path), "--yes"]) == 1
    assert "is not the store directory of a member of an elected group" in capsys.readouterr().err


def test_running_member_is_rejected(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = RealDisk().lock(str(directory / "lock"))
    try:
        assert run(["broker", "rejoin", str(directory), "--yes"]) == 1
    finally:
        lock.release()
    assert saved(directory) == STATE
    assert str(directory) in capsys.readouterr().err


def test_nothing_is_changed_in_a_dry_run(directory: Path) -> None:
    assert run(["broker", "seed", str(directory), "--dry-run"]) == 0
    assert saved(directory) == STATE
