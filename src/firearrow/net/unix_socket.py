"""A socket in a directory, for the processes of one user on one machine.

The path of such a socket may have no more than 107 bytes, and data directories may be deeper: so it is reached through the
descriptor of its directory.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path


def listen_local(directory: Path, name: str) -> socket.socket:
    """A listening socket that only this user reaches. What is left of an earlier one is removed."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(directory, name) as path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            before = os.umask(0o177)
            try:
                sock.bind(path)
            finally:
                os.umask(before)
        sock.listen()
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def dial_local(directory: Path, name: str) -> socket.socket:
    """A connected socket; OSError if nobody listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(directory, name) as path:
            sock.connect(path)
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


@contextlib.contextmanager
def _short(directory: Path, name: str) -> Iterator[str]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
