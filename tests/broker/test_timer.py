"""Timer messages under a clock that the test turns: when they come, where they wait, and that none is lost."""

from __future__ import annotations

import errno
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.broker.placing import PREPARED, Arrival
from firearrow.broker.refused import Refused
from firearrow.broker.timer import MAX_A_TICK
from firearrow.broker.timer_slot import MAX_HELD
from firearrow.store.timercheck import TimerCheckpoint
from firearrow.store.timerlog import DELETE, ROLL
from firearrow.store.timerwheel import Slot
from firearrow.wire import properties
from firearrow.wire.javahash import hash_code, tags_code
from firearrow.wire.names import TIMER_TOPIC
from tests.broker.timing import BORN, DAY, HOUR, SECOND, T0, Timing, names_of
from tests.store import archives
from tests.store.simdisk import SimulatedDisk

NAMES = ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "REAL_TOPIC", "DELAY"]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Timing]]:
    made: list[Timing] = []

    def start(**settings: Any) -> Timing:
        made.append(Timing(tmp_path / "store", **settings))
        return made[-1]

    yield start
    for one in made:
        one.store.close()


@pytest.fixture
def timing(make: Callable[..., Timing]) -> Timing:
    return make()


# When they come.


@pytest.mark.parametrize(
    ("names", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "5"}, T0 + 5_000),
        ({"TIMER_DELAY_MS": "5001"}, T0 + 5_001),
        ({"TIMER_DELAY_MS": "1"}, T0 + 1),
        ({"TIMER_DELIVER_MS": str(T0 + 7_777)}, T0 + 7_777),
        ({"TIMER_DELIVER_MS": str(T0 + 8_000)}, T0 + 8_000),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "77", "TIMER_DELIVER_MS": "1"}, T0 + 2_000),
        ({"TIMER_DELAY_MS": "77", "TIMER_DELIVER_MS": "1"}, T0 + 77),
    ],
)
def test_a_message_comes_at_its_moment_and_not_a_millisecond_before(timing: Timing, names: dict[str, str], due_ms: int) -> None:
    timing.put(b"x", **names)
    assert timing.at(T0) == []
    assert timing.at(due_ms - 1) == []
    assert timing.at(due_ms) == [b"x"]
    assert timing.at(due_ms + DAY) == [b"x"]


@pytest.mark.parametrize("now_ms", [T0, T0 + 1, T0 + 999])
@pytest.mark.parametrize("delay", ["0", "-1", "-9223372036854775808"])
def test_what_is_due_already_is_stored_as_any_message(timing: Timing, now_ms: int, delay: str) -> None:
    timing.put(b"x", at_ms=now_ms, TIMER_DELAY_MS=delay)
    assert [record.body for record in timing.delivered()] == [b"x"]
    assert timing.waiting() == []


def test_a_tick_knows_when_the_next_message_is_due(timing: Timing) -> None:
    assert timing.timers.next_due_ms() is None
    timing.put(b"far", TIMER_DELAY_MS="5300")
    timing.put(b"near", TIMER_DELAY_MS="300")
    timing.at(T0 + 10)
    assert timing.timers.next_due_ms() == T0 + 300
    timing.at(T0 + 300)
    assert timing.timers.next_due_ms() is None  # the next slots are empty
    timing.at(T0 + 4_000)
    assert timing.timers.next_due_ms() == T0 + 5_000  # a slot to be opened
    timing.at(T0 + 5_000)
    assert timing.timers.next_due_ms() == T0 + 5_300


