"""Elected groups as real processes: leaders are killed under load, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from firearrow.net.loop import run as run_loop
from firearrow.wire.codes import RequestCode, ResponseCode
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


def test_what_waits_is_delivered_by_the_next_leader(tmp_path: Path) -> None:
    """A delayed message, a timer message and half a transaction outlive their leader; none of them comes twice."""

    async def story() -> None:
        async with group(tmp_path, timerPrecisionMs="100") as members:
            leader = await members.leader()
            await members.send(leader, "T", 0, b"delayed", "DELAY\x012\x02")
            await members.send(leader, "T", 0, b"timed", "TIMER_DELAY_MS\x014000\x02")
            half = await members.send(leader, "T", 1, b"half", "TRAN_MSG\x01true\x02PGROUP\x01P\x02", h="4")
            await members.send(leader, "T", 2, b"delivered before", "DELAY\x011\x02")
            await members.until_bodies(leader, lambda bodies: bodies[2] == [b"delivered before"])
            await asyncio.sleep(2)  # the others know by then that it was delivered
            leader.signal(signal.SIGKILL)
            other = await members.leader(besides=leader)
            ext = {"producerGroup": "P", "tranStateTableOffset": half["queueOffset"], "commitOrRollback": "8", "msgId": "x"}
            ext |= {
                "commitLogOffset": str(int(half["msgId"][16:], 16)),
                "fromTransactionCheck": "false",
                "transactionId": half["transactionId"],
            }
            code, _, _ = await other.call(RequestCode.END_TRANSACTION, ext)
            assert code == ResponseCode.SUCCESS
            await members.until_bodies(other, lambda bodies: len(bodies[0]) == 2 and bodies[1] == [b"half"])
            await asyncio.sleep(1)
            bodies = await other.bodies()
            assert sorted(bodies[0]) == [b"delayed", b"timed"]
            assert bodies[1:3] == [[b"half"], [b"delivered before"]]

    run(story())
