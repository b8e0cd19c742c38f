"""The blocking version of the test cluster.

    with Cluster() as cluster:
        with cluster.producer() as producer:
            producer.send(Message("CloseOrder", b"42"), delay_level=18)
        cluster.clock.advance(hours=2)
        assert [message.body for message in cluster.messages("CloseOrder")] == [b"42"]

It runs on the event loop of the blocking clients, in their thread; no thread is added. `async with Cluster() as cluster`
returns the AsyncCluster, on the running event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from weakref import WeakKeyDictionary

from firearrow.client.sync.clients import Producer, PullConsumer, PushConsumer, TransactionProducer
from firearrow.client.sync.derive import SyncClient, blocking, same_constructor
from firearrow.client.sync.loop_thread import background
from firearrow.testing.clock import VirtualClock
from firearrow.testing.cluster import AsyncCluster, ClientOf, Clients
from firearrow.testing.disk import MemoryDisk
from firearrow.testing.faults import Faults
from firearrow.testing.nodes import BrokerNode


class Cluster(SyncClient[AsyncCluster]):
    """A name server and brokers in this process; see AsyncCluster for the parameters."""

    remade_after_fork = False

    @same_constructor(AsyncCluster)
    def __init__(self, make: Callable[[], AsyncCluster]) -> None:
        super().__init__(make)
        self.clients: Clients = WeakKeyDictionary()
        self.brokers = [SyncBroker(node) for node in self._async.brokers]
        self.slaves = [SyncBroker(node) for node in self._async.slaves]

    # Clients of this cluster, which `close` closes.

    producer = ClientOf(Producer)
    transaction_producer = ClientOf(TransactionProducer)
    push_consumer = ClientOf(PushConsumer)
    pull_consumer = ClientOf(PullConsumer)

    def close(self) -> None:
        """Close the open clients and stop everything at once."""
        for client in list(self.clients):
            client.close()
        super().close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> AsyncCluster:
        await self._async.start()
        return self._async

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._async.close()

    @property
    def aio(self) -> AsyncCluster:
        """The same cluster for coroutines, on any event loop."""
        return self._async

    @property
    def name_server(self) -> str:
        """The name server addresses for clients: `host:port`, separated by semicolons."""
        return self._async.name_server

    @property
    def clock(self) -> VirtualClock:
        return self._async.clock

    @property
    def faults(self) -> Faults:
        return self._async.faults

    messages = blocking(AsyncCluster.messages)
    dead_letters = blocking(AsyncCluster.dead_letters)
    create_topic = blocking(AsyncCluster.create_topic)
    settle = blocking(AsyncCluster.settle)
    stop_name_server = blocking(AsyncCluster.stop_name_server)
    start_name_server = blocking(AsyncCluster.start_name_server)


class SyncBroker:
    """One broker of a cluster; see BrokerNode."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node

    def __repr__(self) -> str:
        return repr(self._node)

    @property
    def name(self) -> str:
        return self._node.name

    @property
    def address(self) -> str:
        return self._node.address

    @property
    def running(self) -> bool:
        return self._node.running

    @property
    def disk(self) -> MemoryDisk:
        return self._node.disk

    def start(self) -> None:
        """Start the broker with what it had stored. Does nothing if it is running."""
        background().wait_for(self._node.start)

    def stop(self) -> None:
        """Stop the broker gracefully: accepted messages are stored and acknowledged."""
        background().wait_for(self._node.stop)

    def kill(self, *, power_cut: bool = False) -> None:
        """Kill the broker like `kill -9`. With `power_cut`, unsynced data is lost."""
        background().wait_for(lambda: self._node.kill(power_cut=power_cut))
