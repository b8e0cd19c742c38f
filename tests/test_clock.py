"""The clocks of firearrow/clock.py."""

from __future__ import annotations

import time

import pytest

from firearrow.clock import monotonic_ms, wall_ms


def test_wall_clock_counts_whole_milliseconds_since_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_999_999)

    assert wall_ms() == 1_700_000_000_123


def test_monotonic_clock_counts_whole_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 42_999_999)

    assert monotonic_ms() == 42
