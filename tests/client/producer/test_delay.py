from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from firearrow.client.errors import InvalidMessageError
from firearrow.client.producer.delay import LEVELS_S, delay_properties, for_version
from firearrow.wire.codes import version_ordinal


@pytest.mark.parametrize(
    ("wish", "properties"),
    [
        ({}, {}),
        ({"delay": 0}, {}),
        ({"delay": 10}, {"TIMER_DELAY_SEC": "10"}),
        ({"delay": 0.25}, {"TIMER_DELAY_MS": "250"}),
        ({"delay": timedelta(hours=1)}, {"TIMER_DELAY_SEC": "3600"}),
        ({"delay_level": 18}, {"DELAY": "18"}),
        ({"deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, {"TIMER_DELIVER_MS": "1893456000000"}),
        ({"deliver_at": 1893456000.5}, {"TIMER_DELIVER_MS": "1893456000500"}),
    ],
)
def test_delays_become_properties(wish: dict[str, Any], properties: dict[str, str]) -> None:
    arguments: dict[str, Any] = {"delay": None, "delay_level": None, "deliver_at": None} | wish
    assert delay_properties(**arguments) == properties


@pytest.mark.parametrize("wish", [{"delay": -1}, {"delay_level": 0}, {"delay_level": True}, {"delay": 1, "delay_level": 1}])
def test_invalid_delays_are_rejected(wish: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"delay": None, "delay_level": None, "deliver_at": None} | wish
    with pytest.raises(InvalidMessageError):
        delay_properties(**arguments)


def test_brokers_before_5_know_levels_only() -> None:
    old, new = version_ordinal(4, 9, 8), version_ordinal(5, 0, 0)
    for level, seconds in enumerate(LEVELS_S, 1):
        timer = {"TIMER_DELAY_SEC": str(seconds)}
        assert for_version(timer, old) == {"DELAY": str(level)}
        assert for_version(timer, new) == for_version(timer, 0) == timer
    assert for_version({"DELAY": "3"}, old) == {"DELAY": "3"}
    for timer in ({"TIMER_DELAY_SEC": "7"}, {"TIMER_DELAY_MS": "1500"}, {"TIMER_DELIVER_MS": "1893456000000"}):
        with pytest.raises(InvalidMessageError, match=r"older than 5\.0"):
            for_version(timer, old)
