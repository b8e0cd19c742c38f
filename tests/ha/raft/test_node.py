"""A member with its files: the order of writes, and the state it derives from existing files."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest

from firearrow.ha.raft.epochs import Epoch, EpochTable
from firearrow.ha.raft.hard_state import DamagedFileError, HardState, load_hard_state, save_epochs, save_hard_state
from firearrow.ha.raft.messages import AppendEntries, Codec, Message, Probe, RequestVote
from firearrow.ha.raft.node import RaftNode
from firearrow.ha.raft.raft import Options, Role
from firearrow.store.errors import StoreError
from firearrow.wire.errors import ProtocolError
from tests.sim.model_log import ModelLog, records
from tests.store.simdisk import SimulatedDisk

MEMBERS = ["n0", "n1", "n2"]
VOTE, TABLE = "/store/currterm", "/store/epochFileCheckpoint"


class WatchedDisk(SimulatedDisk):
    """A disk that records the order of file operations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def check(self, operation: str, path: str) -> None:
        if operation != "pread" and "mark" not in path:
            self.seen.append(f"{operation} {path.removeprefix('/store/')}")
        super().check(operation, path)


def start(disk: SimulatedDisk) -> RaftNode:
    disk.mkdirs("/store")
    log = ModelLog(disk, "/store")
    return RaftNode("g", MEMBERS, "n0", disk=disk, directory="/store", log=log, options=Options(), rng=random.Random(1), now_ms=0)


def from_n1(message: Message) -> bytes:
    return Codec("g", MEMBERS, "n1").encode("n0", message)


def table(*entries: tuple[int, int]) -> EpochTable:
    return EpochTable(Epoch(*entry) for entry in entries)


def filled(payloads: int = 3) -> tuple[SimulatedDisk, int]:
    """Return a follower's disk with a log of epoch 1."""
    disk = SimulatedDisk()
    node = start(disk)
    data = records(0, [b"x" * 100] * payloads)
    node.received(from_n1(Probe(1, 0, 0, 0, table((1, 0)))), 10)
    node.received(from_n1(AppendEntries(1, 0, len(data), 0, 0, data)), 20)
    node.sync(30)
    return disk, len(data)


def test_vote_is_durable_in_both_copies_before_the_response_is_sent() -> None:
    disk = SimulatedDisk()
    node = start(disk)
    node.received(from_n1(RequestVote(3, 0, 0)), 10)
    assert len(node.outbox) == 1
    cut = disk.power_cut(random.Random(1))
    saved = load_hard_state(cut, VOTE)
    assert saved is not None
    assert (saved.term, saved.voted_for, saved.quarantined) == (3, "n1", False)
    assert cut.read_bytes(VOTE) == cut.read_bytes(VOTE + ".bak")


def test_no_response_is_sent_when_the_vote_cannot_be_saved() -> None:
    disk = SimulatedDisk()
    node = start(disk)
    disk.fail("fdatasync", "currterm", errno.EIO)
    node.received(from_n1(RequestVote(3, 0, 0)), 10)
    assert node.outbox == []
    assert node.raft.role is Role.HALTED
    assert "has left its group: [Errno 5]" in node.log_lines[-1]
    assert "Restart this member when its disk is repaired" in node.log_lines[-1]


def test_log_is_truncated_before_the_table_and_the_table_saved_before_bytes() -> None:
    filled_disk, end = filled()
    disk = WatchedDisk()
    disk.directories = filled_disk.directories
    node = start(disk)
    disk.seen.clear()
    node.received(from_n1(Probe(2, 0, 500, 0, table((2, 0)))), 10)
    node.received(from_n1(AppendEntries(2, 0, 500, 0, 0, records(0, [b"other"]))), 20)
    order = [step for step in disk.seen if step.startswith(("truncate log", "create", "pwrite"))]
    assert order == [
        "create currterm.bak.tmp",
        "pwrite currterm.bak.tmp",
        "create currterm.tmp",
        "pwrite currterm.tmp",
        "truncate log/00000000000000000000",
        "create epochFileCheckpoint.bak.tmp",
        "pwrite epochFileCheckpoint.bak.tmp",
        "create epochFileCheckpoint.tmp",
        "pwrite epochFileCheckpoint.tmp",
        "pwrite log/00000000000000000000",
    ]
    assert end > 300


