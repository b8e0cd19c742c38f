"""`firearrow up --cluster FORM`: start the members, announce their addresses, execute control requests, stop them all.

A member that dies is not restarted, because these clusters exist to observe the others. A log line reports it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from firearrow.auth.bootstrap import inner_signer
from firearrow.broker.settings import BrokerSettings
from firearrow.cli.command import fail
from firearrow.cli.local_cluster.control import Control
from firearrow.cli.local_cluster.member import MemberProcess
from firearrow.cli.local_cluster.peer_secret import peer_secret_settings
from firearrow.cli.local_cluster.state import ClusterError, ClusterState, unknown_member
from firearrow.cli.local_cluster.topology import FORMS, Member, broker_endpoints, namesrv_endpoint, plan
from firearrow.cli.servers.child import ChildError
from firearrow.cli.servers.config import UpOptions, UpSettings, durability
from firearrow.cli.servers.ready_file import ServerReady, announce
from firearrow.config.fields import declared
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.channel import Channel
from firearrow.net.tls import outgoing_context
from firearrow.store.settings import StoreSettings
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode

REGISTRATION_S: Final = 30.0
_POLL_S: Final = 0.05

Connect = Callable[[str], Coroutine[Any, Any, Channel]]

log = logging.getLogger("firearrow.cli")


async def up_cluster(options: UpOptions, settings: UpSettings, data: Path, stop: asyncio.Event) -> int:
    assert options.cluster is not None

    def connect(address: str) -> Coroutine[Any, Any, Channel]:
        return Channel.connect(address, tls=outgoing_context(settings.broker), signer=inner_signer(settings.broker))

    cluster = RunningCluster(options.cluster, data, _plan(options.cluster, options, settings, data), connect)
    try:
        try:
            await cluster.start(stop)
        except ChildError as error:
            fail(str(error))
            return 1
        if not stop.is_set():
            announce(cluster.ready(durability(settings.store)), options.ready_file)
            if options.ready_file != "-":
                cluster.show()
        await stop.wait()
        return 0
    finally:
        await cluster.stop()


def _plan(form: str, options: UpOptions, settings: UpSettings, data: Path) -> list[Member]:
    values = dict(options.settings) | settings.shared_values()
    namesrv_keys, broker_keys = declared(NamesrvSettings), {**declared(BrokerSettings), **declared(StoreSettings)}
    count = len(FORMS[form])
    broker_values = {key: value for key, value in values.items() if key in broker_keys or key not in namesrv_keys}
    broker_values |= peer_secret_settings(data, options.host, broker_values)
    if settings.broker.tls_server_mode == "enforcing":  # applies to the replication ports, too
        broker_values.setdefault("peerUseTLS", "true")
    return plan(
        form,
        data,
        namesrv_endpoint(options.host, options.namesrv_port),
        broker_endpoints(options.host, options.broker_port, count),
        namesrv_settings={key: value for key, value in values.items() if key in namesrv_keys},
        broker_settings=broker_values,
        metrics_port=settings.broker.metrics_prom_exporter_port if settings.broker.metrics_exporter_type == "PROM" else 0,
    )


class RunningCluster:
    """The processes of a cluster. `connect` opens a connection to the name server."""

    def __init__(self, form: str, data: Path, members: list[Member], connect: Connect) -> None:
        self._form = form
        self._data = data
        self._connect = connect
        self._members = {member.name: MemberProcess(member) for member in members}
        self._namesrv, *self._brokers = self._members.values()
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._lock = asyncio.Lock()
        self._control = Control(data, self.execute)

    async def start(self, stop: asyncio.Event) -> None:
        """Start all members and wait until each broker is registered and each broker name has a master. Raises ChildError."""
        await self._start(self._namesrv)
        started = await asyncio.gather(*(self._start(broker) for broker in self._brokers), return_exceptions=True)
        for error in started:
            if error is not None:
                raise error
        await self._wait_for_registration(stop)
        await self._control.start()
        self._write()

    async def stop(self) -> None:
        """Stop the brokers, which unregister, then the name server."""
        await self._control.stop()
        await asyncio.gather(*(member.end(signal.SIGTERM, "stopped") for member in self._brokers))
        await self._namesrv.end(signal.SIGTERM, "stopped")
        await asyncio.gather(*self._watchers.values())
        self._write(running=False)

    def ready(self, flush: str) -> ServerReady:
        brokers = [(one.name, one.member.address) for one in self._brokers]
        return ServerReady(self._namesrv.member.address, brokers, str(self._data), flush, cluster=self._form)

    def show(self) -> None:
        """Print the members and the commands that control them."""
        width = max(map(len, self._members))
        for one in self._members.values():
            member = one.member
            print(f"  {one.name:<{width}}  {member.role:<12}  {member.address}  process {one.pid}  {member.data}")
        print(f"  control it with: firearrow cluster kill|stop|start|status NAME --data {self._data}", flush=True)

    # ---- control requests

    async def execute(self, verb: str, name: str) -> str:
        member = self._members.get(name)
        if member is None:
            raise unknown_member(name, list(self._members))
        async with self._lock:
            if verb == "start":
                return await self._restart(member)
            if member.pid is None:
                raise ClusterError(f"{name} is not running ({member.state}); start it with `firearrow cluster start {name}`")
            pid = member.pid
            await member.end(*((signal.SIGKILL, "killed") if verb == "kill" else (signal.SIGTERM, "stopped")))
            log.info("%s, process %d, %s on request", name, pid, member.state)
            return f"{member.state} {name} (process {pid})"

    async def _restart(self, member: MemberProcess) -> str:
        if member.pid is not None:
            raise ClusterError(f"{member.name} is already running (process {member.pid})")
        try:
            await self._start(member)
        except ChildError as error:
            raise ClusterError(str(error)) from None
        finally:
            self._write()
        log.info("%s started as process %d on request", member.name, member.pid)
        return f"started {member.name} at {member.member.address} (process {member.pid})"

    # ---- processes

    async def _start(self, member: MemberProcess) -> None:
        await member.start()
        self._watchers[member.name] = asyncio.ensure_future(self._watch(member))

    async def _watch(self, member: MemberProcess) -> None:
        pid = member.pid
        code = await member.wait()
        if member.state == "running":
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            member.state = f"died: {how}"
            name = member.name
            log.error("%s, process %d, died (%s); restart it with `firearrow cluster start %s`", name, pid, how, name)
        self._write()

    async def _wait_for_registration(self, stop: asyncio.Event) -> None:
        deadline = asyncio.get_running_loop().time() + REGISTRATION_S
        wanted = {(one.member.broker, one.member.address) for one in self._brokers}
        while not stop.is_set():
            masters, registered = await self._registered_brokers()
            missing = sorted(wanted - registered) + sorted({broker for broker, _ in wanted} - masters)
            if not missing:
                return
            gone = [one for one in self._members.values() if one.pid is None]
            if gone:
                raise ChildError(f"{gone[0].name} {gone[0].state} while the cluster was starting; see {gone[0].member.data}")
            if asyncio.get_running_loop().time() > deadline:
                raise ChildError(f"not registered with the name server within {REGISTRATION_S:.0f} s: {missing}")
            await asyncio.sleep(_POLL_S)

    async def _registered_brokers(self) -> tuple[set[str], set[tuple[str, str]]]:
        """Return the broker names that have a master, and (broker name, address) of all brokers at the name server."""
        try:
            channel = await self._connect(self._namesrv.member.address)
            try:
                answer = await channel.call(RequestCode.GET_BROKER_CLUSTER_INFO)
            finally:
                await channel.close()
        except OSError:
            return set(), set()
        if answer.code != ResponseCode.SUCCESS:
            raise ChildError(f"the name server does not list its brokers: it responded with code {answer.code}: {answer.remark}")
        table = fastjson.loads(answer.body).get("brokerAddrTable") or {}
        addresses = {name: entry["brokerAddrs"] for name, entry in table.items()}
        masters = {name for name, ids in addresses.items() if "0" in ids or 0 in ids}
        return masters, {(name, address) for name, ids in addresses.items() for address in ids.values()}

    def _write(self, *, running: bool = True) -> None:
        members = [one.describe() for one in self._members.values()]
        ClusterState(self._form, os.getpid() if running else None, self._namesrv.member.address, members).write(self._data)
