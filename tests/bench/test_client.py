"""Comparison of clients: limits, measurement and commands."""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from pathlib import Path

import pytest

from bench import apache_client, client
from bench.client import Figures
from bench.process import BenchError, Process


def sending(msgs_per_s: float, cpu_us: float) -> Figures:
    return Figures(1000, msgs_per_s, cpu_us)


def sleeping(directory: Path) -> Process:
    return Process([sys.executable, "-c", "import time; time.sleep(60)"], directory / "out")


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        (sending(100, 70), []),
        (sending(99, 70), ["send: rate, Python by Java"]),
        (sending(100, 71), ["send: CPU, Python by Java"]),
    ],
)
def test_limits_of_sending(ours: Figures, missed: list[str]) -> None:
    checks = client.checks_of("send", [ours], [sending(100, 100)])
    assert [check.what for check in checks if check.missed] == missed


def test_limits_of_consuming_and_of_sync_sends() -> None:
    slow = client.checks_of("push", [sending(99, 500)], [sending(100, 100)])
    assert [check.what for check in slow if check.missed] == ["push: rate, Python by Java"]
    java = [Figures(1, 1, 0, 100.0, 100.0)]
    assert not any(check.missed for check in client.checks_of("sync", [Figures(1, 1, 0, 120.0, 900.0)], java))
    late = client.checks_of("sync", [Figures(1, 1, 0, 121.0, 100.0)], java)
    assert [check.what for check in late if check.missed] == ["sync send: p50, Python by Java"]


def test_medians_of_the_rounds_are_compared() -> None:
    rounds = [sending(rate, 10) for rate in (1, 200, 300)]
    ratio = next(check for check in client.checks_of("send", rounds, [sending(100, 10)]) if "rate" in check.what)
    assert ratio.value == 2


def test_progress_is_measured_after_the_warm_up(tmp_path: Path) -> None:
    process, numbers = sleeping(tmp_path), count(0, 100)

    async def progress() -> int:
        return next(numbers)

    try:
        figures = asyncio.run(client.observe(process, progress, 0.0, 0.3, None))
    finally:
        process.kill()
    assert figures.messages % 100 == 0
    assert figures.messages > 100
    assert figures.msgs_per_s == pytest.approx(figures.messages / 0.3, rel=0.5)


def test_backlog_consumed_too_fast_is_an_error(tmp_path: Path) -> None:
    process = sleeping(tmp_path)

    async def progress() -> int:
        return 1000

    try:
        with pytest.raises(BenchError, match="too little to measure"):
            asyncio.run(client.observe(process, progress, 0.0, 5.0, 1000))
    finally:
        process.kill()


def test_ended_client_is_reported_with_its_output(tmp_path: Path) -> None:
    process = Process([sys.executable, "-c", "print('no broker'); raise SystemExit(3)"], tmp_path / "out")

    async def progress() -> int:
        return 0

    with pytest.raises(BenchError, match=r"exit code 3(.|\n)*no broker"):
        asyncio.run(client.observe(process, progress, 0.0, 5.0, None))


def test_cpu_time_of_a_busy_process_grows(tmp_path: Path) -> None:
    busy = Process([sys.executable, "-c", "while True: pass"], tmp_path / "out")
    try:
        while busy.cpu_s() < 0.1:
            os.sched_yield()
    finally:
        busy.kill()


def test_commands_of_the_java_client(tmp_path: Path) -> None:
    producer = apache_client.producer("127.0.0.1:9876", "T", 128, client.THREADS, tmp_path)
    assert producer[0] == "java"
    at = producer.index("org.apache.rocketmq.example.benchmark.Producer")
    assert producer[at + 1 :] == ["-n", "127.0.0.1:9876", "-t", "T", "-s", "128", "-w", "64"]
    assert "org.apache.rocketmq.example.benchmark.Consumer" in apache_client.consumer("127.0.0.1:9876", "T", "g", tmp_path)
