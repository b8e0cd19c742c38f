"""Faults of a cluster under load, one function each.

A fault breaks something, checks that sends continue (or do not, where they must not), and repairs it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from firearrow.cli.main import run
from firearrow.ha.raft.hard_state import HARD_STATE_FILE, load_hard_state, save_hard_state
from firearrow.store.filesystem import RealDisk
from tests.chaos.fleet import Fleet, Machine
from tests.chaos.workload import Workload
from tests.support.waiting import until

FOREIGN = "its store directory belongs to another group"
RESUMED = 40  # acknowledged sends that count as recovery


@dataclass
class Scene:
    fleet: Fleet
    load: Workload
    rng: random.Random = field(default_factory=random.Random)

    async def goes_on(self, seconds: float = 30) -> None:
        await self.load.acknowledged(RESUMED, seconds)


Inject = Callable[[Scene], Awaitable[None]]


def kill(name: str) -> Inject:
    """Kill a member of a static cluster. The others continue, and it is restarted."""

    async def inject(scene: Scene) -> None:
        scene.fleet[name].kill()
        await scene.goes_on()
        await scene.fleet.restore()

    return inject


def freeze(name: str, seconds: float = 1.0) -> Inject:
    """Freeze a machine for a while."""

    async def inject(scene: Scene) -> None:
        scene.fleet[name].freeze()
        await asyncio.sleep(seconds)  # the fault itself: the machine hangs for so long
        await scene.goes_on()
        scene.fleet[name].thaw()

    return inject


async def kill_during_recovery(scene: Scene) -> None:
    """Kill a master, and again several times while it recovers."""
    machine = await scene.fleet.leader()
    machine.kill()
    for _ in range(3):
        machine.launch()
        await asyncio.sleep(scene.rng.uniform(0.1, 0.8))  # the fault itself: the process lives for so long
        machine.kill()
    await scene.goes_on()
    await scene.fleet.restore()


async def kill_any(scene: Scene) -> None:
    scene.rng.choice(scene.fleet.brokers).kill()
    await scene.goes_on()
    await scene.fleet.restore()


async def rolling_restart(scene: Scene) -> None:
    """Stop and restart every member gracefully, one at a time, including the name server."""
    for machine in scene.fleet.machines.values():
        machine.stop()
        await machine.start()
        await scene.fleet.complete()
        await scene.goes_on()


# Elected groups


async def kill_leader(scene: Scene) -> None:
    (await scene.fleet.leader()).kill()
    await scene.goes_on()
    await scene.fleet.restore()


async def kill_follower(scene: Scene) -> None:
    _one_of(scene, await followers(scene)).kill()
    await scene.goes_on()
    await scene.fleet.restore()


async def kill_majority(scene: Scene) -> None:
    """Kill the leader and another member: the rest must not acknowledge, and continues when one of them is back."""
    leader, other = await scene.fleet.leader(), _one_of(scene, await followers(scene))
    other.kill()
    leader.kill()
    await silence(scene)
    await other.start()
    await scene.goes_on()
    await scene.fleet.restore()


async def kill_followers(scene: Scene) -> None:
    """Kill all followers: a leader on its own must not acknowledge."""
    both = await followers(scene)
    for machine in both:
        machine.kill()
    await silence(scene)
    await both[0].start()
    await scene.goes_on()
    await scene.fleet.restore()


async def freeze_leader(scene: Scene) -> None:
    """Freeze the leader: another is elected, and the old one must notice that it was deposed."""
    leader = await scene.fleet.leader()
    leader.freeze()
    await scene.goes_on()
    leader.thaw()
    await scene.goes_on()


async def freeze_follower(scene: Scene) -> None:
    machine = _one_of(scene, await followers(scene))
    machine.freeze()
    await scene.goes_on()
    machine.thaw()


# Directories of an elected group


async def lose_directory(scene: Scene) -> None:
    """A follower returns without its files: it copies everything."""
    machine = _one_of(scene, await followers(scene))
    machine.kill()
    machine.lose_disk()
    await scene.goes_on()
    await scene.fleet.restore()


async def exchange_directory(scene: Scene) -> None:
    """A follower returns with the directory of another group, whose term is higher: it must leave the group."""
    machine = _one_of(scene, await followers(scene))
    machine.kill()
    path = str(machine.store / HARD_STATE_FILE)
    state = load_hard_state(RealDisk(), path)
    assert state is not None
    identity = replace(state.identity, group_id=state.identity.group_id ^ 1)
    save_hard_state(RealDisk(), path, replace(state, term=state.term + 100, voted_for=machine.name, identity=identity))
    before = machine.log.count(FOREIGN)
    await machine.start()
    await until(lambda: machine.log.count(FOREIGN) > before, f"{machine.name} leaves the group")
    await scene.goes_on()
    machine.kill()
    machine.lose_disk()
    await scene.fleet.restore()


async def restore_backup(scene: Scene) -> None:
    """A follower returns with an earlier state of its files, marked as the manual demands."""
    machine = _one_of(scene, await followers(scene))
    machine.stop()
    with tempfile.TemporaryDirectory(prefix="firearrow-chaos-") as directory:
        backup = Path(directory) / "store"
        shutil.copytree(machine.store, backup)
        await scene.fleet.restore()
        await scene.goes_on()
        machine.kill()
        machine.replace_disk(backup)
    assert run(["broker", "rejoin", str(machine.store), "--yes"]) == 0
    await scene.goes_on()
    await scene.fleet.restore()


async def flip_bits(scene: Scene) -> None:
    """Bits of a follower's log change while it is down. It must not serve or replicate the damage."""
    machine = _one_of(scene, await followers(scene))
    machine.kill()
    newest = sorted((machine.store / "commitlog").iterdir())[0]
    data = bytearray(newest.read_bytes())
    used = len(data.rstrip(b"\0"))
    for _ in range(5):
        data[scene.rng.randrange(used)] ^= 1 << scene.rng.randrange(8)
    newest.write_bytes(data)
    await scene.goes_on()
    await scene.fleet.restore()


async def followers(scene: Scene) -> list[Machine]:
    leader = await scene.fleet.leader()
    return [machine for machine in scene.fleet.brokers if machine is not leader]


async def silence(scene: Scene, seconds: float = 1.5) -> None:
    """Check that nothing is acknowledged, except sends that were in flight when the majority was lost."""
    await asyncio.sleep(0.3)
    before = len(scene.load.ledger.moments)
    await asyncio.sleep(seconds)
    assert len(scene.load.ledger.moments) == before, "a minority acknowledged"


def _one_of(scene: Scene, machines: Sequence[Machine]) -> Machine:
    return scene.rng.choice(machines)
