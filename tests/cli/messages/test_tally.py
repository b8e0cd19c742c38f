from __future__ import annotations

import random

import pytest

from firearrow.cli.messages.tally import LatencyRecorder


def test_percentiles_are_off_by_less_than_two_in_a_hundred() -> None:
    rng = random.Random(7)
    latencies = sorted(rng.lognormvariate(-7, 2) for _ in range(20_000))
    tally = LatencyRecorder()
    for latency in rng.sample(latencies, len(latencies)):
        tally.add(latency, 10)

    for percent in (1, 50, 90, 99, 99.9):
        exact_ms = latencies[int(len(latencies) * percent / 100) - 1] * 1000
        assert tally.percentile_ms(percent) == pytest.approx(exact_ms, rel=0.02, abs=0.002)
    assert tally.percentile_ms(100) == tally.max_us / 1000 == int(latencies[-1] * 1e6) / 1000


@pytest.mark.parametrize("us", [0, 1, 63, 64, 127, 128, 129, 255, 256, 257, 1_000, 65_535, 65_536, 10**9])
def test_a_single_latency_is_its_own_percentile(us: int) -> None:
    tally = LatencyRecorder()
    tally.add((us + 0.5) / 1e6, 1)
    assert tally.percentile_ms(50) == us / 1000


def test_figures_and_report() -> None:
    tally = LatencyRecorder()
    tally.start()
    tally.add(0.001, 100, messages=32)
    tally.add(0.002, 100)
    tally.failure(ValueError("no"))
    tally.stop()
    figures = tally.figures()

    assert (figures["messages"], figures["failed"]) == (33, 1)
    assert figures["messages_per_s"] == pytest.approx(33 / tally.elapsed_s, rel=0.01)
    assert figures["latency_ms"]["p50"] == pytest.approx(1, rel=0.02)
    assert figures["latency_ms"]["max"] == 2
    first, second, third, last = tally.report("sent").splitlines()
    assert first.startswith("sent 33 messages in ")
    assert first.endswith(" 1 failed")
    assert second.startswith("latency ms: p50 1.0")
    assert third.startswith("CPU: ")
    assert last == "the first failure: ValueError: no"


def test_nothing_happened() -> None:
    tally = LatencyRecorder()
    assert "0 messages" in tally.live()
    assert tally.report("sent").startswith("sent 0 messages in 0.00 s: 0 a second")
