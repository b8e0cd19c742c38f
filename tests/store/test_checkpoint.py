"""The checkpoint page, byte by byte and damaged."""

from __future__ import annotations

import tarfile

import pytest

from firearrow.store.atomic_file import PAGE_SIZE
from firearrow.store.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tests.store.archives import FIXTURES, manifest
from tests.store.simdisk import SimulatedDisk


@pytest.mark.parametrize("case", ["a-clean", "b-crash", "d-retention"])
def test_checkpoint_written_by_apache_is_decoded(case: str) -> None:
    with tarfile.open(FIXTURES / f"{case}.tar.gz") as archive:
        file = archive.extractfile("store/checkpoint")
        assert file is not None
        checkpoint = Checkpoint.decode(file.read())
    expected = manifest(case)["checkpoint"]
    assert (
        checkpoint.physic_msg_ms,
        checkpoint.logics_msg_ms,
        checkpoint.index_msg_ms,
        checkpoint.master_flushed_offset,
        checkpoint.confirm_phy_offset,
        checkpoint.logics_physical_offset,
    ) == tuple(expected.values())
    assert (checkpoint.flushed_offset, checkpoint.boot_id) == (0, b"")


def test_checkpoint_round_trip() -> None:
    disk = SimulatedDisk()
    disk.mkdirs("/store")
    assert load_checkpoint(disk, "/store/checkpoint") == Checkpoint()
    checkpoint = Checkpoint(1, 2, 3, 4, 5, 6, 1 << 40, bytes(range(16)), 1 << 30, 6_000_000)
    save_checkpoint(disk, "/store/checkpoint", checkpoint)
    assert disk.file_size("/store/checkpoint") == PAGE_SIZE
    assert load_checkpoint(disk, "/store/checkpoint") == checkpoint


def test_our_fields_need_a_valid_checksum() -> None:
    page = bytearray(Checkpoint(1, 2, flushed_offset=77, boot_id=bytes(range(1, 17))).encode())
    for position in range(256, 300):
        damaged = bytearray(page)
        damaged[position] ^= 1
        assert Checkpoint.decode(bytes(damaged)).flushed_offset == 0
    assert Checkpoint.decode(bytes(page[:100])) == Checkpoint(1, 2)


def test_min_ms_has_a_margin_of_three_seconds() -> None:
    assert Checkpoint(physic_msg_ms=10_000, logics_msg_ms=9_000).min_ms == 6_000
    assert Checkpoint(physic_msg_ms=1_000, logics_msg_ms=9_000).min_ms == 0
