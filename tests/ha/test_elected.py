"""Elected groups as real processes: leaders are killed under load, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from firearrow.net.loop import run as run_loop
from tests.ha.groups import Group, Producer, check, group
from tests.ha.test_killed import QUEUES

KILLS = int(os.environ.get("FIREARROW_RAFT_KILLS", "3"))


def run(story: object, seconds: float = 60) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story, seconds)  # type: ignore[arg-type]

    run_loop(bounded())


async def producing(members: Group) -> list[Producer]:
    await members.leader()
    producers = [Producer(members, lane) for lane in range(QUEUES)]
    await asyncio.gather(*(producer.sent(20) for producer in producers))
    return producers


def test_leaders_are_killed_under_load(tmp_path: Path) -> None:
    async def story() -> None:
        async with group(tmp_path) as members:
            producers = await producing(members)
            pauses = []
            for _ in range(KILLS):
                leader = await members.leader()
                leader.signal(signal.SIGKILL)
                began = time.monotonic()
                await asyncio.gather(*(producer.sent(1) for producer in producers))
                pauses.append(time.monotonic() - began)
                await asyncio.gather(*(producer.sent(30) for producer in producers))
                await leader.start()
            await check(members, producers)
            print(f"{KILLS} leaders killed; acknowledged again after {', '.join(f'{pause:.2f}' for pause in pauses)} s")

    run(story(), 30 + 10 * KILLS)
