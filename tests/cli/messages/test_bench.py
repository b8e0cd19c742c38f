from __future__ import annotations

import json
import random

import pytest

from firearrow.cli.messages.bench import LatencyRecorder
from tests.cli.messages.kit import firearrow


def test_percentiles_are_off_by_less_than_two_in_a_hundred() -> None:
    rng = random.Random(7)
    latencies = sorted(rng.lognormvariate(-7, 2) for _ in range(20_000))
    recorder = LatencyRecorder()
    for latency in rng.sample(latencies, len(latencies)):
        recorder.add(latency, 10)

    for percent in (1, 50, 90, 99, 99.9):
        exact_ms = latencies[int(len(latencies) * percent / 100) - 1] * 1000
        assert recorder.percentile_ms(percent) == pytest.approx(exact_ms, rel=0.02, abs=0.002)
    assert recorder.percentile_ms(100) == recorder.max_us / 1000 == int(latencies[-1] * 1e6) / 1000


@pytest.mark.parametrize("us", [0, 1, 63, 64, 127, 128, 129, 255, 256, 257, 1_000, 65_535, 65_536, 10**9])
def test_a_single_latency_is_its_own_percentile(us: int) -> None:
    recorder = LatencyRecorder()
    recorder.add((us + 0.5) / 1e6, 1)
    assert recorder.percentile_ms(50) == us / 1000


def test_figures_and_report() -> None:
    recorder = LatencyRecorder()
    recorder.start()
    recorder.add(0.001, 100, messages=32)
    recorder.add(0.002, 100)
    recorder.failure(ValueError("no"))
    recorder.stop()
    figures = recorder.figures()

    assert (figures["messages"], figures["failed"]) == (33, 1)
    assert figures["messages_per_s"] == pytest.approx(33 / recorder.elapsed_s, rel=0.01)
    assert figures["latency_ms"]["p50"] == pytest.approx(1, rel=0.02)
    assert figures["latency_ms"]["max"] == 2
    first, second, third, last = recorder.report("sent")
    assert first.startswith("sent 33 messages in ")
    assert first.endswith(" 1 failed")
    assert second.startswith("latency ms: p50 1.0")
    assert third.startswith("CPU: ")
    assert last == "first failure: ValueError: no"


def test_nothing_happened() -> None:
    recorder = LatencyRecorder()
    assert "0 messages" in recorder.progress_text()
    assert recorder.report("sent")[0].startswith("sent 0 messages in 0.00 s: 0 per second")


@pytest.mark.parametrize("more", [["--in-flight", "50"], ["--in-flight", "1"], ["--batch", "10"]])
def test_bench_send(name_server: str, more: list[str]) -> None:
    code, out, err = firearrow(name_server, "bench", "send", "--messages", "200", "--size", "64", "-o", "json", *more)
    assert code == 0, err
    figures = json.loads(out)
    assert figures["messages"] >= 200
    assert figures["failed"] == 0
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99.9"] <= figures["latency_ms"]["max"]
    assert figures["messages_per_s"] > 0


def test_bench_consume_and_its_live_line(name_server: str) -> None:
    firearrow(name_server, "bench", "send", "--messages", "300")
    for more in ([], ["--threads", "--group", "other"]):
        code, out, err = firearrow(name_server, "bench", "consume", "--from", "earliest", "--messages", "300", *more)
        assert code == 0, err
        assert out.startswith("consumed 30")

    code, out, err = firearrow(name_server, "bench", "send", "--duration", "1.5s")
    assert code == 0, err
    assert "messages" in err.splitlines()[0]
    assert "/s, p99 " in err.splitlines()[0]
    assert out.splitlines()[1].startswith("latency ms: p50 ")
