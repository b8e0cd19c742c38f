"""Replicas: the same bytes, queues and index, independent of how the bytes are split."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from firearrow.store.commitlog.replica import FollowError
from firearrow.store.message_store import MessageStore
from tests.store.archives import STORE_HOST, manifest, open_store, settings_of, unpack
from tests.store.history import small_settings
from tests.store.simdisk import SimulatedDisk

BORN = b"\x7f\x00\x00\x01\x00\x00\x00\x01"
NOW = 1_800_000_000_000


def empty(root: Path, **changes: int) -> MessageStore:
    settings = settings_of(manifest("a-clean"), root)
    for name, value in changes.items():
        setattr(settings, name, value)
    store = MessageStore(settings, store_host=STORE_HOST, now_ms=lambda: NOW)
    store.open()
    return store


def add(store: MessageStore, topic: str, count: int, *, queue_id: int = 0, size: int = 1000) -> None:
    for number in range(count):
        queue = store.queue(topic, queue_id)
        raw = b"KEYS\x01k%d\x02" % number
        store.append(queue, b"%d" % number * size, raw, 0, flag=0, sys_flag=0, born_ms=NOW, born_host=BORN, store_ms=NOW)
    store.write_out()
    store.confirm(store.max_offset)


def log_of(store: MessageStore) -> bytes:
    data, offset = b"", store.min_offset
    while offset < store.max_offset:
        data += store.read_log(offset, store.max_offset - offset)
        offset = store.min_offset + len(data)
    return data


def follow(store: MessageStore, data: bytes, offset: int, rng: random.Random, largest: int = 40_000) -> None:
    at = 0
    while at < len(data):
        piece = data[at : at + rng.randint(1, largest)]
        store.replica.write_raw(piece, offset + at)
        store.replica.index_new_records()
        store.confirm(store.max_offset)
        at += len(piece)
    store.flush()


def same_queues(one: MessageStore, other: MessageStore) -> None:
    mine = {(q.topic, q.queue_id): q for q in one.queues() if q.max_offset}
    theirs = {(q.topic, q.queue_id): q for q in other.queues() if q.max_offset}
    assert mine.keys() == theirs.keys()
    for key, queue in mine.items():
        twin = theirs[key]
        low = max(queue.min_offset, twin.min_offset)
        assert queue.max_offset == twin.max_offset, key
        assert queue.entries(low, queue.max_offset) == twin.entries(low, queue.max_offset), key


@pytest.mark.parametrize(("case", "seed", "largest"), [("a-clean", 1, 40_000), ("a-clean", 2, 1_000), ("b-crash", 3, 5_000)])
def test_replica_of_an_apache_log_has_the_same_queues(tmp_path: Path, case: str, seed: int, largest: int) -> None:
    kept = manifest(case)
    one = open_store(kept, unpack(case, tmp_path / "theirs"))
    other = empty(tmp_path / "ours")
    follow(other, log_of(one), 0, random.Random(seed), largest)
    assert log_of(other) == log_of(one)
    assert other.confirm_offset == one.confirm_offset
    same_queues(one, other)
    message = next(m for m in kept["messages"] if m["keys"] and m["topic"] == "FxA")
    found = other.query("FxA", message["keys"].split(" ")[0], 64, 0, 1 << 62)
    assert one.read_record(message["commitLogOffset"]) in found.records
    for store in (one, other):
        store.close()
    again = MessageStore(settings_of(kept, tmp_path / "ours"), store_host=STORE_HOST, now_ms=lambda: NOW)
    report = again.open()
    assert report.clean
    assert report.problems == []
    again.close()


def test_stop_within_a_record_or_filler_continues_at_a_record(tmp_path: Path) -> None:
    one = empty(tmp_path / "one")
    add(one, "T", 1500, size=400)
    data = log_of(one)
    assert one.max_offset > 2 * one.settings.mapped_file_size_commit_log
    position = 0
    for stop in (100_001, 1_048_575, 1_048_576, 1_500_000, len(data)):
        other = empty(tmp_path / "other")
        assert other.max_offset <= stop
        follow(other, data[other.max_offset : stop], other.max_offset, random.Random(stop))
        assert other.confirm_offset <= stop
        assert other.confirm_offset >= position
        position = other.confirm_offset
        other.close()
        assert not (tmp_path / "other" / "commitlog_cut").exists()  # what was not whole is taken back, not found as damage
    other = empty(tmp_path / "other")
    assert log_of(other) == data
    same_queues(one, other)
    one.close()
    other.close()


def test_replica_of_a_log_that_begins_later(tmp_path: Path) -> None:
    one = empty(tmp_path / "one")
    add(one, "T", 1500, size=400)
    size = one.settings.mapped_file_size_commit_log
    other = empty(tmp_path / "other")
    follow(other, log_of(one)[size:], size, random.Random(4))
    assert (other.min_offset, other.max_offset) == (size, one.max_offset)
    same_queues(one, other)
    queue = other.find_queue("T", 0)
    assert queue is not None
    assert queue.min_offset > 0
    other.close()
    other = empty(tmp_path / "other")
    assert (other.min_offset, other.max_offset) == (size, one.max_offset)
    same_queues(one, other)
    one.close()
    other.close()


def test_recreated_topic_restarts_its_queue(tmp_path: Path) -> None:
    one, other = empty(tmp_path / "one"), empty(tmp_path / "other")
    add(one, "T", 10)
    add(one, "U", 3)
    one.drop_topic("T")
    add(one, "T", 2)
    follow(other, log_of(one), 0, random.Random(5))
    same_queues(one, other)
    for store in (one, other):
        store.close()


def test_invalid_bytes_end_replication_without_loss(tmp_path: Path) -> None:
    one, other = empty(tmp_path / "one"), empty(tmp_path / "other")
    add(one, "T", 10)
    data = log_of(one)
    broken = bytearray(data)
    place = len(data) // 2
    broken[place] ^= 0x40
    with pytest.raises(FollowError, match="restart to copy everything again"):
        follow(other, bytes(broken), 0, random.Random(6), largest=500)
    assert 0 < other.confirm_offset <= place
    other.close()
    other = empty(tmp_path / "other")
    follow(other, data[other.max_offset :], other.max_offset, random.Random(7))
    same_queues(one, other)
    for store in (one, other):
        store.close()


def test_other_segment_size_is_detected_at_the_first_segment_end(tmp_path: Path) -> None:
    one = empty(tmp_path / "one")
    add(one, "T", 1500, size=400)
    other = empty(tmp_path / "other", mapped_file_size_commit_log=4 * 1_048_576)
    with pytest.raises(FollowError, match="mappedFileSizeCommitLog"):
        follow(other, log_of(one), 0, random.Random(8))
    one.close()
    other.close()


def test_bytes_of_another_offset_are_rejected(tmp_path: Path) -> None:
    one, other = empty(tmp_path / "one"), empty(tmp_path / "other")
    add(one, "T", 10)
    follow(other, log_of(one), 0, random.Random(9))
    with pytest.raises(FollowError, match="cannot follow a log that ends at"):
        other.replica.write_raw(b"x" * 100, one.max_offset + 8)
    for store in (one, other):
        store.close()


def test_index_entries_are_retried_after_a_disk_error(tmp_path: Path) -> None:
    """Few and many records alternately: entries are added in order, each once."""
    one, rng = empty(tmp_path / "one"), random.Random(4)
    add(one, "T", 200)
    disk = SimulatedDisk()
    settings = replace(small_settings(), mapped_file_size_commit_log=one.settings.mapped_file_size_commit_log)
    other = MessageStore(settings, disk=disk, store_host=STORE_HOST, now_ms=lambda: NOW)
    other.open()
    data, at = log_of(one), 0
    for _ in range(3):
        disk.fail("pwrite", "/index/")
        for size in (rng.randint(1, 9_000), rng.randint(40_000, 60_000)):
            other.replica.write_raw(data[at : at + size], at)
            other.replica.index_new_records()
            at = min(at + size, len(data))
            other.confirm(other.max_offset)
        disk.heal()
        other.tick(NOW + 1000)
    follow(other, data[at:], at, rng)
    for number in range(200):
        assert len(other.query("T", f"k{number}", 10, 0, 1 << 62).records) == 1, number
