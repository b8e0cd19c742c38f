"""Parsing of messageDelayLevel."""

from __future__ import annotations

import pytest

from firearrow.config.delay_levels import parse_delay_levels
from firearrow.config.fields import SettingError


def test_units_are_converted_to_milliseconds() -> None:
    assert parse_delay_levels("1s 2m 3h 4d") == [1_000, 120_000, 10_800_000, 345_600_000]


@pytest.mark.parametrize("text", ["", "5", "1s 2x", "-1s", "9999999999s"])
def test_malformed_levels_are_rejected(text: str) -> None:
    with pytest.raises(SettingError, match="messageDelayLevel"):
        parse_delay_levels(text)
