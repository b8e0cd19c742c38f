from __future__ import annotations

import asyncio
import importlib.util
import sys

import pytest

from firearrow.net import event_loop


async def kind_of_loop() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")
def test_uvloop_is_used_if_installed() -> None:
    assert event_loop.run(kind_of_loop()) == "uvloop"


def test_asyncio_loop_is_used_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop.run(kind_of_loop()) == "asyncio"
