"""Which epoch wrote which range of the commit log: the table that makes a physical offset a raft position.

An entry (epoch, start) says: from `start` to the start of the next entry, the bytes were written by the leader of term `epoch`. A
term has one leader and a leader begins its epoch once, so an epoch has the same start wherever it is known, and two logs that
share an epoch are equal up to where the shorter of them leaves it. That is raft's log matching, with one comparison an epoch
instead of one an entry.

The entry is also the mark that raft wants at the start of a term: a member whose table ends with the current term holds
everything its leader began with, without a byte in the log itself.

Invariants: epochs and starts both rise strictly. An epoch that wrote nothing is replaced by the next that starts at its place, so
elections without traffic leave nothing behind.

The file is Apache's `epochFileCheckpoint`: a line with the number of entries, a line with the CRC-32 of the entry lines (31 bits,
0 when unchecked), then `epoch-start` a line. It is kept twice: the copy (`.bak`) is replaced first, the file itself second, each
durable before the next step. So a good file is what was decided last or the step before it, and when the file is damaged the
copy is at least as new.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from firearrow.ha.raft.raft_files import load_twice, save_twice
from firearrow.store.filesystem import Disk

FILE_NAME = "epochFileCheckpoint"
MAX_EPOCH = 2**31 - 1  # Apache's epochs are int32
MAX_OFFSET = 2**63 - 1
MAX_ENTRIES = 4096


class Epoch(NamedTuple):
    epoch: int
    start: int


class EpochTable:
    """Not changed in place: every change gives a new table, which is the current one once its file is written."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[Epoch] = ()) -> None:
        self.entries = tuple(entries)
        previous = Epoch(0, -1)
        for entry in self.entries:
            if not (previous.epoch < entry.epoch <= MAX_EPOCH and previous.start < entry.start <= MAX_OFFSET):
                raise ValueError(f"epoch table: {entry} cannot follow {previous}: epochs and starts must rise")
            previous = entry
        if len(self.entries) > MAX_ENTRIES:
            raise ValueError(f"epoch table: {len(self.entries)} entries, at most {MAX_ENTRIES} are possible")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochTable) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return " ".join(f"{epoch}@{start}" for epoch, start in self.entries) or "empty"

    @property
    def last(self) -> int:
        """The newest epoch; 0 when nobody ever led."""
        return self.entries[-1].epoch if self.entries else 0

    def begun(self, epoch: int, start: int, min_offset: int) -> EpochTable:
        """The table of the leader that begins `epoch`: without an empty epoch at the same place, and without those that ended
        before the log begins."""
        kept = [entry for entry in self.entries if entry.start < start]
        while len(kept) > 1 and kept[1].start <= min_offset:
            del kept[0]
        return EpochTable([*kept[-(MAX_ENTRIES - 1) :], Epoch(epoch, start)])

    def up_to(self, end: int) -> EpochTable:
        """The entries that a log of this length can have."""
        return EpochTable(entry for entry in self.entries if entry.start <= end)

    def agreement(self, leader: EpochTable, end: int) -> int | None:
        """Up to which offset a log with this table and end equals the log of a leader with that table; None: nothing in common.

        The leader's own epoch has no end: it only grows, and what a member has of it came from the leader.
        """
        theirs = {entry: i for i, entry in enumerate(leader.entries)}
        mine_end = end
        for entry in reversed(self.entries):
            at = theirs.get(entry)
            if at is not None:
                last = at == len(leader.entries) - 1
                return mine_end if last else min(mine_end, leader.entries[at + 1].start)
            mine_end = entry.start
        return None

    def encode(self) -> bytes:
        lines = b"".join(b"%d-%d\n" % entry for entry in self.entries)
        return b"%d\n%d\n" % (len(self.entries), zlib.crc32(lines) & 0x7FFFFFFF) + lines

    @classmethod
    def decode(cls, text: bytes) -> EpochTable:
        """Apache's file or ours. ValueError says what is wrong with it."""
        count_line, _, rest = text.replace(b"\r\n", b"\n").partition(b"\n")
        crc_line, _, lines = rest.partition(b"\n")
        count, crc = _number(count_line, "count"), _number(crc_line, "checksum")
        found = zlib.crc32(text[text.index(b"\n", text.index(b"\n") + 1) + 1 :]) & 0x7FFFFFFF
        if crc not in (0, found):
            raise ValueError(f"epoch table: checksum {found} where the file says {crc}")
        entries = []
        for line in lines.splitlines():
            epoch, dash, start = line.partition(b"-")
            if not dash:
                raise ValueError(f"epoch table: {line[:40]!r} is not epoch-start")
            entries.append(Epoch(_number(epoch, "epoch"), _number(start, "start")))
        if len(entries) != count:
            raise ValueError(f"epoch table: {len(entries)} entries where the file says {count}")
        return cls(entries)


def load_epochs(disk: Disk, path: str) -> EpochTable | None:
    """None when there is no table yet; DamagedFileError when neither copy can be read."""
    return load_twice(disk, path, EpochTable.decode)


def save_epochs(disk: Disk, path: str, table: EpochTable) -> None:
    save_twice(disk, path, table.encode())


def _number(text: bytes, what: str) -> int:
    if not text.isdigit() or len(text) > 19:
        raise ValueError(f"epoch table: {what} is {text[:40]!r}, expected a number")
    return int(text)
