"""Masters and their slaves in a cluster: who follows whom, and whether it has caught up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from firearrow.ha.static.slave import HaSlave
from firearrow.testing.nodes import BrokerNode

_START_S = 10.0
_LOOK_AGAIN_S = 0.001


class ReplicaSets:
    def __init__(self, masters: list[BrokerNode], slaves: list[BrokerNode]) -> None:
        self._masters = masters
        self._slaves = slaves

    def readable(self) -> list[BrokerNode]:
        """Of each set the one that consumers read: the master while it runs, then a slave."""
        return [self._first_running(master) for master in self._masters]

    def _first_running(self, master: BrokerNode) -> BrokerNode:
        own = [slave for slave in self._slaves if slave.broker_name == master.broker_name]
        return next((node for node in (master, *own) if node.running), master)

    def lagging(self) -> tuple[object, ...] | None:
        """A slave that does not show yet what its master shows, and how far it is."""
        for master, slave, replication in self._pairs():
            assert master.broker is not None, "pairs run"
            assert slave.broker is not None, "pairs run"
            shown = slave.broker.parts.store.confirm_offset
            if not replication.master_alive or shown < master.broker.parts.store.confirm_offset:
                return "slave", slave.name, shown
        return None

    async def await_slaves(self) -> None:
        """The start of a cluster: every slave follows, and has the tables."""
        async with asyncio.timeout(_START_S):
            while self.lagging() is not None:
                await asyncio.sleep(_LOOK_AGAIN_S)
            for _, _, replication in self._pairs():
                await replication.copied.wait()

    async def copy_tables(self) -> None:
        """Topics, groups and offsets of the masters, as they are now. A master that cannot be asked is left out."""
        for _, _, replication in list(self._pairs()):
            with contextlib.suppress(OSError):
                await replication.copy_tables()

    def _pairs(self) -> Iterator[tuple[BrokerNode, BrokerNode, HaSlave]]:
        """Those that both run, unless the slave has refused to go on."""
        masters = {master.broker_name: master for master in self._masters if master.running}
        for slave in self._slaves:
            replication = slave.replication
            if isinstance(replication, HaSlave) and slave.broker_name in masters and replication.broken is None:
                yield masters[slave.broker_name], slave, replication
