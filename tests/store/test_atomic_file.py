"""Tables survive a cut at any step of a save, and a damaged file costs one version at most."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from firearrow.store import atomic_file
from firearrow.store.filesystem import RealDisk
from firearrow.wire.fastjson import loads
from tests.store.archives import unpack


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "config" / "topics.json")


def test_no_table_yet(path: str) -> None:
    assert atomic_file.load(RealDisk(), path) is None


def test_what_was_saved_is_loaded_and_the_version_before_stays_beside_it(path: str) -> None:
    disk = RealDisk()
    atomic_file.save(disk, path, {"offsetTable": {"T@G": {0: 250, 1: 7}}})
    atomic_file.save(disk, path, {"offsetTable": {"T@G": {0: 251, 1: 7}}})
    assert atomic_file.load(disk, path) == {"offsetTable": {"T@G": {"0": 251, "1": 7}}}
    assert loads(Path(path + ".bak").read_bytes()) == {"offsetTable": {"T@G": {"0": 250, "1": 7}}}
    assert Path(path).read_text() == '{\n\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t0:251,\n\t\t\t1:7\n\t\t}\n\t}\n}'
    assert sorted(file.name for file in Path(path).parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_a_shorter_text_replaces_a_longer_leftover(path: str) -> None:
    disk = RealDisk()
    disk.mkdirs(str(Path(path).parent))
    Path(path + ".tmp").write_text("x" * 1000)
    atomic_file.save(disk, path, {})
    assert Path(path).read_text() == "{}"


@pytest.mark.parametrize("damage", [b"", b"  \n", b'{"a":', b"\x00" * 100, b"\xff\xfe"])
def test_the_backup_is_loaded_when_the_file_is_damaged(path: str, damage: bytes) -> None:
    disk, warnings = RealDisk(), list[str]()
    atomic_file.save(disk, path, {"version": 1})
    atomic_file.save(disk, path, {"version": 2})
    Path(path).write_bytes(damage)
    assert atomic_file.load(disk, path, warnings.append) == {"version": 1}
    assert len(warnings) == 1
    assert path + ".damaged" in warnings[0]
    assert Path(path + ".damaged").read_bytes() == damage
    atomic_file.save(disk, path, {"version": 3})  # must not push the damaged text over the backup
    assert atomic_file.load(disk, path) == {"version": 3}
    assert loads(Path(path + ".bak").read_bytes()) == {"version": 1}


def test_a_missing_file_with_a_backup(path: str) -> None:
    disk, warnings = RealDisk(), list[str]()
    atomic_file.save(disk, path, {"version": 1})
    Path(path).rename(path + ".bak")
    assert atomic_file.load(disk, path, warnings.append) == {"version": 1}
    assert "is missing" in warnings[0]
    assert not Path(path + ".damaged").exists()


def test_damage_without_a_good_backup_is_an_error_that_says_what_to_do(path: str) -> None:
    disk = RealDisk()
    atomic_file.save(disk, path, {"version": 1})
    Path(path).write_bytes(b"{oops")
    with pytest.raises(atomic_file.TableError, match=r"topics\.json is damaged.*topics\.json\.bak is missing; put back a copy"):
        atomic_file.load(disk, path)
    assert Path(path).read_bytes() == b"{oops"


def test_empty_files_are_no_table_yet(path: str) -> None:
    disk = RealDisk()
    disk.mkdirs(str(Path(path).parent))
    Path(path).touch()
    assert atomic_file.load(disk, path) is None


class CutDisk(RealDisk):
    """Stops doing anything at the n-th change."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def step(self) -> None:
        if self.steps == 0:
            raise OSError("cut")
        self.steps -= 1

    def rename(self, source: str, target: str) -> None:
        self.step()
        super().rename(source, target)

    def fsync_dir(self, path: str) -> None:
        self.step()
        super().fsync_dir(path)


@pytest.mark.parametrize("steps", range(4))
def test_a_save_cut_at_any_step_leaves_the_old_or_the_new_table(path: str, steps: int) -> None:
    for version in (1, 2):
        atomic_file.save(RealDisk(), path, {"version": version})
    with pytest.raises(OSError, match="cut") if steps < 3 else nullcontext():
        atomic_file.save(CutDisk(steps), path, {"version": 3})
    assert atomic_file.load(RealDisk(), path) == {"version": 3 if steps >= 2 else 2}


def test_tables_written_by_apache_are_read(tmp_path: Path) -> None:
    unpack("a-clean", tmp_path)
    config = tmp_path / "store" / "config"
    offsets = atomic_file.load(RealDisk(), str(config / "consumerOffset.json"))
    assert offsets is not None
    assert all(isinstance(queue, str) for queues in offsets["offsetTable"].values() for queue in queues)
    topics = atomic_file.load(RealDisk(), str(config / "topics.json"))
    assert topics is not None
    assert topics["topicConfigTable"]["FxRW"]["readQueueNums"] == 8
