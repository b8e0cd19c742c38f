"""Masters and slaves of a test cluster, and whether slaves have caught up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from firearrow.ha.static.slave import HaSlave
from firearrow.testing.nodes import BrokerNode

_START_S = 10.0
_RETRY_S = 0.001


class ReplicaSets:
    """The replica sets of a cluster."""

    def __init__(self, masters: list[BrokerNode], slaves: list[BrokerNode]) -> None:
        self._masters = masters
        self._slaves = slaves

    def readable(self) -> list[BrokerNode]:
        """Return the node of each set that consumers read from: the master if it is running, otherwise a slave."""
        return [self._first_running(master) for master in self._masters]

    def _first_running(self, master: BrokerNode) -> BrokerNode:
        own = [slave for slave in self._slaves if slave.broker_name == master.broker_name]
        return next((node for node in (master, *own) if node.running), master)

    def lagging(self) -> tuple[object, ...] | None:
        """Describe the first slave that does not show what its master shows yet."""
        for master, slave, replication in self._pairs():
            assert master.broker is not None, "pairs run"
            assert slave.broker is not None, "pairs run"
            shown = slave.broker.context.store.confirm_offset
            if not replication.master_alive or shown < master.broker.context.store.confirm_offset:
                return "slave", slave.name, shown
        return None

    async def await_slaves(self) -> None:
        """Wait until every slave follows its master and has copied the tables."""
        async with asyncio.timeout(_START_S):
            while self.lagging() is not None:  # noqa: ASYNC110 (compares positions of two brokers)
                await asyncio.sleep(_RETRY_S)
            for _, _, replication in self._pairs():
                await replication.copied.wait()

    async def copy_tables(self) -> None:
        """Copy topics, groups and offsets from the masters. Unreachable masters are skipped."""
        for _, _, replication in list(self._pairs()):
            with contextlib.suppress(OSError):
                await replication.copy_tables()

    def _pairs(self) -> Iterator[tuple[BrokerNode, BrokerNode, HaSlave]]:
        """Yield the running pairs, except slaves that have stopped following."""
        masters = {master.broker_name: master for master in self._masters if master.running}
        for slave in self._slaves:
            replication = slave.replication
            if isinstance(replication, HaSlave) and slave.broker_name in masters and replication.broken is None:
                yield masters[slave.broker_name], slave, replication
