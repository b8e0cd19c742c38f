"""Pending timer messages per topic: exact through rolls, recalls, restarts and crashes; and the answers of a running broker."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.store.timer.checkpoint import TimerCheckpoint
from firearrow.wire import fastjson
from tests.broker import captures
from tests.broker.running import Client, broker, client
from tests.broker.timing import T0, Timing
from tests.store import archives
from tests.support.waiting import run, until


@pytest.fixture
def timing(tmp_path: Path) -> Iterator[Timing]:
    made = Timing(tmp_path / "store", timer_roll_window_slot=4)
    yield made
    made.store.close()


def waiting(timing: Timing) -> dict[str, int]:
    table = timing.timers.metrics.to_json()["timingCount"]
    counts = {topic: metric["count"] for topic, metric in table.items()}
    assert sum(counts.values()) == timing.timers.metrics.pending
    return counts


def recall(timing: Timing, key: str, deliver_ms: int) -> None:
    timing.put(b"0", TIMER_DELIVER_MS=str(deliver_ms), TIMER_DEL_UNIQKEY=key, UNIQ_KEY=key)


def test_messages_are_counted_while_pending(timing: Timing) -> None:
    assert timing.timers.metrics.to_json()["timingCount"] == {}
    for number in range(5):
        timing.put(b"%d" % number, TIMER_DELAY_MS=str(1_000 * number + 500))
    timing.put(b"x", topic="Other", TIMER_DELAY_SEC="100")
    timing.go(T0 + 10)
    assert waiting(timing) == {"Orders": 5, "Other": 1}
    timing.go(T0 + 2_500)
    assert waiting(timing) == {"Orders": 2, "Other": 1}
    timing.go(T0 + 50_000)
    assert waiting(timing) == {"Orders": 0, "Other": 1}  # it has rolled on many times
    assert timing.timers.metrics.to_json()["timingCount"]["Other"]["timeStamp"] > T0 + 40_000
    timing.go(T0 + 100_000)
    assert waiting(timing) == {"Orders": 0, "Other": 0}


def test_recall_counts_once_enqueued_even_without_its_message(timing: Timing) -> None:
    for key in "abc":
        timing.put(key.encode(), TIMER_DELIVER_MS=str(T0 + 3_500), UNIQ_KEY=key)
    timing.go(T0 + 10)
    recall(timing, "b", T0 + 3_500)
    timing.go(T0 + 20)
    assert waiting(timing) == {"Orders": 2}
    recall(timing, "b", T0 + 3_500)  # again
    recall(timing, "nobody", T0 + 3_500)
    timing.go(T0 + 30)
    assert waiting(timing) == {"Orders": 0}
    assert timing.at(T0 + 6_000) == [b"a", b"c"]
    assert waiting(timing) == {"Orders": 0}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("rolls", "kills"), [(True, False), (False, True), (True, True)])
def test_count_is_exact_after_stops_and_kills(tmp_path: Path, seed: int, rolls: bool, kills: bool) -> None:
    chance = random.Random(seed)
    settings: dict[str, Any] = {"timer_roll_window_slot": 4} if rolls else {}
    timing = Timing(tmp_path / "store", **settings)
    due_ms: dict[str, int] = {}
    recalled: set[str] = set()
    for number in range(40):
        for _ in range(chance.randrange(8)):
            key = f"k{len(due_ms)}"
            due_ms[key] = timing.now + chance.randrange(1, 15_000)
            timing.put(key.encode(), TIMER_DELIVER_MS=str(due_ms[key]), UNIQ_KEY=key)
        old = [key for key in due_ms if due_ms[key] > timing.now + 2_000 and key not in recalled]
        if old and chance.random() < 0.5:
            key = chance.choice(old)
            recalled.add(key)
            recall(timing, key, due_ms[key])
        timing.go(timing.now + chance.randrange(1_500))
        end = chance.random()
        if end < 0.2:
            timing.restart(after_ms=chance.randrange(3_000))
        elif end < 0.4 and kills:
            killed = tmp_path / f"killed{number}"
            shutil.copytree(timing.store.settings.store_path_root_dir, killed, ignore=shutil.ignore_patterns("lock"))
            timing.store.close()
            timing = Timing(killed, now_ms=timing.now, **settings)
        timing.go(timing.now)
        if not (rolls and kills):  # otherwise a message may be rolled on twice, and both wait
            left = sum(1 for key in due_ms if due_ms[key] > timing.now and key not in recalled)
            # Message and marker make nothing together, except while their slot is open.
            doubt = sum(1 for key in recalled if abs(due_ms[key] - timing.now) <= 1_000)
            assert abs(timing.timers.metrics.pending - left) <= doubt, number
    timing.go(timing.now + 20_000)
    assert waiting(timing) == {"Orders": 0}
    timing.store.close()


def test_file_has_apaches_format_and_is_needed_only_after_a_clean_stop(timing: Timing, tmp_path: Path) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="60")
    timing.put(b"y", topic="Other", TIMER_DELAY_SEC="60")
    timing.go(T0 + 10)
    timing.restart()
    path = tmp_path / "store" / "config" / "timermetrics"
    text = path.read_text()
    table = json.loads(text)
    assert "\n" not in text
    assert text == json.dumps(table, separators=(",", ":"))
    assert [*table] == ["dataVersion", "timingCount"]
    assert [*table["dataVersion"]] == ["counter", "stateVersion", "timestamp"]
    assert table["timingCount"] == {topic: {"count": 1, "timeStamp": T0 + 10} for topic in ("Orders", "Other")}
    assert timing.timers.metrics.to_json() == table

    for damage in (b"", b"{", b"[1]", b'{"timingCount":{"Orders":7}}'):  # then it is counted again
        timing.stop()
        path.write_bytes(damage)
        path.with_name("timermetrics.bak").unlink(missing_ok=True)
        if damage == b'{"timingCount":{"Orders":7}}':
            table["timingCount"]["Orders"]["count"] = 7  # what cannot be seen to be wrong is believed after a clean stop
            path.write_text(json.dumps(table))
        timing.start()
        expected = 7 if b"7" in damage else 1
        assert waiting(timing) == {"Orders": expected, "Other": 1}


@pytest.mark.parametrize("case", ["a-clean", "b-crash"])
def test_apaches_messages_are_counted(tmp_path: Path, case: str) -> None:
    """Apache's own file counts one too many: a message that was late is in its count and was never in its wheel."""
    told = archives.manifest(case)
    root = archives.unpack(case, tmp_path)
    settings = archives.settings_of(told, root)
    timing = Timing(root, now_ms=told["capturedAtMs"], store_settings=settings, mapped_file_size_timer_log=1_048_576)
    try:
        assert waiting(timing) == {"FxTimer": 5}
    finally:
        timing.store.close()


