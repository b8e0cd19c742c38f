"""A cluster in this process: real name servers and brokers without sockets, threads or files.

`AsyncCluster` is for coroutines; `Cluster` (sync.py) is the blocking version.

    async with AsyncCluster() as cluster:
        async with cluster.producer() as producer:
            await producer.send(Message("CloseOrder", b"42"), delay_level=18)
        await cluster.advance(hours=2)
        assert [message.body for message in await cluster.messages("CloseOrder")] == [b"42"]

The brokers' clock stands still unless the test moves it (clock.py); with `clock=None` it is the real one. Brokers store in memory
(disk.py). With `sockets=True` the servers listen on real ports of the loopback interface, for clients in other processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from firearrow.broker.tables.topics import PERM_READ_WRITE
from firearrow.client.consumer.pull_consumer import PullConsumer
from firearrow.client.consumer.push_consumer import PushConsumer
from firearrow.client.lifecycle import AsyncClient
from firearrow.client.message import ReceivedMessage, received
from firearrow.client.options import NameServers
from firearrow.client.producer.producer import Producer
from firearrow.client.producer.transaction import TransactionProducer
from firearrow.clock import wall_ms
from firearrow.net import in_process
from firearrow.net.connection import Connection
from firearrow.net.in_process import MemoryListener
from firearrow.testing.clock import VirtualClock, milliseconds, next_deletion_ms, running_loop
from firearrow.testing.faults import Faults
from firearrow.testing.nodes import BROKER_PORT, NAME_SERVER_PORT, BrokerNode, NameServerNode
from firearrow.testing.quiescence import PATIENCE_S, settle
from firearrow.testing.replica_sets import ReplicaSets
from firearrow.wire.names import dlq_topic

_ANSWER_PULLS_S = 5.0  # clients time out pulls after 30 s, but the brokers' clock may stand still
_PORT_GAP = 10
_OWN_CLOCK = VirtualClock()  # marks "a clock of its own"

P = ParamSpec("P")
R = TypeVar("R")


Clients = WeakKeyDictionary[Any, asyncio.AbstractEventLoop | None]
"""The clients of a cluster, with the event loop on which each was created."""


class HasClients(Protocol):
    clients: Clients

    @property
    def name_server(self) -> str: ...


class ClientOf(Generic[P, R]):
    """A method that creates a client of the cluster: the client's constructor without the name server."""

    def __init__(self, make: Callable[Concatenate[NameServers, P], R]) -> None:
        self._make = make

    def __get__(self, cluster: HasClients, owner: type) -> Callable[P, R]:
        def make(*args: P.args, **kwargs: P.kwargs) -> R:
            client = self._make(cluster.name_server, *args, **kwargs)
            cluster.clients[client] = running_loop()
            return client

        return make


