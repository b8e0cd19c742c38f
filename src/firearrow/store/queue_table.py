"""`queueTable`: the derived files that were durable at their last sync, from which a recovery can start.

Text, one line each, fields separated by tabs:

    firearrow queue table 1
    boot      <hex>         empty except in `queueTable.boot`, see below
    derived   <log offset>  the consume-queue entries of all records below are durable
    indexed   <log offset>  the last record with entries in the key index, which has all records below `derived`
    index     <file name>   one line for each index file, oldest first
    queue     <count>  <first>  <queue id>  <topic>   entries from `first` (the start of its oldest file) to `count` are durable
    dropped   <log offset>  <topic>   the topic was deleted when the log ended there: its records below belong to no queue
    stopped   <log offset>  end of the log at a clean stop; absent while the store is open
    crc       <CRC-32 of all bytes before this line, decimal>

Syncing thousands of queue files takes longer than a clean stop should. With many unsynced files the stop therefore leaves the
table unchanged and writes a second one, `queueTable.boot`, which counts what was written. It is valid until the machine is
restarted, because the operating system keeps what was written until then. Opening the store deletes it.

Before retention deletes a queue or index file, or a deleted topic loses its directory, the table is saved without it
(`edit_queue_table`). A recovery would otherwise look for the file and scan the whole log. Log segments are deleted only below
`derived`, so that the numbering of every queue survives its last record.

The file is replaced atomically. An Apache broker neither reads nor writes it. Because it only states a minimum, it stays true
when an Apache broker has used the directory in between.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

from firearrow.store.atomic_file import replace
from firearrow.store.filesystem import Disk

_BOOT_SUFFIX = ".boot"
_TITLE = "firearrow queue table 1"
_MAX_DROPPED = 10_000  # the newest deleted topics; older ones cost a longer recovery at worst


@dataclass(slots=True)
class QueueTable:
    """Durable entries and index files. `boot_id`: valid only until the machine is restarted; empty: always."""

    derived_offset: int = 0
    index_last_offset: int = 0
    index_files: list[str] = field(default_factory=list)
    queues: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # (topic, queue id): (first, count)
    boot_id: bytes = b""
    dropped: dict[str, int] = field(default_factory=dict)  # topic: log offset, the newest last
    stopped: int | None = None

    def encode(self) -> bytes:
        lines = [
            _TITLE,
            f"boot\t{self.boot_id.hex()}",
            f"derived\t{self.derived_offset}",
            f"indexed\t{self.index_last_offset}",
            *[f"index\t{name}" for name in self.index_files],
            *[f"queue\t{count}\t{first}\t{queue_id}\t{topic}" for (topic, queue_id), (first, count) in self.queues.items()],
            *[f"dropped\t{offset}\t{topic}" for topic, offset in list(self.dropped.items())[-_MAX_DROPPED:]],
            *([] if self.stopped is None else [f"stopped\t{self.stopped}"]),
            "",
        ]
        text = "\n".join(lines).encode()
        return text + b"crc\t%d\n" % crc32(text)

    def drop_topics(self, dropped: dict[str, int]) -> None:
        """Remove the queues of topics, given with the end of the log at the time of the deletion."""
        self.queues = {key: value for key, value in self.queues.items() if key[0] not in dropped}
        for topic, offset in dropped.items():
            self.dropped.pop(topic, None)
            self.dropped[topic] = offset

    def remove_index_files(self, names: list[str]) -> None:
        self.index_files = [name for name in self.index_files if name not in names]

    def move_first_files(self, firsts: dict[tuple[str, int], int]) -> None:
        """Take note of the first entries of queues whose oldest files are deleted."""
        for key, first in firsts.items():
            before, count = self.queues.get(key, (-1, 0))
            if 0 <= before < first <= count:
                self.queues[key] = (first, count)

    @classmethod
    def decode(cls, data: bytes) -> QueueTable | None:
        """Decode a table. None if it is incomplete or damaged."""
        text, mark, tail = data.rpartition(b"crc\t")
        if not mark or tail != b"%d\n" % crc32(text):
            return None
        table = cls()
        lines = text.decode().split("\n")
        if lines[0] != _TITLE:
            return None
        for line in lines[1:-1]:
            kind, *fields = line.split("\t")
            if kind == "boot":
                table.boot_id = bytes.fromhex(fields[0])
            elif kind == "derived":
                table.derived_offset = int(fields[0])
            elif kind == "indexed":
                table.index_last_offset = int(fields[0])
            elif kind == "index":
                table.index_files.append(fields[0])
            elif kind == "queue":
                table.queues[fields[3], int(fields[2])] = (int(fields[1]), int(fields[0]))
            elif kind == "dropped":
                table.dropped[fields[1]] = int(fields[0])
            elif kind == "stopped":
                table.stopped = int(fields[0])
        return table


def load_queue_table(disk: Disk, path: str, *, clean: bool) -> QueueTable | None:
    """Load the table to start with. After a clean stop in the same boot the second one is preferred; it is deleted."""
    table = QueueTable.decode(disk.read_bytes(path)) if disk.exists(path) else None
    better = path + _BOOT_SUFFIX
    if disk.exists(better):
        candidate = QueueTable.decode(disk.read_bytes(better))
        if clean and candidate is not None and candidate.boot_id and candidate.boot_id == disk.boot_id():
            table = candidate
        elif clean and candidate is not None and table is not None:
            table.stopped = candidate.stopped  # the log was synced at the stop, only the queues were not
        disk.unlink(better)
        disk.fsync_dir(os.path.dirname(path))
    return table


def save_queue_table(disk: Disk, path: str, table: QueueTable) -> None:
    if table.boot_id:
        path += _BOOT_SUFFIX
    replace(disk, path, table.encode())


def edit_queue_table(disk: Disk, path: str, edit: Callable[[QueueTable], None]) -> None:
    """Change the durable table, if there is one. Durable on return. Housekeeper, or while it is idle."""
    table = QueueTable.decode(disk.read_bytes(path)) if disk.exists(path) else None
    if table is None:
        return
    before = table.encode()
    edit(table)
    if table.encode() != before:
        save_queue_table(disk, path, table)
