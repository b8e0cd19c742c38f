"""Simulation of an elected group under a virtual clock, driven by one seed: machines, network, clients and faults.

After every event these invariants hold, or the run ends with InvariantViolationError and the seed:

- One leader per term.
- Logs agree up to the committed offset: what any member ever considers committed is part of one history, which only grows.
- An acknowledged message is in that history at its acknowledged offset, and every leader has the whole history.
- No member halts because it was asked to truncate committed bytes.
- No half of a transaction is ever visible, and nothing is visible before its time (ledger.py), neither in the log nor, over the
  broker's store, to a reader at any member.
- Over the broker's store (`real`): no member shows a consumer uncommitted messages, and at the end every member shows every
  committed message in log order.

When the faults (fault_schedule.py) end, the group must recover: one leader, the same log everywhere, new messages acknowledged.
Over the broker's store, acknowledged messages that are due are delivered, too.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from firearrow.ha.raft.raft import Options, Role
from firearrow.store.errors import StoreError
from firearrow.wire.errors import ProtocolError
from tests.sim.fault_schedule import FaultSchedule
from tests.sim.invariants import InvariantChecker
from tests.sim.ledger import ExpectationLedger, InvariantViolationError, Kind, Message
from tests.sim.machine import Machine, PowerCut
from tests.sim.model_log import ModelLog
from tests.sim.network import Network
from tests.sim.simulated_store import SimulatedStore

FAULTS_MS = 12_000
RECOVERY_MS = 90_000  # copying a lost log takes a while with small windows and slow disks
DELIVERY_MS = 15_000
TIMED_SHARE = 0.3  # of the runs over the broker's store, because the file of a timer wheel is large


@dataclass
class Pending:
    """Written bytes that wait to be committed."""

    machine: Machine
    life: int
    term: int
    start: int
    data: bytes
    messages: list[Message]  # acknowledged with it, or whose decision is


class World:
    """One simulated group."""

    def __init__(self, seed: int, *, trace: bool = False, real: bool = False) -> None:
        self.seed = seed
        self.real = real
        self.rng = random.Random(seed)
        self.now = 0
        self.lines: list[str] | None = [] if trace else None
        self._queue: list[tuple[int, int, Callable[[], object]]] = []
        self.events = 0
        members = [f"n{i}" for i in range(self.rng.choice((3, 3, 5)))]
        options = Options(
            heartbeat_ms=200,
            election_ms=1000,
            resend_ms=1000,
            batch_bytes=self.rng.choice((1200, 4000, 256 << 10)),
            window_bytes=self.rng.choice((6000, 20_000, 8 << 20)),
            slice_bytes=self.rng.choice((1200, 512 << 10)),
            preferred_leader=self.rng.choice((None, None, "n0")),
        )
        self.network = Network(self.rng, members)
        self.machines = {name: Machine(name, members, options, self.rng, lambda: self.now, real=real) for name in members}
        self.few = (len(members) - 1) // 2  # so many may lose durable bytes
        self.pending: list[Pending] = []
        self.acknowledged = 0
        kinds = [Kind.PLAIN, Kind.PLAIN, Kind.DELAYED, Kind.HALF, Kind.HALF]
        if not real or self.rng.random() < TIMED_SHARE:
            kinds.append(Kind.TIMED)
        self.ledger = ExpectationLedger(self.rng, kinds, lambda: self.now)
        self.faults = FaultSchedule(self)
        self.invariants = InvariantChecker(self.ledger)
        self.faulty = True
        self._acknowledged_before_recovery = 0

    def start_machines(self) -> None:
        for machine in self.machines.values():
            self._start(machine)
            self._tick_later(machine)
            self.after(self.rng.randint(500, 1500), partial(self._copy_tables, machine))

    def run(self) -> None:
        self.start_machines()
        self.after(self.rng.randint(500, 2500), self.faults.strike)
        self.after(100, self.run_client)
        self.run_until(FAULTS_MS)
        self.faulty = False
        self._end_faults()
        self.run_until(FAULTS_MS + RECOVERY_MS, self._recovered)
        if not self._recovered():
            raise InvariantViolationError(f"no recovery: {self.describe()}")
        self.invariants.compare(self.machines.values())
        if self.real:
            self.run_until(self.now + DELIVERY_MS, lambda: not self.ledger.waiting())
            if self.ledger.missing():
                raise InvariantViolationError(f"acknowledged, due and not delivered: {self.ledger.missing()}; {self.describe()}")

    def run_until(self, end: int, done: Callable[[], bool] = lambda: False) -> None:
        """Run events up to a time, or until something holds."""
        while self._queue and self._queue[0][0] <= end and not done():
            self.now, _, event = heapq.heappop(self._queue)
            event()
        if not done():
            self.now = end

    def after(self, delay_ms: int, event: Callable[[], object]) -> None:
        self.events += 1
        heapq.heappush(self._queue, (self.now + delay_ms, self.events, event))

    def trace(self, text: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.now:6d} {text}")

    def describe(self) -> str:
        states = []
        for machine in self.machines.values():
            if machine.node is None:
                states.append(f"{machine.name} down {machine.damaged_for_good}")
            else:
                raft = machine.node.raft
                states.append(
                    f"{machine.name} {raft.role.value} term {raft.term} end {raft.end} durable {raft.durable} "
                    f"commit {raft.commit} epochs {raft.epochs} quarantined {raft.quarantined} {raft.halt_reason}"
                )
        return "; ".join(states) + f"; history {len(self.invariants.history)}"

    def delivered_bodies(self) -> list[bytes]:
        """Return the bodies that consumers can read at the end of a run over the broker's store, repeated ones as well."""
        logs = [machine.log for machine in self.machines.values() if isinstance(machine.log, SimulatedStore)]
        return max(logs, key=lambda log: log.store.confirm_offset).bodies()

    # Machines

    def _start(self, machine: Machine) -> None:
        if machine.node is None:
            self.trace(f"{machine.name} {machine.start()}")
            self._settle(machine)

    def _tick_later(self, machine: Machine) -> None:
        delay = self.rng.randint(40, 60)
        planned = self.now + delay

        def tick() -> None:
            if machine.paused_until > self.now:  # the timer of a process that does not run
                self.after(machine.paused_until - self.now, tick)
                return
            self.on(machine, lambda: self._tick(machine, self.now - planned))
            self._tick_later(machine)

        self.after(delay, tick)

    def starve(self, machine: Machine, until: int) -> None:
        """Let a machine run for a few milliseconds only, with long pauses, until a time."""
        if self.now >= until:
            return
        pause = self.rng.randint(200, 1400)
        if machine.node is not None and machine.paused_until >= 0:
            machine.paused_until = max(machine.paused_until, self.now + pause)
        self.after(pause + self.rng.randint(1, 30), lambda: self.starve(machine, until))

    def _tick(self, machine: Machine, late_ms: int) -> None:
        if machine.node is not None and machine.log is not None:
            machine.node.tick(machine.clock(), late_ms)
            machine.log.tick()
            if machine.leads:
                self._store(machine, _work)

    def on(self, machine: Machine, action: Callable[[], object]) -> None:
        """Run an action on a machine, after its pause if it is paused."""
        if machine.paused_until > self.now:
            self.after(machine.paused_until - self.now, lambda: self.on(machine, action))
            return
        if machine.node is None:
            return
        try:
            action()
            self._apply_to_broker(machine)
        except PowerCut:
            self.stop(machine, power_cut=True, why="power cut in the middle of a write")
            return
        self._settle(machine)

    def _apply_to_broker(self, machine: Machine) -> None:
        """Let the broker of a machine react to the state of its Raft member."""
        node, log = machine.node, machine.log
        if node is None or log is None or node.raft.role is Role.HALTED:
            return
        try:
            log.settle(node.raft)
        except (OSError, StoreError) as error:
            self.trace(f"{machine.name} cannot use its log: {error}")
            node.failed(error)

    def _settle(self, machine: Machine) -> None:
        """Send messages, schedule requested work and check the invariants."""
        node = machine.node
        if node is None:
            return
        for line in node.log_lines:
            self.trace(line)
        node.log_lines.clear()
        for receiver, data in node.outbox:
            for delay, arrived in self.network.carry(machine.name, receiver, data):
                self.after(delay, partial(self._deliver, self.machines[receiver], arrived))
        node.outbox.clear()
        if node.sync_wanted and not machine.sync_planned:
            machine.sync_planned = True
            life = machine.lives
            slow = self.rng.random() < 0.1
            self.after(self.rng.randint(100, 1500) if slow else self.rng.randint(1, 15), lambda: self._sync(machine, life))
        if node.raft.has_backlog and not machine.backlog_planned:
            machine.backlog_planned = True
            self.after(1, partial(self._send_backlog, machine, machine.lives))
        if self.invariants.check(machine):
            self._acknowledge(machine)
        elif node.raft.role is Role.HALTED:
            self._restart_later(machine)

    def _sync(self, machine: Machine, life: int) -> None:
        def sync() -> None:
            if machine.lives == life and machine.node is not None:
                machine.sync_planned = False
                machine.node.sync(machine.clock())

        self.on(machine, sync)

    def _send_backlog(self, machine: Machine, life: int) -> None:
        def send() -> None:
            if machine.lives == life and machine.node is not None:
                machine.backlog_planned = False
                machine.node.send_backlog(machine.clock())

        self.on(machine, send)

    def _deliver(self, machine: Machine, data: bytes) -> None:
        def receive() -> None:
            assert machine.node is not None
            try:
                machine.node.received(data, machine.clock())
            except ProtocolError as error:
                self.trace(f"{machine.name} rejects a message: {error}")

        self.on(machine, receive)

    def stop(self, machine: Machine, *, power_cut: bool, why: str) -> None:
        self.trace(f"{machine.name} stops: {why}")
        machine.stop(power_cut=power_cut)
        self.after(self.rng.choice((50, 300, 1500, 4000)), lambda: self.restart(machine))

    def restart(self, machine: Machine) -> None:
        if machine.node is None:
            self._start(machine)
            if machine.damaged_for_good and not self.faulty:  # as its error message demands: with an empty directory
                machine.wipe()
            if machine.node is None and not machine.damaged_for_good:
                self.after(1000, lambda: self.restart(machine))

    # Clients

    def run_client(self) -> None:
        if self._served_after_recovery():
            return
        leaders = [machine for machine in self.machines.values() if machine.leads and machine.paused_until <= self.now]
        if leaders:
            machine = self.rng.choice(leaders)
            self.on(machine, lambda: self.send_to(machine))
        self.after(self.rng.randint(10, 120), self.run_client)

    def send_to(self, machine: Machine) -> None:
        messages = [self.ledger.new() for _ in range(self.rng.randint(1, 4))]

        def send(log: ModelLog | SimulatedStore) -> list[Message]:
            return [message for message in messages if log.send(message)]

        self._store(machine, send)

    def _store(self, machine: Machine, work: Callable[[ModelLog | SimulatedStore], list[Message]]) -> bool:
        """Let a leader's broker store something. Return False if it cannot.

        The messages that `work` returns are acknowledged when they are committed.
        """
        node, log = machine.node, machine.log
        if node is None or log is None or not node.raft.accepts_appends or not log.serving:
            return False
        term = node.raft.term

        def note(offset: int, record: bytes) -> None:
            self.invariants.sent[term, offset] = record

        try:
            messages = work(log)
            start, data = log.write(note)
        except (OSError, StoreError) as error:
            node.failed(error)
            return False
        if data:
            self.pending.append(Pending(machine, machine.lives, node.raft.term, start, data, messages))
            node.appended(machine.clock())
        return True

    def _decide_later(self, message: Message) -> None:
        """Schedule the producer's decision on a stored half message; some producers never decide."""
        fate = self.rng.choice((True, True, True, False, None))
        if fate is not None:
            self.after(self.rng.randint(20, 3000), lambda: self._decide(message, fate, tries=8))

    def _decide(self, message: Message, fate: bool, tries: int) -> None:
        leaders = [machine for machine in self.machines.values() if machine.leads and machine.paused_until <= self.now]
        done = False

        def decide(log: ModelLog | SimulatedStore) -> list[Message]:
            nonlocal done
            message.decision = fate
            done = log.decide(message)
            return [message] if done else []

        if leaders:
            machine = self.rng.choice(leaders)
            self.on(machine, lambda: self._store(machine, decide))
        if not done and tries:
            self.after(self.rng.randint(100, 1000), lambda: self._decide(message, fate, tries - 1))

    def _copy_tables(self, machine: Machine) -> None:
        """Copy the tables that are not in the log from the leader."""
        self.after(self.rng.randint(800, 1200), lambda: self._copy_tables(machine))
        leader = self.machines.get(machine.node.raft.leader or "") if machine.node is not None else None
        there = self.network.carry(machine.name, leader.name, b"?") if leader is not None and leader is not machine else []
        if leader is None or not there:
            return
        life = machine.lives

        def answer() -> None:
            assert leader.log is not None
            tables = leader.log.tables()
            back = self.network.carry(leader.name, machine.name, b"!")
            if tables is not None and back:
                self.after(back[0][0], lambda: self.on(machine, lambda: take(tables)))

        def take(tables: dict[str, Any]) -> None:
            if machine.lives == life and isinstance(machine.log, SimulatedStore):
                machine.log.take_over(tables)

        self.after(there[0][0], lambda: self.on(leader, answer))

    def _acknowledge(self, machine: Machine) -> None:
        assert machine.node is not None
        raft = machine.node.raft
        still = []
        for pending in self.pending:
            mine = pending.machine is machine and pending.life == machine.lives and pending.term == raft.term
            end = pending.start + len(pending.data)
            if mine and end <= raft.commit:
                if self.invariants.history[pending.start : end] != pending.data and not machine.harmed:
                    raise InvariantViolationError(
                        f"acknowledged at {pending.start}, but not in the history: {pending.data[:40]!r}"
                    )
                self.acknowledged += 1
                self._acknowledge_messages(pending.messages)
            else:
                still.append(pending)
        self.pending = still

    def _acknowledge_messages(self, messages: list[Message]) -> None:
        for message in messages:
            if message.number in self.ledger.acknowledged:
                message.decided = True
            else:
                self.ledger.acknowledged.add(message.number)
                if message.kind is Kind.HALF:
                    self._decide_later(message)

    def _restart_later(self, machine: Machine) -> None:
        """Restart a halted member. Unsynced bytes may be lost."""
        life = machine.lives
        if machine.paused_until == -life:
            return
        machine.paused_until = -life

        def restart_now() -> None:
            if machine.lives == life and machine.node is not None:
                self.stop(machine, power_cut=self.rng.random() < 0.5, why="halted: " + machine.node.raft.halt_reason)

        self.after(self.rng.randint(100, 2000), restart_now)

    def _recovered(self) -> bool:
        rafts = [machine.node.raft for machine in self.machines.values() if machine.node is not None]
        leaders = [raft for raft in rafts if raft.role is Role.LEADER]
        return (
            self._served_after_recovery()
            and len(rafts) == len(self.machines)
            and len(leaders) == 1
            and leaders[0].is_ready_to_serve
            and all(raft.commit == leaders[0].commit == raft.end and not raft.quarantined for raft in rafts)
        )

    def _served_after_recovery(self) -> bool:
        return not self.faulty and self.now > FAULTS_MS + 2000 and self.acknowledged > self._acknowledged_before_recovery

    def _end_faults(self) -> None:
        self.trace("-- the faults end")
        self.network.heal()
        self.network.reset()
        self._acknowledged_before_recovery = self.acknowledged
        self.faults.clear_repaired()
        for machine in self.machines.values():
            machine.heal_disk()
            machine.cut_power_after(10**9)
            if machine.paused_until > self.now:
                machine.paused_until = self.now
            if machine.damaged_for_good or machine.foreign:
                machine.wipe()
            self.after(self.rng.randint(0, 3000), partial(self.restart, machine))


def _work(log: ModelLog | SimulatedStore) -> list[Message]:
    log.work()
    return []
