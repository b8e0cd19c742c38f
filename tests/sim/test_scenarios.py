"""Chosen faults of simulated groups: lost majorities, deaf leaders and starved machines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from firearrow.ha.raft.hard_state import mark_as_seed
from tests.sim.machine import DIRECTORY, Machine
from tests.sim.world import World


class Scenario(World):
    """A group without random faults."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.network.reset()

    def begin(self) -> None:
        self.start_machines()
        self.after(100, self.run_client)

    def pass_time(self, milliseconds: int, done: Callable[[], bool] = lambda: False) -> bool:
        """Run for so long, or until something holds. Return whether it does."""
        end = self.now + milliseconds
        self.run_until(end, done)
        return done()

    def acknowledges(self, milliseconds: int) -> bool:
        """Return whether a further message is acknowledged within this time."""
        before = self.acknowledged
        return self.pass_time(milliseconds, lambda: self.acknowledged > before)

    @property
    def leaders(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.leads]


@pytest.mark.parametrize("seed", range(10))
def test_members_that_lost_their_directories_form_no_second_group(seed: int) -> None:
    """Two of three lose everything. They acknowledge nothing, and continue with the third when the operator says so."""
    group = Scenario(seed)
    group.begin()
    assert group.acknowledges(20_000)
    assert group.pass_time(20_000, lambda: group.acknowledged > 20)
    machines = list(group.machines.values())
    survivors = len(machines) - len(machines) // 2 - 1
    for machine in machines:
        machine.stop(power_cut=False)
    lost = [machine for machine in machines if machine not in sorted(machines, key=history_of)[-survivors:]]
    for machine in lost:
        machine.wipe()
        machine.harmed = True
        group.restart(machine)
    assert not group.pass_time(20_000, lambda: bool(group.leaders))
    kept = [machine for machine in machines if machine not in lost]
    for machine in kept:
        group.restart(machine)
    assert not group.pass_time(20_000, lambda: bool(group.leaders))
    seed_machine = max(kept, key=history_of)
    seed_machine.stop(power_cut=False)
    mark_as_seed(seed_machine.disk, DIRECTORY)
    group.restart(seed_machine)
    assert group.acknowledges(60_000)
    assert group.pass_time(60_000, lambda: all(not machine.node.raft.quarantined for machine in machines if machine.node))
    assert not seed_machine.node or not seed_machine.node.raft.seed


def history_of(machine: Machine) -> int:
    """Return the size of a member's log."""
    return sum(machine.disk.file_size(path) for path in machine.disk.files(f"{DIRECTORY}/log/"))


@pytest.mark.parametrize("seed", range(10))
def test_new_group_is_formed_soon_when_all_members_run(seed: int) -> None:
    group = Scenario(seed)
    group.begin()
    assert group.acknowledges(2_000)


@pytest.mark.parametrize("seed", range(20))
def test_deaf_leader_is_replaced_within_three_seconds(seed: int) -> None:
    group = Scenario(seed)
    group.begin()
    assert group.acknowledges(20_000)
    group.pass_time(6_000)
    (leader,) = group.leaders
    group.network.blocked = {(other, leader.name) for other in group.machines if other != leader.name}
    assert group.pass_time(
        3_000, lambda: any(one is not leader and one.node and one.node.raft.is_ready_to_serve for one in group.leaders)
    )


@pytest.mark.parametrize("seed", range(20))
def test_starved_machines_elect_a_leader_and_keep_it(seed: int) -> None:
    """Every machine runs for a few milliseconds at a time, with pauses of up to 1.4 s."""
    group = Scenario(seed)
    for machine in group.machines.values():
        group.starve(machine, 300_000)
    group.begin()
    assert group.acknowledges(60_000)
    group.pass_time(30_000)
    before = len(group.invariants.leaders)
    group.pass_time(60_000)
    assert len(group.invariants.leaders) - before <= 3
