"""A RocketMQ cluster for tests: name server and brokers in the test process, started in milliseconds, with a virtual clock.

    def test_order_is_closed_after_two_hours(firearrow_broker):
        with firearrow_broker.producer() as producer:
            producer.send(fa.Message("CloseOrder", b"42"), delay_level=18)
        firearrow_broker.clock.advance(hours=2)
        assert [message.body for message in firearrow_broker.messages("CloseOrder")] == [b"42"]

The fixtures are in plugin.py; docs/testing.md is the guide. Names are loaded on first use, because pytest imports this package in
every session.

Allowed imports: wire, store, net, namesrv, broker, ha, client, admin, config, clock.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firearrow.testing.clock import VirtualClock as VirtualClock
    from firearrow.testing.cluster import AsyncCluster as AsyncCluster
    from firearrow.testing.disk import MemoryDisk as MemoryDisk
    from firearrow.testing.faults import Faults as Faults
    from firearrow.testing.nodes import BrokerNode as BrokerNode
    from firearrow.testing.sync import Cluster as Cluster
    from firearrow.testing.sync import SyncBroker as SyncBroker

_MODULE_OF = {
    "AsyncCluster": "cluster",
    "BrokerNode": "nodes",
    "Cluster": "sync",
    "Faults": "faults",
    "MemoryDisk": "disk",
    "SyncBroker": "sync",
    "VirtualClock": "clock",
}

__all__ = ["AsyncCluster", "BrokerNode", "Cluster", "Faults", "MemoryDisk", "SyncBroker", "VirtualClock"]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
