"""TCP ports for servers that need a port known in advance: peers of a group, and servers that restart at their address.

A port that the system chose (bind to port 0) can be taken again as soon as it is closed: by another bind to port 0, or as the
source port of any outgoing connection. The ports here lie outside the ranges that the system and `firearrow up` choose from, and
each belongs to one process until it ends, so the tests that run in parallel do not take ports from each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import socket
import tempfile
from pathlib import Path

_PORTS = range(12_000, 20_000)
_own: set[int] = set()


def reserve_port(*neighbours: int) -> int:
    """Return a port that is free with its neighbours (the fast port is two below, replication one above)."""
    for port in random.sample(_PORTS, len(_PORTS)):
        wanted = [port + offset for offset in (0, *neighbours)]
        if all(map(_lock, wanted)) and _are_free(wanted):
            return port
    raise RuntimeError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


def reserve_addresses(count: int) -> list[str]:
    return [f"127.0.0.1:{reserve_port()}" for _ in range(count)]


def _lock(port: int) -> bool:
    """Lock the byte of this port in a file that all test processes share. The system releases it when the process ends."""
    if port in _own:
        return False
    try:
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _own.add(port)
    return True


@functools.cache
def _lock_file() -> int:
    """Return the descriptor, which stays open: closing it would release all locks of the process."""
    path = Path(tempfile.gettempdir()) / f"firearrow-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _are_free(ports: list[int]) -> bool:
    with contextlib.ExitStack() as held:
        try:
            for port in ports:
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
