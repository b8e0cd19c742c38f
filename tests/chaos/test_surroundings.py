"""Networks that fall apart, clocks that jump and disks that are full, around masters and slaves under load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos.faults import Scene
from tests.chaos.fleet import on_loopback, running, until
from tests.chaos.story import ROUNDS, rounds_of
from tests.chaos.surroundings import Clock, enlarge, network, no_namespaces, no_small_disk, small_disk
from tests.chaos.workload import Verdict, Workload, verdict

pytestmark = pytest.mark.timeout(120 + 60 * ROUNDS)


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


def test_a_master_is_unplugged_and_plugged_in_again(namespaces: None, tmp_path: Path) -> None:
    async def story() -> None:
        with network("2m") as net:

            async def unplug(scene: Scene) -> None:
                net.unplug("broker-a")
                await scene.goes_on()
                net.plug("broker-a")
                await scene.fleet.complete()

            async with running(net.fleet(tmp_path)) as fleet:
                outcome = await rounds_of(fleet, "master unplugged", unplug)
                assert outcome.wrong == Verdict()

    asyncio.run(story())


def test_master_and_slave_do_not_reach_each_other(namespaces: None, tmp_path: Path) -> None:
    """The master keeps what is sent and does not say SEND_OK; the other pair does. Afterwards the slave has everything."""

    async def story() -> None:
        with network("2m-2s-sync") as net:

            async def part(scene: Scene) -> None:
                scene.load.book.refused.clear()
                net.part("broker-a", ["broker-a-slave"])
                await until(lambda: scene.load.book.refused, "the master misses its slave", 20)
                await scene.goes_on()
                net.join("broker-a", ["broker-a-slave"])
                await scene.fleet.complete()

            quick = {"slaveTimeout": "500", "haHousekeepingInterval": "2000", "haSendHeartbeatInterval": "300"}
            async with running(net.fleet(tmp_path, **quick)) as fleet:
                outcome = await rounds_of(fleet, "master and slave parted", part)
                assert outcome.wrong == Verdict()

    asyncio.run(story())


def test_a_clock_jumps_an_hour_ahead_and_back(tmp_path: Path) -> None:
    async def story() -> None:
        clock = Clock(tmp_path)

        async def jump(scene: Scene) -> None:
            for seconds in (3600.0, -3600.0, scene.rng.uniform(-60, 60)):
                clock.set(seconds)
                await scene.goes_on()

        fleet = on_loopback("2m", tmp_path)
        async with running(fleet):
            fleet["broker-a"].stop()
            await fleet["broker-a"].start(clock.env)
            await fleet.complete()
            outcome = await rounds_of(fleet, "clock jumps", jump)
            assert outcome.wrong == Verdict()
            # What waits for the disk at the moment of the jump seems to have waited for an hour; clients send it again.
            assert all(why.startswith("2 [TIMEOUT_CLEAN_QUEUE]") for why in outcome.refused), outcome.refused
            clock.set(-1800)
            fleet["broker-a"].kill()  # recovery reads records that were stored "in the future"
            await fleet["broker-a"].start(clock.env)
            await fleet.complete()

    asyncio.run(story())


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
