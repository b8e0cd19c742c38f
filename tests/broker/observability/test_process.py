"""Event-loop lag and resource usage of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from firearrow import procfs
from firearrow.broker.observability.process import INTERVAL_S, LoopLag, process_figures
from firearrow.procfs import ProcessUsage


class ManualLoop:
    """A loop whose time and timers the test controls."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        timer = (when, lambda: callback(*args))
        self.timers.append(timer)
        return cast(asyncio.TimerHandle, ManualTimer(self, timer))

    def fire(self, late_s: float) -> None:
        when, callback = self.timers.pop(0)
        self.now_s = when + late_s
        callback()


class ManualTimer:
    def __init__(self, loop: ManualLoop, timer: tuple[float, Callable[[], None]]) -> None:
        self._loop, self._timer = loop, timer

    def cancel(self) -> None:
        self._loop.timers.remove(self._timer)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> ManualLoop:
    made = ManualLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    return made


def test_lag_is_a_histogram() -> None:
    lag = LoopLag()
    for late_s in (0.0005, 0.02, 3.0):
        lag.add(late_s)
    assert (lag.counts[0], lag.counts[4], lag.counts[-1]) == (1, 1, 1)
    assert lag.total == pytest.approx(3.0205)


def test_lag_is_the_delay_of_a_periodic_timer(loop: ManualLoop) -> None:
    lag = LoopLag()
    lag.start()
    loop.fire(late_s=0.0)
    loop.fire(late_s=0.03)
    assert lag.total == pytest.approx(0.03)
    assert sum(lag.counts) == 2
    ((next_s, _),) = loop.timers
    assert next_s == pytest.approx(100.0 + 2 * INTERVAL_S + 0.03 + INTERVAL_S)


def test_stopped_lag_has_no_timer(loop: ManualLoop) -> None:
    lag = LoopLag()
    lag.start()
    lag.stop()
    lag.stop()
    assert loop.timers == []


def test_figures_report_the_usage_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "read_usage", lambda: ProcessUsage(7, 1024, 2_000, 3_000, 1_700_000_000.5))
    values = {name: value for name, _, _, value in process_figures()}
    assert values["process_open_fds"] == 7
    assert (values["process_resident_memory_bytes"], values["process_virtual_memory_bytes"]) == (2_000, 3_000)
    assert values["process_start_time_seconds"] == 1_700_000_000.5
    assert values["process_cpu_seconds_total"] > 0


def test_figures_without_procfs_report_the_peak_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "read_usage", lambda: None)
    values = {name: value for name, _, _, value in process_figures()}
    assert values["process_max_resident_memory_bytes"] > 1_000_000
    assert "process_open_fds" not in values
