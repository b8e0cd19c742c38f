"""Tables and pages survive a crash at any step of a save; a damaged table costs at most one version."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from struct import Struct
from zlib import crc32

import pytest

from firearrow.store.atomic_file import PAGE_SIZE, PageFormat, TableError, load_table, save_page, save_table
from firearrow.store.filesystem import RealDisk
from firearrow.wire.fastjson import loads
from tests.store.archives import unpack
from tests.store.simdisk import SimulatedDisk


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "config" / "topics.json")


def test_table_never_saved_is_none(path: str) -> None:
    assert load_table(RealDisk(), path) is None


def test_saved_table_is_loaded_and_its_previous_version_kept(path: str) -> None:
    disk = RealDisk()
    save_table(disk, path, {"offsetTable": {"T@G": {0: 250, 1: 7}}})
    save_table(disk, path, {"offsetTable": {"T@G": {0: 251, 1: 7}}})
    assert load_table(disk, path) == {"offsetTable": {"T@G": {"0": 251, "1": 7}}}
    assert loads(Path(path + ".bak").read_bytes()) == {"offsetTable": {"T@G": {"0": 250, "1": 7}}}
    assert Path(path).read_text() == '{\n\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t0:251,\n\t\t\t1:7\n\t\t}\n\t}\n}'
    assert sorted(file.name for file in Path(path).parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_longer_leftover_temporary_file_is_truncated(path: str) -> None:
    disk = RealDisk()
    disk.mkdirs(str(Path(path).parent))
    Path(path + ".tmp").write_text("x" * 1000)
    save_table(disk, path, {})
    assert Path(path).read_text() == "{}"


@pytest.mark.parametrize("damage", [b"", b"  \n", b'{"a":', b"\x00" * 100, b"\xff\xfe"])
def test_backup_is_loaded_when_the_file_is_damaged(path: str, damage: bytes) -> None:
    disk, warnings = RealDisk(), list[str]()
    save_table(disk, path, {"version": 1})
    save_table(disk, path, {"version": 2})
    Path(path).write_bytes(damage)
    assert load_table(disk, path, warnings.append) == {"version": 1}
    assert len(warnings) == 1
    assert path + ".damaged" in warnings[0]
    assert Path(path + ".damaged").read_bytes() == damage
    save_table(disk, path, {"version": 3})  # must not replace the backup by the damaged file
    assert load_table(disk, path) == {"version": 3}
    assert loads(Path(path + ".bak").read_bytes()) == {"version": 1}


def test_backup_is_loaded_when_the_file_is_missing(path: str) -> None:
    disk, warnings = RealDisk(), list[str]()
    save_table(disk, path, {"version": 1})
    Path(path).rename(path + ".bak")
    assert load_table(disk, path, warnings.append) == {"version": 1}
    assert "is missing" in warnings[0]
    assert not Path(path + ".damaged").exists()


def test_damaged_file_without_backup_is_an_error_that_names_the_remedy(path: str) -> None:
    disk = RealDisk()
    save_table(disk, path, {"version": 1})
    Path(path).write_bytes(b"{oops")
    with pytest.raises(TableError, match=r"topics\.json is damaged.*topics\.json\.bak is missing; restore a copy"):
        load_table(disk, path)
    assert Path(path).read_bytes() == b"{oops"


def test_empty_file_is_no_table(path: str) -> None:
    disk = RealDisk()
    disk.mkdirs(str(Path(path).parent))
    Path(path).touch()
    assert load_table(disk, path) is None


class FailingDisk(RealDisk):
    """Fails at the n-th rename or directory sync."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def step(self) -> None:
        if self.steps == 0:
            raise OSError("failed")
        self.steps -= 1

    def rename(self, source: str, target: str) -> None:
        self.step()
        super().rename(source, target)

    def fsync_dir(self, path: str) -> None:
        self.step()
        super().fsync_dir(path)


@pytest.mark.parametrize("steps", range(4))
def test_save_interrupted_at_any_step_leaves_the_old_or_the_new_table(path: str, steps: int) -> None:
    for version in (1, 2):
        save_table(RealDisk(), path, {"version": version})
    with pytest.raises(OSError, match="failed") if steps < 3 else nullcontext():
        save_table(FailingDisk(steps), path, {"version": 3})
    assert load_table(RealDisk(), path) == {"version": 3 if steps >= 2 else 2}


def test_tables_written_by_apache_are_loaded(tmp_path: Path) -> None:
    unpack("a-clean", tmp_path)
    config = tmp_path / "store" / "config"
    offsets = load_table(RealDisk(), str(config / "consumerOffset.json"))
    assert offsets is not None
    assert all(isinstance(queue, str) for queues in offsets["offsetTable"].values() for queue in queues)
    topics = load_table(RealDisk(), str(config / "topics.json"))
    assert topics is not None
    assert topics["topicConfigTable"]["FxRW"]["readQueueNums"] == 8


APACHE, OURS = Struct(">qq"), Struct(">qi")
FORMATS = {checks: PageFormat(APACHE, OURS, checks_apache=checks) for checks in (False, True)}


@pytest.mark.parametrize("checks", [False, True])
def test_page_layout(checks: bool) -> None:
    page = FORMATS[checks].encode((1, 2), (3, 4))
    ours = b"FIREARRO" + OURS.pack(3, 4)
    covered = (APACHE.pack(1, 2) if checks else b"") + ours
    expected = APACHE.pack(1, 2).ljust(256, b"\0") + ours + crc32(covered).to_bytes(4, "big")
    assert page == expected.ljust(PAGE_SIZE, b"\0")
    assert FORMATS[checks].decode(page) == ((1, 2), (3, 4))


@pytest.mark.parametrize("checks", [False, True])
def test_our_fields_are_valid_only_with_a_matching_checksum(checks: bool) -> None:
    form = FORMATS[checks]
    page = form.encode((1, 2), (3, 4))
    for position in range(PAGE_SIZE):
        damaged = bytearray(page)
        damaged[position] ^= 0x10
        covered = 256 <= position < 256 + 8 + OURS.size + 4 or (checks and position < APACHE.size)
        assert form.decode(bytes(damaged))[1] == (None if covered else (3, 4)), position


@pytest.mark.parametrize("data", [b"", b"\xff" * 3, bytes(100), b"\xff" * PAGE_SIZE])
def test_short_or_foreign_page_has_none_of_our_fields(data: bytes) -> None:
    apache, ours = FORMATS[True].decode(data)
    assert apache == APACHE.unpack(data[:16].ljust(16, b"\0"))
    assert ours is None


def test_saved_page_is_overwritten_in_place() -> None:
    disk = SimulatedDisk()
    disk.mkdirs("/store")
    for number in (1, 2):
        save_page(disk, "/store/page", FORMATS[True].encode((number, 0), (0, 0)))
    assert disk.file_size("/store/page") == PAGE_SIZE
    assert FORMATS[True].decode(disk.read_bytes("/store/page")) == ((2, 0), (0, 0))
