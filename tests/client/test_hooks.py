"""Hooks."""

from __future__ import annotations

import pytest

from firearrow.client.hooks import call_hooks


def test_failing_hook_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def fail(context: str) -> None:
        raise RuntimeError("no")

    call_hooks([fail, seen.append], "context")
    assert seen == ["context"]
    assert "failed" in caplog.text
