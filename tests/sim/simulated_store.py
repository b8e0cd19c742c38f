"""The broker's store on a simulated disk, driven like ha/elected/member.py drives it.

Followers index records when the group has committed them, and a leader's messages become readable when they are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from struct import Struct
from typing import Any

from firearrow.ha.elected.store_log import StoreLog
from firearrow.ha.raft.raft import Raft, Role
from firearrow.store.commitlog.scan import scan
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire.record import MAGIC_V1, MAGIC_V2, Record, decode_all
from tests.sim.ledger import LEVELS, Message
from tests.sim.services import QUEUE, TOPIC, Services
from tests.store.history import HOST, small_settings
from tests.store.simdisk import SimulatedDisk

SEGMENT = 8192
FIRST_MS = 1_700_000_000_000
_SIZE = Struct(">i")
_HARMED = ("/commitlog/", "currterm", "epochFileCheckpoint")  # files whose damage the group tolerates


class SimulatedStore(StoreLog):
    def __init__(self, disk: SimulatedDisk, directory: str, now_ms: Callable[[], int]) -> None:
        settings = replace(
            small_settings(), store_path_root_dir=directory, mapped_file_size_commit_log=SEGMENT, message_delay_level=LEVELS
        )
        self.store = MessageStore(settings, disk=disk, store_host=HOST, now_ms=lambda: FIRST_MS + now_ms(), elected=True)
        self.store.open()
        super().__init__(self.store, self.store.discard_pending)
        self._disk = disk
        self._now_ms = now_ms
        self._directory = f"{directory}/commitlog"
        self._serving = 0  # the term in which it serves
        self._found = self.store.max_offset
        self._services = Services(self.store, directory, lambda: FIRST_MS + now_ms())
        self._seen: tuple[ConsumeQueue | None, int] = (None, 0)  # messages checked so far

    # Broker

    def began(self, raft: Raft) -> None:
        raft.commit = max(raft.commit, self.store.confirm_offset)

    def settle(self, raft: Raft) -> None:
        """React to an event. A StoreError halts the member."""
        if self._serving and (raft.role is not Role.LEADER or raft.term != self._serving):
            self._serving = 0
            self.store.discard_pending()
            self._services.follow()
        if raft.role is Role.LEADER and not self._serving and raft.is_ready_to_serve:
            self.store.replica.index_new_records()
            self.store.replica.stop_copying()
            self.store.confirm(raft.commit)
            self._services.lead()
            self._serving = raft.term
        if raft.role is Role.FOLLOWER and raft.commit > self.store.confirm_offset:
            self.store.replica.index_new_records()
        if raft.role is not Role.LEADER or self._serving:
            self.store.confirm(raft.commit)

    def may_flip(self, path: str, at: int) -> bool:
        return "/commitlog/" not in path or int(path.rpartition("/")[2]) + at < self._found

    def tick(self) -> None:
        self.store.tick(FIRST_MS + self._now_ms())
        self._services.save()
        self.store.problems.clear()

    @property
    def serving(self) -> bool:
        return self._serving > 0

    def send(self, message: Message) -> bool:
        return self._services.send(message)

    def decide(self, message: Message) -> bool:
        return self._services.decide(message)

    def work(self) -> None:
        self._services.work()

    def write(self, note: Callable[[int, bytes], None]) -> tuple[int, bytes]:
        """Write the appended records. Return their start and bytes.

        `note` is called for every stored record, even if the write fails.
        """
        start, end = self.store.max_offset, self.store.appended_offset
        try:
            self.store.write_out()
        finally:
            data = self.raw_range(start, end)
            at = 0
            while at + 4 <= len(data) and 0 < (size := _SIZE.unpack_from(data, at)[0]) <= len(data) - at:
                note(start + at, data[at : at + size])
                at += size
        return start, data[: self.store.max_offset - start]

    def tables(self) -> dict[str, Any] | None:
        """Return the tables for followers, None if this member does not lead."""
        return self._services.tables() if self._serving else None

    def take_over(self, tables: dict[str, Any]) -> None:
        if not self._serving:
            self._services.take_over(tables)

    def bodies(self) -> list[bytes]:
        """Return the bodies of all readable messages."""
        queue = self.store.queue(TOPIC, QUEUE)
        found: list[bytes] = []
        while (result := self.store.get_messages(queue, queue.min_offset + len(found), 32)).count:
            found += [record.body for record in decode_all(result.body)]
        return found

    # Checks

    def raw_range(self, start: int, end: int) -> bytes:
        """Return the stored bytes, ignoring disk faults."""
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
        """Return the valid length of each file, as far as body checksums, sizes and offsets tell."""
        files = sorted(disk.files(f"{directory}/commitlog/"))
        return [_good(disk.read_bytes(path), int(path.rpartition("/")[2])) for path in files]

    @staticmethod
    def can_be_harmed(path: str) -> bool:
        return any(part in path for part in _HARMED)

    def expire(self, below: int) -> None:
        """Do nothing: retention depends on the age of files, and none gets old here."""

    def shown(self, record: bytes) -> tuple[bytes, int] | None:
        """Return the body that a consumer sees and its storage time, None if the record is invisible."""
        return next(iter(_shown(decode_all(record))), None) if _is_record(record) else None

    def newly_visible(self) -> list[tuple[bytes, int]]:
        """Return the messages that became readable since the last call."""
        queue = self.store.find_queue(TOPIC, QUEUE)
        if queue is None:
            return []
        known, offset = self._seen
        offset = max(offset if queue is known else 0, queue.min_offset)
        found = []
        while offset < queue.max_offset:
            result = self.store.get_messages(queue, offset, 1000)
            if not result.count:
                break
            found += _shown(decode_all(bytes(result.body)))
            offset = result.next_begin_offset
        self._seen = (queue, offset)
        return found

    def visible(self) -> list[bytes]:
        """Return the messages that a consumer reads, in order."""
        self._seen = (None, 0)
        return [body for body, _ in self.newly_visible()]


def _is_record(data: bytes) -> bool:
    return _SIZE.unpack_from(data, 4)[0] in (MAGIC_V1, MAGIC_V2)


def _shown(records: Iterable[Record]) -> list[tuple[bytes, int]]:
    return [(record.body, record.store_timestamp - FIRST_MS) for record in records if record.topic == TOPIC]


def _good(data: bytes, offset: int) -> int:
    """Return the length of the valid records at the start of `data`."""
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
    """Return the visible messages in a range of the log."""
    found = []
    at = 0
    while at < len(history):
        result = scan(history[at:], at, check_crc=True)
        if result.end:
            found += [body for body, _ in _shown(decode_all(history[at : at + result.end]))]
            at += result.end
        else:
            at += _SIZE.unpack_from(history, at)[0]
    return found
