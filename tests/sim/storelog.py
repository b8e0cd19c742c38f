"""The broker's own store on a simulated disk, driven as ha/elected.py drives it: followers look at records when the group has
confirmed some, a leader's records are its own from the moment it may serve, and only what is confirmed becomes visible.

One thing is easier than in life: bits flip in what a process found at its start only; what it wrote itself it has in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from struct import Struct

from firearrow.ha.raft import Raft, Role
from firearrow.ha.raft_store import StoreLog
from firearrow.store.columns import scan
from firearrow.store.store import MessageStore
from firearrow.wire.record import decode_all
from tests.store.history import HOST, small_settings
from tests.store.simdisk import SimulatedDisk

SEGMENT = 8192
TOPIC, QUEUE = "T", 0
FIRST_MS = 1_700_000_000_000
_SIZE = Struct(">i")
_HARMED = ("/commitlog/", "currterm", "epochFileCheckpoint")  # what the group promises to survive damage of


class SimulatedStore(StoreLog):
    def __init__(self, disk: SimulatedDisk, directory: str, now_ms: Callable[[], int]) -> None:
        settings = replace(small_settings(), store_path_root_dir=directory, mapped_file_size_commit_log=SEGMENT)
        self.store = MessageStore(settings, disk=disk, store_host=HOST, now_ms=lambda: FIRST_MS + now_ms(), elected=True)
        self.store.open()
        super().__init__(self.store, self.store.forget_pending)
        self._disk = disk
        self._now_ms = now_ms
        self._directory = f"{directory}/commitlog"
        self._serving = 0  # the term
        self._found = self.store.max_offset

    # What a broker does

    def began(self, raft: Raft) -> None:
        raft.commit = max(raft.commit, self.store.confirm_offset)

    def settle(self, raft: Raft) -> None:
        """After every event. StoreError: this member cannot go on."""
        if self._serving and (raft.role is not Role.LEADER or raft.term != self._serving):
            self._serving = 0
            self.store.forget_pending()
        if raft.role is Role.LEADER and not self._serving and raft.confirmed_start:
            self.store.look_at_raw()
            self.store.follow_no_more()
            self._serving = raft.term
        if raft.role is Role.FOLLOWER and raft.commit > self.store.confirm_offset:
            self.store.look_at_raw()
        if raft.role is not Role.LEADER or self._serving:
            self.store.confirm(raft.commit)

    def may_flip(self, path: str, at: int) -> bool:
        return "/commitlog/" not in path or int(path.rpartition("/")[2]) + at < self._found

    def tick(self) -> None:
        self.store.tick(FIRST_MS + self._now_ms())
        self.store.problems.clear()

    @property
    def serving(self) -> bool:
        return self._serving > 0

    def write(self, payloads: list[bytes], note: Callable[[int, bytes], None]) -> tuple[int, bytes]:
        """Appends messages; where they begin, and the bytes. `note` hears of every record that is there, even if it fails."""
        start = self.store.max_offset
        queue = self.store.queue(TOPIC, QUEUE)
        now = FIRST_MS + self._now_ms()
        for payload in payloads:
            self.store.append(
                queue, payload, b"", 0, flag=0, sys_flag=0, born_ms=now, born_host=HOST, store_ms=now, reconsume_times=0
            )
        try:
            self.store.write_out()
        finally:
            data = self.raw_range(start, start + 2 * SEGMENT)
            at = 0
            while at + 4 <= len(data) and 0 < (size := _SIZE.unpack_from(data, at)[0]) <= len(data) - at:
                note(start + at, data[at : at + size])
                at += size
        return start, data[: self.store.max_offset - start]

    # For those who watch from outside

    def raw_range(self, start: int, end: int) -> bytes:
        """Whatever is there, past the faults of the disk."""
        bases = sorted(int(name) for name in self._disk.listdir(self._directory))
        pieces = [
            self._disk.read_bytes(f"{self._directory}/{base:020d}")[max(0, start - base) : max(0, end - base)] for base in bases
        ]
        return b"".join(pieces)

    def is_sound(self) -> bool:
        data = self.raw_range(self.min_offset, self.end_offset)
        return _good(data, self.min_offset) == len(data)

    @staticmethod
    def good_bytes(disk: SimulatedDisk, directory: str) -> list[int]:
        """Of each file, how far it reads well: bodies have checksums, sizes and places must fit, the rest could be anything."""
        files = sorted(disk.files(f"{directory}/commitlog/"))
        return [_good(disk.read_bytes(path), int(path.rpartition("/")[2])) for path in files]

    @staticmethod
    def can_be_harmed(path: str) -> bool:
        return any(part in path for part in _HARMED)

    def expire(self, below: int) -> None:
        """Retention goes by the age of files: nothing here gets that old."""

    def visible(self) -> list[bytes]:
        """What a consumer reads, from the first message to the last."""
        queue = self.store.find_queue(TOPIC, QUEUE)
        if queue is None:
            return []
        found: list[bytes] = []
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = self.store.get_messages(queue, offset, 1000)
            if not result.count:
                break
            found += [record.body for record in decode_all(bytes(result.body))]
            offset = result.next_begin_offset
        return found


def _good(data: bytes, offset: int) -> int:
    """How many bytes of whole, good records `data` begins with."""
    at = 0
    while at < len(data):
        result = scan(data[at:], offset + at, check_crc=True)
        size = result.end
        if not size and result.stop.name == "BLANK":
            size = _SIZE.unpack_from(data, at)[0]
        if not 0 < size <= len(data) - at:
            break
        at += size
    return at


def bodies(history: bytes) -> list[bytes]:
    """The messages in a piece of a log."""
    found = []
    at = 0
    while at < len(history):
        result = scan(history[at:], at, check_crc=True)
        if result.end:
            found += [record.body for record in decode_all(history[at : at + result.end])]
            at += result.end
        else:
            at += _SIZE.unpack_from(history, at)[0]
    return found
