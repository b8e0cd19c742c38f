"""What a member must not forget: its term, whom it gave its vote in that term, and whether it is in doubt.

In doubt is a member that may have lost bytes it once confirmed: its log was found damaged below what had been durable, or it came
back without its files. It follows, but neither votes nor stands for election until it holds everything a leader had after the
doubt began (see raft.py).

The file `currterm` is lines of `name=value`, DLedger's names first:

    currTerm=7
    voteLeader=n0        empty: no vote in this term
    doubtful=false
    crc=1234567          CRC-32 of the lines above, newlines included

It is durable, in two copies (raft_files.py), before any answer that depends on it leaves.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from firearrow.ha.raft.epochs import MAX_EPOCH
from firearrow.ha.raft.raft_files import load_twice, save_twice
from firearrow.store.filesystem import Disk

FILE_NAME = "currterm"


@dataclass(frozen=True, slots=True)
class HardState:
    term: int = 0
    voted_for: str | None = None
    doubtful: bool = False

    def encode(self) -> bytes:
        vote = self.voted_for or ""
        lines = f"currTerm={self.term}\nvoteLeader={vote}\ndoubtful={'true' if self.doubtful else 'false'}\n".encode()
        return lines + b"crc=%d\n" % zlib.crc32(lines)

    @classmethod
    def decode(cls, text: bytes) -> HardState:
        """ValueError says what is wrong."""
        at = text.rfind(b"crc=")
        if at < 0:
            raise ValueError("vote file: no checksum")
        lines, crc = text[:at], text[at + 4 :].strip()
        if crc != b"%d" % zlib.crc32(lines):
            raise ValueError(f"vote file: checksum {zlib.crc32(lines)} where the file says {crc[:20]!r}")
        values = dict(line.split("=", 1) for line in lines.decode().splitlines() if "=" in line)
        term = values.get("currTerm", "")
        if not term.isdigit() or int(term) > MAX_EPOCH:
            raise ValueError(f"vote file: currTerm is {term!r}, expected 0 to {MAX_EPOCH}")
        return cls(int(term), values.get("voteLeader") or None, values.get("doubtful") == "true")


def load_vote(disk: Disk, path: str) -> HardState | None:
    """None when this member has never been started; DamagedFileError when neither copy can be read."""
    return load_twice(disk, path, HardState.decode)


def save_vote(disk: Disk, path: str, state: HardState) -> None:
    save_twice(disk, path, state.encode())
