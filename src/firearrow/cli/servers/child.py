"""A server as a child process of `firearrow up`.

The child reads from a pipe whose other end this process holds: when this process ends, even by SIGKILL, the child stops.

Its settings are in a file: all users of the machine can read the arguments of a process, and settings contain secrets.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


class ChildError(Exception):
    """A child ended before it was ready, or was not ready in time."""


def write_config(path: Path, settings: Mapping[str, str]) -> None:
    """Write a property file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)  # the file may have existed with another mode
        file.writelines(f"{key}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


class ChildServer:
    """A process of `firearrow namesrv` or `firearrow broker`, which can be started again after its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """Return the process id; None if the process does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def _start(self, *command: str, stderr: IO[bytes] | None = None, new_session: bool = False) -> dict[str, Any]:
        """Start the process and return its announcement. Raises ChildError if the process ends before it is ready."""
        words = [sys.executable, "-m", "firearrow.cli", *command, "--ready-file", "-", "--stop-with-parent"]
        self._process = process = await asyncio.create_subprocess_exec(
            *words, stdin=PIPE, stdout=PIPE, stderr=stderr, start_new_session=new_session
        )
        assert process.stdout is not None
        try:
            ready: dict[str, Any] = json.loads(await process.stdout.readline())
        except ValueError:
            raise ChildError(f"{self.name} exited with code {await process.wait()} before it was ready") from None
        return ready

    async def _end(self, number: signal.Signals, timeout_s: float) -> bool:
        """End the process with a signal. Return False if it was killed because it did not stop in time."""
        process = self._process
        if process is None or process.returncode is not None:
            return True
        process.send_signal(number)
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            process.kill()
            await process.wait()
            return False
        return True
