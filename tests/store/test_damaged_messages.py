"""Damage below the recovery scan: never served, skipped, reported once, and repaired where the log has the messages."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from firearrow.store.commitlog.reader import GetStatus
from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings
from firearrow.wire import record
from firearrow.wire.java_hash import hash_code
from tests.store.history import HOST, LONG_TOPIC, ROOT, History
from tests.store.simdisk import SimulatedDisk
from tests.store.with_and_without_c import with_and_without_c  # noqa: F401 (a fixture for all tests)

SEGMENT = 8192
TOPICS = ("Orders", "Refunds", LONG_TOPIC)


class Stopped(History):
    """A store of several segments after a clean stop."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        rng = random.Random(seed)
        for _ in range(60):
            self.send(rng.choice(TOPICS), rng.randint(0, 1), rng.choice([10, 100, 700]))
            self.write()
            self.flush()
        self.tick(2000)
        self.store.close()

    def consumed(self, max_count: int = 7, tag_codes: frozenset[int] | None = None) -> dict[tuple[str, int], list[bytes]]:
        """Return the records that a consumer receives. Every response must move it forward."""
        received: dict[tuple[str, int], list[bytes]] = {}
        for queue in self.store.queues():
            offset = queue.min_offset
            got = received.setdefault((queue.topic, queue.queue_id), [])
            while offset < queue.max_offset:
                result = self.store.get_messages(queue, offset, max_count, tag_codes=tag_codes)
                assert result.status in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.NO_MATCHED_MESSAGE)
                assert result.next_begin_offset > offset
                found = [record.encode(one) for one in record.decode_all(result.body)]
                assert len(found) == result.count
                got += found
                offset = result.next_begin_offset
        return received


def flip(disk: SimulatedDisk, path: str, position: int, bit: int) -> None:
    disk.open(path).pwrite(bytes((disk.read_bytes(path)[position] ^ (1 << bit),)), position)


def zero(disk: SimulatedDisk, path: str, start: int, size: int) -> None:
    disk.open(path).pwrite(bytes(min(size, disk.file_size(path) - start)), start)


def segment(base: int) -> str:
    return f"{ROOT}/commitlog/{base:020d}"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("filtered", [False, True])
def test_flipped_bit_in_a_body_is_not_served(seed: int, filtered: bool) -> None:
    history = Stopped(seed)
    rng = random.Random(seed)
    topic, queue_id = rng.choice(sorted(history.sent))
    number = rng.randrange(len(history.sent[topic, queue_id]))
    hit = record.decode(history.sent[topic, queue_id][number])
    view = record.encode(hit).index(hit.body)
    place = hit.physical_offset + view + rng.randrange(len(hit.body))
    disk = history.disk.copy()
    flip(disk, segment(place - place % SEGMENT), place % SEGMENT, rng.randrange(8))
    history.reopen(disk)
    tags = frozenset(hash_code(f"T{number}") for number in range(3)) if filtered else None
    for _ in range(2):
        received = history.consumed(tag_codes=tags)
        expected = {key: list(sent) for key, sent in history.sent.items()}
        del expected[topic, queue_id][number]
        assert received == expected
    end = hit.physical_offset + hit.total_size
    assert history.store.problems == [
        f"{topic} queue {queue_id}: 1 messages from queue offset {number} to {number} are damaged and skipped "
        f"(commit log from {hit.physical_offset} to {end})"
    ]
    assert history.store.damage.messages == 1
    assert history.store.damage.ranges == {hit.physical_offset: end}
    assert history.store.read_record(hit.physical_offset) is None


def test_zeros_in_the_log_of_a_clean_store_are_stepped_over() -> None:
    history = Stopped()
    disk = history.disk.copy()
    zero(disk, segment(SEGMENT), 1024, 4096)
    history.reopen(disk)
    received = history.consumed()
    lost = 0
    for key, sent in history.sent.items():
        for data in sent:
            start = record.decode(data).physical_offset
            hit = start < SEGMENT + 5120 and start + len(data) > SEGMENT + 1024
            assert (data in received[key]) is not hit
            lost += hit
    assert lost > 3
    assert history.store.damage.messages == lost


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["flip", "zero"])
@pytest.mark.parametrize("running", [False, True], ids=["stopped", "running"])
def test_damaged_entries_of_consume_queues_are_repaired(seed: int, kind: str, running: bool) -> None:
    history = Stopped(seed)
    rng = random.Random(seed)
    disk = history.disk.copy()
    if running:
        history.reopen(disk)
    topic, queue_id = rng.choice([key for key, sent in sorted(history.sent.items()) if len(sent) > 2])
    number = rng.randrange(len(history.sent[topic, queue_id]) - 1)
    path = f"{ROOT}/consumequeue/{topic}/{queue_id}/{number // 10 * 200:020d}"
    if kind == "flip":
        flip(disk, path, number % 10 * 20 + rng.randrange(12), rng.randrange(8))
    else:
        zero(disk, path, number % 10 * 20, 20)
    if not running:
        history.reopen(disk)
    assert history.consumed() == history.sent
    assert history.report.problems or history.store.problems
    history.store.problems.clear()
    assert history.consumed() == history.sent
    assert history.store.problems == []


