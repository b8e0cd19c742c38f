"""Faults of simulated groups, chosen at random.

They stay within what a group tolerates: durable bytes are damaged, lost, exchanged or restored from a backup on fewer than half
of the members at a time. Power cuts, stops, pauses, starvation, partitions and full or failing disks may affect all members at
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.ha.raft.raft import Role
from tests.sim.machine import Machine, PowerCut
from tests.store.simdisk import SimulatedDisk

if TYPE_CHECKING:
    from tests.sim.world import World

_OFTEN = ("partition", "flip", "blackout", "leader_cut_off", "power_cut_soon", "heal")
_SELDOM = ("kill", "power_cut", "leader_killed", "pause", "full", "disk_error", "lost_disk", "weather", "transfer", "expire")
_NEWER = ("foreign_disk", "restored_backup", "deaf_leader", "starve")
_FAULTS = (*_OFTEN, *_OFTEN, *_SELDOM, *_NEWER)


class FaultSchedule:
    """Injects a random fault at random intervals. Each public method is a fault."""

    def __init__(self, world: World) -> None:
        self._world = world

    def strike(self) -> None:
        if not self._world.faulty:
            return
        self.clear_repaired()
        machine = self._world.rng.choice(list(self._world.machines.values()))
        kind = self._world.rng.choice(_FAULTS)
        text = getattr(self, kind)(machine)
        self._world.trace(f"-- {kind}: {text}")
        self._world.after(self._world.rng.choice((10, 100, 300, 1200)), self.strike)

    def clear_repaired(self) -> None:
        for machine in self._world.machines.values():
            if machine.harmed and machine.is_repaired():
                machine.harmed = False

    def kill(self, machine: Machine) -> str:
        if machine.node is not None:
            self._world.stop(machine, power_cut=False, why="killed")
        return machine.name

    def power_cut(self, machine: Machine) -> str:
        if machine.node is not None:
            self._world.stop(machine, power_cut=True, why="power cut")
        return machine.name

    def blackout(self, _: Machine) -> str:
        for machine in self._world.machines.values():
            self.power_cut(machine)
        return "everywhere"

    def power_cut_soon(self, machine: Machine) -> str:
        operations = self._world.rng.randint(0, 60)
        machine.cut_power_after(operations)
        return f"{machine.name} after {operations} operations of its disk"

    def leader_killed(self, machine: Machine) -> str:
        leaders = [other for other in self._world.machines.values() if other.leads]
        return self.power_cut(self._world.rng.choice(leaders)) if leaders else "no leader"

    def pause(self, machine: Machine) -> str:
        if machine.node is not None and machine.paused_until >= 0:
            machine.paused_until = self._world.now + self._world.rng.choice((100, 1200, 4000))
        return f"{machine.name} until {machine.paused_until}"

    def full(self, machine: Machine) -> str:
        machine.fill()
        self._world.after(self._world.rng.randint(100, 4000), machine.heal_disk)
        return machine.name

    def disk_error(self, machine: Machine) -> str:
        machine.break_disk()
        self._world.after(self._world.rng.randint(100, 4000), machine.heal_disk)
        return machine.name

    def flip(self, machine: Machine) -> str:
        if self._exceeds_tolerance(machine):
            return "not now"
        return f"{machine.name} {machine.flip_a_bit()}"

    def _exceeds_tolerance(self, machine: Machine) -> bool:
        """Return whether the group could not tolerate damage to this member."""
        weak = sum(other.is_weak() for other in self._world.machines.values() if other is not machine)
        return weak >= self._world.few or machine.harmed

    def lost_disk(self, machine: Machine) -> str:
        """Replace a member's disk with an empty one. The others may be down."""
        if self._exceeds_tolerance(machine):
            return "not now"
        machine.wipe()
        machine.harmed = True
        self._world.after(5000, lambda: self._world.restart(machine))
        return machine.name

    def foreign_disk(self, machine: Machine) -> str:
        """Start a member with the directory of another group. The operator notices some time later."""
        if self._exceeds_tolerance(machine):
            return "not now"
        machine.use_foreign_disk()
        machine.harmed = True
        self._world.restart(machine)
        self._world.after(self._world.rng.choice((1000, 4000)), lambda: self._remove_foreign_disk(machine))
        return machine.name

    def _remove_foreign_disk(self, machine: Machine) -> None:
        if machine.foreign:
            machine.wipe()
            self._world.restart(machine)

    def restored_backup(self, machine: Machine) -> str:
        """Back a member up and restore the backup some time later."""
        if machine.foreign:
            return "not now"
        backup = machine.disk.backup()
        self._world.after(self._world.rng.choice((500, 2500)), lambda: self._restore(machine, backup))
        return f"{machine.name} is backed up"

    def _restore(self, machine: Machine, backup: SimulatedDisk) -> None:
        if not self._world.faulty or self._exceeds_tolerance(machine):
            return
        self._world.trace(f"-- {machine.name} is restored from a backup")
        machine.restore(backup)
        machine.harmed = True
        self._world.after(self._world.rng.choice((50, 1500)), lambda: self._world.restart(machine))

    def deaf_leader(self, _: Machine) -> str:
        """Let a leader send but not receive."""
        leaders = [other.name for other in self._world.machines.values() if other.leads]
        for leader in leaders:
            self._world.network.blocked |= {(other, leader) for other in self._world.machines if other != leader}
        return f"{leaders}"

    def starve(self, machine: Machine) -> str:
        """Let some machines run in short slices only."""
        until = self._world.now + self._world.rng.choice((1000, 4000))
        for one in self._world.rng.choice(([machine], list(self._world.machines.values()))):
            self._world.starve(one, until)
        return f"until {until}"

    def partition(self, _: Machine) -> str:
        network = self._world.network
        return self._world.rng.choice((network.split, network.split, network.one_way, network.bridge, network.ring))()

    def leader_cut_off(self, machine: Machine) -> str:
        """Isolate a leader, which continues to accept messages; its successor may fail soon afterwards."""
        leaders = [other for other in self._world.machines.values() if other.leads and other.paused_until <= self._world.now]
        if not leaders:
            return "no leader"
        leader = self._world.rng.choice(leaders)
        others = [name for name in self._world.machines if name != leader.name]
        self._world.network.blocked |= {pair for name in others for pair in ((name, leader.name), (leader.name, name))}
        for _ in range(self._world.rng.randint(1, 20)):
            self._world.on(leader, lambda: self._world.send_to(leader))
        back = self._world.rng.choice((500, 2500, 4000))
        self._world.after(back, self._world.network.heal)
        if self._world.rng.random() < 0.5:
            self._world.after(
                self._world.rng.randint(1000, back + 1500), lambda: self._world.faulty and self.leader_killed(machine)
            )
        return f"{leader.name} for {back} ms"

    def heal(self, _: Machine) -> str:
        return self._world.network.heal()

    def weather(self, _: Machine) -> str:
        return self._world.network.randomize()

    def transfer(self, machine: Machine) -> str:
        leaders = [other for other in self._world.machines.values() if other.leads and other is not machine]
        if leaders:
            leader = leaders[0]

            def hand_over() -> None:
                if leader.leads and leader.node:
                    leader.node.transfer_leadership(machine.name, leader.clock())

            self._world.on(leader, hand_over)
        return f"to {machine.name}"

    def expire(self, machine: Machine) -> str:
        if machine.node is None or machine.log is None or machine.node.raft.role is Role.HALTED:
            return "not now"
        try:
            machine.log.expire(self._world.rng.randint(0, machine.node.raft.commit))
        except (OSError, PowerCut):
            self._world.stop(machine, power_cut=True, why="power cut at retention")
            return machine.name
        return f"{machine.name} begins at {machine.log.min_offset}"