def test_ten_thousand_over_thirty_seconds_come_in_time(timing: Timing) -> None:
    chance = random.Random(4)
    timing.flushing = False
    for number in range(10_000):
        timing.append(b"%d" % number, TIMER_DELIVER_MS=str(T0 + chance.randrange(1, 30_000)))
    timing.end_round()
    now_ms = T0
    while now_ms < T0 + 31_000:  # as the broker does: every 100 ms, and when something is due
        timing.go(now_ms)
        due_ms = timing.timers.next_due_ms()
        now_ms = min(now_ms + 100, due_ms if due_ms is not None else now_ms + 100)
    late = [record.store_timestamp - int(names_of(record)["TIMER_DELIVER_MS"]) for record in timing.delivered()]
    assert len(late) == 10_000
    assert min(late) >= 0
    assert max(late) <= 1


def test_many_due_at_once_are_delivered_in_portions(timing: Timing) -> None:
    count = MAX_A_TICK * 3
    for number in range(count):
        timing.append(b"%d" % number, TIMER_DELIVER_MS=str(T0 + 5_000))
    timing.end_round()
    timing.at(T0)
    ticks = 0
    while timing.timers.tick(T0 + 5_000):
        timing.end_round()
        ticks += 1
        assert len(timing.delivered()) <= ticks * MAX_A_TICK
    timing.end_round()
    assert ticks >= 3
    assert [record.body for record in timing.delivered()] == [b"%d" % number for number in range(count)]


def test_more_for_one_moment_than_are_held_in_memory_all_come(timing: Timing) -> None:
    for number in range(MAX_HELD + 500):
        timing.append(b"%d" % number, TIMER_DELIVER_MS=str(T0 + 5_000 - number % 900))
    timing.end_round()
    timing.at(T0 + 4_050)
    assert len(timing.at(T0 + 6_000)) == MAX_HELD + 500


def test_messages_that_come_for_the_open_slot_join_it(timing: Timing) -> None:
    timing.put(b"first", TIMER_DELIVER_MS=str(T0 + 1_900))
    timing.at(T0 + 1_100)
    timing.put(b"second", at_ms=T0 + 1_200, TIMER_DELIVER_MS=str(T0 + 1_500))
    assert timing.at(T0 + 1_400) == []
    assert timing.at(T0 + 1_500) == [b"second"]
    assert timing.at(T0 + 1_900) == [b"second", b"first"]


def test_two_hours_pass_in_a_moment(timing: Timing) -> None:
    for minute in range(1, 120):
        timing.put(b"%d" % minute, TIMER_DELIVER_MS=str(T0 + minute * 60_000))
    assert timing.at(T0 + HOUR) == [b"%d" % minute for minute in range(1, 61)]
    assert timing.at(T0 + 2 * HOUR) == [b"%d" % minute for minute in range(1, 120)]


def test_a_clock_that_was_set_back_delivers_new_messages_by_its_time(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_MS="100")
    timing.at(T0 + HOUR)
    timing.put(b"later", at_ms=T0, TIMER_DELAY_MS="500")
    assert timing.at(T0 + 499) == [b"x"]
    assert timing.at(T0 + 500) == [b"x", b"later"]


def test_a_hundred_milliseconds_precision(make: Callable[..., Timing]) -> None:
    timing = make(timer_precision_ms=100)
    timing.put(b"x", TIMER_DELAY_MS="1234")
    assert names_of(timing.waiting()[0])["TIMER_OUT_MS"] == str(T0 + 1_200)
    assert timing.at(T0 + 1_233) == []
    assert timing.at(T0 + 1_234) == [b"x"]


# What is stored.


