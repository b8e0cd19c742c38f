"""Resources of a server's process, if it runs on this machine as the same user. Linux only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firearrow import procfs
from firearrow.net.address import is_local

_LISTEN: Final = "0A"


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """Open files and memory of a process and its machine, in bytes."""

    pid: int
    open_files: int
    files_limit: int | None
    resident: int
    memory_total: int
    memory_available: int | None


def listening(host: str, port: int) -> ServerProcess | None:
    """Return the process that listens at an address; None if it runs elsewhere or as another user."""
    if not is_local(host):
        return None
    inode = _inode(port)
    if inode is None:
        return None
    for entry in procfs.PROC.iterdir():
        if entry.name.isdigit() and _has_open(entry, f"socket:[{inode}]"):
            return _read(int(entry.name))
    return None


def _inode(port: int) -> str | None:
    for name in ("tcp", "tcp6"):
        try:
            lines = (procfs.PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                return words[9]
    return None


def _has_open(entry: Path, target: str) -> bool:
    try:
        return any(os.readlink(link) == target for link in (entry / "fd").iterdir())
    except OSError:  # of another user, or ended
        return False


def _read(pid: int) -> ServerProcess | None:
    usage = procfs.read_usage(pid)
    if usage is None:
        return None
    total, available = procfs.read_memory("MemTotal") or 0, procfs.read_memory("MemAvailable")
    return ServerProcess(pid, usage.open_files, usage.files_limit, usage.resident_bytes, total, available)