def test_missing_segment_in_the_middle_is_reported_and_stepped_over() -> None:
    history = Stopped()
    disk = history.disk.copy()
    disk.unlink(segment(SEGMENT))
    history.reopen(disk)
    assert history.report.problems[0] == (
        f"commit-log files are missing between {SEGMENT} and {2 * SEGMENT}: the messages in {SEGMENT} bytes are lost"
    )
    received = history.consumed()
    for key, sent in history.sent.items():
        assert received[key] == [data for data in sent if record.decode(data).physical_offset // SEGMENT != 1]


def test_old_records_are_not_sent_without_verification(tmp_path: Path) -> None:
    def opened() -> MessageStore:
        settings = StoreSettings(store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=1024 * 1024)
        store = MessageStore(settings, store_host=HOST, now_ms=lambda: 1)
        store.open()
        return store

    def append(store: MessageStore) -> None:
        queue = store.queue("Orders", 0)
        for _ in range(8):
            store.append(queue, bytes(4000), b"", 0, flag=0, sys_flag=0, born_ms=1, born_host=HOST, store_ms=1)
        store.write_out()
        store.confirm(store.flush())

    store = opened()
    append(store)
    assert store.get_messages(store.queue("Orders", 0), 0, 8, may_be_part=True).part is not None
    store.close()
    store = opened()
    result = store.get_messages(store.queue("Orders", 0), 0, 8, may_be_part=True)
    assert (result.part, result.count) == (None, 8)
    append(store)
    assert store.get_messages(store.queue("Orders", 0), 8, 8, may_be_part=True).part is not None
    store.close()


class Scrubbed(Stopped):
    """A store that verifies its log quickly."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)
        self.settings.scrub_bytes_per_second = 3000

    def scrub(self) -> None:
        for _ in range(500):
            if self.store.scrubber.passes:
                return
            self.now_ms += 500
            self.store.tick(self.now_ms)
        raise AssertionError("the pass does not end")


def test_scrubber_finds_nothing_in_an_intact_store() -> None:
    history = Scrubbed()
    history.reopen(history.disk.copy())
    history.scrub()
    assert history.store.problems == []
    assert 0 < history.store.max_offset - history.store.scrubber.verified_bytes < 6 * SEGMENT  # without the blanks


def test_scrubber_reports_damage_that_nobody_has_read() -> None:
    history = Scrubbed()
    disk = history.disk.copy()
    zero(disk, segment(SEGMENT), 1024, 2048)
    records = [record.decode(data) for sent in history.sent.values() for data in sent]
    hit = next(one for one in records if one.physical_offset >= 2 * SEGMENT and one.topic == "Orders")
    place = hit.physical_offset + 88
    flip(disk, segment(place - place % SEGMENT), place % SEGMENT, 3)
    history.reopen(disk)
    history.scrub()
    ranges = history.store.damage.ranges
    assert any(start <= SEGMENT + 1024 and end >= SEGMENT + 3072 for start, end in ranges.items())
    assert ranges[hit.physical_offset] == hit.physical_offset + hit.total_size
    assert len(ranges) == len(history.store.problems) == 2
    assert all("the commit log is damaged from" in text for text in history.store.problems)


def test_scrubber_reports_queue_files_that_it_cannot_read_and_continues() -> None:
    history = Scrubbed()
    disk = history.disk.copy()
    history.reopen(disk)
    disk.fail("pread", "consumequeue/Orders/0")
    history.scrub()
    disk.heal()
    assert all("not verified up to" in text for text in history.store.problems)
    assert 1 <= len(history.store.problems) <= history.store.max_offset // SEGMENT + 1  # once for a segment


@pytest.mark.parametrize("place", [0, 7, 9, 11, 12, 19])
def test_scrubber_repairs_queue_entries(place: int) -> None:
    history = Scrubbed()
    disk = history.disk.copy()
    path = f"{ROOT}/consumequeue/Orders/0/{0:020d}"
    before = disk.read_bytes(path)
    history.reopen(disk)
    flip(disk, path, 3 * 20 + place, 2)
    history.scrub()
    assert disk.read_bytes(path) == before
    assert history.store.damage.repaired_entries == 1
    assert history.consumed() == history.sent


def test_scrubber_leaves_the_queue_of_a_recreated_topic_alone() -> None:
    history = Scrubbed()
    history.reopen(history.disk.copy())
    history.store.drop_topic("Orders")
    for queue_id in (0, 1):
        history.sent["Orders", queue_id] = []
        history.acknowledged["Orders", queue_id] = 0
        for _ in range(5):
            history.send("Orders", queue_id, 50)
    history.write()
    history.flush()
    history.tick(5000)
    history.close()
    history.scrub()
    assert history.store.problems == []
    history.check()


def test_damage_before_the_first_sync_of_derived_files_does_not_end_the_log() -> None:
    history = History()
    history.settings.flush_consume_queue_thorough_interval = 3_600_000
    for _ in range(30):
        history.send("Orders", 0, 700)
        history.write()
        history.flush()
    disk = history.disk.copy()
    assert not disk.exists(f"{ROOT}/queueTable")
    flip(disk, segment(0), 100, 3)  # in the body of the first message
    history.reopen(disk)
    assert history.report.damaged == [(0, record.decode(history.sent["Orders", 0][1]).physical_offset)]
    queue = history.store.queue("Orders", 0)
    assert (queue.min_offset, queue.max_offset) == (1, 30)
