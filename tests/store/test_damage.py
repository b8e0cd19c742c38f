"""Recovery of damaged store directories: everything readable is served at its queue offset."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.store.commitlog.reader import GetStatus
from firearrow.store.errors import StoreError
from firearrow.wire import record
from tests.store.history import HOST, LONG_TOPIC, ROOT, History, small_settings
from tests.store.simdisk import SimulatedDisk

SEGMENT = 8192


def lived(rng: random.Random, rounds: int = 40) -> History:
    """A store with some segments, queues with several files, and index files; the last messages are not in derived files yet."""
    history = History()
    for _ in range(rounds):
        for _ in range(rng.randint(1, 6)):
            history.send(rng.choice(["Orders", "Refunds", LONG_TOPIC]), rng.randint(0, 1), rng.choice([10, 100, 700]))
        history.write()
        history.flush()
        history.tick(rng.choice([1, 400, 1500]))
    return history


def derived_files(disk: SimulatedDisk) -> list[str]:
    return [path for path in disk.files(ROOT) if "/commitlog/" not in path and not path.endswith(("/lock", "/abort"))]


def damage_file(disk: SimulatedDisk, path: str, rng: random.Random) -> None:
    kind = rng.choice(["delete", "shorten", "empty"])
    if kind == "delete":
        disk.unlink(path)
    elif kind == "shorten":
        disk.open(path).truncate(rng.randint(0, disk.file_size(path)))
    else:
        disk.open(path).truncate(0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_recovery_with_missing_or_short_derived_files(seed: int, clean: bool) -> None:
    rng = random.Random(seed)
    history = lived(rng)
    if clean:
        history.store.close()
    disk = history.disk.copy()
    files = derived_files(disk)
    chosen = rng.sample(files, rng.randint(1, len(files)))
    if clean and f"{ROOT}/queueTable" in chosen:
        # Without the table nobody can tell that an index file is missing, and after a clean stop the index is not doubted.
        chosen = [path for path in chosen if "/index/" not in path]
    for path in chosen:
        damage_file(disk, path, rng)
    history.reopen(disk)
    history.report.table = None  # rebuilding is what we expect here
    history.check()
    history.check_keys()
    history.send("Orders", 0, 10)
    history.write()
    history.flush()
    history.close()
    history.check()
    history.check_keys()


@pytest.mark.parametrize(
    "gone", ["consumequeue", "index", "queueTable", "checkpoint", "consumequeue/Orders", "consumequeue/Refunds/1"]
)
def test_recovery_without_a_directory_of_derived_files(gone: str) -> None:
    history = lived(random.Random(7))
    history.store.close()
    disk = history.disk.copy()
    path = f"{ROOT}/{gone}"
    if disk.is_dir(path):
        disk.rmtree(path)
    else:
        disk.unlink(path)
    history.reopen(disk)
    history.report.table = None
    history.check()
    history.check_keys()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_zeroed_pages_in_the_newest_queue_files_are_detected_after_a_crash(seed: int) -> None:
    rng = random.Random(seed)
    history = lived(rng)
    disk = history.disk.copy()
    files = list(disk.files(f"{ROOT}/consumequeue"))
    path = rng.choice([path for path in files if path == max(p for p in files if os.path.dirname(p) == os.path.dirname(path))])
    start = rng.randrange(0, disk.file_size(path), 20)
    disk.open(path).pwrite(bytes(min(60, disk.file_size(path) - start)), start)
    history.reopen(disk)
    history.report.table = None
    history.check()


def damage_log(history: History, disk: SimulatedDisk, rng: random.Random) -> list[tuple[int, int]]:
    """Damage the log in a few places and return the log ranges."""
    ranges = []
    everything = sorted(data for sent in history.sent.values() for data in sent)
    for _ in range(rng.randint(1, 3)):
        hit = record.decode(rng.choice(everything))
        kind = rng.choice(["flip body", "flip magic", "flip size", "flip place", "zero sectors", "zero record"])
        at, length, start = hit.physical_offset, hit.total_size, hit.physical_offset
        if kind == "zero record":
            change = bytes(length)
        elif kind == "zero sectors":
            start -= start % 512
            length = 512 * rng.randint(1, 4)
            length = min(length, SEGMENT - start % SEGMENT)
            change = bytes(length)
        else:
            place = {"flip body": 88, "flip magic": 4, "flip size": 0, "flip place": 28}[kind]
            start, length = at + place + rng.randint(0, 3), 1
            before = disk.read_bytes(f"{ROOT}/commitlog/{start // SEGMENT * SEGMENT:020d}")[start % SEGMENT]
            change = bytes((before ^ (1 << rng.randint(0, 7)),))
        disk.open(f"{ROOT}/commitlog/{start // SEGMENT * SEGMENT:020d}").pwrite(change, start % SEGMENT)
        ranges.append((start, start + length))
    return ranges


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_damaged_record_is_the_only_one_lost(seed: int, clean: bool, rebuild: bool) -> None:
    rng = random.Random(seed)
    history = lived(rng, 25)
    if clean:
        history.store.close()
    disk = history.disk.copy()
    ranges = damage_log(history, disk, rng)
    if rebuild:
        disk.rmtree(f"{ROOT}/consumequeue")
    history.reopen(disk)
    for (topic, queue_id), sent in history.sent.items():
        queue = history.store.find_queue(topic, queue_id)
        for number, data in enumerate(sent):
            whole = record.decode(data)
            start, end = whole.physical_offset, whole.physical_offset + whole.total_size
            if any(start < damaged_end and damaged_start < end for damaged_start, damaged_end in ranges):
                continue
            assert queue is not None
            result = history.store.get_messages(queue, number, 1)
            assert result.status is GetStatus.FOUND, f"{topic} {queue_id} {number} at {start}, damaged: {ranges}"
            assert result.body == data


@pytest.mark.parametrize("clean", [True, False])
def test_numbering_continues_when_the_newest_segments_are_missing(clean: bool) -> None:
    history = lived(random.Random(3))
    if clean:
        history.store.close()
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in history.store.queues()}
    disk = history.disk.copy()
    segments = disk.files(f"{ROOT}/commitlog")
    for path in segments[-2:]:
        disk.unlink(path)
    history.reopen(disk)
    store = history.store
    if clean:
        assert {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues()} == ends
    else:  # what was not in the queue files yet is gone with the log
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues()}
    assert store.max_offset == len(segments) * SEGMENT
    assert any("is missing" in problem for problem in history.report.problems)
    queue = store.queue("Orders", 0)
    kept = [record.decode(data) for data in history.sent["Orders", 0]]
    left = [whole for whole in kept if whole.physical_offset < (len(segments) - 2) * SEGMENT]
    assert history.pulled("Orders", 0)[: len(left)] == [record.encode(whole) for whole in left]

    offset = store.append(queue, b"new", b"", 0, flag=0, sys_flag=0, born_ms=1, born_host=HOST, store_ms=2)
    store.write_out()
    store.confirm(store.flush())
    assert offset == len(segments) * SEGMENT
    assert store.get_messages(queue, ends["Orders", 0], 1).count == 1


def test_log_that_ends_with_a_full_segment_continues_in_the_next() -> None:
    history = lived(random.Random(5))
    segments = history.disk.files(f"{ROOT}/commitlog")
    disk = history.disk.copy()
    for path in disk.files(f"{ROOT}/commitlog")[2:]:
        disk.unlink(path)
    for name in ("queueTable", "checkpoint"):
        disk.unlink(f"{ROOT}/{name}")
    assert len(segments) > 3
    history.reopen(disk)
    assert history.store.max_offset == 2 * SEGMENT
    assert [problem for problem in history.report.problems if "index" not in problem] == []
    for key, sent in history.sent.items():
        left = [data for data in sent if record.decode(data).physical_offset < 2 * SEGMENT]
        history.acknowledged[key] = len(left)
    history.check()
    history.send("Orders", 0, 100)
    history.write()
    history.flush()
    history.kill()
    history.check()


def test_prepared_segment_of_zeros_is_deleted_silently() -> None:
    history = lived(random.Random(9))
    disk = history.disk.copy()
    end = history.store.max_offset
    base = (end // SEGMENT + 1) * SEGMENT
    disk.open(f"{ROOT}/commitlog/{base:020d}", create=True, size=SEGMENT)
    history.reopen(disk)
    assert history.store.max_offset == end
    assert history.report.cut_path is None
    history.check()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("setting", "size", "key", "right"),
    [
        ("mapped_file_size_commit_log", 4096, "mappedFileSizeCommitLog", 8192),
        ("mapped_file_size_commit_log", 16384, "mappedFileSizeCommitLog", 8192),
        ("mapped_file_size_consume_queue", 400, "mappedFileSizeConsumeQueue", 200),
        ("mapped_file_size_consume_queue", 100, "mappedFileSizeConsumeQueue", 200),
    ],
)
def test_wrong_file_size_is_rejected_without_changes(setting: str, size: int, key: str, right: int, known: bool) -> None:
    history = lived(random.Random(1))
    history.store.close()
    disk = history.disk.copy()
    if not known:  # as in a directory of another broker
        disk.unlink(f"{ROOT}/checkpoint")
        disk.unlink(f"{ROOT}/queueTable")
    before = {path: disk.read_bytes(path) for path in disk.files(ROOT)}
    setattr(history.settings, setting, size)
    with pytest.raises(StoreError, match=f"{key}={size} .* {right}; set it to that"):
        history.reopen(disk)
    assert {path: disk.read_bytes(path) for path in disk.files(ROOT)} == before
    history.settings = small_settings()
    history.reopen(disk)
    assert history.report.clean
    history.check()


def test_recreated_topic_is_rebuilt_with_its_new_messages_only() -> None:
    history = History()
    for size in (10, 20, 30):
        history.send("Orders", 0, size)
    history.write()
    history.flush()
    history.store.drop_topic("Orders")
    history.sent["Orders", 0] = []
    history.acknowledged["Orders", 0] = 0
    history.send("Orders", 0, 40)
    history.send("Orders", 0, 50)
    history.write()
    history.flush()
    disk = history.disk.copy()
    history.reopen(disk)
    history.check()
    assert len(history.sent["Orders", 0]) == 2
