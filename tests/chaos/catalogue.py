"""Every fault that is injected round after round, with the form of cluster and the surroundings that it needs."""

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

# A slave learns of topics and is missed, and a broken connection is noticed, sooner than by default.
QUICK = {"slaveSyncInterval": "300", "slaveTimeout": "500", "haHousekeepingInterval": "2000", "haSendHeartbeatInterval": "300"}


@dataclass
class Tools:
    """What a fault may use of its surroundings."""

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
    surroundings: str = LOOPBACK
    only_long: bool = False  # left out of ordinary runs, which have others like it


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
    """The master keeps what is sent and does not say SEND_OK; the other pair does."""

    async def inject(scene: Scene) -> None:
        before = sum(scene.load.book.refused.values())
        tools.cables.part("broker-a", ["broker-a-slave"])
        await until(lambda: sum(scene.load.book.refused.values()) > before, "the master misses its slave")
        await scene.goes_on()
        tools.cables.join("broker-a", ["broker-a-slave"])
        await scene.fleet.complete()

    return inject


def unplug_leader(tools: Tools) -> Inject:
    """Nobody reaches it, it reaches nobody: it must not think that it still leads when it is back."""

    async def inject(scene: Scene) -> None:
        leader = await scene.fleet.leader()
        tools.cables.unplug(leader.name)
        await scene.goes_on(60)
        tools.cables.plug(leader.name)
        await scene.fleet.complete()

    return inject


def part_leader(tools: Tools) -> Inject:
    """Clients and name server reach it, the other members do not: it must step down and say so."""

    async def inject(scene: Scene) -> None:
        leader, others = await scene.fleet.leader(), [one.name for one in await followers(scene)]
        tools.cables.part(leader.name, others)
        await scene.goes_on(60)
        tools.cables.join(leader.name, others)
        await scene.fleet.complete()

    return inject


def part_follower(tools: Tools) -> Inject:
    """It reaches the other follower, but not the leader: a leader that has a majority must stay."""

    async def inject(scene: Scene) -> None:
        leader, one = await scene.fleet.leader(), (await followers(scene))[0]
        tools.cables.part(leader.name, [one.name])
        await scene.goes_on(60)
        tools.cables.join(leader.name, [one.name])
        await scene.fleet.complete()

    return inject


def jump(tools: Tools) -> Inject:
    """The clock of a master is set an hour ahead, back, and somewhere near."""

    async def inject(scene: Scene) -> None:
        master = await scene.fleet.leader()
        for seconds in (3600.0, -3600.0, scene.rng.uniform(-60, 60)):
            tools.clocks[master.name].set(seconds)
            await scene.goes_on()

    return inject


ENTRIES = [
    Entry(STATIC, "master killed", plain(faults.kill("broker-a"))),
    Entry(STATIC, "master frozen", plain(faults.freeze("broker-a"))),
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
    Entry(ELECTED, "leader unplugged", unplug_leader, NETWORK),
    Entry(ELECTED, "leader parted from the others", part_leader, NETWORK),
    Entry(ELECTED, "follower parted from the leader", part_follower, NETWORK),
    Entry(ELECTED, "clock of the leader jumps", jump, CLOCKS),
]


def missing(surroundings: str) -> str | None:
    """Why these surroundings cannot be had here, if so."""
    return no_namespaces() if surroundings == NETWORK else None


@contextlib.asynccontextmanager
async def scenery(form: str, surroundings: str, directory: Path) -> AsyncIterator[tuple[Fleet, Tools]]:
    """A running cluster in its surroundings."""
    if surroundings == NETWORK:
        with network(form) as net:
            async with running(net.fleet(directory, **QUICK)) as fleet:
                yield fleet, Tools(net)
        return
    fleet = on_loopback(form, directory)
    clocks = {}
    if surroundings == CLOCKS:
        clocks = {machine.name: Clock(directory / machine.name) for machine in fleet.brokers}
    async with running(fleet, {name: clock.env for name, clock in clocks.items()}):
        yield fleet, Tools(clocks=clocks)
