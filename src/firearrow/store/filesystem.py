"""The file-system seam of the store, which tests replace by simulated disks.

All file access uses positioned reads and writes on descriptors, never a memory map: an I/O error is then an exception of the
failing call instead of a SIGBUS, and resident memory stays small. Nothing else in the store touches `os`.

Durability follows POSIX: written data survives a power cut only after `fdatasync` (or `sync_all`) returned, and a created,
renamed or deleted name only after `fsync_dir` of its directory.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

from firearrow.store.descriptors import DescriptorReserve
from firearrow.store.errors import StoreLockedError

Bytes = bytes | bytearray | memoryview

_fdatasync = getattr(os, "fdatasync", os.fsync)  # cheaper, where it exists


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's sync_file_range, which Python does not expose, or None."""
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


_sync_file_range = _find_sync_file_range()
# Messages, offsets and credentials are nobody's business but the broker's. The umask can only take bits away. Files and
# directories that exist keep their modes.
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
WINDOW = 4 * 1024 * 1024  # bytes to read or write at once
ZEROS = bytes(WINDOW)
_BEGIN_WRITING = 2  # SYNC_FILE_RANGE_WRITE: starts writing and does not wait


class File(Protocol):
    """An open file."""

    @property
    def descriptor(self) -> int | None:
        """Descriptor for copying from the file to a socket in the kernel; None if the bytes must be read."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write all of `data`. OSError."""
        ...

    def fdatasync(self) -> None: ...

    def write_behind(self, offset: int, size: int) -> None:
        """Start writing a range to disk, if possible, without any guarantee.

        Otherwise the kernel writes everything at once after half a minute and delays every fdatasync meanwhile.
        """
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def next_data(self, offset: int) -> int | None:
        """Return the first position from `offset` that may not be in a hole, or None."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """The lock of a store directory."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False, size: int | None = None) -> File:
        """Open for reading and writing. `create` creates the file if absent; `size` then extends it to that length with zeros."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory, none if it does not exist."""
        ...

    def is_dir(self, path: str) -> bool: ...

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def mkdirs(self, path: str, *, durable: bool = True) -> None:
        """Create a directory and its missing parents; `durable` syncs the new names."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None:
        """Make everything written so far in the file system of `path` durable. Cheaper than fdatasync of many files."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def usage(self, path: str) -> float:
        """Return the usage of the file system in percent, as df does: used / (used + available to us)."""
        ...

    def mtime_ms(self, path: str) -> int: ...

    def boot_id(self) -> bytes:
        """Return 16 bytes that change when the machine is restarted and unsynced data may be lost. Empty if unknown."""
        ...

    def lock(self, path: str) -> Lock:
        """Acquire the exclusive lock of a store directory. StoreLockedError if it is held."""
        ...


class LazyFile:
    """A file that is opened on first use and may be closed at any time."""

    __slots__ = ("_disk", "_file", "path")

    def __init__(self, disk: Disk, path: str, file: File | None = None) -> None:
        self.path = path
        self._disk = disk
        self._file = file

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._open()
        return self._file

    def _open(self) -> File:
        return self._disk.open(self.path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def delete(self) -> None:
        self.close()
        self._disk.unlink(self.path)


def last_nonzero(file: File, start: int, size: int) -> int | None:
    """Return the position of the last nonzero byte from `start`, or None. Holes are skipped."""
    last = None
    while start < size and (position := file.next_data(start)) is not None and position < size:
        data = file.pread(min(WINDOW, size - position), position)
        if not data:
            break
        if data != ZEROS[: len(data)]:
            last = position + len(data.rstrip(b"\0")) - 1
        start = position + len(data)
    return last


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path

    @property
    def descriptor(self) -> int:
        return self._fd

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        # A signal or an unusual file system may return less. Only an empty read means the end.
        pieces = [data]
        got = len(data)
        while got < size and (data := os.pread(self._fd, size - got, offset + got)):
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def pwrite(self, data: Bytes, offset: int) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written == len(data):
            return
        rest = memoryview(data)
        while written < len(rest):
            more = os.pwrite(self._fd, rest[written:], offset + written)
            if more == 0:
                raise OSError(errno.EIO, "pwrite wrote nothing", self.path)
            written += more

    def fdatasync(self) -> None:
        _fdatasync(self._fd)

    def write_behind(self, offset: int, size: int) -> None:
        if _sync_file_range is not None:
            _sync_file_range(self._fd, offset, size, _BEGIN_WRITING)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def next_data(self, offset: int) -> int | None:
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            return offset  # the file system does not report holes

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealLock:
    """A POSIX record lock on byte 0, as Java's FileLock uses, so that it also excludes an Apache broker.

    POSIX drops a process's record locks on a file when *any* of its descriptors of that file is closed, and grants them again to
    the same process. Within one process the set of held paths is the lock instead.
    """

    _held: ClassVar[set[str]] = set()

    def __init__(self, path: str, on_release: Callable[[], None] = lambda: None) -> None:
        import fcntl

        key = os.path.realpath(path)
        if key in self._held:
            raise StoreLockedError(_locked_text(path))
        fd = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(fd, b"lock", 0)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLockedError(_locked_text(path)) from None
            raise
        self._fd = fd
        self._key = key
        self._on_release = on_release
        self._held.add(key)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._held.discard(self._key)
            self._on_release()


def _locked_text(path: str) -> str:
    return (
        f"store directory {os.path.dirname(path) or '.'} is in use by another process (it holds the lock file {path}); "
        "stop that broker, or give this one its own storePathRootDir"
    )


class RealDisk:
    """The file system of the operating system. While a store is locked, descriptors are kept for it."""

    def __init__(self) -> None:
        self._reserve = DescriptorReserve()

    def open(self, path: str, *, create: bool = False, size: int | None = None) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        file = RealFile(self._reserve.open(path, flags, FILE_MODE), path)
        if create and size is not None and file.size() < size:
            try:
                file.truncate(size)
            except OSError:
                file.close()
                raise
        return file

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def mkdirs(self, path: str, *, durable: bool = True) -> None:
        path = os.path.abspath(path)
        parent = os.path.dirname(path)
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:
            return
        except FileNotFoundError:
            self.mkdirs(parent, durable=durable)
            os.mkdir(path, DIRECTORY_MODE)
        if durable:
            self.fsync_dir(parent)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        import shutil

        shutil.rmtree(path)

    def fsync_dir(self, path: str) -> None:
        fd = self._reserve.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        if not _syncfs(path):
            os.sync()

    def read_bytes(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def usage(self, path: str) -> float:
        stat = os.statvfs(path)
        used = stat.f_blocks - stat.f_bfree
        usable = used + stat.f_bavail
        return 100.0 * used / usable if usable else 0.0

    def mtime_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def boot_id(self) -> bytes:
        try:
            return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
        except (OSError, ValueError):
            return b""

    def lock(self, path: str) -> RealLock:
        lock = RealLock(path, self._reserve.close)
        self._reserve.fill()
        return lock


def _syncfs(path: str) -> bool:
    """Sync one file system with Linux's syncfs. Unlike sync it does not wait for other, perhaps hanging, file systems."""
    import ctypes

    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return False
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    finally:
        os.close(fd)
    return True
