"""Unix domain sockets in a data directory, for the processes of one user on one machine.

The path of such a socket is limited to 107 bytes, and a data directory may be deeper. The socket is therefore addressed through
the descriptor of its directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def serve_unix(handler: Handler, directory: Path, name: str, *, limit: int) -> asyncio.Server:
    """Listen on a socket that only this user can reach, replacing a stale one. `limit` bounds a line in bytes."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(directory, name) as path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            umask = os.umask(0o177)
            try:
                sock.bind(path)
            finally:
                os.umask(umask)
        sock.listen()
        sock.setblocking(False)
        return await asyncio.start_unix_server(handler, sock=sock, limit=limit)
    except BaseException:
        sock.close()
        raise


async def connect_unix(directory: Path, name: str, *, limit: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the socket. Raises OSError if no process listens on it."""
    sock = _dial(directory, name)
    try:
        return await asyncio.open_unix_connection(sock=sock, limit=limit)
    except BaseException:
        sock.close()
        raise


def is_listening(directory: Path, name: str) -> bool:
    """Return whether a process listens on the socket."""
    try:
        _dial(directory, name).close()
    except OSError:
        return False
    return True


def _dial(directory: Path, name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(directory, name) as path:
            sock.connect(path)
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


@contextlib.contextmanager
def _short_path(directory: Path, name: str) -> Iterator[str]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