def test_while_it_waits_it_has_apaches_form_and_then_everything_it_was_sent_with(timing: Timing) -> None:
    sent = {"TAGS": "new", "KEYS": "k", "UNIQ_KEY": "U", "TIMER_DELAY_MS": "5500"}
    timing.put(b"x", at_ms=T0 + 300, **sent)
    (waiting,) = timing.waiting()
    placed = sent | {"TIMER_OUT_MS": str(T0 + 5_000), "REAL_TOPIC": "Orders", "REAL_QID": "2"}
    assert names_of(waiting) == placed
    entry = timing.store.queue(TIMER_TOPIC, 0).entry(0)
    assert entry == (waiting.physical_offset, waiting.total_size, tags_code("new"))

    timing.at(T0 + 1_234)
    files = timing.timers._files
    assert files.wheel.get(T0 + 5_000) == Slot(0, 0, 1)
    logged = files.log.entry(0)
    assert logged is not None
    assert logged == (
        0, -1, 1, T0 + 1_000, 4_000, waiting.physical_offset, waiting.total_size, hash_code("Orders")
    )  # fmt: skip

    timing.at(T0 + 5_900)
    (record,) = timing.delivered()
    assert names_of(record) == placed | {"TIMER_ENQUEUE_MS": str(T0 + 1_000), "TIMER_DEQUEUE_MS": str(T0 + 5_900)}
    assert (record.body, record.flag, record.reconsume_times) == (b"x", 7, 3)
    assert (record.born_timestamp, record.born_host, record.store_timestamp) == (T0 - 5, BORN, T0 + 5_900)
    delivered = timing.store.queue("Orders", 2).entry(0)
    assert delivered is not None
    assert delivered[2] == tags_code("new")


def test_the_files_are_made_with_the_first_message(timing: Timing, tmp_path: Path) -> None:
    root = tmp_path / "store"
    timing.at(T0 + HOUR)
    assert not (root / "timerwheel").exists()
    timing.restart()
    assert not (root / "config" / "timercheck").exists()
    timing.put(b"x", TIMER_DELAY_SEC="60")
    timing.at(timing.now)
    timing.stop()
    assert (root / "timerwheel").stat().st_size == 38_707_200
    assert (root / "config" / "timercheck").stat().st_size == 4096
    check = TimerCheckpoint.decode((root / "config" / "timercheck").read_bytes())
    assert (check.log_position, check.queue_offset, check.master_queue_offset, check.clean) == (52, 1, 1, True)


def test_an_idle_wheel_writes_nothing(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="1")
    timing.at(T0 + 3_000)
    check = Path(timing.store_settings.store_path_root_dir) / "config" / "timercheck"
    timing.at(T0 + 5_000)
    before = check.read_bytes()
    for minute in range(60):
        timing.at(T0 + minute * 60_000)
    assert check.read_bytes() == before


def test_a_message_consumed_and_sent_on_is_not_delayed_again(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="5", UNIQ_KEY="U")
    timing.at(T0 + 5_000)
    timing.put(b"again", **names_of(timing.delivered()[0]))
    assert [record.body for record in timing.delivered()] == [b"x", b"again"]


def test_half_messages_wait_for_their_transaction_first(timing: Timing) -> None:
    raw = properties.encode({"TIMER_DELAY_SEC": "5"})
    assert timing.timers.place(Arrival("T", 0, raw, PREPARED, 0, "U"), T0) is None
    assert timing.timers.place(Arrival("T", 0, raw, 0, 0, "U"), T0) is not None


