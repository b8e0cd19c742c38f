"""Simulated groups in the ordinary test run: the same seeds each time, some new ones, and all that ever failed.

`make sim SEEDS=1000` runs as many as one likes.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow.broker.deferred.delay_levels import DelayService
from firearrow.broker.transaction.service import Transactions
from firearrow.ha.raft.raft import Raft
from tests.sim.book import BrokenPromiseError, Kind
from tests.sim.modelbroker import ModelBroker
from tests.sim.modellog import ModelLog, records
from tests.sim.network import Network
from tests.sim.storelog import SimulatedStore
from tests.sim.world import World
from tests.store.simdisk import SimulatedDisk

ALWAYS = range(20)
STORE_ALWAYS = range(8)
NEW = [secrets.randbelow(10**9) for _ in range(6)]


def failed(log: str) -> list[int]:
    """Seeds that once broke a promise over this log."""
    lines = Path(__file__).with_name("failed_seeds.txt").read_text().splitlines()
    words = [line.split() for line in lines if line[:1].isdigit()]
    return [int(seed) for seed, *only in words if log in (only or [log])]


@pytest.mark.parametrize("seed", [*ALWAYS, *failed("model")])
def test_a_group_keeps_its_promises(seed: int) -> None:
    World(seed).run()


@pytest.mark.parametrize("seed", [*STORE_ALWAYS, *failed("store")])
def test_a_group_over_the_brokers_store_keeps_them_too(seed: int) -> None:
    World(seed, real=True).run()


def test_so_do_groups_nobody_has_seen_before() -> None:
    for seed in NEW:
        print(f"seed {seed}")  # shown when it fails; scripts/sim --seed replays it
        World(seed).run()
    for seed in NEW[:2]:
        print(f"seed {seed} --log store")
        World(seed, real=True).run()


def test_a_store_that_shows_too_much_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose consumers read what its own disk has, whatever the group says."""

    def show_everything(self: SimulatedStore, raft: Raft) -> None:
        as_it_should(self, raft)
        self.store.replica.index_new_records()
        self.store.confirm(self.store.max_offset)

    as_it_should = SimulatedStore.settle
    monkeypatch.setattr(SimulatedStore, "settle", show_everything)
    with pytest.raises(BrokenPromiseError, match="shows what is not confirmed"):
        World(1, real=True).run()


def test_a_half_that_is_seen_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that stores halves where their messages belong."""
    monkeypatch.setattr(Transactions, "defer", lambda *_: False)
    with pytest.raises(BrokenPromiseError, match="half of a transaction that nobody has decided about"):
        World(1, real=True).run()


def test_what_comes_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker whose clock for delays is a second ahead."""
    on_time = DelayService.tick
    monkeypatch.setattr(DelayService, "tick", lambda self, now_ms: on_time(self, now_ms + 1000))
    with pytest.raises(BrokenPromiseError, match="it is due at"):
        World(1, real=True).run()


def test_what_is_not_delivered_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that takes over and knows nothing of what its predecessor had waiting."""
    monkeypatch.setattr(DelayService, "tick", lambda self, now_ms: False)
    with pytest.raises(BrokenPromiseError, match="acknowledged, due and not delivered"):
        World(1, real=True).run()


@pytest.mark.parametrize(
    ("sabotaged", "complaint"),
    [
        ({"payload": lambda self, message: b"plain 0 " + message.body}, "half of a transaction|it is due at"),
        ({"due": lambda self, now_ms: ModelBroker.due_ever(self, now_ms + 1000)}, "it is due at"),
    ],
)
def test_the_model_is_held_to_it_too(
    sabotaged: dict[str, Callable[..., object]], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelBroker, "due_ever", ModelBroker.due, raising=False)
    for name, replacement in sabotaged.items():
        monkeypatch.setattr(ModelBroker, name, replacement)
    with pytest.raises(BrokenPromiseError, match=complaint):
        World(1).run()


def test_a_seed_replays() -> None:
    first, second = World(7, trace=True), World(7, trace=True)
    first.run()
    second.run()
    assert first.lines == second.lines
    assert first.events == second.events
    assert first.judge.history == second.judge.history
    assert len(first.judge.history) > 1000


def test_the_runs_are_not_idle() -> None:
    """What must hold is only worth something where something happens."""
    worlds = [World(seed, trace=True) for seed in range(100, 110)]
    for world in worlds:
        world.run()
    lines = "\n".join(line for world in worlds for line in world.lines or [])
    assert sum(world.acknowledged for world in worlds) > 300
    seen = [world.book.messages[number] for world in worlds for number in world.book.delivered]
    assert all(sum(message.kind is kind for message in seen) > 30 for kind in Kind)
    assert sum(len(world.judge.leaders) for world in worlds) > 20
    for word in (
        "power cut",
        "truncates its log",
        "steps down",
        "does not vote",
        "votes again",
        "bit flipped",
        "has left its group",
        "transfers the leadership",
    ):
        assert word in lines, word


class Forgetful(World):
    """A group whose first machine loses what it had confirmed, and nobody notices."""

    def _client(self) -> None:
        super()._client()
        for machine in self.machines.values():
            if machine.log is not None and machine.log.end_offset and machine.node is not None:
                machine.log.truncate(0)
                machine.node.raft.end = machine.node.raft.durable = machine.node.raft.commit = 0


def test_a_broken_promise_is_seen() -> None:
    with pytest.raises((BrokenPromiseError, AssertionError)):
        Forgetful(1).run()


def test_every_kind_of_partition_leaves_what_its_name_says() -> None:
    members = ["n0", "n1", "n2", "n3", "n4"]
    network = Network(random.Random(1), members)
    network.ring()
    for member in members:
        heard = [other for other in members if other != member and (other, member) not in network.blocked]
        assert len(heard) == 2
    network.bridge()
    assert sum(all((other, member) not in network.blocked for other in members) for member in members) == 1
    network.split()
    assert all((b, a) in network.blocked for a, b in network.blocked)
    network.heal()
    assert network.blocked == set()


def test_the_model_log_tells_a_torn_tail_from_a_loss() -> None:
    disk = SimulatedDisk()
    log = ModelLog(disk, "/store")
    log.append(0, records(0, [b"a" * 600, b"b" * 600]))
    end = log.sync()
    log.append(end, records(end, [b"c" * 5000]))
    cut = ModelLog(disk.power_cut(random.Random(3)), "/store")
    assert cut.end_offset >= end
    assert not cut.lost
    disk._inode("/store/log/00000000000000000000").data[700] ^= 1
    damaged = ModelLog(disk, "/store")
    assert damaged.end_offset == 616
    assert damaged.lost
    assert sum(map(len, damaged.aside)) == end - 616 + 5016
