"""Summaries of the benchmark `alone`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.alone import cost_table, load_cost
from bench.firearrow import Firearrow
from bench.load import LoadResult
from bench.loads import all_loads
from bench.process import BenchError
from bench.run import main

LOAD = all_loads()[0]
RESULT = LoadResult(
    seconds=1, msgs_per_s=1000, cpu_us_per_msg=10, p50_ms=1, p99_ms=1, p999_ms=1, max_ms=1, msgs=1000, acknowledged=1000,
    failed=0, unanswered=0, stray=0, gaps=0, load_cores=1,
)  # fmt: skip


def turns(*cpu_us: float) -> list[LoadResult]:
    return [replace(RESULT, cpu_us_per_msg=value) for value in cpu_us]


def test_ratio_is_the_median_of_the_turns() -> None:
    cost = load_cost(LOAD, turns(10, 20, 30), turns(10.2, 20.2, 60))

    assert cost.cpu_us_per_msg == [20, 20.2]
    assert cost.ratio == pytest.approx(1.02)
    assert not cost.missed


def test_more_than_three_percent_is_missed() -> None:
    cost = load_cost(LOAD, turns(10), turns(10.4))

    assert cost.missed
    assert cost_table([cost], ["before", "after"]).splitlines()[2].split("|")[-3:-1] == [" 1.040     ", " MISSED "]


def test_rejected_messages_are_a_fault() -> None:
    assert load_cost(LOAD, [replace(RESULT, failed=2)]).missed


def test_single_checkout_has_no_ratio() -> None:
    cost = load_cost(LOAD, turns(10))

    assert (cost.ratio, cost.missed) == (None, False)


def test_checkout_without_virtual_environment_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"\.venv/bin/firearrow does not exist"):
        Firearrow(tmp_path).prepare()


def test_three_checkouts_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alone", *("--checkout", ".") * 3]) == 2
    assert "expected at most 2" in capsys.readouterr().err
