"""Durable state of a member of an elected group: its hard state (term, vote and identity) and its epoch table.

Identity. A group gets a random id when its first leader is elected (raft.py), and the other members adopt it. A log gets a random
id when its directory is first used. The name of the group and of the member are recorded, too: a directory of another group or
another member is rejected. Earlier versions recorded no identity; such a directory gets an id derived from the name of its group,
the same one on every member.

A member is quarantined when it may have lost bytes that it once acknowledged: its log was found damaged below what had been
durable, it came back without its files, or the operator restored them from a backup (`firearrow broker rejoin`). It follows, but
neither votes nor campaigns until it holds everything that a leader had after the quarantine began (raft.py).

The file `currterm` consists of `name=value` lines, the first two with DLedger's names:

    currTerm=7
    voteLeader=n0        empty: no vote in this term
    doubtful=false       whether the member is quarantined
    seed=true            only if the operator declared this log authoritative (`firearrow broker seed`)
    group=broker-a       dLegerGroup        | absent in directories of earlier versions
    member=n0            dLegerSelfId       |
    groupId=1f0c...      16 hex digits, 0: it has joined no group yet
    logId=9a3b...        16 hex digits      |
    crc=1234567          CRC-32 of the lines above, newlines included

The file `epochFileCheckpoint` contains the epoch table (epochs.py).

Both files are kept in two copies and are durable before a message that depends on them is sent. Saving replaces `<file>.bak`
first and `<file>` second, with the same content. After a crash in between, the copy is one step ahead, but no message about
that step has been sent, so both contents are valid. Loading therefore prefers the file and reads the copy only if the file is
damaged: the copy is never older. (A backup with the previous version, as the broker's tables have, would not do: with an older
vote the member could vote twice.)
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from hashlib import sha256
from typing import TypeVar

from firearrow.ha.raft.epochs import MAX_EPOCH, EpochTable
from firearrow.store.atomic_file import replace
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk

HARD_STATE_FILE = "currterm"
EPOCH_FILE = "epochFileCheckpoint"
COPY = ".bak"

Value = TypeVar("Value")


class DamagedFileError(StoreError):
    """A file and its copy are both unreadable."""


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The group and the member that a directory belongs to, and the id of its log."""

    group: str = ""
    member: str = ""
    group_id: int = 0
    log_id: int = 0


@dataclass(frozen=True, slots=True)
class HardState:
    term: int = 0
    voted_for: str | None = None
    quarantined: bool = False
    identity: LogIdentity = LogIdentity()
    seed: bool = False

    def encode(self) -> bytes:
        values = {"currTerm": str(self.term), "voteLeader": self.voted_for or "", "doubtful": str(self.quarantined).lower()}
        if self.seed:
            values["seed"] = "true"
        one = self.identity
        if one.member:
            values |= {
                "group": one.group,
                "member": one.member,
                "groupId": f"{one.group_id:016x}",
                "logId": f"{one.log_id:016x}",
            }
        lines = "".join(f"{name}={value}\n" for name, value in values.items()).encode()
        return lines + b"crc=%d\n" % zlib.crc32(lines)

    @classmethod
    def decode(cls, text: bytes) -> HardState:
        """Parse the file. The ValueError says what is wrong with it."""
        at = text.rfind(b"crc=")
        if at < 0:
            raise ValueError("vote file: the checksum is missing")
        lines, crc = text[:at], text[at + 4 :].strip()
        if crc != b"%d" % zlib.crc32(lines):
            raise ValueError(f"vote file: the checksum is {zlib.crc32(lines)}, the file says {crc[:20]!r}")
        values = dict(line.split("=", 1) for line in lines.decode().splitlines() if "=" in line)
        term = values.get("currTerm", "")
        if not term.isdigit() or int(term) > MAX_EPOCH:
            raise ValueError(f"vote file: currTerm is {term!r}, expected 0 to {MAX_EPOCH}")
        identity = LogIdentity(
            values.get("group", ""),
            values.get("member", ""),
            int(values.get("groupId", "0"), 16),
            int(values.get("logId", "0"), 16),
        )
        quarantined, seed = values.get("doubtful") == "true", values.get("seed") == "true"
        return cls(int(term), values.get("voteLeader") or None, quarantined, identity, seed)


def new_id(rng: random.Random) -> int:
    """Return a random id of a group or of a log."""
    return rng.getrandbits(63) + 1


def id_of_unidentified_group(group: str) -> int:
    """Return the id of a group whose directories were written by a version without ids."""
    return int.from_bytes(sha256(b"group without id\n" + group.encode()).digest()[:8], "big") >> 1


def load_hard_state(disk: Disk, path: str) -> HardState | None:
    """Return None if this member was never started. Raises DamagedFileError if neither copy can be read."""
    return _load_two_copies(disk, path, HardState.decode)


def save_hard_state(disk: Disk, path: str, state: HardState) -> None:
    _save_two_copies(disk, path, state.encode())


def mark_for_rejoin(disk: Disk, directory: str, rng: random.Random) -> HardState | None:
    """Quarantine the member whose directory was restored from a backup. Return its state, None if it never had one.

    The restored log gets another id: it does not hold what the log with its id has acknowledged.
    """
    path = os.path.join(directory, HARD_STATE_FILE)
    state = load_hard_state(disk, path)
    if state is not None:
        identity = replace_fields(state.identity, log_id=new_id(rng))
        state = replace_fields(state, quarantined=True, seed=False, identity=identity)
        save_hard_state(disk, path, state)
    return state


def mark_as_seed(disk: Disk, directory: str) -> HardState:
    """Declare the log in a directory, which may be empty, authoritative for members without data. Return its state."""
    path = os.path.join(directory, HARD_STATE_FILE)
    state = replace_fields(load_hard_state(disk, path) or HardState(), quarantined=False, seed=True)
    save_hard_state(disk, path, state)
    return state


def load_epochs(disk: Disk, path: str) -> EpochTable | None:
    """Return None if no table was saved yet. Raises DamagedFileError if neither copy can be read."""
    return _load_two_copies(disk, path, EpochTable.decode)


def save_epochs(disk: Disk, path: str, table: EpochTable) -> None:
    _save_two_copies(disk, path, table.encode())


def _save_two_copies(disk: Disk, path: str, content: bytes) -> None:
    disk.mkdirs(os.path.dirname(path))
    replace(disk, path + COPY, content)
    replace(disk, path, content)


def _load_two_copies(disk: Disk, path: str, decode: Callable[[bytes], Value]) -> Value | None:
    """Return the decoded file or its copy, None if neither exists. `decode` raises ValueError for damaged content.

    A copy without a file is left by a first save that was interrupted. Nothing depends on it yet, and it is valid.
    """
    problems = []
    for target in (path, path + COPY):
        if not disk.exists(target):
            continue
        try:
            return decode(disk.read_bytes(target))
        except ValueError as error:
            problems.append(f"{target}: {error}")
    if problems:
        raise DamagedFileError(
            f"{'; '.join(problems)}. This member stays out of its group. If the other members are healthy, stop it, move its "
            "store directory away and start it again: it then copies everything from them"
        )
    return None
