"""Unix domain sockets in a data directory."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from firearrow.net.unix_socket import connect_unix, is_listening, serve_unix
from tests.support.waiting import run


async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.readline()).upper())
    writer.close()


def test_socket_in_a_deep_directory_is_reachable_by_its_owner_only(tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*["directory-with-a-long-name"] * 6)
    directory.mkdir(parents=True)

    async def scenario() -> None:
        server = await serve_unix(upper, directory, "control.sock", limit=100)
        assert is_listening(directory, "control.sock")
        assert stat.S_IMODE((directory / "control.sock").stat().st_mode) == 0o600
        reader, writer = await connect_unix(directory, "control.sock", limit=100)
        writer.write(b"ping\n")
        assert await reader.readline() == b"PING\n"
        writer.close()
        server.close()

    run(scenario())


def test_stale_socket_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "control.sock").touch()

    async def scenario() -> None:
        server = await serve_unix(upper, tmp_path, "control.sock", limit=100)
        assert is_listening(tmp_path, "control.sock")
        server.close()

    run(scenario())


def test_missing_socket_is_reported(tmp_path: Path) -> None:
    assert not is_listening(tmp_path, "control.sock")
    with pytest.raises(FileNotFoundError):
        run(connect_unix(tmp_path, "control.sock", limit=100))
