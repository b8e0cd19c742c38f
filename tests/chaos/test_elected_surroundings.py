"""Networks that fall apart, clocks that jump and disks that are full or gone, around an elected group under load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos.faults import Scene, followers
from tests.chaos.fleet import Fleet, on_loopback, running, until_async
from tests.chaos.story import ROUNDS, rounds_of
from tests.chaos.surroundings import Clock, enlarge, network, no_namespaces, no_small_disk, small_disk
from tests.chaos.workload import Verdict, Workload, verdict

pytestmark = pytest.mark.timeout(120 + 90 * ROUNDS)


@pytest.fixture
def namespaces() -> None:
    reason = no_namespaces()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def mounting() -> None:
    reason = no_small_disk()
    if reason is not None:
        pytest.skip(reason)


def test_the_network_of_a_group_falls_apart(namespaces: None, tmp_path: Path) -> None:
    async def story() -> None:
        with network("dledger-3") as net:

            async def unplug_leader(scene: Scene) -> None:
                """Nobody reaches it, it reaches nobody: it must not think that it still leads when it is back."""
                leader = await scene.fleet.leader()
                net.unplug(leader.name)
                await scene.goes_on(60)
                net.plug(leader.name)
                await scene.fleet.complete()

            async def part_leader(scene: Scene) -> None:
                """Clients and name server reach it, the other members do not: it must step down and say so."""
                leader, others = await scene.fleet.leader(), [one.name for one in await followers(scene)]
                net.part(leader.name, others)
                await scene.goes_on(60)
                net.join(leader.name, others)
                await scene.fleet.complete()

            async def part_follower(scene: Scene) -> None:
                """It reaches the other follower, but not the leader: a leader that has a majority must stay."""
                leader, one = await scene.fleet.leader(), (await followers(scene))[0]
                net.part(leader.name, [one.name])
                await scene.goes_on(60)
                net.join(leader.name, [one.name])
                await scene.fleet.complete()

            async with running(net.fleet(tmp_path)) as fleet:
                for fault, inject in (
                    ("leader unplugged", unplug_leader),
                    ("leader parted from the others", part_leader),
                    ("follower parted from the leader", part_follower),
                ):
                    outcome = await rounds_of(fleet, fault, inject)
                    assert outcome.wrong == Verdict()

    asyncio.run(story())


def test_the_clock_of_a_leader_jumps(tmp_path: Path) -> None:
    async def story() -> None:
        clocks = {name: Clock(tmp_path / name) for name in ("n0", "n1", "n2")}

        async def jump(scene: Scene) -> None:
            leader = await scene.fleet.leader()
            for seconds in (3600.0, -3600.0, scene.rng.uniform(-60, 60)):
                clocks[leader.name].set(seconds)
                await scene.goes_on()

        fleet = on_loopback("dledger-3", tmp_path)
        async with running(fleet, {name: clock.env for name, clock in clocks.items()}):
            outcome = await rounds_of(fleet, "clock of the leader jumps", jump)
            assert outcome.wrong == Verdict()

    asyncio.run(story())


@pytest.mark.parametrize(
    "leads",
    [
        pytest.param("n1", id="follower"),
        pytest.param(
            "n0",
            id="leader",
            marks=pytest.mark.xfail(
                reason="a leader whose log takes no writes any more stays leader: the group takes nothing until it is restarted",
                strict=True,
            ),
        ),
    ],
)
def test_a_member_has_a_full_disk(leads: str, mounting: None, tmp_path: Path) -> None:
    """Whether it leads or follows: the others go on without it, and it comes back when there is room."""

    async def story() -> None:
        fleet = on_loopback(
            "dledger-3", tmp_path, cleanFileForciblyEnable="false", mappedFileSizeCommitLog="1048576", preferredLeaderId=leads
        )
        full = fleet["n0"]
        with small_disk(full.member.data / "store", 16):
            async with running(fleet):
                await until_async(lambda: leads_now(fleet, leads), f"{leads} leads")
                async with Workload(fleet, "disk-full", body_bytes=30_000) as load:
                    await load.acknowledged(16 * 2**20 // 30_000 + 100, 15)  # more than the small disk holds
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