# What is refused.


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        ({"TIMER_DELAY_SEC": "soon"}, 13, "TIMER_DELAY_SEC is 'soon', expected a whole number"),
        ({"TIMER_DELAY_MS": "1.5"}, 13, "TIMER_DELAY_MS"),
        ({"TIMER_DELAY_MS": " 1"}, 13, "TIMER_DELAY_MS"),
        ({"TIMER_DELAY_MS": "\u0661"}, 13, "TIMER_DELAY_MS"),
        ({"TIMER_DELIVER_MS": "9223372036854775808"}, 13, "TIMER_DELIVER_MS"),
        ({"TIMER_DELIVER_MS": "9" * 400}, 13, "TIMER_DELIVER_MS"),
        ({"TIMER_DELAY_SEC": "259201"}, 13, "later than the max delay 259200000 ms"),
        ({"TIMER_DELAY_SEC": "9223372036854775807"}, 13, "raise timerMaxDelaySec"),
        ({"TIMER_DELIVER_MS": str(T0 + 259_200_001)}, 13, "in 259200001 ms"),
        ({"TIMER_DELIVER_MS": str(T0), "TIMER_DEL_UNIQKEY": "Orders+U"}, 13, "too late to recall"),
        ({"TIMER_DELAY_SEC": "5", "k": "v" * 32_600}, 13, "its properties take"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_stored(timing: Timing, names: dict[str, str], code: int, words: str) -> None:
    with pytest.raises(Refused) as refused:
        timing.put(b"x", **names)
    assert (refused.value.code, words in refused.value.remark) == (code, True), refused.value.remark
    assert timing.store.appended_offset == 0


def test_the_longest_delay_is_taken(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="259200")
    assert timing.at(T0 + 3 * DAY - 1) == []
    assert timing.at(T0 + 3 * DAY) == [b"x"]


def test_switched_off_is_an_error_of_its_own(make: Callable[..., Timing]) -> None:
    timing = make(timer_wheel_enable=False)
    with pytest.raises(Refused, match="timerWheelEnable is false") as refused:
        timing.put(b"x", TIMER_DELAY_SEC="5")
    assert refused.value.code == 1
    timing.put(b"plain")
    assert timing.at(T0 + HOUR) == [b"plain"]


def test_a_slot_can_be_given_a_limit(make: Callable[..., Timing]) -> None:
    timing = make(timer_congest_num_each_slot=2)
    for _ in range(2):
        timing.put(b"x", TIMER_DELAY_SEC="5")
        timing.at(T0)
    with pytest.raises(Refused, match="flow control: 2 messages wait for the same moment") as refused:
        timing.put(b"x", TIMER_DELAY_SEC="5")
    assert refused.value.code == 1
    timing.put(b"x", TIMER_DELAY_SEC="6")


# Rolling.


def test_a_message_far_ahead_is_rolled_on_and_comes_in_time(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="216000", UNIQ_KEY="U")  # two and a half days
    timing.at(T0)
    assert timing.timers._files.wheel.get(T0 + DAY) == Slot(0, 0, 1)
    entry = timing.timers._files.log.entry(0)
    assert entry is not None
    assert entry.magic == 1 | ROLL
    timing.at(T0 + DAY)
    first, rolled = timing.waiting()
    known = names_of(rolled)
    assert known == names_of(first) | {
        "TIMER_ROLL_TIMES": "1", "TIMER_ENQUEUE_MS": str(T0), "TIMER_DEQUEUE_MS": str(T0 + DAY)
    }  # fmt: skip
    assert timing.at(T0 + 216_000_000 - 1) == []
    assert timing.at(T0 + 216_000_000) == [b"x"]
    assert names_of(timing.delivered()[0])["TIMER_ENQUEUE_MS"] == str(T0 + DAY)


def test_further_still_it_is_rolled_by_the_whole_window(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="259200")
    timing.at(T0)
    assert timing.timers._files.wheel.get(T0 + 2 * DAY) == Slot(0, 0, 1)


def test_a_message_is_rolled_before_its_file_expires(make: Callable[..., Timing]) -> None:
    timing = make()
    timing.store_settings.file_reserved_time = 24
    timing.put(b"x", TIMER_DELAY_SEC=str(40 * 3600))
    timing.at(T0)
    assert timing.timers._files.wheel.get(T0 + 16 * HOUR) is not None
    assert timing.at(T0 + 40 * HOUR) == [b"x"]
    assert len(timing.waiting()) > 1


def test_small_windows_roll_often(make: Callable[..., Timing]) -> None:
    timing = make(timer_roll_window_slot=10, timer_precision_ms=100)
    timing.put(b"x", TIMER_DELAY_SEC="20")
    for now_ms in range(T0, T0 + 20_000, 100):
        assert timing.at(now_ms) == []
    assert timing.at(T0 + 20_000) == [b"x"]
    assert len(timing.waiting()) > 10


# Restarts.


def test_a_restart_goes_on_without_losing_or_repeating(timing: Timing) -> None:
    for second in range(1, 11):
        timing.put(b"%d" % second, TIMER_DELAY_SEC=str(second))
    assert timing.at(T0 + 5_000) == [b"1", b"2", b"3", b"4", b"5"]
    timing.restart(after_ms=1_500)
    assert timing.at(T0 + 6_500) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    timing.restart()
    timing.restart()
    assert timing.at(T0 + 60_000) == [b"%d" % second for second in range(1, 11)]


def test_a_slot_half_delivered_is_finished_after_a_restart(timing: Timing) -> None:
    for number in range(10):
        timing.put(b"%d" % number, TIMER_DELIVER_MS=str(T0 + 5_000 + number * 100))
    timing.at(T0)
    assert len(timing.at(T0 + 5_450)) == 5
    timing.restart()
    assert len(timing.at(T0 + 5_450)) == 5
    timing.restart()
    assert timing.at(T0 + 5_900) == [b"%d" % number for number in range(10)]
    timing.restart()  # all of the slot is delivered, and it is not over
    timing.put(b"late", TIMER_DELIVER_MS=str(T0 + 5_950))
    assert timing.at(T0 + 5_949) == [b"%d" % number for number in range(10)]
    assert timing.at(T0 + 5_950)[10:] == [b"late"]


def test_messages_not_entered_yet_are_entered_after_a_restart(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="5")
    timing.restart(after_ms=10_000)
    assert timing.at(timing.now) == [b"x"]


@pytest.mark.parametrize("away_ms", [HOUR, 8 * DAY, 13 * DAY, 14 * DAY, 15 * DAY, 100 * DAY])
@pytest.mark.parametrize("crashed", [False, True])
def test_however_long_it_was_down_nothing_is_lost(timing: Timing, away_ms: int, crashed: bool) -> None:
    timing.store_settings.file_reserved_time = 24 * 3650
    for hour in range(1, 48, 5):
        timing.put(b"%d" % hour, TIMER_DELAY_SEC=str(hour * 3600))
    timing.at(T0)
    timing.at(T0 + 2_000)
    if crashed:
        timing.store.close()
        timing.now += away_ms
        timing.start()
    else:
        timing.restart(after_ms=away_ms)
    for hour in range(1, 48, 5):
        timing.put(b"new %d" % hour, TIMER_DELIVER_MS=str(T0 + away_ms + hour * HOUR))  # two weeks later: the same slots
    old = [b"%d" % hour for hour in range(1, 48, 5) if hour * HOUR <= timing.now - T0]
    assert timing.at(timing.now) == old
    new = [b"new %d" % hour for hour in range(1, 48, 5)]
    assert sorted(timing.at(timing.now + 2 * DAY)) == sorted([b"%d" % hour for hour in range(1, 48, 5)] + new)


def test_the_precision_changes_when_no_message_waits(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELIVER_MS=str(T0 + 5_700))
    timing.at(T0)
    timing.settings.timer_precision_ms = 100
    timing.restart()
    assert "stays 1000" in timing.store.problems[0]
    timing.put(b"y", TIMER_DELIVER_MS=str(T0 + 5_800))
    assert names_of(timing.waiting()[1])["TIMER_OUT_MS"] == str(T0 + 5_000)
    assert timing.at(T0 + 5_699) == []
    assert timing.at(T0 + 6_000) == [b"x", b"y"]
    timing.restart()
    assert timing.store.problems == []
    timing.put(b"z", TIMER_DELIVER_MS=str(T0 + 7_777))
    assert names_of(timing.waiting()[2])["TIMER_OUT_MS"] == str(T0 + 7_700)
    assert timing.at(T0 + 7_777) == [b"x", b"y", b"z"]


# Crashes.


def test_killed_at_any_moment_it_loses_nothing(tmp_path: Path) -> None:
    """The directory is copied as it is after each step: what a kill leaves."""
    timing = Timing(tmp_path / "store", timer_flush_interval_ms=10)
    chance = random.Random(7)
    sent: dict[bytes, int] = {}
    for step in range(40):
        for _ in range(3):
            due_ms = timing.now + chance.choice((1, 300, 1_000, 2_500, 60_000))
            body = b"%d" % len(sent)
            sent[body] = due_ms
            timing.put(body, TIMER_DELIVER_MS=str(due_ms))
        timing.at(timing.now + chance.randrange(500))
        if step % 4:
            continue
        copy = tmp_path / f"copy-{step}"
        shutil.copytree(tmp_path / "store", copy)
        (copy / "lock").unlink()
        after = Timing(copy, now_ms=timing.now)
        assert set(after.at(after.now)) >= {body for body, due_ms in sent.items() if due_ms <= after.now}
        assert set(after.at(T0 + HOUR)) == set(sent)
        for record in after.delivered():
            assert record.store_timestamp >= sent[record.body]
        after.store.close()
        shutil.rmtree(copy)
    timing.store.close()


def test_a_crash_long_after_the_last_delivery_repeats_nothing(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_MS="1500")
    for tenth in range(100):
        timing.go(T0 + tenth * 100)
    timing.go(T0 + HOUR)
    timing.store.close()
    timing.start()
    assert timing.at(T0 + HOUR) == [b"x"]


@pytest.mark.parametrize("seed", range(6))
def test_power_cuts_lose_nothing(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk()
    sent: dict[bytes, int] = {}
    now_ms = T0
    for _ in range(6):
        timing = Timing("/store", disk, now_ms, timer_flush_interval_ms=10)
        for _ in range(chance.randrange(1, 12)):
            for _ in range(chance.randrange(30)):
                due_ms = timing.now + chance.choice((1, 300, 1_000, 2_500, 60_000))
                body = b"%d" % len(sent)
                timing.append(body, TIMER_DELIVER_MS=str(due_ms))
                sent[body] = due_ms
            timing.end_round()
            timing.flushing = chance.random() < 0.5  # what is delivered may not be durable yet
            timing.go(timing.now + chance.randrange(1_500))
            timing.flushing = True
        now_ms = timing.now
        if chance.random() < 0.3:
            timing.stop()
        else:
            disk = disk.power_cut(chance)
    timing = Timing("/store", disk, now_ms)
    assert set(timing.at(T0 + HOUR)) == set(sent)
    for record in timing.delivered():
        assert record.store_timestamp >= sent[record.body]
    assert max(Counter(record.body for record in timing.delivered()).values()) <= 7


@pytest.mark.parametrize("missing", ["timerlog", "timerwheel", "both", "one file of the log"])
@pytest.mark.parametrize("clean", [False, True])
def test_files_that_are_gone_are_made_again_from_the_queue(timing: Timing, tmp_path: Path, missing: str, clean: bool) -> None:
    for second in range(1, 301):
        timing.append(b"%d" % second, TIMER_DELAY_SEC=str(second))
    timing.end_round()
    timing.go(T0 + 100_000)
    done = timing.at(T0 + 102_000)  # and this is saved
    if clean:
        timing.stop()
    else:
        timing.store.close()
    root = tmp_path / "store"
    if missing in ("timerlog", "both"):
        shutil.rmtree(root / "timerlog")
    if missing in ("timerwheel", "both"):
        (root / "timerwheel").unlink()
    if missing == "one file of the log":
        sorted((root / "timerlog").iterdir())[-1].unlink()
    timing.start()
    assert timing.at(T0 + 102_000) == done
    assert timing.at(T0 + 300_000) == [b"%d" % second for second in range(1, 301)]


def test_without_a_checkpoint_everything_that_is_still_there_comes(timing: Timing, tmp_path: Path) -> None:
    for second in range(1, 11):
        timing.put(b"%d" % second, TIMER_DELAY_SEC=str(second))
    timing.at(T0 + 5_000)
    timing.stop()
    (tmp_path / "store" / "config" / "timercheck").unlink()
    timing.start()
    assert set(timing.at(T0 + 20_000)) == {b"%d" % second for second in range(1, 11)}


def test_a_disk_that_refuses_only_holds_messages_up() -> None:
    disk = SimulatedDisk()
    timing = Timing("/store", disk)
    timing.put(b"x", TIMER_DELAY_SEC="1")
    disk.fail("pwrite", "timerlog", errno.ENOSPC)
    assert timing.at(T0 + 500) == []
    assert timing.at(T0 + 2_000) == []
    assert len([text for text in timing.store.problems if "timer messages wait" in text]) == 1
    disk.heal()
    assert timing.at(T0 + 4_000) == [b"x"]


def test_a_failed_sync_is_never_called_durable() -> None:
    disk = SimulatedDisk()
    timing = Timing("/store", disk, timer_flush_interval_ms=10)
    timing.put(b"before", TIMER_DELAY_SEC="100")
    timing.at(T0 + 500)
    timing.at(T0 + 600)
    disk.fail("fdatasync", "timerlog", errno.EIO)
    timing.put(b"after", TIMER_DELAY_SEC="100")
    timing.at(T0 + 1_000)
    timing.at(T0 + 2_000)
    disk.heal()
    timing.at(T0 + 5_000)
    timing.stop()
    check = TimerCheckpoint.decode(disk.read_bytes("/store/config/timercheck"))
    assert (check.queue_offset, check.clean) == (1, False)
    again = Timing("/store", disk.power_cut(random.Random(1)), T0 + 6_000)
    assert again.at(T0 + 102_000) == [b"before", b"after"]


def test_messages_that_are_gone_from_the_log_are_passed_over_and_reported(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="5")
    timing.put(b"y", TIMER_DELAY_SEC="5")
    timing.at(T0)
    log = timing.timers._files.log
    slot = timing.timers._files.wheel.get(T0 + 4_000)
    assert slot is not None
    position = log.append(slot.last, 1, T0, 4_000, 1 << 40, 200, 0)  # a record that is not there
    position = log.append(position, 1, T0, 4_000, 1, 200, 0)  # the middle of one
    log.write_out()
    timing.timers._files.wheel.add(T0 + 4_000, position)
    assert timing.at(T0 + 7_000) == [b"x", b"y"]
    assert any("2 messages due at" in text for text in timing.store.problems)


# Directories that Apache's broker wrote.


def opened(case: str, tmp_path: Path) -> tuple[Timing, dict[str, Any]]:
    told = archives.manifest(case)
    root = archives.unpack(case, tmp_path)
    settings = archives.settings_of(told, root)
    timing = Timing(root, now_ms=told["capturedAtMs"], store_settings=settings, mapped_file_size_timer_log=1_048_576)
    return timing, told


def arrived(timing: Timing) -> dict[str, int]:
    """When each message of FxTimer came, by its key, in all queues."""
    return {
        names_of(record)["KEYS"]: record.store_timestamp
        for queue_id in range(4)
        for record in timing.delivered("FxTimer", queue_id)
    }


@pytest.mark.parametrize("case", ["a-clean", "b-crash", "d-retention"])
@pytest.mark.parametrize("restarted", [False, True])
def test_we_go_on_with_what_apache_left(tmp_path: Path, case: str, restarted: bool) -> None:
    timing, told = opened(case, tmp_path)
    before = {"timer-past", "timer-soon0", "timer-soon1", "timer-soon2"}
    wanted = {
        message["properties"]["KEYS"]: message
        for message in told["messages"]
        if message["topic"] == TIMER_TOPIC and message["properties"]["KEYS"] not in before
    }
    asked = {"timer-slot0", "timer-slot1", "timer-slot2", "timer-ms", "timer-roll"}
    assert wanted.keys() == asked
    timing.at(timing.now)
    assert arrived(timing).keys() == before
    if restarted:
        timing.restart()
    for hours in range(1, 80):
        timing.at(told["capturedAtMs"] + hours * HOUR)
    count = sum(len(timing.delivered("FxTimer", queue_id)) for queue_id in range(4))
    assert count == len(before | asked)
    for key, came_ms in arrived(timing).items():
        if key in wanted:
            due_ms = int(wanted[key]["properties"]["TIMER_OUT_MS"])
            assert due_ms < came_ms <= due_ms + HOUR + SECOND
    timing.stop()


def test_apaches_message_comes_at_its_exact_moment_too(tmp_path: Path) -> None:
    timing, _ = opened("a-clean", tmp_path)
    due_ms = 1_794_871_882_500
    timing.at(due_ms - 1)
    assert "timer-slot0" not in arrived(timing)
    timing.at(due_ms)
    assert arrived(timing)["timer-slot0"] == due_ms
    timing.store.close()


def test_an_apache_checkpoint_whose_queue_offset_is_ahead_of_its_log(tmp_path: Path) -> None:
    """Apache takes the two numbers one after the other: a crash may leave the queue offset of messages that are not logged."""
    root = archives.unpack("b-crash", tmp_path)
    told = archives.manifest("b-crash")
    path = root / "config" / "timercheck"
    page = bytearray(path.read_bytes())
    page[8:16] = (5 * 52).to_bytes(8, "big")  # of eight entries five are known to be durable
    path.write_bytes(page)
    settings = archives.settings_of(told, root)
    timing = Timing(root, now_ms=told["capturedAtMs"], store_settings=settings, mapped_file_size_timer_log=1_048_576)
    timing.at(told["capturedAtMs"] + 4 * DAY)
    assert arrived(timing).keys() >= {"timer-slot0", "timer-slot1", "timer-slot2", "timer-ms", "timer-roll"}
    timing.store.close()


def test_markers_are_marked_in_the_log(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="5", UNIQ_KEY="U")
    timing.put(b"0", TIMER_DELAY_SEC="5", UNIQ_KEY="U", TIMER_DEL_UNIQKEY="Orders+U")
    timing.at(T0)
    files = timing.timers._files
    assert files.wheel.get(T0 + 4_000) == Slot(0, 52, 0)
    marker = files.log.entry(52)
    assert marker is not None
    assert marker.magic == 1 | DELETE
    assert timing.at(T0 + HOUR) == []


# Large messages, and whatever else is asked.


def test_large_messages_are_delivered_few_at_a_time(timing: Timing) -> None:
    for number in range(30):
        timing.put(b"%04d" % number + bytes(1_000_000), TIMER_DELIVER_MS=str(T0 + 5_000))
    timing.go(T0)
    ticks, most, before = 0, 0, 0
    more = True
    while more:
        more = timing.timers.tick(T0 + 5_000)
        timing.end_round()
        now = timing.store.queue("Orders", 2).max_offset
        most, before = max(most, now - before), now
        ticks += 1
    assert (before, most <= 10, ticks >= 3) == (30, True, True)


values = st.one_of(
    st.integers(-(2**70), 2**70).map(str), st.integers(0, 10**6).map(str), st.text("0123456789-+.eE x", min_size=1)
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), values))
def test_whatever_is_asked_it_is_placed_refused_or_left_alone(names: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as root:
        timing = Timing(root)
        arrival = Arrival("Orders", 2, properties.encode(names), 0, 0, "U")
        code, placement = 0, None
        try:
            placement = timing.timers.place(arrival, T0)
        except Refused as refused:
            code = refused.code
        assert code in (0, 13)
        if placement is not None:
            known = properties.parse(placement.properties)
            assert T0 - SECOND <= int(known["TIMER_OUT_MS"]) < T0 + 3 * DAY
            assert known.keys() >= {"REAL_TOPIC", "REAL_QID"}
        timing.store.close()
