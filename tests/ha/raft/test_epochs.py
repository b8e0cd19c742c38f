"""The epoch table: shared prefixes of logs, and the file format."""

from __future__ import annotations

import pytest

from firearrow.ha.raft.epochs import MAX_ENTRIES, Epoch, EpochTable
from firearrow.ha.raft.hard_state import DamagedFileError, load_epochs, save_epochs
from tests.store.simdisk import SimulatedDisk


def table(*entries: tuple[int, int]) -> EpochTable:
    return EpochTable(Epoch(*entry) for entry in entries)


@pytest.mark.parametrize(
    ("mine", "end", "leader", "point"),
    [
        (table(), 0, table((1, 0)), None),
        (table((1, 0)), 50, table((1, 0)), 50),  # the leader's own epoch: what we have came from it
        (table((1, 0)), 50, table((1, 0), (2, 80)), 50),
        (table((1, 0)), 90, table((1, 0), (2, 80)), 80),
        (table((1, 0), (3, 60)), 90, table((1, 0), (2, 40), (4, 70)), 40),
        (table((1, 0), (3, 60)), 90, table((1, 0), (2, 80), (4, 90)), 60),
        (table((1, 0), (3, 60)), 60, table((1, 0), (4, 60)), 60),
        (table((1, 0)), 50, table((2, 0)), None),
        (table((1, 0)), 50, table((1, 10), (2, 20)), None),  # not the same epoch: not the same start
    ],
)
def test_shared_prefix_of_two_logs(mine: EpochTable, end: int, leader: EpochTable, point: int | None) -> None:
    assert mine.shared_prefix(leader, end) == point


def test_new_epoch_drops_empty_and_expired_epochs() -> None:
    assert table((1, 0), (2, 50)).with_epoch(4, 50, 0) == table((1, 0), (4, 50))
    assert table((1, 0), (2, 50), (3, 80)).with_epoch(4, 90, 60) == table((2, 50), (3, 80), (4, 90))
    full = table(*((i + 1, i) for i in range(MAX_ENTRIES)))
    assert len(full.with_epoch(MAX_ENTRIES + 1, MAX_ENTRIES, 0).entries) == MAX_ENTRIES


@pytest.mark.parametrize("entries", [((2, 0), (1, 5)), ((1, 5), (2, 5)), ((1, 5), (2, 4)), ((0, 0),), ((2**31, 0),), ((1, -1),)])
def test_invalid_tables_are_rejected(entries: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="must increase"):
        table(*entries)


def test_file_format_is_apaches() -> None:
    text = table((1, 0), (4, 1_073_741_824)).encode()
    assert text == b"2\n1373951441\n1-0\n4-1073741824\n"
    assert EpochTable.decode(text) == table((1, 0), (4, 1_073_741_824))
    assert EpochTable.decode(b"1\n0\n7-100\n") == table((7, 100))  # 0: unchecked
    assert EpochTable.decode(table().encode()) == table()


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"1\n", b"1\n0\n", b"1\n0\n7-x\n", b"1\n0\n7\n", b"1\n5\n7-100\n", b"2\n0\n7-100\n", b"-1\n0\n"]
)
def test_damaged_file_is_rejected(text: bytes) -> None:
    with pytest.raises(ValueError, match="epoch table"):
        EpochTable.decode(text)


def test_either_copy_suffices_and_two_damaged_copies_are_an_error() -> None:
    disk = SimulatedDisk()
    assert load_epochs(disk, "/store/table") is None
    save_epochs(disk, "/store/table", table((1, 0)))
    save_epochs(disk, "/store/table", table((1, 0), (2, 10)))
    disk.inode("/store/table").data[6] ^= 1
    assert load_epochs(disk, "/store/table") == table((1, 0), (2, 10))  # not an older one
    disk.inode("/store/table.bak").data[6] ^= 1
    with pytest.raises(DamagedFileError, match="copies everything"):
        load_epochs(disk, "/store/table")
