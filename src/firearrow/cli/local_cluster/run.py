"""`firearrow up --cluster FORM`: starts the members, says where they are, does to them what is asked for, stops them all.

A member that dies is not started again: clusters like these are there to see what the others do then. One line says so.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final

from firearrow.broker.settings import BrokerSettings
from firearrow.cli.local_cluster.control import Control, RefusedError
from firearrow.cli.local_cluster.member import MemberError, MemberProcess
from firearrow.cli.local_cluster.places import broker_places, namesrv_place
from firearrow.cli.local_cluster.state import ClusterState, UnknownMemberError
from firearrow.cli.local_cluster.topology import FORMS, Member, plan
from firearrow.cli.servers.config import UpSettings, durability
from firearrow.cli.servers.ready_file import ServerReady, announce
from firearrow.config.fields import declared
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.channel import Channel
from firearrow.store.settings import StoreSettings
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode

REGISTERED_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.05

log = logging.getLogger("firearrow.cli")


async def up_cluster(options: argparse.Namespace, settings: UpSettings, data: Path, stop: asyncio.Event) -> int:
    cluster = RunningCluster(options.cluster, data, _members(options, settings, data))
    try:
        try:
            await cluster.start(stop)
        except MemberError as error:
            print(f"firearrow: {error}", file=sys.stderr)
            return 1
        if not stop.is_set():
            announce(cluster.ready(durability(settings.store)), options.ready_file)
            if options.ready_file != "-":
                cluster.show()
        await stop.wait()
        return 0
    finally:
        await cluster.stop()


def _members(options: argparse.Namespace, settings: UpSettings, data: Path) -> list[Member]:
    values = dict(options.settings)
    of_namesrv, of_broker = declared(NamesrvSettings), {**declared(BrokerSettings), **declared(StoreSettings)}
    count = len(FORMS[options.cluster])
    return plan(
        options.cluster,
        data,
        namesrv_place(options.host, options.namesrv_port),
        broker_places(options.host, options.broker_port, count),
        namesrv_settings={key: value for key, value in values.items() if key in of_namesrv},
        broker_settings={key: value for key, value in values.items() if key in of_broker or key not in of_namesrv},
        metrics_port=settings.broker.metrics_prom_exporter_port if settings.broker.metrics_exporter_type == "PROM" else 0,
    )


class RunningCluster:
    def __init__(self, form: str, data: Path, members: list[Member]) -> None:
        self._form = form
        self._data = data
        self._members = {member.name: MemberProcess(member) for member in members}
        self._namesrv, *self._brokers = self._members.values()
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._control = Control(data, self.carry_out)

    # ---- life

    async def start(self, stop: asyncio.Event) -> None:
        """Returns when every broker is at the name server and every broker name has a master; MemberError if that fails."""
        await self._start(self._namesrv)
        started = await asyncio.gather(*(self._start(broker) for broker in self._brokers), return_exceptions=True)
        for error in started:
            if error is not None:
                raise error
        await self._registered(stop)
        await self._control.start()
        self._write()

    async def stop(self) -> None:
        """The name server last: brokers say goodbye to it."""
        await self._control.stop()
        await asyncio.gather(*(member.end(signal.SIGTERM, "stopped") for member in self._brokers))
        await self._namesrv.end(signal.SIGTERM, "stopped")
        await asyncio.gather(*self._watchers.values())
        self._write(running=False)

    def ready(self, flush: str) -> ServerReady:
        brokers = [(one.name, one.member.address) for one in self._brokers]
        return ServerReady(self._namesrv.member.address, brokers, str(self._data), flush, cluster=self._form)

    def show(self) -> None:
        """Where everything is, and what can be done, for people."""
        width = max(map(len, self._members))
        for one in self._members.values():
            member = one.member
            print(f"  {one.name:<{width}}  {member.role:<12}  {member.address}  process {one.pid}  {member.data}")
        print(f"  to break and mend it: firearrow cluster kill|stop|start|status NAME --data {self._data}", flush=True)

    # ---- what is asked for

    async def carry_out(self, verb: str, name: str) -> str:
        member = self._members.get(name)
        if member is None:
            raise RefusedError(str(UnknownMemberError(name, list(self._members))))
        async with self._one_at_a_time:
            if verb == "start":
                return await self._start_again(member)
            if not member.running:
                raise RefusedError(f"{name} is not running ({member.state}); `firearrow cluster start {name}` starts it")
            pid = member.pid
            if verb == "kill":
                await member.end(signal.SIGKILL, "killed")
            else:
                await member.end(signal.SIGTERM, "stopped")
            log.info("%s, process %d, was %s, as asked for", name, pid, member.state)
            return f"{member.state} {name} (process {pid})"

    async def _start_again(self, member: MemberProcess) -> str:
        if member.running:
            raise RefusedError(f"{member.name} is running already (process {member.pid})")
        try:
            await self._start(member)
        except MemberError as error:
            self._write()
            raise RefusedError(str(error)) from None
        self._write()
        log.info("%s was started as process %d, as asked for", member.name, member.pid)
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
            log.error(
                "%s, process %d, died by itself (%s); `firearrow cluster start %s` starts it again",
                member.name,
                pid,
                how,
                member.name,
            )
        self._write()

    async def _registered(self, stop: asyncio.Event) -> None:
        deadline = asyncio.get_running_loop().time() + REGISTERED_S
        wanted = {(one.member.broker, one.member.address) for one in self._brokers}
        while not stop.is_set():
            masters, there = await self._at_name_server()
            missing = sorted(wanted - there) + sorted({broker for broker, _ in wanted} - masters)
            if not missing:
                return
            gone = [one for one in self._members.values() if not one.running]
            if gone:
                raise MemberError(f"{gone[0].name} {gone[0].state} while the cluster was starting; see {gone[0].member.data}")
            if asyncio.get_running_loop().time() > deadline:
                raise MemberError(f"not at the name server as master or slave within {REGISTERED_S:.0f} s: {missing}")
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _at_name_server(self) -> tuple[set[str], set[tuple[str, str]]]:
        """(names of brokers that have a master, (broker's name, address) of all) as the name server has them now."""
        try:
            channel = await Channel.connect(self._namesrv.member.address)
            try:
                answer = await channel.call(RequestCode.GET_BROKER_CLUSTER_INFO)
            finally:
                await channel.close()
        except OSError:
            return set(), set()
        table = fastjson.loads(answer.body).get("brokerAddrTable") or {}
        addresses = {name: entry["brokerAddrs"] for name, entry in table.items()}
        masters = {name for name, ids in addresses.items() if "0" in ids or 0 in ids}
        return masters, {(name, address) for name, ids in addresses.items() for address in ids.values()}

    def _write(self, *, running: bool = True) -> None:
        members = [one.describe() for one in self._members.values()]
        ClusterState(self._form, os.getpid() if running else None, self._namesrv.member.address, members).write(self._data)
