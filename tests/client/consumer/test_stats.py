"""Consumption statistics."""

from __future__ import annotations

from firearrow.client.consumer.stats import TICK_MS, ConsumerStats


def test_rates_cover_the_time_since_the_start() -> None:
    stats = ConsumerStats(0)
    stats.consumed("T", 30, True, 0.6)
    stats.consumed("T", 10, False, 0.2)
    stats.pulled("T", 40, 0.1)
    status = stats.status("T", 10_000)
    assert (status["consumeOKTPS"], status["consumeFailedTPS"], status["pullTPS"]) == (3.0, 1.0, 4.0)
    assert (round(status["consumeRT"], 6), round(status["pullRT"], 6), status["consumeFailedMsgs"]) == (20.0, 100.0, 10)


def test_rates_forget_what_is_older_than_the_window() -> None:
    stats = ConsumerStats(0)
    stats.consumed("T", 100, True, 1.0)
    for tick in range(1, 8):
        stats.tick(tick * TICK_MS)
    assert stats.status("T", 7 * TICK_MS)["consumeOKTPS"] == 0


def test_topic_without_messages_has_zero_rates() -> None:
    assert set(ConsumerStats(0).status("T", 1_000).values()) == {0}
