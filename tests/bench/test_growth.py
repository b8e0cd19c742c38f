"""Evaluation of the growth curve."""

from __future__ import annotations

from bench.growth import Point, growth_table, is_flat


def test_curve_is_flat_if_no_size_costs_20_percent_more_than_the_first() -> None:
    def point(stored: int, send_us: float, pull_us: float) -> Point:
        return Point("Firearrow", stored, send_us, 90_000, pull_us, 70)

    assert is_flat([point(10_000, 10, 1.5), point(10_000_000, 11.9, 1.7)])
    assert not is_flat([point(10_000, 10, 1.5), point(10_000_000, 12.1, 1.5)])
    assert not is_flat([point(10_000, 10, 1.5), point(10_000_000, 10, 1.9)])
    text = growth_table([[point(10_000, 10, 1.5), point(10_000_000, 12.1, 1.5)]])
    assert [line.split("|")[-2].strip() for line in text.splitlines()[2:]] == ["ok", "MISSED"]
