"""Epoch table: which term wrote which range of the commit log. It turns a physical offset into a Raft log position.

An entry (epoch, start) means that the leader of term `epoch` wrote the bytes from `start` to the start of the next entry. A
term has one leader, and a leader starts its epoch once. An epoch therefore has the same start in every table, and two logs that
share an epoch are equal up to where the shorter of them leaves it. This is Raft's log matching property with one comparison per
epoch instead of one per entry.

The entry also replaces the no-op entry at the start of a Raft term: a member whose table ends with the current term holds
everything its leader began with, without a byte in the log itself.

Invariants: epochs and starts are strictly increasing. An epoch that wrote nothing is replaced by the next one with the same
start, so elections without traffic leave no entries behind.

The file format is Apache's `epochFileCheckpoint`: a line with the number of entries, a line with the CRC-32 of the entry lines
(31 bits, 0 if unchecked), then one `epoch-start` line per entry.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

MAX_EPOCH = 2**31 - 1  # Apache's epochs are int32
MAX_OFFSET = 2**63 - 1
MAX_ENTRIES = 4096


class Epoch(NamedTuple):
    epoch: int
    start: int


class EpochTable:
    """An immutable table. A new table takes effect once its file is written."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[Epoch] = ()) -> None:
        self.entries = tuple(entries)
        previous = Epoch(0, -1)
        for entry in self.entries:
            if not (previous.epoch < entry.epoch <= MAX_EPOCH and previous.start < entry.start <= MAX_OFFSET):
                raise ValueError(f"epoch table: {entry} cannot follow {previous}: epochs and starts must increase")
            previous = entry
        if len(self.entries) > MAX_ENTRIES:
            raise ValueError(f"epoch table: {len(self.entries)} entries, the maximum is {MAX_ENTRIES}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochTable) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return " ".join(f"{epoch}@{start}" for epoch, start in self.entries) or "empty"

    @property
    def last(self) -> int:
        """The newest epoch; 0 before the first election."""
        return self.entries[-1].epoch if self.entries else 0

    def with_epoch(self, epoch: int, start: int, min_offset: int) -> EpochTable:
        """Return the table of a leader that starts `epoch` at `start`.

        An empty epoch with the same start and epochs that ended before `min_offset` are dropped.
        """
        kept = [entry for entry in self.entries if entry.start < start]
        while len(kept) > 1 and kept[1].start <= min_offset:
            del kept[0]
        return EpochTable([*kept[-(MAX_ENTRIES - 1) :], Epoch(epoch, start)])

    def up_to(self, end: int) -> EpochTable:
        """Return the entries that a log ending at `end` can have."""
        return EpochTable(entry for entry in self.entries if entry.start <= end)

    def shared_prefix(self, leader: EpochTable, end: int) -> int | None:
        """Return the offset up to which a log with this table and `end` equals the leader's, None if they share nothing.

        The leader's newest epoch is open-ended: it only grows, and a member's bytes of it came from the leader.
        """
        positions = {entry: i for i, entry in enumerate(leader.entries)}
        epoch_end = end
        for entry in reversed(self.entries):
            at = positions.get(entry)
            if at is not None:
                is_newest = at == len(leader.entries) - 1
                return epoch_end if is_newest else min(epoch_end, leader.entries[at + 1].start)
            epoch_end = entry.start
        return None

    def encode(self) -> bytes:
        lines = b"".join(b"%d-%d\n" % entry for entry in self.entries)
        return b"%d\n%d\n" % (len(self.entries), zlib.crc32(lines) & 0x7FFFFFFF) + lines

    @classmethod
    def decode(cls, text: bytes) -> EpochTable:
        """Parse a file written by Apache or by us. The ValueError says what is wrong with it."""
        count_line, _, rest = text.replace(b"\r\n", b"\n").partition(b"\n")
        crc_line, _, lines = rest.partition(b"\n")
        count, crc = _number(count_line, "count"), _number(crc_line, "checksum")
        found = zlib.crc32(text[text.index(b"\n", text.index(b"\n") + 1) + 1 :]) & 0x7FFFFFFF
        if crc not in (0, found):
            raise ValueError(f"epoch table: the checksum is {found}, the file says {crc}")
        entries = []
        for line in lines.splitlines():
            epoch, dash, start = line.partition(b"-")
            if not dash:
                raise ValueError(f"epoch table: {line[:40]!r} is not epoch-start")
            entries.append(Epoch(_number(epoch, "epoch"), _number(start, "start")))
        if len(entries) != count:
            raise ValueError(f"epoch table: {len(entries)} entries, the file says {count}")
        return cls(entries)


def _number(text: bytes, what: str) -> int:
    if not text.isdigit() or len(text) > 19:
        raise ValueError(f"epoch table: {what} is {text[:40]!r}, expected a number")
    return int(text)
