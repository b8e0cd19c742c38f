"""Watches a simulated group and says when a promise is broken; what the promises are, world.py says.

It keeps one history, of what was ever confirmed, and compares with it what every member says and shows.
"""

from __future__ import annotations

from collections.abc import Iterable

from firearrow.ha.raft.raft import Role
from firearrow.store.errors import StoreError
from firearrow.wire.errors import ProtocolError
from tests.sim.book import BrokenPromiseError, ExpectationLedger
from tests.sim.machine import Machine
from tests.sim.storelog import SimulatedStore, bodies


class Judge:
    def __init__(self, book: ExpectationLedger) -> None:
        self.history = bytearray()
        self.leaders: dict[int, str] = {}  # by term
        self.sent: dict[tuple[int, int], bytes] = {}  # (term, offset): record
        self._book = book
        self._seen_commit: dict[str, tuple[int, int]] = {}  # life, commit

    def check(self, machine: Machine) -> bool:
        """After every event on a machine. True if a leader has confirmed more than before."""
        node, log = machine.node, machine.log
        assert node is not None
        assert log is not None
        raft = node.raft
        if isinstance(log, SimulatedStore):
            if log.store.confirm_offset > raft.commit:
                raise BrokenPromiseError(
                    f"{machine.name} shows what is not confirmed: {log.store.confirm_offset} > {raft.commit}"
                )
            self._check_visible(machine, log)
        if raft.role is Role.HALTED:
            if self.leaders.get(raft.term) == machine.name and raft.commit > len(self.history):
                self._extend_history(machine)  # its last words may have told others
            if "Nothing was truncated" in raft.halt_reason or "both lead" in raft.halt_reason:
                raise BrokenPromiseError(raft.halt_reason)
            return False
        if raft.role is Role.LEADER and self.leaders.get(raft.term) != machine.name:
            self._check_new_leader(machine)
        life, seen = self._seen_commit.get(machine.name, (0, 0))
        if life != machine.lives:
            seen = log.min_offset
        if raft.commit < seen and life == machine.lives:
            raise BrokenPromiseError(f"{machine.name}: commit went back from {seen} to {raft.commit}")
        if raft.commit <= seen and life == machine.lives:
            return False
        self._check_commit(machine, max(seen, log.min_offset))
        self._seen_commit[machine.name] = (machine.lives, raft.commit)
        return raft.role is Role.LEADER

    def _check_visible(self, machine: Machine, log: SimulatedStore) -> None:
        try:
            shown = log.newly_visible()
        except (OSError, StoreError):
            return  # its disk fails: later
        except ProtocolError as error:
            if machine.harmed:
                return  # a consumer sees that, too
            raise BrokenPromiseError(f"{machine.name} shows what is no message: {error}") from error
        if not machine.harmed:
            for body, stored_ms in shown:
                self._book.seen(body, stored_ms, machine.name)

    def _check_new_leader(self, machine: Machine) -> None:
        assert machine.node is not None
        assert machine.log is not None
        term = machine.node.raft.term
        if term in self.leaders:
            raise BrokenPromiseError(f"term {term} is led by {self.leaders[term]} and {machine.name}")
        self.leaders[term] = machine.name
        start, end = machine.log.min_offset, len(self.history)
        if machine.log.end_offset < end:
            raise BrokenPromiseError(
                f"{machine.name} leads term {term} with a log up to {machine.log.end_offset}; confirmed is {end}"
            )
        if not machine.harmed and machine.log.raw_range(start, end) != self.history[start:]:
            raise BrokenPromiseError(f"{machine.name} leads term {term} with another log than what is confirmed")

    def _check_commit(self, machine: Machine, seen: int) -> None:
        assert machine.node is not None
        assert machine.log is not None
        commit = machine.node.raft.commit
        if commit <= seen:
            return
        data = machine.log.raw_range(seen, commit)
        known = min(commit, len(self.history))
        if data[: max(0, known - seen)] != self.history[seen:known] and not machine.harmed:
            raise BrokenPromiseError(f"{machine.name}: confirmed bytes {seen} to {commit} are not those confirmed before")
        if commit > len(self.history):
            if machine.node.raft.role is not Role.LEADER:
                raise BrokenPromiseError(f"{machine.name} calls {commit} confirmed before its leader did")
            self._extend_history(machine)
            if data != self.history[seen:commit] and not machine.harmed:
                raise BrokenPromiseError(f"{machine.name}: confirmed bytes {seen} to {commit} are not what was sent")

    def _extend_history(self, machine: Machine) -> None:
        """With what clients sent, not with what a disk says: its bytes may have been changed a moment ago."""
        assert machine.node is not None
        raft = machine.node.raft
        while len(self.history) < raft.commit:
            at = len(self.history)
            epoch = max(entry.epoch for entry in raft.epochs.entries if entry.start <= at)
            if (epoch, at) not in self.sent:
                raise BrokenPromiseError(f"{machine.name}: nobody sent what is confirmed at {at} in epoch {epoch}")
            record = self.sent[epoch, at]
            self.history += record
            assert machine.log is not None
            shown = machine.log.shown(record)
            if shown is not None:
                self._book.seen(*shown, f"the log, confirmed by {machine.name},")

    def compare(self, machines: Iterable[Machine]) -> None:
        """The trouble is over: everybody has all of it."""
        for machine in machines:
            assert machine.log is not None
            start = machine.log.min_offset
            if not machine.harmed and machine.log.raw_range(start, machine.log.end_offset) != self.history[start:]:
                raise BrokenPromiseError(f"{machine.name}: its log is not the confirmed one")
            if isinstance(machine.log, SimulatedStore) and not machine.harmed:
                self._compare_visible(machine.name, machine.log)

    def _compare_visible(self, name: str, log: SimulatedStore) -> None:
        shown, confirmed = log.visible(), bodies(bytes(self.history))
        if shown != confirmed[len(confirmed) - len(shown) :] or (log.min_offset == 0 and len(shown) != len(confirmed)):
            raise BrokenPromiseError(
                f"{name} shows {len(shown)} messages that are not the last of the {len(confirmed)} confirmed"
            )
