"""Groups of brokers that share this machine: a master with a slave, or three members that elect their leader.

The same settings, by Apache's names, for both kinds of broker; every member is a process of its own, and so is the name server.
ASYNC_FLUSH everywhere, as is usual where a second machine has the message too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.apache import Apache, write_properties
from bench.firearrow import Firearrow
from bench.load import LoadResult, call
from bench.process import BenchError, Process, accepts, free_base_ports, wait_until
from bench.targets import START_TIMEOUT_S, Target
from firearrow.net.channel import Channel
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.fastjson import loads

BROKER_NAME = "broker-a"
ASYNC_MASTER, SYNC_MASTER, DLEDGER = "ASYNC_MASTER + slave", "SYNC_MASTER + slave", "dledger-3"
TOPOLOGIES = (ASYNC_MASTER, SYNC_MASTER, DLEDGER)
_DLEDGER_MEMBERS = 3
# Three brokers with the default heap would not fit; the young generation is half of it, as in Apache's scripts.
_HEAP, _YOUNG = "2g", "1g"


@dataclass
class Member:
    target: Target
    directory: Path
    port: int
    settings: Mapping[str, str]
    process: Process | None = None

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        store = self.directory / "store"
        values = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": BROKER_NAME,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(self.port),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "flushDiskType": "ASYNC_FLUSH",
            **self.settings,
        }
        conf = write_properties(self.directory / "broker.conf", values)
        self.process = _start(self.target, "broker", self.directory, conf)

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.stop()

    def log_end(self) -> int:
        """Return the end of its log; -1 if unknown."""
        table = request_json(self.port, RequestCode.GET_BROKER_RUNTIME_INFO).get("table", {})
        return int(table.get("commitLogMaxOffset", -1))


@dataclass
class Group:
    topology: str
    namesrv: Process
    namesrv_port: int
    members: list[Member]
    leader: Member = field(init=False)

    def await_whole(self) -> None:
        """Wait until all members are registered, one of them as master, and the others follow it."""
        processes = [self.namesrv, *(member.process for member in self.members if member.process)]
        wait_until(self._is_whole, processes, START_TIMEOUT_S, f"{self.topology} is whole")

    def await_step(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until every member has the complete log."""
        wait_until(lambda: self.behind() == 0, [], timeout_s, f"all members of {self.topology} are in step")

    def behind(self) -> int:
        """Return how many bytes the slowest follower is behind the leader."""
        end = self.leader.log_end()
        others = [member.log_end() for member in self.members if member is not self.leader]
        return max(0, end - min(others)) if end >= 0 and min(others) >= 0 else end

    def load(self, mode: str, **options: str | float) -> LoadResult:
        """Run the load program against the leader; CPU time is that of all running members."""
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        running = [member.process for member in self.members if member.process is not None]
        pids = [word for process in running for word in ("--pid", str(process.pid))]
        result = call([mode, "--port", str(self.leader.port), *pids, *words])
        for process in running:
            process.check_alive()
        return result

    def kill(self) -> None:
        for member in self.members:
            if member.process is not None:
                member.process.kill()
        self.namesrv.kill()

    def _is_whole(self) -> bool:
        table = request_json(self.namesrv_port, RequestCode.GET_BROKER_CLUSTER_INFO).get("brokerAddrTable", {})
        addresses = table.get(BROKER_NAME, {}).get("brokerAddrs", {})
        ports = {broker_id: int(address.rpartition(":")[2]) for broker_id, address in addresses.items()}
        if len(ports) < len(self.members) or "0" not in ports:
            return False
        self.leader = next(member for member in self.members if member.port == ports["0"])
        if self.topology == DLEDGER:
            return True
        return bool(request_json(self.leader.port, RequestCode.GET_BROKER_HA_STATUS).get("inSyncSlaveNums"))


def start_group(target: Target, topology: str, directory: Path) -> Group:
    directory.mkdir(parents=True, exist_ok=True)
    ports = free_base_ports(_DLEDGER_MEMBERS if topology == DLEDGER else 2)
    namesrv_port = ports[0] + 2
    conf = write_properties(directory / "namesrv.conf", {"listenPort": str(namesrv_port)})
    namesrv = _start(target, "namesrv", directory, conf)
    group = Group(topology, namesrv, namesrv_port, [])
    try:
        wait_until(lambda: accepts(namesrv_port), [namesrv], START_TIMEOUT_S, f"{target.name}'s name server opens {namesrv_port}")
        for number, (port, own) in enumerate(zip(ports, settings_of(topology, ports), strict=True)):
            values = {"namesrvAddr": f"127.0.0.1:{namesrv_port}", **own}
            group.members.append(Member(target, directory / f"member-{number}", port, values))
            group.members[-1].start()
        group.await_whole()
    except BaseException:
        group.kill()
        raise
    return group


def settings_of(topology: str, ports: Sequence[int]) -> list[dict[str, str]]:
    """Return the settings of the members except ports, for both kinds of broker."""
    if topology != DLEDGER:
        # Apache's SYNC_MASTER does not wait for replicas unless inSyncReplicas is 2.
        master = {"brokerRole": topology.split(maxsplit=1)[0], "brokerId": "0", "inSyncReplicas": "2"}
        return [master, {"brokerRole": "SLAVE", "brokerId": "1"}]
    peers = ";".join(f"n{number}-127.0.0.1:{port + 3}" for number, port in enumerate(ports))
    common = {"enableDLegerCommitLog": "true", "dLegerGroup": BROKER_NAME, "dLegerPeers": peers}
    return [{**common, "dLegerSelfId": f"n{number}"} for number in range(len(ports))]


def _start(target: Target, what: str, directory: Path, conf: Path) -> Process:
    if isinstance(target, Apache):
        if what == "namesrv":
            return target.java(directory, "namesrv.NamesrvStartup", conf, heap="512m", young="256m")
        return target.java(directory, "broker.BrokerStartup", conf, heap=_HEAP, young=_YOUNG)
    if isinstance(target, Firearrow):
        return Process([str(target.command), what, "-c", str(conf)], conf.with_suffix(".out"))
    raise BenchError(f"{target.name} cannot be started as a group")


def request_json(port: int, code: RequestCode) -> dict[str, Any]:
    """Return the JSON body of a reply; empty without a reply or body."""

    async def request_body() -> bytes:
        channel = await Channel.connect(f"127.0.0.1:{port}")
        try:
            answer = await channel.request(code, {}, b"", timeout_ms=3_000)
            return answer.body if answer.code == ResponseCode.SUCCESS else b""
        finally:
            await channel.close()

    try:
        body = asyncio.run(request_body())
    except OSError:
        return {}
    value = loads(body) if body else {}
    return value if isinstance(value, dict) else {}
