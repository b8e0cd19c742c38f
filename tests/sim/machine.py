"""The machine of one member: a disk that outlives its processes, a clock of its own, and possibly a process."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence

from firearrow.ha.raft.epochs import Epoch, EpochTable
from firearrow.ha.raft.hard_state import (
    COPY,
    EPOCH_FILE,
    HARD_STATE_FILE,
    DamagedFileError,
    HardState,
    LogIdentity,
    mark_for_rejoin,
    save_epochs,
    save_hard_state,
)
from firearrow.ha.raft.node import RaftNode
from firearrow.ha.raft.raft import Options, Role
from firearrow.store.errors import StoreError
from tests.sim.model_log import ModelLog
from tests.sim.simulated_store import SimulatedStore
from tests.store.simdisk import SimulatedDisk

DIRECTORY = "/store"


class PowerCut(BaseException):
    """A power cut during an operation. It is not an error that code could handle."""


class Machine:
    """One machine. `real`: with the broker's store instead of the model log."""

    def __init__(
        self,
        name: str,
        members: Sequence[str],
        options: Options,
        rng: random.Random,
        now_ms: Callable[[], int],
        *,
        real: bool = False,
    ) -> None:
        self.name = name
        self.members = members
        self.options = options
        self.node: RaftNode | None = None
        self.log: ModelLog | SimulatedStore | None = None
        self._kind: type[ModelLog | SimulatedStore] = SimulatedStore if real else ModelLog
        self.disk = SimulatedDisk()
        self.lives = 0
        self.paused_until = 0
        self.sync_planned = self.backlog_planned = False
        self.harmed = False  # durable bytes were damaged and are not completely repaired
        self.damaged_for_good = ""
        self.foreign = False  # its files belong to another group
        self._rng = rng
        self._now = now_ms
        self._skew = rng.randint(0, 10**6)
        self._rate = rng.uniform(0.97, 1.03)
        self._operations_left: int | None = None
        self._check: Callable[[str, str], None] = self.disk.check
        self._use(self.disk)

    def clock(self) -> int:
        return int(self._now() * self._rate) + self._skew

    @property
    def leads(self) -> bool:
        return self.node is not None and self.node.raft.role is Role.LEADER

    # Processes

    def start(self) -> str:
        """Open the files. Return what happened; after a failure the machine has no process."""
        assert self.node is None
        self.lives += 1
        try:
            log = self._kind(self.disk, DIRECTORY, self._now)
            self.node = RaftNode(
                "group",
                self.members,
                self.name,
                disk=self.disk,
                directory=DIRECTORY,
                log=log,
                options=self.options,
                rng=random.Random(self._rng.getrandbits(64)),
                now_ms=self.clock(),
            )
            self.log = log
            log.began(self.node.raft)
        except DamagedFileError as error:
            self.damaged_for_good = str(error)
            return f"stays out: {error}"
        except (OSError, StoreError) as error:
            return f"does not start: {error}"
        state = self.node.raft
        log_range = f"{log.min_offset}..{log.end_offset}"
        return f"starts: term {state.term} log {log_range} epochs {state.epochs} quarantined {state.quarantined}"

    def stop(self, *, power_cut: bool) -> None:
        self.node = self.log = None
        self.sync_planned = self.backlog_planned = False
        self.paused_until = 0
        self._operations_left = None
        self._use(self.disk.power_cut(self._rng) if power_cut else self.disk.copy())

    def wipe(self) -> None:
        self.replace_disk(SimulatedDisk())

    def replace_disk(self, disk: SimulatedDisk) -> None:
        """Stop the process and continue with other files."""
        self.node = self.log = None
        self.sync_planned = self.backlog_planned = False
        self.paused_until = 0
        self._operations_left = None
        self.damaged_for_good = ""
        self.foreign = False
        self._use(disk)

    def use_foreign_disk(self) -> None:
        """Continue with the directory of another group, whose history is longer."""
        disk = SimulatedDisk()
        disk.mkdirs(DIRECTORY)
        identity = LogIdentity("group", self.name, self._rng.getrandbits(62) + 1, self._rng.getrandbits(62) + 1)
        save_hard_state(disk, f"{DIRECTORY}/{HARD_STATE_FILE}", HardState(500, self.name, identity=identity))
        save_epochs(disk, f"{DIRECTORY}/{EPOCH_FILE}", EpochTable([Epoch(500, 0)]))
        self.replace_disk(disk)
        self.foreign = True

    def restore(self, backup: SimulatedDisk) -> None:
        """Continue with an earlier state of the files, marked as the operator's manual demands."""
        self.replace_disk(backup)
        mark_for_rejoin(backup, DIRECTORY, self._rng)

    # Disk faults

    def fill(self) -> None:
        self.disk.fail("pwrite", "", errno.ENOSPC)

    def break_disk(self) -> None:
        self.disk.fail(self._rng.choice(("fdatasync", "pwrite", "truncate", "pread")), "", errno.EIO)

    def heal_disk(self) -> None:
        self.disk.heal()

    def cut_power_after(self, operations: int) -> None:
        self._operations_left = operations

    def flip_a_bit(self) -> str:
        """Flip a bit in a log file or in one of the two copies of a small file."""
        files = [
            path
            for path in self.disk.files(DIRECTORY)
            if self._kind.can_be_harmed(path) and ".tmp" not in path and self.disk.read_bytes(path)
        ]
        if not files:
            return "nothing to flip"
        path = self._rng.choice(files)
        at = self._rng.randrange(self.disk.file_size(path))
        bit = 1 << self._rng.randrange(8)
        inode = self.disk.inode(path)
        before = self._kind.good_bytes(self.disk, DIRECTORY)
        inode.data[at] ^= bit
        unnoticed = "log" in path and self._kind.good_bytes(self.disk, DIRECTORY) == before
        if unnoticed or (self.log is not None and not self.log.may_flip(path, at)):
            inode.data[at] ^= bit
            return "no checksum covers this bit, or it is in memory; unchanged"
        if at < len(inode.durable):
            inode.durable[at] ^= bit
        self.harmed = True
        return f"bit flipped at {at} of {path}"

    def is_weak(self) -> bool:
        """Return whether this member may lack what it acknowledged. A group of three does not tolerate two of these."""
        if self.harmed or not self.disk.exists(f"{DIRECTORY}/currterm"):
            return True
        if self.node is not None:
            return self.node.raft.quarantined or self.node.raft.epochs.last == 0
        return HardState.decode(self.disk.read_bytes(f"{DIRECTORY}/currterm")).quarantined

    def is_repaired(self) -> bool:
        """Return whether all damage is repaired: the log and both copies of the small files are valid."""
        if self.node is None or self.log is None or self.node.raft.role is Role.HALTED or self.node.raft.quarantined:
            return False
        if self.foreign or not self.node.raft.epochs.entries:
            return False
        if not self.log.is_sound():
            return False
        for name, decode in (("currterm", HardState.decode), ("epochFileCheckpoint", EpochTable.decode)):
            for path in (f"{DIRECTORY}/{name}", f"{DIRECTORY}/{name}{COPY}"):
                try:
                    if self.disk.exists(path):
                        decode(self.disk.read_bytes(path))
                except ValueError:
                    return False
        return True

    def _use(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        check = disk.check

        def counted(operation: str, path: str) -> None:
            if self._operations_left is not None and self.node is not None and operation != "pread":
                self._operations_left -= 1
                if self._operations_left < 0:
                    raise PowerCut
            check(operation, path)

        disk.check = counted  # type: ignore[method-assign]  # the fault hook of the disk
