"""A disk in memory, for brokers in tests.

Files consist of pages of 4 KiB. Pages that were never written take no memory, so the timer wheel (37 MB) costs only what it
contains. The disk outlives the broker: after a kill the next broker finds what was written, after a power cut what was synced.
Names are durable at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from firearrow.store.errors import StoreLockedError
from firearrow.store.filesystem import Bytes

PAGE = 4096
_HOLE = bytes(PAGE)


class MemoryDisk:
    """An implementation of firearrow.store.filesystem.Disk. `used_percent`, the reported usage, can be set."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.used_percent = 10.0
        self.now_ms = now_ms
        self._files: dict[str, _Content] = {}
        self._directories: dict[str, set[str]] = {"/": set()}  # path: names
        self._locked: set[str] = set()
        self._boots = 1

    def left_behind(self, *, power_cut: bool) -> MemoryDisk:
        """Return the disk as the next process finds it, after a kill or a power cut."""
        disk = MemoryDisk(self.now_ms)
        disk.used_percent = self.used_percent
        disk._boots = self._boots + power_cut
        disk._directories = {path: set(names) for path, names in self._directories.items()}
        disk._files = {path: content.copy(synced=power_cut) for path, content in self._files.items()}
        return disk

    # Files

    def open(self, path: str, *, create: bool = False, size: int | None = None) -> MemoryFile:
        content = self._files.get(path)
        if content is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            parent, name = os.path.split(path)
            if parent not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            content = self._files[path] = _Content(self.now_ms())
            self._directories[parent].add(name)
        if create and size is not None and content.size < size:
            content.truncate(size)
        return MemoryFile(content, self.now_ms)

    def file_size(self, path: str) -> int:
        return self._content(path).size

    def read_bytes(self, path: str) -> bytes:
        content = self._content(path)
        return content.read(content.size, 0)

    def mtime_ms(self, path: str) -> int:
        return self._content(path).mtime_ms

    def rename(self, source: str, target: str) -> None:
        content = self._content(source)
        self.unlink(source)
        parent, name = os.path.split(target)
        self._files[target] = content
        self._directories[parent].add(name)

    def unlink(self, path: str) -> None:
        self._content(path)
        del self._files[path]
        parent, name = os.path.split(path)
        self._directories[parent].discard(name)

    # Directories

    def listdir(self, path: str) -> list[str]:
        return sorted(self._directories.get(path, ()))

    def is_dir(self, path: str) -> bool:
        return path in self._directories

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def mkdirs(self, path: str, *, durable: bool = True) -> None:
        if path not in self._directories:
            parent, name = os.path.split(path)
            self.mkdirs(parent)
            self._directories[parent].add(name)
            self._directories[path] = set()

    def rmtree(self, path: str) -> None:
        for name in list(self._directories.get(path, ())):
            child = os.path.join(path, name)
            if child in self._directories:
                self.rmtree(child)
            else:
                del self._files[child]
        del self._directories[path]
        parent, name = os.path.split(path)
        self._directories[parent].discard(name)

    def fsync_dir(self, path: str) -> None:
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)

    def sync_all(self, path: str) -> None:
        for content in self._files.values():
            content.sync()

    # Other

    def usage(self, path: str) -> float:
        return self.used_percent

    def boot_id(self) -> bytes:
        return self._boots.to_bytes(16, "big")

    def lock(self, path: str) -> MemoryLock:
        if path in self._locked:
            raise StoreLockedError(f"store directory {os.path.dirname(path)} is in use; stop the broker that uses it")
        self._locked.add(path)
        return MemoryLock(self._locked, path)

    def _content(self, path: str) -> _Content:
        content = self._files.get(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return content


class MemoryFile:
    """An open file of a MemoryDisk."""

    __slots__ = ("_content", "_now_ms", "fdatasync", "pread", "truncate")

    descriptor = None

    def __init__(self, content: _Content, now_ms: Callable[[], int]) -> None:
        self._content = content
        self._now_ms = now_ms
        self.pread: Callable[[int, int], bytes] = content.read
        self.fdatasync: Callable[[], None] = content.sync
        self.truncate: Callable[[int], None] = content.truncate

    def pwrite(self, data: Bytes, offset: int) -> None:
        self._content.mtime_ms = self._now_ms()
        self._content.write(data, offset)

    def write_behind(self, offset: int, size: int) -> None:
        """Do nothing: memory needs no write-back."""

    def size(self) -> int:
        return self._content.size

    def next_data(self, offset: int) -> int | None:
        return self._content.next_data(offset)

    def close(self) -> None:
        """Do nothing: no descriptor is open."""


class MemoryLock:
    """The lock of a store directory."""

    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


class _Content:
    """The pages of a file, and their synced versions where these differ."""

    __slots__ = ("_pages", "_synced_pages", "_synced_size", "mtime_ms", "size")

    def __init__(self, now_ms: int) -> None:
        self.size = 0
        self.mtime_ms = now_ms
        self._pages: dict[int, bytearray] = {}
        self._synced_pages: dict[int, bytes | None] = {}  # None is a hole
        self._synced_size = 0

    def read(self, size: int, offset: int) -> bytes:
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        first, skipped = divmod(offset, PAGE)
        pages = self._pages
        data = b"".join([pages.get(number, _HOLE) for number in range(first, -(-end // PAGE))])
        return data[skipped : skipped + end - offset]

    def write(self, data: Bytes, offset: int) -> None:
        rest = memoryview(data)
        end = offset + len(rest)
        while rest:
            number, start = divmod(offset, PAGE)
            count = min(PAGE - start, len(rest))
            self._page(number)[start : start + count] = rest[:count]
            rest = rest[count:]
            offset += count
        self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        if size < self.size:
            last, kept = divmod(size, PAGE)
            for number in [number for number in self._pages if number >= last]:
                if number == last and kept:
                    self._page(number)[kept:] = bytes(PAGE - kept)
                else:
                    self._keep(number)
                    del self._pages[number]
        self.size = size

    def next_data(self, offset: int) -> int | None:
        wanted = offset // PAGE
        if wanted in self._pages:
            return offset if offset < self.size else None
        number = min((number for number in self._pages if number > wanted), default=None)
        return None if number is None or number * PAGE >= self.size else number * PAGE

    def sync(self) -> None:
        self._synced_pages.clear()
        self._synced_size = self.size

    def copy(self, *, synced: bool) -> _Content:
        """Return a copy of the whole content, or of the synced part."""
        content = _Content(self.mtime_ms)
        content._synced_size = self._synced_size
        pages: dict[int, bytes | bytearray | None] = dict(self._pages)
        if synced:
            pages.update(self._synced_pages)
            content.size = self._synced_size
        else:
            content._synced_pages = dict(self._synced_pages)
            content.size = self.size
        content._pages = {number: bytearray(page) for number, page in pages.items() if page is not None}
        return content

    def _page(self, number: int) -> bytearray:
        """Return a page for writing."""
        self._keep(number)
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = bytearray(PAGE)
        return page

    def _keep(self, number: int) -> None:
        if number not in self._synced_pages:
            page = self._pages.get(number)
            self._synced_pages[number] = None if page is None else bytes(page)
