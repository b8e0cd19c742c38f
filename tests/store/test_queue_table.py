"""The queue table: encoding, damage and the table of one boot."""

from __future__ import annotations

from zlib import crc32

from firearrow.store.queue_table import QueueTable, load_queue_table, save_queue_table
from tests.store.simdisk import SimulatedDisk


def test_queue_table_round_trip() -> None:
    disk = SimulatedDisk()
    disk.mkdirs("/store")
    table = QueueTable(12345, 999, ["20261115233115050"], {("Orders", 0): (0, 7), ("%RETRY%g", 3): (300000, 300001)})
    assert load_queue_table(disk, "/store/queueTable", clean=True) is None
    save_queue_table(disk, "/store/queueTable", table)
    assert load_queue_table(disk, "/store/queueTable", clean=True) == table
    assert disk.files("/store") == ["/store/queueTable"]


def test_damaged_queue_table_is_rejected() -> None:
    data = QueueTable(12345, 999, ["20261115233115050"], {("Orders", 0): (0, 7)}).encode()
    for position in range(len(data)):
        assert QueueTable.decode(data[:position]) is None
        damaged = bytearray(data)
        damaged[position] ^= 4
        assert QueueTable.decode(bytes(damaged)) is None


def test_boot_table_is_used_once_after_a_clean_stop() -> None:
    for clean, booted, expected in ((True, False, 200), (False, False, 100), (True, True, 100)):
        disk = SimulatedDisk()
        disk.mkdirs("/store")
        save_queue_table(disk, "/store/queueTable", QueueTable(100))
        save_queue_table(disk, "/store/queueTable", QueueTable(200, boot_id=disk.boot_id()))
        disk.boots += booted
        table = load_queue_table(disk, "/store/queueTable", clean=clean)
        assert table is not None
        assert table.derived_offset == expected
        again = load_queue_table(disk, "/store/queueTable", clean=True)
        assert again is not None
        assert again.derived_offset == 100


def test_table_of_another_version_is_rejected() -> None:
    text = QueueTable(100).encode().rpartition(b"crc\t")[0].replace(b"queue table 1", b"queue table 2")
    assert QueueTable.decode(text + b"crc\t%d\n" % crc32(text)) is None


def test_damaged_boot_table_is_deleted_and_the_durable_one_used() -> None:
    disk = SimulatedDisk()
    disk.mkdirs("/store")
    save_queue_table(disk, "/store/queueTable", QueueTable(100))
    save_queue_table(disk, "/store/queueTable", QueueTable(200, boot_id=disk.boot_id()))
    disk.open("/store/queueTable.boot").pwrite(b"X", 0)
    assert load_queue_table(disk, "/store/queueTable", clean=True) == QueueTable(100)
    assert disk.files("/store") == ["/store/queueTable"]
