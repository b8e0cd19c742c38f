"""A lagging slave of a busy master yields to clients and still catches up."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from firearrow.ha.static.master import LATE_S, LONG_PAUSE_S, PORTION_BYTES, SlaveLink
from tests.broker.running import client
from tests.ha.pairs import in_step, log_bytes, master, name_server, slave
from tests.support.waiting import run

BODY = bytes(100_000)


@pytest.mark.parametrize(("role", "waits"), [("ASYNC_MASTER", True), ("SYNC_MASTER", False)])
def test_lagging_slave_yields_to_waiting_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, waits: bool) -> None:
    pauses: list[float] = []
    pause = SlaveLink.pump_later

    def noted(self: SlaveLink, seconds: float) -> None:
        pauses.append(seconds)
        pause(self, seconds)

    async def keep_busy() -> None:
        while True:
            time.sleep(2 * LATE_S)  # like a busy event loop
            await asyncio.sleep(0)

    async def scenario() -> None:
        async with name_server() as names, master(tmp_path / "m", names, broker_role=role) as one, client(one) as sender:
            for _ in range(10 * PORTION_BYTES // len(BODY)):
                await sender.send("T", BODY)
            async with slave(tmp_path / "s", names) as other:
                busy = asyncio.ensure_future(keep_busy())
                try:
                    await in_step(one, other)
                finally:
                    busy.cancel()
                assert log_bytes(one) == log_bytes(other)

    monkeypatch.setattr(SlaveLink, "pump_later", noted)
    run(scenario())
    assert pauses
    assert (LONG_PAUSE_S in pauses) is waits