def test_rates_cover_the_last_ten_seconds(timing: Timing) -> None:
    assert timing.timers.metrics.rates() == (0.0, 0.0)
    for second in range(20):
        for _ in range(3):
            timing.append(b"x", at_ms=T0 + second * 1_000, TIMER_DELAY_MS="1500")
        timing.end_round()
        timing.go(timing.now)
    assert timing.timers.metrics.rates() == (3.0, 3.0)
    for second in range(20, 40):
        timing.go(T0 + second * 1_000)
    assert timing.timers.metrics.rates() == (0.0, 0.0)


# What a running broker says.


def test_replica_gets_the_timer_checkpoint(tmp_path: Path) -> None:
    """60: the 56 bytes that Apache's broker sends; 61: its table."""
    recorded = captures.body(captures.answer("slave-5.5.0-registration-and-sync", "GET_TIMER_CHECK_POINT"))
    assert len(recorded) == 56
    assert TimerCheckpoint.decode(recorded).encode_fields() == recorded

    async def story() -> None:
        began_ms = time.time() * 1000
        async with broker(tmp_path, timer_flush_interval_ms=10) as running, client(running) as c:
            fresh = await c.call(60)
            assert (fresh.code, len(fresh.body)) == (0, 56)
            assert began_ms - 1_000 <= TimerCheckpoint.decode(fresh.body).read_time_ms <= time.time() * 1000
            assert fastjson.loads((await c.call(61)).body)["timingCount"] == {}
            for _ in range(3):
                assert (await c.send("Orders", b"x", TIMER_DELAY_SEC="60")).code == 0
            check = await saved_up_to(c, 3)
            assert (check.queue_offset, check.master_queue_offset, check.log_position) == (3, 3, 3 * 52)
            table = fastjson.loads((await c.call(61)).body)
            assert table["timingCount"]["Orders"]["count"] == 3
            apaches = captures.json_body(captures.answer("slave-5.5.0-registration-and-sync", "GET_TIMER_METRICS"))
            assert [*table] == [*apaches]
            assert [*table["dataVersion"]] == [*apaches["dataVersion"]]
            assert [*table["timingCount"]["Orders"]] == [*next(iter(apaches["timingCount"].values()))]
            state = fastjson.loads((await c.call(28)).body)["table"]
            assert (state["timerCongestNum"], state["timerOffsetBehind"]) == ("3", "0")
            assert float(state["timerEnqueueTps"]) >= 0.0
            await until(lambda: has_read_all_slots(c))  # at a full second it is 1 until the next tick

    run(story())


