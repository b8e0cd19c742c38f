"""The servers of a test cluster. Each can be stopped, killed and restarted at the same address with the same disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from firearrow.broker.roles.replication import Replication, ReplicationHost
from firearrow.broker.server import Broker
from firearrow.broker.settings import BrokerSettings
from firearrow.config.fields import apply
from firearrow.ha.static.master import HaMaster
from firearrow.ha.static.slave import HaSlave
from firearrow.namesrv.server import NameServer
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net import in_process
from firearrow.net.address import format_address
from firearrow.net.channel import Channel
from firearrow.net.connection import Connection
from firearrow.net.in_process import MemoryListener, MemoryPair
from firearrow.net.server import Ports, SocketPair, serve
from firearrow.store.consume_queue import ABSENT_SIZE, ENTRY
from firearrow.store.settings import StoreSettings
from firearrow.testing.disk import MemoryDisk
from firearrow.wire import fastjson
from firearrow.wire.codes import ResponseCode
from firearrow.wire.headers.namesrv import GetRouteInfoRequestHeader
from firearrow.wire.record import Record, decode

ROOT = "/store"
NAME_SERVER_PORT = 9876
BROKER_PORT = 10911
_SEGMENT_BYTES = 64 * 1024 * 1024
_ENTRIES_PER_READ = 1024
_ATTEMPTS, _RETRY_S = 1_000, 0.001
_COPY_MS = 50  # between two copies of a master's tables

OnListening = Callable[["BrokerNode | NameServerNode", list[MemoryListener]], None]


class NameServerNode:
    """One name server of the cluster."""

    def __init__(self, name: str, host: str, port: int, *, sockets: bool, on_listening: OnListening) -> None:
        self.name = name
        self._host = host
        self._port = port
        self._sockets = sockets
        self._on_listening = on_listening
        self._server: NameServer | None = None

    @property
    def address(self) -> str:
        return format_address(self._host, self._port)

    @property
    def running(self) -> bool:
        return self._server is not None

    async def start(self) -> None:
        if self._server is not None:
            return
        settings = NamesrvSettings(bind_address=self._host, listen_port=self._port, kv_config_path="")
        server = NameServer(settings, listen=serve if self._sockets else in_process.serve)
        await server.start()
        self._server, self._port = server, server.port
        found = in_process.listener(self.address)
        if isinstance(found, MemoryListener):
            self._on_listening(self, [found])

    async def await_topic(self, topic: str, brokers: int) -> None:
        """Wait until the name server knows the topic on the given number of brokers."""
        channel = await Channel.connect(self.address)
        try:
            for _ in range(_ATTEMPTS):
                answer = await channel.call(GetRouteInfoRequestHeader(topic=topic))
                if answer.code == ResponseCode.SUCCESS and len(fastjson.loads(answer.body)["brokerDatas"]) >= brokers:
                    return
                await asyncio.sleep(_RETRY_S)
        finally:
            await channel.close()
        raise TimeoutError(f"the name server {self.address} does not know the topic {topic!r} on {brokers} brokers")

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()


class BrokerNode:
    """One broker of the cluster. `broker` is the running broker.

    `slave_id`: the node is a slave with this broker id. `replicates`: it has slaves or is one; the log is then replicated over a
    real port of the loopback interface.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        *,
        sockets: bool,
        name_servers: list[str],
        now_ms: Callable[[], int],
        properties: Mapping[str, str],
        on_listening: OnListening,
        slave_id: int = 0,
        replicates: bool = False,
    ) -> None:
        self.name = f"{name}-slave-{slave_id}" if slave_id else name
        self.replication: HaMaster | HaSlave | None = None
        self._replicates = replicates
        self.broker: Broker | None = None
        self._settings = BrokerSettings(broker_name=name, bind_address=host, listen_port=port)
        self._store_settings = StoreSettings(
            store_path_root_dir=ROOT, mapped_file_size_commit_log=_SEGMENT_BYTES, max_hash_slot_num=1000, max_index_num=4000
        )
        problems = apply([self._settings, self._store_settings], properties)
        if problems:
            raise ValueError("; ".join(problems))
        if slave_id:
            self._settings.broker_role, self._settings.broker_id = "SLAVE", slave_id
            self._settings.slave_sync_interval = _COPY_MS
        self._sockets = sockets
        self._name_servers = name_servers
        self._now_ms = now_ms
        self.disk = MemoryDisk(now_ms)
        self._on_listening = on_listening

    def __repr__(self) -> str:
        return f"<broker {self.name} at {self.address}{'' if self.broker else ', stopped'}>"

    @property
    def broker_name(self) -> str:
        return self._settings.broker_name

    @property
    def address(self) -> str:
        return format_address(self._settings.bind_address, self._settings.listen_port)

    @property
    def running(self) -> bool:
        return self.broker is not None

    async def start(self) -> None:
        """Start the broker with what it had stored. Does nothing if it is running."""
        if self.broker is not None:
            return
        broker = Broker(
            self._settings,
            self._store_settings,
            namesrv_addrs=self._name_servers,
            now_ms=self._now_ms,
            bind=self._bind,
            disk=self.disk,
            own_process=False,
            replication=self._replicate if self._replicates else None,
        )
        await broker.start()
        self.broker = broker
        self._settings.listen_port = broker.listen_port  # the same after a restart
        if isinstance(broker.ports, MemoryPair):
            self._on_listening(self, broker.ports.listeners)

    async def stop(self) -> None:
        """Stop the broker gracefully: accepted messages are stored and acknowledged."""
        broker, self.broker, self.replication = self.broker, None, None
        if broker is not None:
            await broker.stop()

    async def kill(self, *, power_cut: bool = False) -> None:
        """Kill the broker like `kill -9`: connections are aborted, nothing is saved.

        After a restart it finds what it had written; after a power cut, what it had synced.
        """
        broker, self.broker, self.replication = self.broker, None, None
        if broker is not None:
            # The killed broker keeps its disk, so that its last callbacks cannot reach its successor's.
            self.disk = self.disk.left_behind(power_cut=power_cut)
            await broker.abandon()
            await asyncio.sleep(0)

    def connections(self) -> set[Connection]:
        return self.broker.ports.connections if self.broker is not None else set()

    def records(self, topic: str) -> list[Record]:
        """Return the records of the topic that consumers can see, in the order they were stored."""
        if self.broker is None:
            return []
        store = self.broker.context.store
        offsets: list[int] = []
        for queue in store.queues():
            if queue.topic != topic:
                continue
            offset = queue.min_offset
            while offset < queue.max_offset and (
                entries := queue.entries(offset, min(_ENTRIES_PER_READ, queue.max_offset - offset))
            ):
                offsets += [position for position, size, _ in ENTRY.iter_unpack(entries) if size != ABSENT_SIZE]
                offset += len(entries) // ENTRY.size
        raws = [store.read_record(position) for position in sorted(offsets)]
        return [decode(raw) for raw in raws if raw is not None]

    def _replicate(self, broker: ReplicationHost) -> Replication:
        self.replication = HaSlave(broker) if broker.context.role.is_slave else HaMaster(broker)
        return self.replication

    def _bind(self, host: str, port: int) -> Ports:
        return SocketPair(host, port) if self._sockets else MemoryPair(host, port)