def test_epochs_behind_the_end_of_the_log_are_dropped() -> None:
    disk, end = filled()
    save_epochs(disk, TABLE, table((1, 0), (2, end), (3, end + 100)))
    assert start(disk).raft.epochs == table((1, 0), (2, end))
    assert disk.read_bytes(TABLE) == table((1, 0), (2, end)).encode()


def test_damaged_log_quarantines_the_member_until_it_is_repaired() -> None:
    disk, _ = filled()
    disk.inode("/store/log/00000000000000000000").data[150] ^= 1
    node = start(disk)
    assert node.raft.quarantined
    assert node.raft.end == 116
    assert node.log_lines == ["n0 does not vote until it has caught up: durable bytes of its log are missing or damaged"]
    assert start(disk).raft.quarantined  # persists across restarts


def test_log_without_vote_is_quarantined_and_without_table_does_not_start() -> None:
    disk, _ = filled()
    disk.unlink(VOTE)
    disk.unlink(VOTE + ".bak")
    assert start(disk).raft.quarantined
    disk, _ = filled()
    disk.unlink(TABLE)
    disk.unlink(TABLE + ".bak")
    with pytest.raises(StoreError, match="does not belong to an elected group"):
        start(disk)


@pytest.mark.parametrize("path", [VOTE, TABLE])
def test_member_starts_with_one_damaged_copy_but_not_with_two(path: str) -> None:
    disk, _ = filled()
    save_hard_state(disk, VOTE, HardState(5, "n2"))
    start(disk)
    disk.inode(path).data[3] ^= 4
    assert start(disk).raft.voted_for == "n2"
    disk.inode(path + ".bak").data[3] ^= 4
    with pytest.raises(DamagedFileError, match="stays out of its group"):
        start(disk)


def test_log_reset_quarantines_the_member_only_while_it_lasts() -> None:
    disk, _ = filled()
    node = start(disk)
    node.received(from_n1(Probe(4, 5000, 9000, 8000, table((3, 4000), (4, 9000)))), 10)
    assert (node.raft.end, node.raft.epochs, node.raft.quarantined) == (5000, table((3, 4000)), False)
    again = start(disk)
    assert (again.raft.end, again.raft.epochs, again.raft.quarantined) == (5000, table((3, 4000)), False)


@pytest.mark.parametrize("operations", range(0, 60))
def test_log_reset_interrupted_at_any_step_leaves_no_table_for_the_wrong_log(operations: int) -> None:
    class Dark(BaseException):
        pass

    disk, _ = filled()
    node = start(disk)
    left = operations
    check = disk.check

    def counted(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Dark
        check(operation, path)

    disk.check = counted  # type: ignore[method-assign]
    with suppress(Dark):
        node.received(from_n1(Probe(4, 5000, 9000, 8000, table((3, 4000), (4, 9000)))), 10)
    again = start(disk.power_cut(random.Random(operations))).raft
    old = (again.end, again.epochs) == (348, table((1, 0)))
    new = (again.end, again.epochs) == (5000, table((3, 4000)))
    assert old or new or again.quarantined
    assert not again.epochs.entries or old or new


def test_messages_of_other_groups_are_rejected_without_effect() -> None:
    node = start(SimulatedDisk())
    with pytest.raises(ProtocolError, match="compare dLegerGroup"):
        node.received(Codec("other", MEMBERS, "n1").encode("n0", RequestVote(9, 9, 9)), 10)
    assert node.raft.term == 0
