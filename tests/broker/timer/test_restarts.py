"""Timers through clean stops, kills, power cuts, lost files, and directories that Apache's broker wrote: nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.store.timer.checkpoint import TimerCheckpoint
from firearrow.wire.names import TIMER_TOPIC
from tests.broker.running import bodies, broker, client, records
from tests.broker.timing import DAY, HOUR, SECOND, T0, Timing, names_of
from tests.store import archives
from tests.store.simdisk import SimulatedDisk
from tests.support.waiting import run


@pytest.fixture
def timing(tmp_path: Path) -> Iterator[Timing]:
    made = Timing(tmp_path / "store")
    yield made
    made.store.close()


# Restarts.


def test_restart_neither_loses_nor_repeats_messages(timing: Timing) -> None:
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


def test_pending_messages_are_enqueued_after_a_restart(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="5")
    timing.restart(after_ms=10_000)
    assert timing.at(timing.now) == [b"x"]


@pytest.mark.parametrize("away_ms", [HOUR, 8 * DAY, 13 * DAY, 14 * DAY, 15 * DAY, 100 * DAY])
@pytest.mark.parametrize("crashed", [False, True])
def test_long_downtime_loses_nothing(timing: Timing, away_ms: int, crashed: bool) -> None:
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


def test_precision_changes_once_no_message_is_pending(timing: Timing) -> None:
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


def test_kill_at_any_time_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """The directory is copied as it is after each step: what a kill leaves."""
    timing = Timing(tmp_path / "store", timer_flush_interval_ms=10)
    chance = random.Random(7)
    timing.put(b"not held", topic="Others")  # the delivery of the very first record of a store cannot be recognised
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
        assert sorted(after.at(T0 + HOUR)) == sorted(sent)
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_power_cuts_lose_and_repeat_nothing(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk()
    sent: dict[bytes, int] = {}
    now_ms = T0
    for turn in range(6):
        timing = Timing("/store", disk, now_ms, timer_flush_interval_ms=10)
        if not turn:
            timing.put(b"not held", topic="Others")
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
    assert sorted(timing.at(T0 + HOUR)) == sorted(sent)
    for record in timing.delivered():
        assert record.store_timestamp >= sent[record.body]


@pytest.mark.parametrize("missing", ["timerlog", "timerwheel", "both", "one file of the log"])
@pytest.mark.parametrize("clean", [False, True])
def test_missing_files_are_rebuilt_from_the_queue(timing: Timing, tmp_path: Path, missing: str, clean: bool) -> None:
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


def test_without_checkpoint_all_messages_are_delivered_once(timing: Timing, tmp_path: Path) -> None:
    timing.put(b"not held", topic="Others")
    for second in range(1, 11):
        timing.put(b"%d" % second, TIMER_DELAY_SEC=str(second))
    timing.at(T0 + 5_000)
    timing.stop()
    (tmp_path / "store" / "config" / "timercheck").unlink()
    timing.start()
    assert timing.at(T0 + 20_000) == [b"%d" % second for second in range(1, 11)]


@pytest.mark.parametrize("missing", [None, "timerlog"])
def test_rolled_message_is_delivered_once_after_a_kill(timing: Timing, tmp_path: Path, missing: str | None) -> None:
    """Without the timer log, as on a new leader, the message and its rolled copies are all read from the queue again."""
    timing.settings.timer_roll_window_slot = 10
    timing.put(b"not held", topic="Others")
    for number in range(5):
        timing.put(b"%d" % number, TIMER_DELAY_SEC=str(25 + number))
    for second in range(20):
        timing.go(T0 + second * SECOND)
    assert any("TIMER_ROLL_TIMES" in names_of(record) for record in timing.waiting())
    timing.store.close()
    if missing is not None:
        shutil.rmtree(tmp_path / "store" / missing)
    timing.start()
    for second in range(20, 40):
        timing.go(T0 + second * SECOND)
    assert [record.body for record in timing.delivered()] == [b"0", b"1", b"2", b"3", b"4"]


def test_io_error_only_delays_messages() -> None:
    disk = SimulatedDisk()
    timing = Timing("/store", disk)
    timing.put(b"x", TIMER_DELAY_SEC="1")
    disk.fail("pwrite", "timerlog", errno.ENOSPC)
    assert timing.at(T0 + 500) == []
    assert timing.at(T0 + 2_000) == []
    assert len([text for text in timing.store.problems if "timer messages are not delivered" in text]) == 1
    disk.heal()
    assert timing.at(T0 + 4_000) == [b"x"]


def test_failed_sync_is_never_checkpointed() -> None:
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


def test_missing_messages_are_skipped_and_reported(timing: Timing) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="5")
    timing.put(b"y", TIMER_DELAY_SEC="5")
    timing.at(T0)
    log = timing.timers.files.log
    slot = timing.timers.files.wheel.get(T0 + 4_000)
    assert slot is not None
    position = log.append(slot.last, 1, T0, 4_000, 1 << 40, 200, 0)  # a record that is not there
    position = log.append(position, 1, T0, 4_000, 1, 200, 0)  # the middle of one
    log.write_out()
    timing.timers.files.wheel.add(T0 + 4_000, position)
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
    """Return the delivery time of each message of FxTimer by key, over all queues."""
    return {
        names_of(record)["KEYS"]: record.store_timestamp
        for queue_id in range(4)
        for record in timing.delivered("FxTimer", queue_id)
    }


@pytest.mark.parametrize("case", ["a-clean", "b-crash", "d-retention"])
@pytest.mark.parametrize("restarted", [False, True])
def test_timer_files_of_apache_are_continued(tmp_path: Path, case: str, restarted: bool) -> None:
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


def test_apaches_message_is_delivered_at_its_exact_time(tmp_path: Path) -> None:
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


# Over sockets.


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_broker_delivers_and_a_restart_in_between_changes_nothing(tmp_path: Path, flush: str) -> None:
    async def story() -> None:
        sent: dict[bytes, int] = {}
        async with broker(tmp_path, flush=flush) as running, client(running) as c:
            began_ms = time.time_ns() // 1_000_000
            for number in range(60):
                due_ms = began_ms + 100 + number * 50
                sent[b"%d" % number] = due_ms
                answer = await c.send("Orders", b"%d" % number, TIMER_DELIVER_MS=str(due_ms))
                assert answer.code == 0
            while not bodies(await c.pull("Orders", 20, flags=6, hold_ms=5_000)):
                pass
        async with broker(tmp_path, flush=flush) as running, client(running) as c:
            restarted_ms = time.time_ns() // 1_000_000
            while not bodies(await c.pull("Orders", 59, flags=6, hold_ms=5_000)):
                pass
            await asyncio.sleep(0.3)
            found = records(await c.pull("Orders", 0)) + records(await c.pull("Orders", 32))
        assert [record.body for record in found] == list(sent)
        assert all(record.store_timestamp >= sent[record.body] for record in found)
        late = sorted(
            record.store_timestamp - (due_ms if record.store_timestamp < restarted_ms else max(due_ms, restarted_ms))
            for record, due_ms in zip(found, sent.values(), strict=True)
        )
        assert late[len(late) // 2] < 500

    run(story())
