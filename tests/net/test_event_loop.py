from __future__ import annotations

import asyncio
import importlib.util
import signal
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


@pytest.mark.parametrize("uvloop_is_installed", [True, False])
def test_signal_handlers_are_restored_after_a_run(monkeypatch: pytest.MonkeyPatch, uvloop_is_installed: bool) -> None:
    if not uvloop_is_installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]

    async def install_handlers() -> None:
        for number in numbers:
            asyncio.get_running_loop().add_signal_handler(number, lambda: None)

    event_loop.run(install_handlers())
    assert [signal.getsignal(number) for number in numbers] == before
