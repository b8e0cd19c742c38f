from __future__ import annotations

import pytest

from firearrow.client.producer.fault_avoidance import FaultTable, pause_ms


@pytest.mark.parametrize(
    ("latency_ms", "pause"),
    [(0, 0), (49, 0), (99, 0), (549, 0), (550, 2000), (1800, 5000), (3000, 6000), (5000, 10000), (14999, 10000), (15000, 30000)],
)
def test_the_table_of_pauses(latency_ms: float, pause: int) -> None:
    assert pause_ms(latency_ms) == pause


def test_slow_broker_is_avoided_temporarily() -> None:
    table = FaultTable()
    assert table.available("a", 0)
    table.succeeded("a", 600, now_ms=1000)
    assert not table.available("a", 2999)
    assert table.reachable("a", 2999)
    assert table.available("a", 3000)
    table.succeeded("a", 5, now_ms=3000)
    assert table.available("a", 3000)


def test_a_failure_counts_as_ten_seconds() -> None:
    table = FaultTable()
    table.failed("a", 3, now_ms=0, reachable=False)
    assert not table.available("a", 9999)
    assert not table.reachable("a", 9999)
    assert table.available("a", 10000)
    assert table.reachable("a", 10000)
    table.failed("b", 3, now_ms=500, reachable=True)
    assert table.penalty("a") < table.penalty("b")
    assert table.penalty("c") < table.penalty("a")
