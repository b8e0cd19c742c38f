"""A process of a cluster: its configuration file, its log and its state.

    DATA/broker-a/broker.conf     its configuration, written at each start
    DATA/broker-a/broker.log      its log
    DATA/broker-a/store/          its store

A member reads from a pipe whose other end this process holds: when this process ends, even by SIGKILL, the member stops. It has
its own session, so that Ctrl-C reaches only this process, which then stops all members in order.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping

from firearrow.cli.local_cluster.state import MemberState
from firearrow.cli.local_cluster.topology import Member

START_S = 60.0
STOP_S = 10.0


class MemberError(Exception):
    """A member exited before it was ready, or was not ready in time."""


class MemberProcess:
    """The process of a member."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.state = "not started"
        self._process: Process | None = None
        kind = "namesrv" if member.is_namesrv else "broker"
        self._config = member.data / f"{kind}.conf"
        self._log = member.data / f"{kind}.log"
        self._command = [sys.executable, "-m", "firearrow.cli", kind, "-c", str(self._config)]
        self._command += ["--ready-file", "-", "--stop-with-parent"]

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.running else None

    def describe(self) -> MemberState:
        one = self.member
        return MemberState(one.name, one.role, one.broker, self.state, self.pid, one.address, str(one.data))

    async def start(self) -> None:
        """Start the process and wait until it is ready. Raises MemberError if it ends or times out before."""
        one = self.member
        one.data.mkdir(parents=True, exist_ok=True)
        self._config.write_text(_properties(one.settings), encoding="utf-8")
        with self._log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True
            )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_S)
            json.loads(line)
        except TimeoutError:
            await self.end(signal.SIGKILL, "killed: not ready in time")
            raise MemberError(f"{self.name} was not ready within {START_S:.0f} s; see {self._log}") from None
        except ValueError:
            code = await process.wait()
            self.state = f"exited with code {code}"
            raise MemberError(f"{self.name} exited with code {code} before it was ready: {self._last_line()}") from None
        self.state = "running"

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def end(self, number: signal.Signals, state: str) -> None:
        """End the process with a signal. If it does not stop in time, it is killed and its state says so."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self.state = state  # before the signal: the watcher distinguishes requested ends by the state
        process.send_signal(number)
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            self.state = f"killed: did not stop within {STOP_S:.0f} s"
            process.kill()
            await process.wait()

    def _last_line(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), f"see {self._log}")


def _properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
