"""Recalled messages that roll, through kills, stops, stalled disks and changes of master: a message recalled in
time is never delivered, any other always is.

FIREARROW_RECALL_SEEDS sets the number of seeds."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from firearrow.broker.requests.responses import Refused
from firearrow.store.timer import wheel
from tests.broker.timing import DAY, HOUR, SECOND, T0, Timing
from tests.store.simdisk import SimulatedDisk

SEEDS = int(os.environ.get("FIREARROW_RECALL_SEEDS", "25"))
WHEEL_S = 128  # a small wheel, that is soon around
OUT = T0 + 9_000  # the slot of a message that is sent at T0 for T0 + 10 s; it rolls at T0 + 4 s and T0 + 6 s


@pytest.fixture
def timing(tmp_path: Path) -> Iterator[Timing]:
    made = Timing(tmp_path / "store", timer_roll_window_slot=4)
    yield made
    made.store.close()


def recall(timing: Timing, key: str, out_ms: int = OUT) -> None:
    timing.append(b"0", TIMER_DELIVER_MS=str(out_ms + 1), TIMER_DEL_UNIQKEY=key, UNIQ_KEY=key)


def send(timing: Timing, key: str, due_ms: int) -> None:
    timing.append(key.encode(), TIMER_DELIVER_MS=str(due_ms), UNIQ_KEY=key)


def killed(timing: Timing, *, until_ms: int) -> None:
    timing.store.close()
    timing.now = until_ms
    timing.start()


def test_message_rolled_late_meets_its_recall(timing: Timing) -> None:
    send(timing, "A", T0 + 10_000)
    send(timing, "B", T0 + 10_000)
    timing.end_round()
    timing.go(T0)
    timing.go(T0 + 4_500)  # both wait in the slot of T0 + 6 s now, to be rolled on
    recall(timing, "A")
    timing.end_round()
    killed(timing, until_ms=T0 + 20_000)
    assert {*timing.at(T0 + 20_000)} == {b"B"}  # a kill may repeat it


def test_recall_rolled_late_meets_its_message(timing: Timing) -> None:
    send(timing, "A", T0 + 10_000)
    send(timing, "B", T0 + 10_000)
    timing.end_round()
    for second in range(3):
        timing.go(T0 + second * 1_000)
    recall(timing, "A")
    timing.end_round()
    timing.go(T0 + 4_500)  # the recall waits in another slot than the messages
    killed(timing, until_ms=T0 + 20_000)
    assert {*timing.at(T0 + 20_000)} == {b"B"}  # a kill may repeat it


@pytest.mark.parametrize("recalled_at_ms", [T0, T0 + 2_000, T0 + 5_500, T0 + 6_000])
def test_message_rolled_in_time_and_stored_late_meets_its_recall(timing: Timing, recalled_at_ms: int) -> None:
    """The disk stands still after the moment at which the message is rolled on, until after the message is due."""
    send(timing, "A", T0 + 10_000)
    send(timing, "B", T0 + 10_000)
    timing.end_round()
    for now_ms in range(T0, T0 + 6_000, 100):
        timing.go(now_ms)
        if now_ms == recalled_at_ms:
            recall(timing, "A")
            timing.end_round()
    if recalled_at_ms == T0 + 6_000:
        recall(timing, "A")
        timing.end_round()
    for now_ms in range(T0 + 6_000, T0 + 15_000, 100):
        timing.timers.tick(now_ms)
    assert timing.at(T0 + 15_000) == [b"B"]


def test_delivery_waits_for_an_unreadable_queue(timing: Timing) -> None:
    """As in an elected group: a new leader has the recall, but nobody has told it yet that the others have it too."""
    send(timing, "A", T0 + 5_000)
    timing.end_round()
    timing.go(T0 + 1_000)
    timing.go(T0 + 3_000)
    recall(timing, "A", T0 + 4_000)
    timing.store.write_out()
    timing.timers.follow(timing.timers.files.saved)
    timing.timers.activate(T0 + 3_500)
    for now_ms in range(T0 + 3_500, T0 + 6_000, 100):
        timing.timers.tick(now_ms)
    timing.store.confirm(timing.store.flush())
    assert timing.at(T0 + HOUR) == []


def test_more_ahead_than_the_wheel_reaches_does_not_hide_a_recall(tmp_path: Path) -> None:
    """Down for nearly two weeks: new messages would come into slots that old ones still have."""
    timing = Timing(tmp_path / "store")
    timing.store_settings.file_reserved_time = 24 * 3650
    timing.put(b"A", TIMER_DELAY_SEC=str(60 * 3_600), UNIQ_KEY="A")  # rolls after a day
    timing.go(T0)
    timing.go(T0 + 20 * HOUR)
    recall(timing, "A", T0 + 60 * HOUR - SECOND)  # does not roll
    timing.end_round()
    killed(timing, until_ms=T0 + 13 * DAY)
    timing.put(b"new", TIMER_DELAY_SEC=str(2 * 86_400))
    timing.go(timing.now)
    for _ in range(50):
        timing.go(timing.now + HOUR)
    assert timing.at(timing.now) == [b"new"]
    timing.store.close()


def test_overdue_message_is_not_lost_with_its_master(tmp_path: Path) -> None:
    """The message waits in a later slot; a master that resumes from the checkpoint alone must enqueue it again."""
    timing = Timing(tmp_path / "store", timer_flush_interval_ms=10)
    send(timing, "before", T0 + 1_000)
    timing.end_round()
    timing.go(T0)
    timing.go(T0 + 6_000)
    for number in range(4_000):
        send(timing, f"{number}", T0 + 6_500)
    timing.timers.tick(T0 + 9_000)  # they are not readable yet
    for now_ms in range(T0 + 9_010, T0 + 9_100, 20):
        timing.end_round()
        timing.timers.tick(now_ms)
    timing.end_round()
    timing.store.drain()
    assert 1 < len(timing.delivered()) < 4_001
    timing.timers.follow(timing.timers.files.saved)
    timing.timers.activate(T0 + 9_200)
    assert {*timing.at(T0 + HOUR)} == {b"before", *(b"%d" % number for number in range(4_000))}
    timing.store.close()


# Anything at any time.


@dataclass
class Book:
    due_ms: dict[str, int] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)  # acknowledged
    asked: set[str] = field(default_factory=set)  # a recall was sent: without an answer it may come or not
    recalled: set[str] = field(default_factory=set)  # the recall was acknowledged
    under_way: list[tuple[set[str], str]] = field(default_factory=list)  # what the end of the round will have acknowledged


class Story:
    """One broker's life, from a seed. Messages roll up to four times on their way."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.book = Book()
        self.timing = self._started(SimulatedDisk(), T0)

    def _started(self, disk: SimulatedDisk, now_ms: int) -> Timing:
        made = Timing("/store", disk, now_ms, timer_flush_interval_ms=10, timer_roll_window_slot=4)
        self.disk = disk
        return made

    def run(self) -> None:
        acts = [self.send] * 6 + [self.recall] * 4 + [self.work] * 8 + [self.stall] * 2
        acts += [self.stop, self.kill, self.power_cut, self.change_master]
        for _ in range(120):
            self.chance.choice(acts)()
        self.round()
        for _ in range(40):
            self.work()
        self.timing.go(self.timing.now + 60_000)
        self.judge()

    def judge(self) -> None:
        book = self.book
        records = self.timing.delivered()
        came = {record.body.decode() for record in records}
        assert not came & book.recalled, "recalled, and came"
        assert came >= book.stored - book.asked, "lost"
        assert came <= book.due_ms.keys()
        assert all(record.store_timestamp >= book.due_ms[record.body.decode()] for record in records), "early"

    def round(self) -> None:
        self.timing.end_round()
        for names, key in self.book.under_way:
            names.add(key)
        self.book.under_way.clear()

    def send(self) -> None:
        for _ in range(self.chance.choice((1, 3, 40))):
            key = f"K{len(self.book.due_ms)}"
            due_ms = self.timing.now + self.chance.choice((1, 700, 2_500, 4_500, 6_000, 9_500, 15_000))
            self.book.due_ms[key] = due_ms
            send(self.timing, key, due_ms)
            self.book.under_way.append((self.book.stored, key))
        if self.chance.random() < 0.8:
            self.round()

    def recall(self) -> None:
        waiting = [key for key in self.book.stored if self.book.due_ms[key] > self.timing.now]
        for key in self.chance.sample(sorted(waiting), min(len(waiting), 4)):
            try:
                recall(self.timing, key, (self.book.due_ms[key] - 1) // 1_000 * 1_000)
            except Refused:
                continue  # too late
            self.book.asked.add(key)
            self.book.under_way.append((self.book.recalled, key))
        if self.chance.random() < 0.7:
            self.round()

    def work(self) -> None:
        """Time passes, as it does: in small steps, or the machine is slow and it is late all of a sudden."""
        timing = self.timing
        for _ in range(self.chance.randrange(1, 6)):
            timing.now += self.chance.choice((10, 100, 400, 1_100, 3_000))
            for _ in range(self.chance.choice((1, 1, 30))):
                timing.timers.tick(timing.now)
                self.round()

    def stall(self) -> None:
        """Nothing reaches the disk, and time passes."""
        for _ in range(self.chance.randrange(1, 20)):
            self.timing.now += self.chance.choice((10, 300, 1_000))
            self.timing.timers.tick(self.timing.now)

    def _down(self) -> int:
        self.book.under_way.clear()
        return self.timing.now + self.chance.choice((0, 500, 3_000, 9_000, 20_000, 130_000, 300_000))

    def stop(self) -> None:
        self.round()
        self.timing.restart(after_ms=self.chance.choice((0, 500, 20_000, 150_000)))

    def kill(self) -> None:
        now_ms = self._down()
        self.timing.store.discard_pending()
        self.timing.store.close()
        self.timing = self._started(self.disk, now_ms)

    def power_cut(self) -> None:
        now_ms = self._down()
        self.timing = self._started(self.disk.power_cut(self.chance), now_ms)

    def change_master(self) -> None:
        """Continue with a copy that has the log and the last checkpoint, but not the timer log."""
        self.round()
        timing = self.timing
        timing.store.drain()
        timing.now = self._down()
        timing.timers.follow(timing.timers.files.saved)
        timing.timers.activate(timing.now)


@pytest.mark.slow
def test_recalls_hold_under_random_restarts_and_failovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "SLOTS", WHEEL_S)
    monkeypatch.setattr(wheel, "FILE_SIZE", WHEEL_S * wheel.SLOT_BYTES)
    for seed in range(SEEDS):
        try:
            Story(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
