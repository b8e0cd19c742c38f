"""Full and lost disks under load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from firearrow.cli.main import run
from tests.chaos.environment import enlarge, no_small_disk, small_disk
from tests.chaos.fleet import Fleet, Machine, on_loopback, running
from tests.chaos.workload import Verdict, Workload, verdict
from tests.support.waiting import until


@pytest.fixture
def mounting() -> None:
    reason = no_small_disk()
    if reason is not None:
        pytest.skip(reason)


def test_master_with_full_disk_rejects_sends_until_it_has_space(mounting: None, tmp_path: Path) -> None:
    """The full master rejects sends with the reason, the other continues, and no acknowledged message is lost."""

    async def scenario() -> None:
        fleet = on_loopback("2m", tmp_path, cleanFileForciblyEnable="false", mappedFileSizeCommitLog="1048576")
        full = fleet["broker-a"]
        with small_disk(full.member.data / "store", 24):
            async with running(fleet):
                async with Workload(fleet, "disk-full", body_bytes=30_000) as load:
                    await until(lambda: load.ledger.refused, "the disk is full")
                    at_refusal = dict(load.ledger.acknowledged)
                    await load.acknowledged(50)
                    assert any(
                        broker == "broker-b" for value, (broker, _) in load.ledger.acknowledged.items() if value not in at_refusal
                    )
                    full.kill()
                    enlarge(full.member.data / "store", 200)
                    await fleet.restore()
                    seen = len(load.ledger.acknowledged)

                    def back() -> bool:
                        return any(broker == "broker-a" for broker, _ in list(load.ledger.acknowledged.values())[seen:])

                    await until(back, "the master with the larger disk accepts messages")
                assert await verdict(load, await fleet.masters()) == Verdict()
                ledger = load.ledger
                print(f"2m, disk full: {len(ledger.sent)} sent, {len(ledger.acknowledged)} acknowledged; {ledger.refused}")

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("leads", [pytest.param("n1", id="follower"), pytest.param("n0", id="leader")])
def test_group_continues_without_a_member_with_full_disk(leads: str, mounting: None, tmp_path: Path) -> None:
    """The others continue without the full member, leader or follower, and it returns when it has space."""

    async def scenario() -> None:
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
                    await fleet.restore()
                    await load.acknowledged(50)
                assert await verdict(load, await fleet.masters()) == Verdict()
                ledger = load.ledger
                print(f"dledger-3, disk full: {len(ledger.sent)} sent, {len(ledger.acknowledged)} acknowledged; {ledger.refused}")

    asyncio.run(scenario())


async def leads_now(fleet: Fleet, name: str) -> bool:
    return (await fleet.leader()).name == name


def test_member_with_empty_disk_is_restored_from_the_group(tmp_path: Path) -> None:
    """The leader loses its disk. It returns empty, copies everything and can then replace the others."""

    async def scenario() -> None:
        async with running(on_loopback("dledger-3", tmp_path)) as fleet:
            async with Workload(fleet, "disk-gone") as load:
                await load.acknowledged(200)
                gone = await fleet.leader()
                gone.kill()
                gone.lose_disk()
                await load.acknowledged(50)
                await fleet.restore()
                await load.acknowledged(50)
            leader = await fleet.leader()
            next(machine for machine in fleet.brokers if machine not in (gone, leader)).kill()
            assert await verdict(load, {"broker-a": await fleet.leader()}) == Verdict()

    asyncio.run(scenario())


@pytest.mark.slow
def test_members_without_directories_form_no_group_until_the_operator_decides(tmp_path: Path) -> None:
    """A majority loses its disks. Nothing is acknowledged until the remaining log is declared authoritative."""

    async def scenario() -> None:
        async with running(on_loopback("dledger-3", tmp_path)) as fleet:
            async with Workload(fleet, "majority-gone") as load:
                await load.acknowledged(200)
            kept, *gone = sorted(fleet.brokers, key=lambda machine: machine.name, reverse=True)
            await until(lambda: len({_end_of_log(machine) for machine in fleet.brokers}) == 1, "all members have the log")
            for machine in fleet.brokers:
                machine.kill()
            elected = [machine.log.count("is the master of") for machine in fleet.brokers]
            for machine in gone:
                machine.lose_disk()
                machine.launch()
            await until(lambda: any("forms a new group when all members run" in machine.log for machine in gone), "n0 waits")
            await kept.start()
            await asyncio.sleep(5)  # several election timeouts
            assert [machine.log.count("is the master of") for machine in fleet.brokers] == elected
            kept.kill()
            assert run(["broker", "seed", str(kept.store), "--yes"]) == 0
            await fleet.restore()
            assert await verdict(load, {"broker-a": await fleet.leader()}) == Verdict()
            assert (await fleet.leader()).name == kept.name

    asyncio.run(scenario())


def _end_of_log(machine: Machine) -> int:
    return sum(len(file.read_bytes().rstrip(b"\0")) for file in (machine.store / "commitlog").iterdir())
