"""Medians, ratios, limits and formatting of results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.load import LoadResult, parse
from bench.loads import ASYNC, BATCH_BARS, KIND_BARS, OPEN_BARS, SEND_BARS, Bars, Load
from bench.report import Check, Comparison, check_table, comparison_table, number

GOOD = LoadResult(
    seconds=5,
    msgs_per_s=40_000,
    cpu_us_per_msg=40,
    p50_ms=1,
    p99_ms=4,
    p999_ms=10,
    max_ms=20,
    msgs=200_000,
    acknowledged=240_000,
    failed=0,
    unanswered=0,
    stray=0,
    gaps=0,
    load_cores=0.5,
)


def load(bars: Bars = SEND_BARS) -> Load:
    return Load("send 128B 64x1", ASYNC, "send", 128, 64, 1, bars)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratio_compares_the_runs_of_each_turn() -> None:
    """The machine became ten times as fast in the second turn and three times as slow in the third."""
    reference = [replace(GOOD, msgs_per_s=rate) for rate in (40_000, 400_000, 13_000)]
    ours = [replace(GOOD, msgs_per_s=rate) for rate in (60_000, 560_000, 26_000)]
    assert Comparison(load(), ours, reference).ratio("msgs_per_s") == 1.5


@pytest.mark.parametrize(
    ("bars", "ours", "missed"),
    [
        (SEND_BARS, replace(GOOD, msgs_per_s=52_000, cpu_us_per_msg=24), []),
        (SEND_BARS, replace(GOOD, msgs_per_s=51_000, cpu_us_per_msg=24), ["rate 1.27 < 1.3"]),
        (SEND_BARS, replace(GOOD, msgs_per_s=52_000, cpu_us_per_msg=25), ["CPU 0.62 > 0.6"]),
        (SEND_BARS, replace(GOOD, msgs_per_s=52_000, cpu_us_per_msg=24, p999_ms=10.2), ["p99.9 1.02 > 1.0"]),
        (KIND_BARS, replace(GOOD, msgs_per_s=52_000, cpu_us_per_msg=24, p999_ms=99), []),
        (KIND_BARS, replace(GOOD, msgs_per_s=51_000, cpu_us_per_msg=25), ["rate 1.27 < 1.3", "CPU 0.62 > 0.6"]),
        (BATCH_BARS, replace(GOOD, cpu_us_per_msg=36), []),
        (BATCH_BARS, replace(GOOD, msgs_per_s=39_000, cpu_us_per_msg=37), ["rate 0.97 < 1.0", "CPU 0.93 > 0.9"]),
        (OPEN_BARS, replace(GOOD, msgs_per_s=39_990, cpu_us_per_msg=24), []),
        (SEND_BARS, replace(GOOD, msgs_per_s=52_000, cpu_us_per_msg=24, gaps=2), ["2 offset gaps"]),
    ],
)
def test_limits(bars: Bars, ours: LoadResult, missed: list[str]) -> None:
    comparison = Comparison(load(bars), [ours], [GOOD])
    assert comparison.missed() == missed
    assert comparison.verdict() == ("MISSED: " + ", ".join(missed) if missed else "ok")


def test_results_without_reference_have_no_verdict() -> None:
    comparison = Comparison(load(), [GOOD], [])
    assert (comparison.ratio("msgs_per_s"), comparison.missed(), comparison.verdict()) == (None, [], "-")


def test_table_is_markdown() -> None:
    ours = replace(GOOD, msgs_per_s=60_000, cpu_us_per_msg=20, p50_ms=0.5)
    text = comparison_table([Comparison(load(), [ours], [GOOD])], "Firearrow", "Apache")
    caption, empty, head, rule, row = text.splitlines()
    assert "Firearrow : Apache (medians)" in caption
    assert empty == ""
    assert cells(head) == ["load", "msgs/s", "CPU us/msg", "p50 ms", "p99 ms", "p99.9 ms", "bars"]
    assert set(rule) == {"|", "-"}
    assert cells(row) == [
        "send 128B 64x1",
        "60,000 : 40,000 = 1.50",
        "20.00 : 40.00 = 0.50",
        "0.500 : 1.00 = 0.50",
        "4.00 : 4.00 = 1.00",
        "10.00 : 10.00 = 1.00",
        "ok",
    ]


def test_checks_have_a_direction() -> None:
    assert not Check("start", 0.9, "s", 1.0).missed
    assert Check("start", 1.1, "s", 1.0).missed
    assert Check("rate", 0.7, "x", 0.8, at_least=True).missed
    assert not Check("rate", 0.9, "x", 0.8, at_least=True).missed
    assert not Check("for comparison", 99, "s").missed
    assert "<= 1.00 s" in check_table([Check("start", 1.1, "s", 1.0)])
    assert "MISSED" in check_table([Check("start", 1.1, "s", 1.0)])


def test_numbers_have_significant_digits() -> None:
    assert [number(value) for value in (33_214.4, 123.45, 8.741, 0.1264)] == ["33,214", "123.5", "8.74", "0.126"]


def test_result_without_cpu_time_is_parsed() -> None:
    line = '{"mode":"send","seconds":1.0,"msgs_per_s":5.0,"msgs":5,"acknowledged":5,"failed":0,"unanswered":1,"stray":0,"gaps":0}'
    result = parse(line)
    assert (result.cpu_us_per_msg, result.fault) == (0.0, "1 unanswered")
