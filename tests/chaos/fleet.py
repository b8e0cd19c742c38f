"""The members of a cluster as processes that a test starts, kills, freezes and moves.

The configuration is that of `firearrow up --cluster`. In addition a member may have a command prefix (a network namespace) and
environment variables (a wrong clock).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from firearrow.cli.local_cluster.topology import FORMS, Endpoint, Member, broker_endpoints, namesrv_endpoint, plan
from firearrow.config.properties_file import format_properties
from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode
from tests.support.waiting import until

PATIENCE_S = 60.0
SETTINGS = {
    "mappedFileSizeCommitLog": "4194304",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "slaveSyncInterval": "500",
}


class Machine:
    """One member. Its log is in its directory."""

    def __init__(self, member: Member, before: Sequence[str] = ()) -> None:
        self.member = member
        self.name, self.address = member.name, member.address
        self._before = list(before)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self, env: Mapping[str, str] | None = None) -> None:
        assert not self.running, f"{self.name} runs already"
        kind = "broker" if self.member.broker else "namesrv"
        directory = self.member.data
        directory.mkdir(parents=True, exist_ok=True)
        config, self._ready_file = directory / f"{kind}.conf", directory / "ready.json"
        config.write_text(format_properties(self.member.settings))
        self._ready_file.unlink(missing_ok=True)
        command = [*self._before, sys.executable, "-m", "firearrow.cli", kind, "-c", str(config)]
        with (directory / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--ready-file", str(self._ready_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
            )

    async def ready(self) -> None:
        await until(lambda: self._ready_file.exists() or not self.running, f"{self.name} is ready")
        assert self.running, f"{self.name} ended:\n{self.log[-3000:]}"

    async def start(self, env: Mapping[str, str] | None = None) -> None:
        self.launch(env)
        await self.ready()

    def kill(self) -> None:
        """Kill the process, like a power cut that preserves the page cache."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    @property
    def store(self) -> Path:
        return self.member.data / "store"

    def lose_disk(self) -> None:
        assert not self.running
        shutil.rmtree(self.store)

    def replace_disk(self, source: Path) -> None:
        """Replace the store directory by a copy of another one."""
        self.lose_disk()
        shutil.copytree(source, self.store)

    @property
    def log(self) -> str:
        path = self.member.data / "log.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def dispose(self) -> None:
        if self.running:
            self.thaw()
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(30)
        assert number != signal.SIGTERM or code == 0, f"{self.name} stopped with exit code {code}:\n{self.log[-3000:]}"


class Fleet:
    """A name server and brokers."""

    def __init__(self, form: str, members: Sequence[Member], before: Mapping[str, Sequence[str]] | None = None) -> None:
        self.form = form
        self.machines = {member.name: Machine(member, (before or {}).get(member.name, ())) for member in members}
        self.namesrv, *self.brokers = self.machines.values()

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    async def start(self, env: Mapping[str, Mapping[str, str]]) -> None:
        """Start the members. `env`: environment variables by member."""
        await self.namesrv.start()
        for machine in self.brokers:
            machine.launch(env.get(machine.name))
        for machine in self.brokers:
            await machine.ready()
        await self.complete()

    async def complete(self) -> None:
        """Wait until every member is registered, every broker name has a master and every slave has caught up."""
        await until(self._is_complete, f"{self.form} is complete")

    async def masters(self) -> dict[str, Machine]:
        """Return the master of each broker name, as the name server reports it."""
        by_address = {machine.address: machine for machine in self.brokers}
        own = {machine.member.broker for machine in self.brokers}
        return {name: by_address[ids["0"]] for name, ids in (await self.table()).items() if "0" in ids and name in own}

    async def leader(self, broker: str = "broker-a") -> Machine:
        found: list[Machine] = []

        async def known() -> bool:
            masters = await self.masters()
            found[:] = [masters[broker]] if broker in masters and masters[broker].running else []
            return bool(found)

        await until(known, f"{broker} has a leader")
        return found[0]

    async def restore(self) -> None:
        """Start the members that are not running, and wait until the cluster is complete."""
        down = [machine for machine in self.machines.values() if not machine.running]
        for machine in down:
            machine.launch()
        for machine in down:
            await machine.ready()
        await self.complete()

    def dispose(self) -> None:
        for machine in self.machines.values():
            machine.dispose()

    async def _is_complete(self) -> bool:
        table = await self.table()
        wanted = {(machine.member.broker, machine.address) for machine in self.brokers}
        there = {(name, address) for name, ids in table.items() for address in ids.values()}
        if not (wanted <= there and all("0" in table[name] for name, _ in wanted)):
            return False
        with_slaves = {machine.member.broker for machine in self.brokers if machine.member.role == "SLAVE"}
        return all([await _slaves_in_step(table[name]["0"]) for name in with_slaves])

    async def table(self) -> dict[str, dict[str, str]]:
        """Return broker name -> broker id -> address."""
        try:
            channel = await Channel.connect(self.namesrv.address)
        except OSError:
            return {}
        try:
            answer = await channel.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        finally:
            await channel.close()
        table: dict[str, Any] = fastjson.loads(answer.body).get("brokerAddrTable") or {}
        return {name: {str(key): str(value) for key, value in entry["brokerAddrs"].items()} for name, entry in table.items()}


async def _slaves_in_step(master: str) -> int:
    try:
        channel = await Channel.connect(master)
    except OSError:
        return 0
    try:
        answer = await channel.request(RequestCode.GET_BROKER_HA_STATUS)
    finally:
        await channel.close()
    return int(fastjson.loads(answer.body)["inSyncSlaveNums"])


def on_loopback(form: str, directory: Path, **settings: str) -> Fleet:
    places = broker_endpoints("127.0.0.1", 0, len(FORMS[form]))
    return Fleet(form, members_at(form, directory, namesrv_endpoint("127.0.0.1", 0), places, **settings))


def members_at(form: str, directory: Path, namesrv: Endpoint, places: Sequence[Endpoint], **settings: str) -> list[Member]:
    return plan(form, directory, namesrv, places, broker_settings={**SETTINGS, **settings})


@contextlib.asynccontextmanager
async def running(fleet: Fleet, env: Mapping[str, Mapping[str, str]] | None = None) -> AsyncIterator[Fleet]:
    try:
        await fleet.start(env or {})
        yield fleet
    finally:
        fleet.dispose()
