"""A disk in memory that can lose power.

What a real disk promises, and no more:

- A write survives a power cut for certain only after fdatasync of its file. Until then any of its 512-byte sectors may
  have reached the disk or not, whatever the order of the writes.
- A file's length is data too: an extension that was not synced may be gone, with what lay behind the old end.
- A name that was created, renamed or deleted survives for certain only after fsync_dir of its directory. Until then the
  changes of one directory survive up to some point in their order.

`power_cut(rng)` gives the disk as it may look after the lights went out; `copy()` the disk as another process would see
it after a kill, with nothing lost. Faults: `fail(operation, path part, error)` makes the next such calls raise.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from firearrow.store.errors import StoreLockedError
from firearrow.store.filesystem import Bytes

SECTOR = 512


class Inode:
    """Content of a file: current bytes, bytes at the last sync, and the sectors written in between."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytearray(data)
        self.dirty: set[int] = set()  # sector numbers
        self.mtime_ms = 0

    def write(self, data: Bytes, offset: int) -> None:
        end = offset + len(data)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self.data[offset:end] = data
        self.dirty.update(range(offset // SECTOR, -(-end // SECTOR)))

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            self.dirty.update(range(size // SECTOR, -(-len(self.data) // SECTOR)))
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def clone(self) -> Inode:
        inode = Inode(bytes(self.data))
        inode.mtime_ms = self.mtime_ms
        return inode

    def sync(self) -> None:
        if len(self.data) != len(self.durable):
            self.durable = bytearray(self.data)
        else:
            for sector in self.dirty:
                place = slice(sector * SECTOR, (sector + 1) * SECTOR)
                self.durable[place] = self.data[place]
        self.dirty = set()

    def after_power_cut(self, rng: random.Random) -> Inode:
        size = rng.choice((len(self.durable), len(self.data)))
        kept = bytearray(self.durable[:size])
        kept.extend(bytes(size - len(kept)))
        chance = rng.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        for sector in sorted(self.dirty):
            start = sector * SECTOR
            if start < size and rng.random() < chance:
                piece = self.data[start : min(start + SECTOR, size)]
                kept[start : start + len(piece)] = piece
        inode = Inode(bytes(kept))
        inode.mtime_ms = self.mtime_ms
        return inode


@dataclass
class Directory:
    """Names in a directory: current, at the last sync, and the changes in between, in order."""

    entries: dict[str, Inode | None] = field(default_factory=dict)  # None: a directory
    durable: dict[str, Inode | None] = field(default_factory=dict)
    changes: list[tuple[str, bool, Inode | None]] = field(default_factory=list)  # name, exists, what

    def put(self, name: str, inode: Inode | None) -> None:
        self.entries[name] = inode
        self.changes.append((name, True, inode))

    def remove(self, name: str) -> Inode | None:
        inode = self.entries.pop(name)
        self.changes.append((name, False, None))
        return inode

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes = []

    def after_power_cut(self, rng: random.Random) -> dict[str, Inode | None]:
        entries = dict(self.durable)
        for name, exists, inode in self.changes[: rng.randint(0, len(self.changes))]:
            if exists:
                entries[name] = inode
            else:
                entries.pop(name, None)
        return entries


class SimulatedFile:
    descriptor = None

    def __init__(self, disk: SimulatedDisk, inode: Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._closed = False
        self.path = path
        disk.open_files += 1

    def pread(self, size: int, offset: int) -> bytes:
        self._disk.check("pread", self.path)
        return bytes(self._inode.data[offset : offset + size])

    def pwrite(self, data: Bytes, offset: int) -> None:
        self._disk.check("pwrite", self.path)
        self._inode.write(data, offset)
        self._inode.mtime_ms = self._disk.now_ms()
        self._disk.writes += 1

    def fdatasync(self) -> None:
        self._disk.check("fdatasync", self.path)
        self._inode.sync()
        self._disk.syncs += 1

    def write_behind(self, offset: int, size: int) -> None:
        """Do nothing, because write-behind guarantees nothing."""

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self.path)
        self._inode.truncate(size)

    def next_data(self, offset: int) -> int | None:
        return offset if offset < len(self._inode.data) else None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._disk.open_files -= 1


class SimulatedLock:
    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class SimulatedDisk:
    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.directories: dict[str, Directory] = {"/": Directory()}
        self.now_ms = now_ms
        self.used_percent = 10.0
        self.boots = 1
        self.locked: set[str] = set()
        self.open_files = 0
        self.writes = 0
        self.syncs = 0
        self.observer: Callable[[str, str], None] | None = None  # called with operation and path before each change
        self._faults: list[tuple[str, str, OSError]] = []

    # Faults and power

    def fail(self, operation: str, part: str, error: int = errno.EIO) -> None:
        """Let `operation` fail on paths that contain `part`."""
        self._faults.append((operation, part, OSError(error, os.strerror(error), part)))

    def heal(self) -> None:
        self._faults.clear()

    def check(self, operation: str, path: str) -> None:
        if self.observer is not None and operation != "pread":
            self.observer(operation, path)
        for faulty, part, error in self._faults:
            if faulty == operation and part in path:
                raise OSError(error.errno, error.strerror, path)

    def power_cut(self, rng: random.Random) -> SimulatedDisk:
        disk = self._rebuilt(lambda directory: directory.after_power_cut(rng), lambda inode: inode.after_power_cut(rng))
        disk.boots += 1
        return disk

    def backup(self) -> SimulatedDisk:
        """Return a copy of the current files that does not change with them."""
        return self._rebuilt(lambda directory: dict(directory.entries), lambda inode: Inode(bytes(inode.data)))

    def copy(self) -> SimulatedDisk:
        return self._rebuilt(lambda directory: dict(directory.entries), lambda inode: inode)

    def snapshot(self) -> SimulatedDisk:
        """Return what a kill at this moment leaves, independent of later changes."""
        return self._rebuilt(lambda directory: dict(directory.entries), Inode.clone)

    def _rebuilt(self, names: Callable[[Directory], dict[str, Inode | None]], content: Callable[[Inode], Inode]) -> SimulatedDisk:
        disk = SimulatedDisk(self.now_ms)
        disk.used_percent = self.used_percent
        disk.boots = self.boots
        disk.directories = {}
        done: dict[int, Inode] = {}
        pending = ["/"]
        while pending:
            path = pending.pop()
            old = self.directories.get(path, Directory())
            kept: dict[str, Inode | None] = {}
            for name, inode in names(old).items():
                if inode is None:
                    kept[name] = None
                    pending.append(os.path.join(path, name))
                else:
                    kept[name] = done.setdefault(id(inode), content(inode))
            disk.directories[path] = Directory(kept, dict(kept))
        return disk

    # Disk

    def open(self, path: str, *, create: bool = False, size: int | None = None) -> SimulatedFile:
        directory, name = self._split(path)
        inode = directory.entries.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.check("create", path)
            inode = Inode()
            inode.mtime_ms = self.now_ms()
            directory.put(name, inode)
        if create and size is not None and len(inode.data) < size:
            inode.truncate(size)
        return SimulatedFile(self, inode, path)

    def listdir(self, path: str) -> list[str]:
        directory = self.directories.get(path)
        return sorted(directory.entries) if directory is not None else []

    def is_dir(self, path: str) -> bool:
        return path in self.directories

    def exists(self, path: str) -> bool:
        parent = self.directories.get(os.path.dirname(path), Directory())
        return path in self.directories or os.path.basename(path) in parent.entries

    def file_size(self, path: str) -> int:
        return len(self.inode(path).data)

    def mkdirs(self, path: str, *, durable: bool = True) -> None:
        parent = "/"
        for name in path.strip("/").split("/"):
            child = os.path.join(parent, name)
            if child not in self.directories:
                self.directories[child] = Directory()
                self.directories[parent].put(name, None)
                if durable:
                    self.directories[parent].sync()
            parent = child

    def rename(self, source: str, target: str) -> None:
        self.check("rename", target)
        directory, name = self._split(source)
        to, new_name = self._split(target)
        inode = self.inode(source)
        to.put(new_name, inode)
        directory.remove(name)

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        directory, name = self._split(path)
        self.inode(path)
        directory.remove(name)

    def rmtree(self, path: str) -> None:
        self.check("rmtree", path)
        for child in [name for name in self.directories if name == path or name.startswith(path + "/")]:
            del self.directories[child]
        directory, name = self._split(path)
        directory.remove(name)

    def fsync_dir(self, path: str) -> None:
        self.check("fsync_dir", path)
        self.directories[path].sync()

    def sync_all(self, path: str) -> None:
        for directory in self.directories.values():
            directory.sync()
            for inode in directory.entries.values():
                if inode is not None:
                    inode.sync()

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.inode(path).data)

    def usage(self, path: str) -> float:
        return self.used_percent

    def mtime_ms(self, path: str) -> int:
        return self.inode(path).mtime_ms

    def boot_id(self) -> bytes:
        return self.boots.to_bytes(16, "big")

    def lock(self, path: str) -> SimulatedLock:
        if path in self.locked:
            raise StoreLockedError(path)
        self.locked.add(path)
        return SimulatedLock(self, path)

    def files(self, under: str = "/") -> list[str]:
        """Return every path, for tests that damage files."""
        return sorted(
            os.path.join(path, name)
            for path, directory in self.directories.items()
            for name, inode in directory.entries.items()
            if inode is not None and os.path.join(path, name).startswith(under)
        )

    def _split(self, path: str) -> tuple[Directory, str]:
        parent = self.directories.get(os.path.dirname(path))
        if parent is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return parent, os.path.basename(path)

    def inode(self, path: str) -> Inode:
        directory, name = self._split(path)
        inode = directory.entries.get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode
