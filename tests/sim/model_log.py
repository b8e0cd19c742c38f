"""A small commit log on a simulated disk that implements RaftLog for simulated groups.

Files are named by the offset of their first byte. A record is uint32 size, uint32 CRC-32, uint64 offset, payload, within one
file. The file `mark` records the durable end of the log: two sectors, written alternately, (uint64 number, uint64 offset,
CRC-32). With it, opening distinguishes an unfinished tail from lost bytes; the latter are kept in `aside`.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable

from firearrow.ha.raft.interfaces import LogDamagedError
from firearrow.ha.raft.raft import Raft, Role
from tests.sim.ledger import Message
from tests.sim.model_broker import ModelBroker, visible_body
from tests.store.simdisk import SECTOR, SimulatedDisk

HEAD = struct.Struct(">IIQ")
MARK = struct.Struct(">QQ")
SEGMENT = 4096


def records(offset: int, payloads: list[bytes]) -> bytes:
    pieces = []
    for payload in payloads:
        place = offset.to_bytes(8, "big")
        piece = HEAD.pack(HEAD.size + len(payload), zlib.crc32(place + payload), offset) + payload
        offset += len(piece)
        pieces.append(piece)
    return b"".join(pieces)


def sound(data: bytes, offset: int, limit: int | None = None) -> int:
    """Return the length of the valid records at the start of `data`: up to `limit`, at least one record."""
    at = 0
    while at + HEAD.size <= len(data):
        size, crc, place = HEAD.unpack_from(data, at)
        if limit is not None and at and at + size > limit:
            break
        if size < HEAD.size or at + size > len(data) or place != offset + at:
            break
        if zlib.crc32(data[at + 8 : at + size]) != crc:
            break
        at += size
    return at


class ModelLog:
    """The model log of one member, with its model broker."""

    def __init__(self, disk: SimulatedDisk, directory: str, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._disk = disk
        self._now_ms = now_ms
        self._broker = ModelBroker()
        self._learned = 0  # the term for which pending messages are known
        self._pending: list[bytes] = []
        self._directory = os.path.join(directory, "log")
        self._mark_path = os.path.join(directory, "mark")
        self.aside: list[bytes] = []
        disk.mkdirs(self._directory)
        self._mark_number, mark = self._load_mark()
        self._bases: list[int] = []
        self._end = 0
        self._dirty: set[int] = set()
        self._recover()
        self.lost = self._end < mark
        self._write_mark(self._end)

    @property
    def min_offset(self) -> int:
        return self._bases[0] if self._bases else 0

    @property
    def end_offset(self) -> int:
        return self._end

    def read(self, offset: int, limit: int) -> bytes:
        base = max(base for base in self._bases if base <= offset)
        data = self._disk.open(self._path(base)).pread(min(max(limit, SEGMENT), self._end - offset), offset - base)
        good = sound(data, offset, limit)
        if not good:
            raise LogDamagedError(f"no record at {offset}")
        return data[:good]

    def raw_range(self, start: int, end: int) -> bytes:
        """Return the stored bytes for checks, ignoring disk faults."""
        pieces = []
        for base in self._bases:
            if base < end:
                pieces.append(self._disk.read_bytes(self._path(base))[max(0, start - base) : end - base])
        return b"".join(pieces)

    def append(self, offset: int, data: bytes) -> None:
        assert offset == self._end, f"append at {offset}, the log ends at {self._end}"
        assert sound(data, offset) == len(data), "not whole records"
        at = 0
        while at < len(data):
            base = self._bases[-1] if self._bases else None
            if base is None or self._end - base >= SEGMENT:
                base = self._end
                self._disk.open(self._path(base), create=True)
                self._bases.append(base)
            size = HEAD.unpack_from(data, at)[0]
            self._disk.open(self._path(base)).pwrite(data[at : at + size], self._end - base)
            self._dirty.add(base)
            self._end += size
            at += size

    def truncate(self, offset: int) -> None:
        assert self.min_offset <= offset <= self._end
        self._write_mark(min(offset, self._durable))
        for base in [base for base in self._bases if base >= offset and base != self._bases[0]][::-1]:
            self._unlink(base)
        self._disk.fsync_dir(self._directory)
        if self._bases:
            file = self._disk.open(self._path(self._bases[-1]))
            file.truncate(offset - self._bases[-1])
            file.fdatasync()
        self._end = offset

    def reset(self, offset: int) -> None:
        self._write_mark(0)
        for base in self._bases[::-1]:
            self._unlink(base)
        self._disk.fsync_dir(self._directory)
        self._disk.open(self._path(offset), create=True)
        self._disk.fsync_dir(self._directory)
        self._bases = [offset]
        self._end = offset
        self._write_mark(offset)

    def sync(self) -> int:
        for base in sorted(self._dirty):
            self._disk.open(self._path(base)).fdatasync()
        self._disk.fsync_dir(self._directory)
        self._dirty = set()
        self._write_mark(self._end)
        return self._end

    # Broker

    serving = True

    def began(self, raft: Raft) -> None:
        pass

    def settle(self, raft: Raft) -> None:
        """Read the pending messages when a term has started."""
        if raft.role is not Role.LEADER or not raft.is_ready_to_serve:
            self._learned = 0
        elif self._learned != raft.term:
            self._broker.learn(self._payloads())
            self._learned = raft.term

    def _payloads(self) -> list[bytes]:
        found, offset = [], self.min_offset
        while offset < self._end:
            record = self.read(offset, 1)
            found.append(record[HEAD.size :])
            offset += len(record)
        return found

    def may_flip(self, path: str, at: int) -> bool:
        return True

    def tick(self) -> None:
        pass

    def send(self, message: Message) -> bool:
        self._pending.append(self._broker.payload(message))
        return True

    def decide(self, message: Message) -> bool:
        if self._learned:
            self._pending += self._broker.decided(message)
        return bool(self._learned)

    def work(self) -> None:
        if self._learned:
            self._pending += self._broker.due(self._now_ms())

    def write(self, note: Callable[[int, bytes], None]) -> tuple[int, bytes]:
        """Write the pending payloads. Return their start and bytes.

        `note` is called for every record first, because a failed write may have been stored.
        """
        start = self._end
        data = b""
        pending, self._pending = self._pending, []
        for payload in pending:
            record = records(start + len(data), [payload])
            note(start + len(data), record)
            data += record
        self.append(start, data)
        return start, data

    def tables(self) -> None:
        return None

    def shown(self, record: bytes) -> tuple[bytes, int] | None:
        """Return the body that a consumer sees and its storage time, None if the record is invisible."""
        body = visible_body(record[HEAD.size :])
        return None if body is None else (body, self._now_ms())

    def is_sound(self) -> bool:
        data = self.raw_range(self.min_offset, self.end_offset)
        return sound(data, self.min_offset) == len(data)

    @staticmethod
    def good_bytes(disk: SimulatedDisk, directory: str) -> list[int]:
        """Return the valid length of each file."""
        return [sound(disk.read_bytes(path), int(os.path.basename(path))) for path in sorted(disk.files(f"{directory}/log/"))]

    @staticmethod
    def can_be_harmed(path: str) -> bool:
        return not path.endswith("mark")

    def expire(self, below: int) -> None:
        """Delete files that end below `offset`, except the last."""
        while len(self._bases) > 1 and self._bases[1] <= below:
            self._unlink(self._bases[0])
        self._disk.fsync_dir(self._directory)

    # Opening

    def _recover(self) -> None:
        bases = sorted(int(name) for name in self._disk.listdir(self._directory))
        self._dirty = set()
        self._durable = 0
        end: int | None = None
        for base in bases:
            if end is not None and base != end:
                break
            data = self._disk.read_bytes(self._path(base))
            good = sound(data, base)
            self._bases.append(base)
            end = base + good
            if good < len(data):
                self.aside.append(data[good:])
                self._disk.open(self._path(base)).truncate(good)
                break
        self._end = end or 0
        for base in bases[len(self._bases) :]:
            self.aside.append(self._disk.read_bytes(self._path(base)))
            self._disk.unlink(self._path(base))
        for base in self._bases:
            self._disk.open(self._path(base)).fdatasync()
        self._disk.fsync_dir(self._directory)

    def _unlink(self, base: int) -> None:
        self._disk.unlink(self._path(base))
        self._bases.remove(base)
        self._dirty.discard(base)

    def _path(self, base: int) -> str:
        return f"{self._directory}/{base:020d}"

    # The mark

    def _load_mark(self) -> tuple[int, int]:
        best = (0, 0)
        if self._disk.exists(self._mark_path):
            text = self._disk.read_bytes(self._mark_path)
            for at in (0, SECTOR):
                slot = text[at : at + MARK.size + 4]
                if len(slot) == MARK.size + 4 and zlib.crc32(slot[: MARK.size]) == int.from_bytes(slot[MARK.size :], "big"):
                    best = max(best, MARK.unpack_from(slot))
        return best

    def _write_mark(self, offset: int) -> None:
        self._mark_number += 1
        slot = MARK.pack(self._mark_number, offset)
        file = self._disk.open(self._mark_path, create=True)
        file.pwrite(slot + zlib.crc32(slot).to_bytes(4, "big"), SECTOR * (self._mark_number % 2))
        file.fdatasync()
        if self._mark_number == 1:
            self._disk.fsync_dir(os.path.dirname(self._mark_path))
        self._durable = offset
