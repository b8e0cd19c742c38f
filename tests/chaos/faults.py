"""What is done to a cluster under load, one function for each kind of fault: it breaks something, sees that sends go on (or that
they do not, where they must not), and mends it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.chaos.fleet import Fleet, Machine
from tests.chaos.workload import Workload

GOES_ON = 40  # sends that must be acknowledged before it is believed that they are again


@dataclass
class Scene:
    fleet: Fleet
    load: Workload
    rng: random.Random = field(default_factory=random.Random)

    async def goes_on(self, seconds: float = 30) -> None:
        await self.load.acknowledged(GOES_ON, seconds)


Inject = Callable[[Scene], Awaitable[None]]


def kill(name: str) -> Inject:
    """Of static clusters. The others go on; what was killed comes back."""

    async def inject(scene: Scene) -> None:
        scene.fleet[name].kill()
        await scene.goes_on()
        await scene.fleet.mend()

    return inject


def freeze(name: str, seconds: float = 1.0) -> Inject:
    """A machine that does nothing for a while and then goes on as if nothing had been."""

    async def inject(scene: Scene) -> None:
        scene.fleet[name].freeze()
        await asyncio.sleep(seconds)  # the fault itself: so long it hangs
        await scene.goes_on()
        scene.fleet[name].thaw()

    return inject


async def kill_any(scene: Scene) -> None:
    scene.rng.choice(scene.fleet.brokers).kill()
    await scene.goes_on()
    await scene.fleet.mend()


async def rolling_restart(scene: Scene) -> None:
    """One after the other is stopped in good order and started again, the name server too."""
    for machine in scene.fleet.machines.values():
        machine.stop()
        await machine.start()
        await scene.fleet.complete()
        await scene.goes_on()


# ---- elected groups


async def kill_leader(scene: Scene) -> None:
    (await scene.fleet.leader()).kill()
    await scene.goes_on()
    await scene.fleet.mend()


async def kill_follower(scene: Scene) -> None:
    _one_of(scene, await followers(scene)).kill()
    await scene.goes_on()
    await scene.fleet.mend()


async def kill_majority(scene: Scene) -> None:
    """The leader and another one: what is left must not acknowledge, and goes on when one of them is back."""
    leader, other = await scene.fleet.leader(), _one_of(scene, await followers(scene))
    other.kill()
    leader.kill()
    await silence(scene)
    await other.start()
    await scene.goes_on()
    await scene.fleet.mend()


async def kill_followers(scene: Scene) -> None:
    """A leader that is alone must not acknowledge."""
    both = await followers(scene)
    for machine in both:
        machine.kill()
    await silence(scene)
    await both[0].start()
    await scene.goes_on()
    await scene.fleet.mend()


async def freeze_leader(scene: Scene) -> None:
    """Another is elected; the old one wakes up and must see that it is none any more."""
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


async def followers(scene: Scene) -> list[Machine]:
    leader = await scene.fleet.leader()
    return [machine for machine in scene.fleet.brokers if machine is not leader]


async def silence(scene: Scene, seconds: float = 1.5) -> None:
    """What was under way when the majority went may still be answered; from then on nothing is acknowledged."""
    await asyncio.sleep(0.3)
    before = len(scene.load.book.moments)
    await asyncio.sleep(seconds)
    assert len(scene.load.book.moments) == before, "a minority acknowledged"


def _one_of(scene: Scene, machines: Sequence[Machine]) -> Machine:
    return scene.rng.choice(machines)
