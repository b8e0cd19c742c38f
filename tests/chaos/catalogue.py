"""The faults that are injected repeatedly, each with its form of cluster and the environment it needs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.chaos import faults
from tests.chaos.environment import Clock, Network, network, no_namespaces
from tests.chaos.faults import Inject, Scene, followers
from tests.chaos.fleet import Fleet, on_loopback, running
from tests.support.waiting import until

LOOPBACK, NETWORK, CLOCKS = "loopback", "network", "clocks"
STATIC, SYNC, ELECTED = "2m", "2m-2s-sync", "dledger-3"

# Slaves learn of topics sooner, and lost slaves and broken connections are noticed sooner, than by default.
QUICK = {"slaveSyncInterval": "300", "slaveTimeout": "500", "haHousekeepingInterval": "2000", "haSendHeartbeatInterval": "300"}


@dataclass
class Tools:
    """The parts of the environment that a fault may use."""

    net: Network | None = None
    clocks: dict[str, Clock] = field(default_factory=dict)

    @property
    def cables(self) -> Network:
        assert self.net is not None
        return self.net


class Entry(NamedTuple):
    form: str
    fault: str
    inject: Callable[[Tools], Inject]
    environment: str = LOOPBACK
    only_long: bool = False  # skipped in ordinary runs, which contain similar faults


def plain(inject: Inject) -> Callable[[Tools], Inject]:
    return lambda tools: inject


def unplug_master(tools: Tools) -> Inject:
    async def inject(scene: Scene) -> None:
        tools.cables.unplug("broker-a")
        await scene.goes_on()
        tools.cables.plug("broker-a")
        await scene.fleet.complete()

    return inject


def part_master_and_slave(tools: Tools) -> Inject:
    """Separate master and slave: the master stores messages without SEND_OK; the other pair returns SEND_OK."""

    async def inject(scene: Scene) -> None:
        before = sum(scene.load.ledger.refused.values())
        tools.cables.part("broker-a", ["broker-a-slave"])
        await until(lambda: sum(scene.load.ledger.refused.values()) > before, "the master misses its slave")
        await scene.goes_on()
        tools.cables.join("broker-a", ["broker-a-slave"])
        await scene.fleet.complete()

    return inject


def unplug_leader(tools: Tools) -> Inject:
    """Disconnect the leader completely: when it is back it must not believe that it still leads."""

    async def inject(scene: Scene) -> None:
        leader = await scene.fleet.leader()
        tools.cables.unplug(leader.name)
        await scene.goes_on(60)
        tools.cables.plug(leader.name)
        await scene.fleet.complete()

    return inject


def part_leader(tools: Tools) -> Inject:
    """Separate the leader from the other members but not from clients: it must step down and reject sends."""

    async def inject(scene: Scene) -> None:
        leader, others = await scene.fleet.leader(), [one.name for one in await followers(scene)]
        tools.cables.part(leader.name, others)
        await scene.goes_on(60)
        tools.cables.join(leader.name, others)
        await scene.fleet.complete()

    return inject


def part_follower(tools: Tools) -> Inject:
    """Separate a follower from the leader only: a leader with a majority must stay."""

    async def inject(scene: Scene) -> None:
        leader, one = await scene.fleet.leader(), (await followers(scene))[0]
        tools.cables.part(leader.name, [one.name])
        await scene.goes_on(60)
        tools.cables.join(leader.name, [one.name])
        await scene.fleet.complete()

    return inject


def deaf_leader(tools: Tools) -> Inject:
    """Let the leader send to the other members but not receive: it must notice, and another must lead."""

    async def inject(scene: Scene) -> None:
        leader, others = await scene.fleet.leader(), [one.name for one in await followers(scene)]
        tools.cables.deafen(leader.name, others)
        await scene.goes_on(60)
        tools.cables.undeafen(leader.name, others)
        await scene.fleet.complete()

    return inject


def jump(tools: Tools) -> Inject:
    """Set the clock of a master an hour ahead, back, and to a small offset."""

    async def inject(scene: Scene) -> None:
        master = await scene.fleet.leader()
        for seconds in (3600.0, -3600.0, scene.rng.uniform(-60, 60)):
            tools.clocks[master.name].set(seconds)
            await scene.goes_on()

    return inject


ENTRIES = [
    Entry(STATIC, "master killed", plain(faults.kill("broker-a"))),
    Entry(STATIC, "master frozen", plain(faults.freeze("broker-a"))),
    Entry(STATIC, "killed during recovery", plain(faults.kill_during_recovery)),
    Entry(STATIC, "name server killed", plain(faults.kill("namesrv")), only_long=True),
    Entry(STATIC, "master unplugged", unplug_master, NETWORK),
    Entry(STATIC, "clock of the master jumps", jump, CLOCKS),
    Entry(SYNC, "slave killed", plain(faults.kill("broker-a-slave"))),
    Entry(SYNC, "any killed", plain(faults.kill_any), only_long=True),
    Entry(SYNC, "rolling restart", plain(faults.rolling_restart)),
    Entry(SYNC, "master and slave parted", part_master_and_slave, NETWORK),
    Entry(ELECTED, "leader killed", plain(faults.kill_leader)),
    Entry(ELECTED, "follower killed", plain(faults.kill_follower)),
    Entry(ELECTED, "any killed", plain(faults.kill_any), only_long=True),
    Entry(ELECTED, "leader frozen", plain(faults.freeze_leader)),
    Entry(ELECTED, "follower frozen", plain(faults.freeze_follower), only_long=True),
    Entry(ELECTED, "majority killed", plain(faults.kill_majority)),
    Entry(ELECTED, "followers killed", plain(faults.kill_followers), only_long=True),
    Entry(ELECTED, "rolling restart", plain(faults.rolling_restart)),
    Entry(ELECTED, "killed during recovery", plain(faults.kill_during_recovery)),
    Entry(ELECTED, "directory lost", plain(faults.lose_directory)),
    Entry(ELECTED, "directory of another group", plain(faults.exchange_directory)),
    Entry(ELECTED, "backup restored", plain(faults.restore_backup)),
    Entry(ELECTED, "bits flipped", plain(faults.flip_bits)),
    Entry(ELECTED, "leader unplugged", unplug_leader, NETWORK),
    Entry(ELECTED, "leader parted from the others", part_leader, NETWORK),
    Entry(ELECTED, "follower parted from the leader", part_follower, NETWORK),
    Entry(ELECTED, "leader deaf", deaf_leader, NETWORK),
    Entry(ELECTED, "clock of the leader jumps", jump, CLOCKS),
]


def missing(environment: str) -> str | None:
    """Return why this environment is not available here, None if it is."""
    return no_namespaces() if environment == NETWORK else None


@contextlib.asynccontextmanager
async def cluster_in(form: str, environment: str, directory: Path) -> AsyncIterator[tuple[Fleet, Tools]]:
    """Run a cluster in its environment."""
    if environment == NETWORK:
        with network(form) as net:
            async with running(net.fleet(directory, **QUICK)) as fleet:
                yield fleet, Tools(net)
        return
    fleet = on_loopback(form, directory)
    clocks = {}
    if environment == CLOCKS:
        clocks = {machine.name: Clock(directory / machine.name) for machine in fleet.brokers}
    async with running(fleet, {name: clock.env for name, clock in clocks.items()}):
        yield fleet, Tools(clocks=clocks)
