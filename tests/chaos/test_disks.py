"""Disks that are full, and disks that are gone, under load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos.environment import enlarge, no_small_disk, small_disk
from tests.chaos.fleet import Fleet, on_loopback, running
from tests.chaos.workload import Verdict, Workload, verdict
from tests.support.waiting import until


@pytest.fixture
def mounting() -> None:
    reason = no_small_disk()
    if reason is not None:
        pytest.skip(reason)


def test_a_disk_is_full_and_becomes_larger(mounting: None, tmp_path: Path) -> None:
    """The master whose disk is full refuses and says why, the other goes on; nothing that was acknowledged is lost."""

    async def story() -> None:
        fleet = on_loopback("2m", tmp_path, cleanFileForciblyEnable="false", mappedFileSizeCommitLog="1048576")
        full = fleet["broker-a"]
        with small_disk(full.member.data / "store", 24):
            async with running(fleet):
                async with Workload(fleet, "disk-full", body_bytes=30_000) as load:
                    await until(lambda: load.book.refused, "the disk is full")
                    at_refusal = dict(load.book.acknowledged)
                    await load.acknowledged(50)
                    assert any(
                        broker == "broker-b" for value, (broker, _) in load.book.acknowledged.items() if value not in at_refusal
                    )
                    full.kill()
                    enlarge(full.member.data / "store", 200)
                    await fleet.mend()
                    seen = len(load.book.acknowledged)

                    def back() -> bool:
                        return any(broker == "broker-a" for broker, _ in list(load.book.acknowledged.values())[seen:])

                    await until(back, "the master with the larger disk takes messages")
                assert await verdict(load, await fleet.masters()) == Verdict()
                print(
                    f"2m, disk full: {len(load.book.sent)} sent, {len(load.book.acknowledged)} acknowledged; {load.book.refused}"
                )

    asyncio.run(story())


@pytest.mark.parametrize("leads", [pytest.param("n1", id="follower"), pytest.param("n0", id="leader")])
def test_a_member_has_a_full_disk(leads: str, mounting: None, tmp_path: Path) -> None:
    """Whether it leads or follows: the others go on without it, and it comes back when there is room."""

    async def story() -> None:
        fleet = on_loopback(
            "dledger-3", tmp_path, cleanFileForciblyEnable="false", mappedFileSizeCommitLog="1048576", preferredLeaderId=leads
        )
        full = fleet["n0"]
        with small_disk(full.member.data / "store", 16):
            async with running(fleet):
                await until(lambda: leads_now(fleet, leads), f"{leads} leads")
                async with Workload(fleet, "disk-full", body_bytes=30_000) as load:
                    await load.acknowledged(16 * 2**20 // 30_000 + 100, 45)  # more than the small disk holds
                    if full.running:
                        full.kill()
                    enlarge(full.member.data / "store", 400)
                    await fleet.mend()
                    await load.acknowledged(50)
                assert await verdict(load, await fleet.masters()) == Verdict()
                book = load.book
                print(f"dledger-3, disk full: {len(book.sent)} sent, {len(book.acknowledged)} acknowledged; {book.refused}")

    asyncio.run(story())


async def leads_now(fleet: Fleet, name: str) -> bool:
    return (await fleet.leader()).name == name


def test_a_member_comes_back_with_an_empty_disk(tmp_path: Path) -> None:
    """The leader's disk is gone. It comes back as one that has nothing, gets everything, and can then stand for the others."""

    async def story() -> None:
        async with running(on_loopback("dledger-3", tmp_path)) as fleet:
            async with Workload(fleet, "disk-gone") as load:
                await load.acknowledged(200)
                gone = await fleet.leader()
                gone.kill()
                gone.lose_disk()
                await load.acknowledged(50)
                await fleet.mend()
                await load.acknowledged(50)
            leader = await fleet.leader()
            next(machine for machine in fleet.brokers if machine not in (gone, leader)).kill()
            assert await verdict(load, {"broker-a": await fleet.leader()}) == Verdict()

    asyncio.run(story())
