"""A process of a cluster: its configuration file, its log and its state.

    DATA/broker-a/broker.conf     its configuration, written at each start
    DATA/broker-a/broker.log      its log
    DATA/broker-a/store/          its store

A member has its own session, so that Ctrl-C reaches only this process, which then stops all members in order.
"""

from __future__ import annotations

import asyncio
import signal

from firearrow.cli.local_cluster.state import MemberState
from firearrow.cli.local_cluster.topology import Member
from firearrow.cli.servers.child import ChildError, ChildServer, write_config

START_S = 60.0
STOP_S = 10.0


class MemberProcess(ChildServer):
    """The process of a member."""

    def __init__(self, member: Member) -> None:
        super().__init__(member.name)
        self.member = member
        self.state = "not started"
        self._kind = "broker" if member.broker else "namesrv"
        self._config = member.data / f"{self._kind}.conf"
        self._log = member.data / f"{self._kind}.log"

    def describe(self) -> MemberState:
        one = self.member
        return MemberState(one.name, one.role, one.broker, self.state, self.pid, one.address, str(one.data))

    async def start(self) -> None:
        """Start the process and wait until it is ready. Raises ChildError if it ends or times out before."""
        self.member.data.mkdir(parents=True, exist_ok=True)
        write_config(self._config, self.member.settings)
        try:
            with self._log.open("ab") as log:
                async with asyncio.timeout(START_S):
                    await self._start(self._kind, "-c", str(self._config), stderr=log, new_session=True)
        except TimeoutError:
            await self.end(signal.SIGKILL, "killed: not ready in time")
            raise ChildError(f"{self.name} was not ready within {START_S:.0f} s; see {self._log}") from None
        except ChildError as error:
            self.state = f"exited with code {await self.wait()}"
            raise ChildError(f"{error}: {self._last_line()}") from None
        self.state = "running"

    async def end(self, number: signal.Signals, state: str) -> None:
        """End the process with a signal. If it does not stop in time, it is killed and its state says so."""
        if self.pid is not None:
            self.state = state  # before the signal: the watcher distinguishes requested ends by the state
            if not await self._end(number, STOP_S):
                self.state = f"killed: did not stop within {STOP_S:.0f} s"

    def _last_line(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), f"see {self._log}")
