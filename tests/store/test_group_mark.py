"""The group mark: saved values, the two slots, and power cuts."""

from __future__ import annotations

import random

import pytest

from firearrow.store.group_mark import FILE_NAME, GroupMark, GroupMarkFile
from tests.store.simdisk import SECTOR, SimulatedDisk

PATH = f"/store/{FILE_NAME}"


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.mkdirs("/store")
    return disk


def loaded(disk: SimulatedDisk) -> GroupMark:
    return GroupMarkFile(disk, "/store").mark


def test_directory_without_a_mark_starts_at_zero_and_gets_no_file() -> None:
    disk = new_disk()
    assert loaded(disk) == GroupMark(0, 0, damaged=False)
    assert disk.files("/store") == []


def test_mark_is_reloaded_with_all_its_fields() -> None:
    disk = new_disk()
    file = GroupMarkFile(disk, "/store")
    file.save(GroupMark(1 << 40, 77))
    file.save_damaged()
    file.close()
    assert loaded(disk) == GroupMark(1 << 40, 77, damaged=True)


def test_durable_offset_only_rises_except_by_a_save() -> None:
    file = GroupMarkFile(new_disk(), "/store")
    file.save_durable(100)
    file.save_durable(60)
    file.note(80, 50)
    assert file.mark == GroupMark(100, 50)
    file.save(GroupMark(30, 20))
    assert file.mark == GroupMark(30, 20)


def test_unchanged_mark_is_not_written_again() -> None:
    disk = new_disk()
    file = GroupMarkFile(disk, "/store")
    file.note(100, 50)
    writes = disk.writes
    file.note(100, 50)
    file.save_durable(100)
    assert disk.writes == writes


@pytest.mark.parametrize("slot", [0, 1])
def test_damaged_slot_falls_back_to_the_other_slot(slot: int) -> None:
    disk = new_disk()
    file = GroupMarkFile(disk, "/store")
    for offset in (100, 200):
        file.save_durable(offset)
    newest_slot = 0  # the second write has an even sequence number
    disk.open(PATH).pwrite(b"\xff", slot * SECTOR + 8)
    assert loaded(disk).durable == (100 if slot == newest_slot else 200)


def test_saved_mark_survives_power_cuts_while_the_next_one_is_written() -> None:
    for seed in range(30):
        disk = new_disk()
        file = GroupMarkFile(disk, "/store")
        file.save_durable(100)
        file.note(200, 150)
        assert loaded(disk.power_cut(random.Random(seed))) in (GroupMark(100, 0), GroupMark(200, 150))