class AsyncCluster(AsyncClient):
    """A cluster. Call its methods on the event loop on which it was started; `messages`, `advance` and `settle` work from
    others too.

    brokers       number of brokers, named broker-a, broker-b, ...
    slaves        number of slaves per broker, named broker-a-slave-1, ...
    name_servers  number of name servers
    sockets       use real ports instead of connections within the process
    clock         the brokers' clock: a VirtualClock (by default one that starts at the current time), or None for real time
    properties    settings of the brokers with Apache's names: {"transactionCheckInterval": "1000"}
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        slaves: int = 0,
        name_servers: int = 1,
        sockets: bool = False,
        clock: VirtualClock | None = _OWN_CLOCK,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        if not 1 <= brokers <= 26 or not 1 <= name_servers <= 26:
            raise ValueError(f"a cluster of {brokers} brokers and {name_servers} name servers: expected 1 to 26 of each")
        if not 0 <= slaves <= 9:
            raise ValueError(f"{slaves} slaves of each broker: expected 0 to 9")
        self.clients: Clients = WeakKeyDictionary()
        self._clock = VirtualClock() if clock is _OWN_CLOCK else clock
        self._now_ms = wall_ms if self._clock is None else self._clock.now_ms
        host = "127.0.0.1" if sockets else in_process.free_host()
        self._name_servers = [
            NameServerNode(
                f"name-server-{_letter(number)}",
                host,
                0 if sockets else NAME_SERVER_PORT + number,
                sockets=sockets,
                on_listening=self._listening,
            )
            for number in range(name_servers)
        ]
        self._name_server_addresses: list[str] = []  # filled as the servers start
        ports = (0 if sockets else BROKER_PORT + number * _PORT_GAP for number in count())

        def node(number: int, slave_id: int) -> BrokerNode:
            return BrokerNode(
                f"broker-{_letter(number)}",
                host,
                next(ports),
                sockets=sockets,
                name_servers=self._name_server_addresses,
                now_ms=self._now_ms,
                properties=properties or {},
                on_listening=self._listening,
                slave_id=slave_id,
                replicates=slaves > 0,
            )

        self.brokers = [node(number, 0) for number in range(brokers)]
        self.slaves = [node(number, slave_id) for number in range(brokers) for slave_id in range(1, slaves + 1)]
        self._sets = ReplicaSets(self.brokers, self.slaves)
        self.faults = Faults(self._connections, sockets=sockets)
        self._listeners: dict[str, list[MemoryListener]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pulls_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<cluster at {self.name_server} {self.brokers}>"

    # Clients of this cluster. `close` closes those on the cluster's event loop.

    producer = ClientOf(Producer)
    transaction_producer = ClientOf(TransactionProducer)
    push_consumer = ClientOf(PushConsumer)
    pull_consumer = ClientOf(PullConsumer)

    # Lifecycle

    async def start(self) -> None:
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        self.faults.begin(self._loop)
        if self._clock is not None:
            self._clock.bind(self._loop, self._advance)
        try:
            for server in self._name_servers:
                await server.start()
                self._name_server_addresses.append(server.address)
            for node in self._nodes:
                await node.start()
            await self._sets.await_slaves()
        except BaseException:
            await self.close()
            raise
        if self._clock is not None:
            self._answer_pulls_later()

    async def close(self) -> None:
        """Stop everything at once, without saving state."""
        if self._loop is None:
            return
        loop, self._loop = self._loop, None
        if self._pulls_timer is not None:
            self._pulls_timer.cancel()
        for client, home in list(self.clients.items()):
            if home is loop:  # a client of another event loop must be closed there
                await client.close()
        for node in self._nodes:
            await node.kill()
        for server in self._name_servers:
            await server.stop()
        if self._clock is not None:
            self._clock.unbind()

    # Servers

    @property
    def name_server(self) -> str:
        """The name server addresses for clients: `host:port`, separated by semicolons."""
        return ";".join(server.address for server in self._name_servers)

    async def stop_name_server(self, number: int = 0) -> None:
        await self._on_own_loop(self._name_servers[number].stop)

    async def start_name_server(self, number: int = 0) -> None:
        await self._on_own_loop(self._name_servers[number].start)

    @property
    def _nodes(self) -> list[BrokerNode]:
        return self.brokers + self.slaves

    async def create_topic(self, topic: str, queues: int = 8) -> None:
        """Create a topic on every broker and wait until the name servers know it. Sending creates topics, too."""

        async def create() -> None:
            running = [node.broker for node in self.brokers if node.broker is not None]
            for broker in running:
                broker.context.topics.ensure(topic, queues, PERM_READ_WRITE, self._now_ms())
            for server in self._name_servers:
                if server.running:
                    await server.await_topic(topic, len(running))

        await self._on_own_loop(create)

    # Messages

    async def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return the messages of the topic that consumers can see, in the order they were stored.

        They are read from the masters, or from a slave if the master is not running.
        """

        async def read() -> list[ReceivedMessage]:
            await self._settle_brokers()
            found = [(record, node.broker_name) for node in self._sets.readable() for record in node.records(topic)]
            found.sort(key=lambda pair: pair[0].store_timestamp)
            return [received(record, name) for record, name in found]

        return await self._on_own_loop(read)

    async def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """Return the dead letters of the group."""
        return await self.messages(dlq_topic(group))

    # Time

    @property
    def clock(self) -> VirtualClock:
        if self._clock is None:
            raise RuntimeError("this cluster uses real time; create it without clock=None")
        return self._clock

    async def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0) -> None:
        """Advance the clock; see VirtualClock.advance."""
        duration_ms = milliseconds(days=days, hours=hours, minutes=minutes, seconds=seconds, ms=ms)
        await self._on_own_loop(lambda: self._advance(duration_ms))

    async def settle(self, patience_s: float = PATIENCE_S) -> bool:
        """Wait until due messages are delivered and push consumers have consumed them.

        Return False if work remains but nothing has changed for `patience_s`.
        """
        return await self._on_own_loop(lambda: self._settle(patience_s))

    # Internals

    async def _advance(self, duration_ms: int) -> None:
        clock = self.clock
        end_ms = clock.now_ms() + duration_ms
        await self._settle()
        while clock.now_ms() < end_ms:
            self._move_to(min(self._next_stop_ms(clock.now_ms(), end_ms), end_ms))
            await self._settle()

    def _next_stop_ms(self, now_ms: int, end_ms: int) -> int:
        stops = [end_ms]
        for node in self.brokers:
            if node.broker is not None:
                due_ms = node.broker.next_due_ms(end_ms)
                if due_ms is not None:
                    stops.append(max(due_ms, now_ms + 1))
                stops.append(next_deletion_ms(node.broker.store_settings.delete_when, now_ms))
        return min(stops)

    def _move_to(self, now_ms: int) -> None:
        self.clock.move_to(now_ms)
        for node in self._nodes:
            if node.broker is None:
                continue
            if node.replication is not None:
                node.replication.clock_moved(now_ms)
            # Connected clients are treated as if they had sent heartbeats and renewed locks during the skipped time.
            parts = node.broker.context
            for group in parts.clients.consumer_groups():
                for member in group.members.values():
                    member.last_update_ms = now_ms
            for producers in parts.clients.producers().values():
                for member in producers:
                    member.last_update_ms = now_ms
            parts.locks.renew_all(now_ms)

    async def _settle(self, patience_s: float = PATIENCE_S) -> bool:
        settled = await settle(self._nodes, self._all_listeners, self._sets.lagging, patience_s=patience_s)
        await self._sets.copy_tables()
        return settled

    async def _settle_brokers(self) -> None:
        """Let the brokers finish what they are storing. Acknowledged messages are already visible."""
        for _ in range(3):
            await asyncio.sleep(0)

    def _all_listeners(self) -> list[MemoryListener]:
        return [listener for listeners in self._listeners.values() for listener in listeners]

    def _listening(self, node: BrokerNode | NameServerNode, listeners: list[MemoryListener]) -> None:
        self._listeners[node.name] = listeners
        self.faults.attach(node.name, listeners)

    def _connections(self, at: str | None) -> set[Connection]:
        found: set[Connection] = set()
        for node in self._nodes:
            if at in (None, node.name):
                found |= node.connections()
        for name, listeners in self._listeners.items():
            if at in (None, name):
                found |= {conn for listener in listeners for conn in listener.connections}
        return found

    def _answer_pulls_later(self) -> None:
        self._pulls_timer = asyncio.get_running_loop().call_later(_ANSWER_PULLS_S, self._answer_pulls)

    def _answer_pulls(self) -> None:
        for node in self._nodes:
            if node.broker is not None:
                node.broker.expire_pulls()
        self._answer_pulls_later()

    async def _on_own_loop(self, call: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine on the cluster's event loop, from any other."""
        loop = self._loop
        if loop is None:
            raise RuntimeError("the cluster is not running: use it in a `with` statement, or call start()")
        if loop is asyncio.get_running_loop():
            return await call()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), loop))


def _letter(number: int) -> str:
    return chr(ord("a") + number)