async def saved_up_to(c: Client, queue_offset: int) -> TimerCheckpoint:
    check = TimerCheckpoint()

    async def is_saved() -> bool:
        nonlocal check
        check = TimerCheckpoint.decode((await c.call(60)).body)
        return check.queue_offset == queue_offset

    await until(is_saved, f"a checkpoint at {queue_offset}")
    return check


async def has_read_all_slots(c: Client) -> bool:
    return bool(fastjson.loads((await c.call(28)).body)["table"]["timerReadBehind"] == "0")


def test_disabled_timers_report_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, timer_wheel_enable=False) as running, client(running) as c:
            assert [(await c.call(code)).code for code in (60, 61)] == [1, 1]
            state = fastjson.loads((await c.call(28)).body)["table"]
            assert (state["timerCongestNum"], state["timerDequeueTps"]) == ("0", "0.0")

    run(story())


def test_delay_level_offsets_are_reported(tmp_path: Path) -> None:
    """45: by level; 28: the next to be delivered and the end of the level's queue."""

    async def story() -> None:
        async with broker(tmp_path, message_delay_level="1s 1h") as running, client(running) as c:
            assert fastjson.loads((await c.call(45)).body)["offsetTable"] == {}
            for level in ("1", "1", "2"):
                assert (await c.send("Orders", b"x", DELAY=level)).code == 0
            table = {}

            async def both_are_delivered() -> bool:
                nonlocal table
                table = fastjson.loads((await c.call(45)).body)
                return bool(table["offsetTable"] == {"1": 2})

            await until(both_are_delivered)
            assert [*table] == ["dataVersion", "offsetTable"]
            assert table["offsetTable"] == {"1": 2}
            state = fastjson.loads((await c.call(28)).body)["table"]
            levels = {key: value for key, value in state.items() if key.startswith("scheduleMessageOffset_")}
            assert levels == {"scheduleMessageOffset_1": "2,2", "scheduleMessageOffset_2": "0,1"}
        async with broker(tmp_path, message_delay_level="1s 1h") as running, client(running) as c:
            again = fastjson.loads((await c.call(45)).body)
            assert again["offsetTable"] == {"1": 2}
            assert again["dataVersion"]["counter"] > table["dataVersion"]["counter"]

    run(story())
