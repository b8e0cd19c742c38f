"""Checks of a simulated group against the invariants of world.py.

One history of everything ever committed is kept, and each member's state and visible messages are compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from firearrow.ha.raft.raft import Role
from firearrow.store.errors import StoreError
from firearrow.wire.errors import ProtocolError
from tests.sim.ledger import ExpectationLedger, InvariantViolationError
from tests.sim.machine import Machine
from tests.sim.simulated_store import SimulatedStore, bodies


class InvariantChecker:
    """The history of a group and the checks against it."""

    def __init__(self, ledger: ExpectationLedger) -> None:
        self.history = bytearray()
        self.leaders: dict[int, str] = {}  # by term
        self.sent: dict[tuple[int, int], bytes] = {}  # (term, offset): record
        self._ledger = ledger
        self._seen_commit: dict[str, tuple[int, int]] = {}  # life, commit

    def check(self, machine: Machine) -> bool:
        """Check a machine after an event. Return True if a leader has committed more than before."""
        node, log = machine.node, machine.log
        assert node is not None
        assert log is not None
        raft = node.raft
        if isinstance(log, SimulatedStore):
            if log.store.confirm_offset > raft.commit:
                raise InvariantViolationError(
                    f"{machine.name} shows uncommitted messages: {log.store.confirm_offset} > {raft.commit}"
                )
            self._check_visible(machine, log)
        if raft.role is Role.HALTED:
            if self.leaders.get(raft.term) == machine.name and raft.commit > len(self.history):
                self._extend_history(machine)  # it may have told others before it halted
            if "Nothing was truncated" in raft.halt_reason or "both lead" in raft.halt_reason:
                raise InvariantViolationError(raft.halt_reason)
            return False
        if raft.role is Role.LEADER and self.leaders.get(raft.term) != machine.name:
            self._check_new_leader(machine)
        life, seen = self._seen_commit.get(machine.name, (0, 0))
        if life != machine.lives:
            seen = log.min_offset
        if raft.commit < seen and life == machine.lives:
            raise InvariantViolationError(f"{machine.name}: the committed offset decreased from {seen} to {raft.commit}")
        if raft.commit <= seen and life == machine.lives:
            return False
        self._check_commit(machine, max(seen, log.min_offset))
        self._seen_commit[machine.name] = (machine.lives, raft.commit)
        return raft.role is Role.LEADER

    def _check_visible(self, machine: Machine, log: SimulatedStore) -> None:
        try:
            shown = log.newly_visible()
        except (OSError, StoreError):
            return  # the disk is failing: check later
        except ProtocolError as error:
            if machine.harmed:
                return  # a consumer notices the damage, too
            raise InvariantViolationError(f"{machine.name} shows an invalid message: {error}") from error
        if not machine.harmed:
            for body, stored_ms in shown:
                self._ledger.seen(body, stored_ms, machine.name)

    def _check_new_leader(self, machine: Machine) -> None:
        assert machine.node is not None
        assert machine.log is not None
        term = machine.node.raft.term
        if term in self.leaders:
            raise InvariantViolationError(f"term {term} is led by {self.leaders[term]} and {machine.name}")
        self.leaders[term] = machine.name
        start, end = machine.log.min_offset, len(self.history)
        if machine.log.end_offset < end:
            raise InvariantViolationError(
                f"{machine.name} leads term {term} with a log up to {machine.log.end_offset}; committed is {end}"
            )
        if not machine.harmed and machine.log.raw_range(start, end) != self.history[start:]:
            raise InvariantViolationError(f"{machine.name} leads term {term} with a log that differs from the committed one")

    def _check_commit(self, machine: Machine, seen: int) -> None:
        assert machine.node is not None
        assert machine.log is not None
        commit = machine.node.raft.commit
        if commit <= seen:
            return
        data = machine.log.raw_range(seen, commit)
        known = min(commit, len(self.history))
        if data[: max(0, known - seen)] != self.history[seen:known] and not machine.harmed:
            raise InvariantViolationError(
                f"{machine.name}: committed bytes {seen} to {commit} differ from those committed before"
            )
        if commit > len(self.history):
            if machine.node.raft.role is not Role.LEADER:
                raise InvariantViolationError(f"{machine.name} considers {commit} committed before its leader")
            self._extend_history(machine)
            if data != self.history[seen:commit] and not machine.harmed:
                raise InvariantViolationError(f"{machine.name}: committed bytes {seen} to {commit} differ from what was sent")

    def _extend_history(self, machine: Machine) -> None:
        """Extend the history with what clients sent, not with bytes from a disk, which may just have been damaged."""
        assert machine.node is not None
        raft = machine.node.raft
        while len(self.history) < raft.commit:
            at = len(self.history)
            epoch = max(entry.epoch for entry in raft.epochs.entries if entry.start <= at)
            if (epoch, at) not in self.sent:
                raise InvariantViolationError(f"{machine.name}: no client sent what is committed at {at} in epoch {epoch}")
            record = self.sent[epoch, at]
            self.history += record
            assert machine.log is not None
            shown = machine.log.shown(record)
            if shown is not None:
                self._ledger.seen(*shown, f"the log, committed by {machine.name},")

    def compare(self, machines: Iterable[Machine]) -> None:
        """Check after recovery that every member has the whole history."""
        for machine in machines:
            assert machine.log is not None
            start = machine.log.min_offset
            if not machine.harmed and machine.log.raw_range(start, machine.log.end_offset) != self.history[start:]:
                raise InvariantViolationError(f"{machine.name}: its log is not the committed one")
            if isinstance(machine.log, SimulatedStore) and not machine.harmed:
                self._compare_visible(machine.name, machine.log)

    def _compare_visible(self, name: str, log: SimulatedStore) -> None:
        shown, committed = log.visible(), bodies(bytes(self.history))
        if shown != committed[len(committed) - len(shown) :] or (log.min_offset == 0 and len(shown) != len(committed)):
            raise InvariantViolationError(
                f"{name} shows {len(shown)} messages that are not the last of the {len(committed)} committed"
            )
