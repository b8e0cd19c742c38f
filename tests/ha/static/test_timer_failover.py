"""Timer messages survive their master: a slave that replaces it continues its timers."""

from __future__ import annotations

import time
from pathlib import Path

from firearrow.broker.server import Broker
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode
from tests.broker.running import bodies, client
from tests.ha.pairs import in_step, master, name_server, slave
from tests.support.waiting import run, until

QUICK = {"timer_precision_ms": 100, "timer_flush_interval_ms": 100}


def timer_queue_end(broker: Broker) -> int:
    queue = broker.context.store.find_queue("rmq_sys_wheel_timer", 0)
    return queue.max_offset if queue is not None else 0


def delivered(broker: Broker) -> int:
    queue = broker.context.store.find_queue("T", 0)
    return queue.max_offset if queue is not None else 0


def checkpoint(broker: Broker) -> tuple[int, int]:
    """Return the delivered time and the end of the timer queue in the wheel."""
    assert broker.context.timers is not None
    fields = broker.context.timers.checkpoint()
    assert fields is not None
    return int.from_bytes(fields[:8], "big"), int.from_bytes(fields[16:24], "big")


def test_slave_that_becomes_master_delivers_pending_timers_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server() as names:
            async with slave(tmp_path / "s", names, **QUICK) as other:
                async with master(tmp_path / "m", names, **QUICK) as one, client(one) as sender:
                    await sender.send("T", b"soon", TIMER_DELAY_MS="100")
                    soon_ms = time.time_ns() // 1_000_000 + 100
                    await sender.send("T", b"later", TIMER_DELAY_MS="60000")
                    await until(lambda: delivered(one) == 1)
                    await in_step(one, other)
                    await until(lambda: checkpoint(one)[0] > soon_ms and checkpoint(one)[1] == 2)
                    await until(lambda: checkpoint(other) == checkpoint(one))
                    await until(lambda: other.context.timers is not None and other.context.timers.metrics.pending == 1)
                    counts = fastjson.loads((await sender.call(RequestCode.GET_TIMER_METRICS)).body)["timingCount"]
                    async with client(other) as asker:
                        copied = fastjson.loads((await asker.call(RequestCode.GET_TIMER_METRICS)).body)["timingCount"]
                    assert copied == counts
                    assert copied["T"]["count"] == 1
                assert timer_queue_end(other) == 2
                assert delivered(other) == 1
            async with master(tmp_path / "s", names, ahead_ms=61_000, **QUICK) as other, client(other) as reader:
                await until(lambda: delivered(other) == 2)
                await until(lambda: other.context.timers is not None and other.context.timers.metrics.pending == 0)
                assert bodies(await reader.pull("T", 0)) == [b"soon", b"later"]

    run(scenario())


def test_master_that_becomes_slave_discards_its_timers(tmp_path: Path) -> None:
    """It replaces its own timer files with those of its new master."""

    async def scenario() -> None:
        async with name_server() as names:
            async with master(tmp_path / "a", names, **QUICK) as one, client(one) as sender:
                await sender.send("T", b"1", TIMER_DELAY_MS="60000")
                await until(lambda: checkpoint(one)[1] == 1)
                async with slave(tmp_path / "b", names, **QUICK) as other:
                    await in_step(one, other)
                    await until(lambda: checkpoint(other)[1] == 1)
            async with master(tmp_path / "b", names, **QUICK) as other, client(other) as sender:
                await sender.send("T", b"2", TIMER_DELAY_MS="60000")
                await until(lambda: checkpoint(other)[1] == 2)
                async with slave(tmp_path / "a", names, **QUICK) as one:
                    await in_step(other, one)
                    await until(lambda: checkpoint(one) == checkpoint(other))
            assert not list((tmp_path / "a" / "timerlog").iterdir())
            async with master(tmp_path / "a", names, **QUICK) as one:
                await until(lambda: one.context.timers is not None and one.context.timers.metrics.pending == 2)

    run(scenario())
