"""Refused peers in the log: every reason once, repetitions as a number, and a bounded table."""

from __future__ import annotations

import logging

import pytest

from firearrow.ha.peers.refusals import MAX_KEYS, REPEAT_MS, RefusalLog


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_repeated_refusals_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = RefusalLog(logging.getLogger("t"), clock)
    for port in range(1000):
        refusals.add(f"10.0.0.9:{port}", "wrong secret")
    refusals.add("10.0.0.9:1", "another reason")
    assert [record.message for record in caplog.records] == [
        "rejected a connection from 10.0.0.9:0: wrong secret",
        "rejected a connection from 10.0.0.9:1: another reason",
    ]
    clock.now_ms = REPEAT_MS
    refusals.add("10.0.0.9:7", "wrong secret")
    assert caplog.messages[-1].endswith("10.0.0.9:7: wrong secret (999 more since the last such message)")


def test_many_addresses_do_not_fill_log_or_memory(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = RefusalLog(logging.getLogger("t"), clock)
    for number in range(MAX_KEYS * 20):
        refusals.add(f"host-{number}:1", "wrong secret")
    assert len(caplog.records) == MAX_KEYS + 1
    clock.now_ms = REPEAT_MS
    refusals.add("host-x:1", "wrong secret")
    assert caplog.messages[-1] == "rejected a connection from host-x:1: wrong secret"
