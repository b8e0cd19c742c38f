"""Evaluation of the metrics benchmark, and the CPU time that it reads."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from bench import metrics
from bench.load import LoadResult
from bench.process import BenchError


def loaded(msgs_per_s: float) -> LoadResult:
    values: dict[str, Any] = dict.fromkeys((field.name for field in fields(LoadResult)), 0)
    return LoadResult(**values | {"msgs_per_s": msgs_per_s, "cpu_us_per_msg": 10.0})


def test_drifting_rates_do_not_affect_the_median_of_pairs() -> None:
    rates = [14_000 + 1_300 * number for number in range(16)]
    same = metrics.judged("x", [(loaded(rate), loaded(rate * (0.995 if rate % 200 else 1.004))) for rate in rates])
    worse = metrics.judged("x", [(loaded(rate), loaded(rate * 0.95)) for rate in rates])
    assert [check.missed for check in same] == [False] * len(same)
    assert [check.what for check in worse if check.missed] == ["x: the second by the first, median of 16 pairs"]
    ratio, low, high = (check.value for check in same[2:5])
    assert low <= ratio <= high


def test_pairs_with_a_large_spread_are_not_evaluated() -> None:
    noisy = metrics.judged("x", [(loaded(10_000), loaded(10_000 * (0.6 + number % 5 * 0.1))) for number in range(16)])
    assert [check.missed for check in noisy] == [False] * len(noisy)
    assert "differ too much" in noisy[2].what


def test_cpu_time_is_read_from_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = iter(f'process_cpu_seconds_total{{node_id="a"}} {1.5 + number * 0.002}\n' for number in range(11))
    monkeypatch.setattr(metrics, "read_page", lambda page: next(pages))
    assert metrics.page_cpu_ms("", 10) == pytest.approx(2.0)
    monkeypatch.setattr(metrics, "read_page", lambda page: "nothing\n")
    with pytest.raises(BenchError, match="process_cpu_seconds_total"):
        metrics.page_cpu_ms("", 1)
