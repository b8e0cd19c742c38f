"""A crash between any two steps of retention or of the deletion of a topic.

No queue offset is used twice, and no recovery scans the log below the last sync of the derived files.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.store.history import ROOT, History, small_settings
from tests.store.simdisk import SimulatedDisk

SEGMENT = 8192


class Aged(History):
    """A store with a rarely used topic in its oldest segment, and derived files that were not synced since then."""

    def __init__(self, interval_ms: int = 3_600_000) -> None:
        settings = small_settings()
        settings.flush_consume_queue_thorough_interval = interval_ms
        settings.file_reserved_time = 0
        super().__init__(settings)
        for _ in range(10):
            self.send("Rare", 0, 10)
            self.send("Gone", 0, 10)
        self.write()
        self.flush()
        self.fill(4)

    def fill(self, segments: int) -> None:
        while self.store.max_offset < segments * SEGMENT:
            self.send("Orders", 0, 300)
            self.write()
            self.flush()
        self.tick(2000)

    def settle(self) -> None:
        for _ in range(8):
            self.tick(10)

    def disks_during(self, change: Callable[[], None]) -> list[tuple[str, SimulatedDisk]]:
        """Return the disks that crashes during a change leave: after a kill and after a power cut, before each operation."""
        disks: list[tuple[str, SimulatedDisk]] = []
        rng = random.Random(5)
        original = self.disk

        def observe(operation: str, path: str) -> None:
            original.observer = None
            disks.append((f"kill before {operation} {path}", original.snapshot()))
            disks.append((f"power cut before {operation} {path}", original.power_cut(rng)))
            original.observer = observe

        original.observer = observe
        change()
        original.observer = None
        disks.append(("kill at the end", original.snapshot()))
        return disks


def test_crash_right_after_retention_keeps_the_numbering() -> None:
    history = Aged()
    history.store.delete_expired(history.now_ms)
    for _ in range(8):
        if history.store.min_offset == 0:
            history.tick(10)
    assert history.store.min_offset == 4 * SEGMENT
    history.kill()
    rare = history.store.queue("Rare", 0)
    assert (rare.min_offset, rare.max_offset) == (10, 10)
    assert history.report.rebuilt_queues == 0


def test_forced_deletion_waits_for_the_queue_table() -> None:
    history = Aged()
    history.disk.used_percent = 86.0
    history.store.tick(history.now_ms + 10_000)
    history.kill()
    assert history.store.queue("Rare", 0).max_offset == 10
    history.disk.used_percent = 86.0
    for _ in range(8):
        history.tick(2_000)
    assert history.store.min_offset > 0
    history.kill()
    assert history.store.queue("Rare", 0).max_offset == 10


def test_forced_deletion_needs_no_space_below_the_last_queue_table() -> None:
    history = Aged(interval_ms=1000)
    history.fill(5)
    history.tick(2000)
    history.disk.fail("pwrite", "queueTable")
    history.disk.fail("create", "queueTable")
    history.disk.used_percent = 99.0
    history.store.tick(history.now_ms + 10_000)
    assert history.store.min_offset > 0
    assert history.disk.files(f"{ROOT}/commitlog")[0].endswith(f"{history.store.min_offset:020d}")


@pytest.mark.parametrize("earlier", [False, True], ids=["first table", "later table"])
def test_crash_during_retention(earlier: bool) -> None:
    history = Aged(1000 if earlier else 3_600_000)
    if earlier:
        history.settle()
        history.fill(5)
        history.settings.flush_consume_queue_thorough_interval = 3_600_000
        history.fill(6)
        history.fill(7)
    ends = {key: len(sent) for key, sent in history.sent.items()}

    def expire() -> None:
        history.store.delete_expired(history.now_ms)
        history.settle()

    disks = history.disks_during(expire)
    assert any("unlink" in name and "commitlog" in name for name, _ in disks)
    assert any("unlink" in name and "consumequeue" in name for name, _ in disks)
    assert any("unlink" in name and "index" in name for name, _ in disks)
    for name, disk in disks:
        had_table = disk.exists(f"{ROOT}/queueTable")
        history.reopen(disk)
        report = history.report
        assert {key: history.store.queue(*key).max_offset for key in ends} == ends, name
        assert report.rebuilt_queues == 0 or not had_table, (name, report.problems)
        assert not any("missing" in text for text in report.problems), (name, report.problems)
        for topic, queue_id in ends:
            queue = history.store.queue(topic, queue_id)
            for offset in range(queue.min_offset, queue.max_offset):
                result = history.store.get_messages(queue, offset, 1)
                assert result.body == history.sent[topic, queue_id][offset], (name, offset)
        history.store.close()


def test_crash_during_the_deletion_of_a_topic_needs_no_scan_of_the_whole_log() -> None:
    history = Aged(interval_ms=1000)
    history.settle()
    history.fill(5)
    history.settle()
    history.settings.flush_consume_queue_thorough_interval = 3_600_000
    for _ in range(5):
        history.send("Gone", 0, 10)
    history.write()
    history.flush()
    history.tick(2000)

    def delete() -> None:
        history.store.drop_topic("Gone")
        history.sent["Gone", 0] = []
        history.acknowledged["Gone", 0] = 0
        history.settle()
        for _ in range(3):
            history.send("Gone", 0, 20)
        history.write()
        history.flush()
        history.tick(2000)

    disks = history.disks_during(delete)
    assert any("rmtree" in name for name, _ in disks)
    for name, disk in disks:
        history.reopen(disk)
        report = history.report
        assert report.rebuilt_queues == 0, (name, report.problems)
        assert report.scanned_bytes < SEGMENT, name
        assert history.store.queue("Rare", 0).max_offset == 10
        gone = history.store.queue("Gone", 0)
        assert gone.max_offset in (0, 1, 2, 3, 15), name
        history.store.close()
    assert history.store.queue("Gone", 0).max_offset == 3


def test_records_of_a_deleted_topic_stay_deleted_when_all_queues_are_rebuilt() -> None:
    history = Aged()
    history.store.drop_topic("Gone")
    history.fill(5)
    history.settle()
    history.store.close()
    disk = history.disk.copy()
    disk.rmtree(f"{ROOT}/consumequeue")
    history.reopen(disk)
    assert history.report.rebuilt_queues > 0
    assert history.store.queue("Gone", 0).max_offset == 0
    assert history.store.queue("Rare", 0).max_offset == 10
    history.store.close()


@pytest.mark.parametrize("synced", [True, False])
def test_store_without_its_abort_file_is_checked_as_after_a_crash(synced: bool) -> None:
    history = Aged(interval_ms=1000)
    history.fill(5)
    history.settle()
    if not synced:
        history.send("Orders", 0, 300)
        history.write()
        history.flush()
    disk = history.disk.copy()
    disk.unlink(f"{ROOT}/abort")
    history.reopen(disk)
    text = "its hash slots lacked entries" if synced else "although its abort file is missing"
    assert any(text in problem for problem in history.report.problems)
    assert history.report.clean is synced
    history.check_keys()
    history.check()


def test_clean_stop_is_recognised_after_messages_and_without_them() -> None:
    history = Aged()
    for _ in range(2):
        history.close()
        assert history.report.clean
        assert history.report.problems == []
    history.check_keys()
