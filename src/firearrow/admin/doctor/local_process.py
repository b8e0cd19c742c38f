"""What the system says about a server's process, if it runs on this machine and belongs to this user. Linux only."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firearrow.net.address import is_local

PROC: Final = Path("/proc")
_LISTEN: Final = "0A"


@dataclass(frozen=True, slots=True)
class ServerProcess:
    pid: int
    open_files: int
    files_limit: int | None
    resident: int
    memory_total: int
    memory_available: int | None


def listening(host: str, port: int) -> ServerProcess | None:
    """The process that listens at this address; None if it is elsewhere or somebody else's."""
    if not is_local(host):
        return None
    inode = _inode(port)
    if inode is None:
        return None
    for entry in PROC.iterdir():
        if entry.name.isdigit() and _has_open(entry, f"socket:[{inode}]"):
            return _described(entry)
    return None


def _inode(port: int) -> str | None:
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
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
    except OSError:  # not ours, or gone
        return False


def _described(entry: Path) -> ServerProcess | None:
    try:
        limits, status = (entry / "limits").read_text(), (entry / "status").read_text()
        memory = (PROC / "meminfo").read_text()
        open_files = sum(1 for _ in (entry / "fd").iterdir())
    except OSError:
        return None
    limit = re.search(r"^Max open files\s+(\d+)", limits, re.MULTILINE)
    return ServerProcess(
        int(entry.name),
        open_files,
        int(limit[1]) if limit is not None else None,
        _kib(status, "VmRSS") or 0,
        _kib(memory, "MemTotal") or 0,
        _kib(memory, "MemAvailable"),
    )


def _kib(text: str, name: str) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found is not None else None
