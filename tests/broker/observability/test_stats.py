"""Counters and their windows, on a clock that the test turns."""

from __future__ import annotations

import time

import pytest

from firearrow.broker.observability.stats import BrokerStats

T0 = 1_700_000_000_000


def run(stats: BrokerStats, start_ms: int, seconds: int, a_second: int = 0, topic: str = "T") -> int:
    """`seconds` of a steady stream; returns when it ended."""
    put = stats.topic_put(topic)
    for second in range(1, seconds + 1):
        put.add(a_second, a_second * 100)
        stats.tick(start_ms + second * 1000)
    return start_ms + seconds * 1000


def test_steady_rate_is_reported() -> None:
    stats = BrokerStats("C", T0)
    run(stats, T0, 120, a_second=50)
    view = stats.view("TOPIC_PUT_NUMS", "T")
    assert view is not None
    minute = view[0]
    assert (minute.sum, minute.tps, minute.avgpt) == pytest.approx((3000, 50.0, 1.0))
    assert stats.tps("TOPIC_PUT_NUMS", "T") == pytest.approx(50.0)
    size = stats.view("TOPIC_PUT_SIZE", "T")
    assert size is not None
    assert size[0].avgpt == pytest.approx(100.0)


def test_hours_and_days_have_their_own_windows() -> None:
    stats = BrokerStats("C", T0)
    end = run(stats, T0, 3 * 3600, a_second=2)
    view = stats.view("BROKER_PUT_NUMS", "C")
    assert view is not None
    minute, hour, day = view
    assert minute.sum == 120
    assert hour.sum == 7200
    assert day.sum == 2 * 3600 * 3
    run(stats, end, 3600, a_second=0)
    view = stats.view("BROKER_PUT_NUMS", "C")
    assert view is not None
    assert (view[0].sum, view[1].sum, view[2].sum) == (0, 0, 2 * 3600 * 3)


def test_a_topic_that_is_new_counts_from_its_first_message() -> None:
    stats = BrokerStats("C", T0)
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    stats.topic_put("T").add(7, 700)
    view = stats.view("TOPIC_PUT_NUMS", "T")
    assert view is not None, "it exists, though nothing was sampled yet"
    assert view[0].sum == 0
    run(stats, T0, 20)
    view = stats.view("TOPIC_PUT_NUMS", "T")
    assert view is not None
    assert view[0].sum == 7


def test_pulls_count_by_topic_and_group() -> None:
    stats = BrokerStats("C", T0)
    stats.got(stats.group_get("G", "T"), 32, 3200)
    stats.got(stats.group_get("G", "T"), 8, 800)
    stats.missed()
    run(stats, T0, 10)
    view = stats.view("GROUP_GET_NUMS", "T@G")
    assert view is not None
    assert (view[0].sum, view[0].avgpt) == pytest.approx((40, 20.0))
    assert stats.view("GROUP_GET_NUMS", "T@Other") is None
    assert (stats.get_found, stats.get_miss, stats.get_nums()) == (2, 1, 40)


def test_rates_are_over_ten_sixty_and_six_hundred_seconds() -> None:
    stats = BrokerStats("C", T0)
    end = run(stats, T0, 600, a_second=10)
    run(stats, end, 10, a_second=100)
    ten, sixty, six_hundred = stats.rates()["putTps"]
    assert ten == pytest.approx(100.0)
    assert sixty == pytest.approx((50 * 10 + 10 * 100) / 60)
    assert six_hundred == pytest.approx((590 * 10 + 10 * 100) / 600)


def test_day_begins_at_local_midnight() -> None:
    midnight = int(time.mktime((2026, 11, 16, 0, 0, 0, 0, 0, -1))) * 1000
    stats = BrokerStats("C", midnight - 5_000)
    run(stats, midnight - 5_000, 5, a_second=10)  # the last tick is at midnight
    assert stats.day_totals()["msgPutTotalTodayMorning"] == 50
    run(stats, midnight, 3, a_second=1)
    totals = stats.day_totals()
    assert [totals[f"msgPutTotal{when}"] for when in ("YesterdayMorning", "TodayMorning", "TodayNow")] == [0, 50, 53]


def test_deleting_a_topic_takes_its_statistics_but_not_the_brokers_total() -> None:
    stats = BrokerStats("C", T0)
    stats.topic_put("T").add(5, 500)
    stats.topic_put("Other").add(1, 100)
    stats.got(stats.group_get("G", "T"), 4, 400)
    run(stats, T0, 10)
    stats.topic_deleted("T")
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.view("GROUP_GET_NUMS", "T@G") is None
    assert stats.view("TOPIC_PUT_NUMS", "Other") is not None
    assert (stats.put_nums(), stats.put_size(), stats.get_nums()) == (6, 600, 4)


def test_put_times_go_into_the_bucket_whose_edge_they_do_not_pass() -> None:
    stats = BrokerStats("C", T0)
    for ms in (0, 1, 10, 11, 10_000, 10_001):
        stats.put_took(ms, 2, 310)
    assert stats.put_time_counts == [2, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2]
    assert stats.put_time_max_ms == 10_001
