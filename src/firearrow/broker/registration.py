"""Registration of the broker at the name servers.

Each name server has its own task, so that one which is down or slow does not hold up the others. The task keeps one connection
and registers

- all topics on a new connection, every `period_ms`, and on request (`register_all`);
- single topics as they change, each with the data version of its change, because name servers ignore versions they have seen.
  Each registration is answered before the next is sent, for name servers that serve several requests at once. If many topics have
  changed, one registration of all topics replaces them.

The deletion of a topic is not registered: name servers keep topics that a registration leaves out. Operators delete them there.

`when_registered` waits for the name servers that are connected, so that a request which creates a topic is answered when its
route can be found. A lost name server is not waited for: it would delay every such request, and it gets everything on its return.

A lost name server is retried after one second, then less often, at least every five seconds: clients need routes again as soon as
the network is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.bodies.registration import RegisterBrokerBody
from firearrow.wire.bodies.route import KVTable
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.body_schema import EncodedEntries
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.headers.namesrv import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from firearrow.wire.signature import RequestSigner

if TYPE_CHECKING:
    from ssl import SSLContext

MIN_PERIOD_MS = 10_000
MAX_PERIOD_MS = 60_000
START_WAIT_MS = 1_000  # how long the start of the broker waits for silent name servers
STOP_WAIT_MS = 500
REGISTER_WAIT_MS = 1_000  # how long a request waits for silent name servers; clients wait 3 s for its response
FIRST_RETRY_MS = 1_000
LAST_RETRY_MS = 5_000
MANY_CHANGES = 32
PERM_READ_WRITE = 6
_CRC_MASK = 0x7FFFFFFF

log = logging.getLogger("firearrow.broker.registration")

Topics = Callable[[], tuple[DataVersion, Mapping[str, TopicConfig]]]
Change = tuple[int, DataVersion, TopicConfig]  # number of the request, version of the change, the topic


@dataclass(slots=True, frozen=True)
class Identity:
    """The identity that a broker registers under."""

    cluster: str
    name: str
    broker_id: int
    address: str  # for clients
    ha_address: str


class Registration:
    """Keeps one `NameServerSession` per name server.

    `topics` returns the current data version and topics. `permission` is ANDed into theirs if it lacks read or write.
    `on_order_config` receives the order configuration (topic -> `broker:queues;...`) that name servers answer with.
    `on_master`, on a slave, receives the replication address and the address of the master, None while unknown.
    `tls` returns the context of new connections; it is called once here, so that unusable files prevent the start.
    `signer` signs the requests.
    """

    def __init__(
        self,
        namesrv_addrs: list[str],
        identity: Identity,
        topics: Topics,
        *,
        period_ms: int = 30_000,
        timeout_ms: int = 24_000,
        permission: Callable[[], int] = lambda: PERM_READ_WRITE,
        on_order_config: Callable[[dict[str, str]], None] = lambda table: None,
        on_master: Callable[[str | None, str | None], None] = lambda ha_address, address: None,
        tls: Callable[[], SSLContext | None] = lambda: None,
        signer: RequestSigner | None = None,
    ) -> None:
        self.identity = identity
        self.signer = signer
        self.tls = tls
        tls()
        self.topics = topics
        self.period_ms = min(max(period_ms, MIN_PERIOD_MS), MAX_PERIOD_MS)
        self.timeout_ms = timeout_ms
        self.permission = permission
        self.on_order_config = on_order_config
        self.on_master = on_master
        self._encoded = EncodedEntries()
        self._sessions = [NameServerSession(self, address) for address in namesrv_addrs]

    async def start(self) -> None:
        """Register everywhere. Returns when all name servers have answered or failed, at the latest after START_WAIT_MS."""
        for session in self._sessions:
            session.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_WAIT_MS / 1000):
                for session in self._sessions:
                    await session.tried.wait()

    async def stop(self) -> None:
        """Unregister where the broker is registered. Name servers that do not answer detect the closed connection."""
        await asyncio.gather(*(session.stop() for session in self._sessions))

    def abandon(self) -> None:
        """Close the connections without unregistering."""
        for session in self._sessions:
            session.abandon()

    def become(self, broker_id: int) -> None:
        """Register under another broker id."""
        self.identity = replace(self.identity, broker_id=broker_id)
        self.register_all()

    def advertise_ha(self, address: str) -> None:
        """Tell slaves to connect to this replication address."""
        self.identity = replace(self.identity, ha_address=address)

    def register_all(self) -> None:
        """Register all topics again, soon."""
        for session in self._sessions:
            session.request_all()

    def topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        """Register a changed topic. Must be called while the data version is that of the change."""
        if config is not None:
            version, _ = self.topics()
            for session in self._sessions:
                session.request_topic(version, config)

    def when_registered(self, done: Callable[[], None]) -> None:
        """Call `done` once the connected name servers have answered everything requested so far, or after REGISTER_WAIT_MS."""
        waiting = [session for session in self._sessions if session.is_waiting]
        if waiting:
            wait = _Wait(len(waiting), done)
            for session in waiting:
                session.notify_registered(wait.one_less)
        else:
            done()

    def body(self, version: DataVersion, topics: Mapping[str, TopicConfig]) -> bytes:
        permission = self.permission()
        if permission & PERM_READ_WRITE != PERM_READ_WRITE:
            topics = {name: replace(config, perm=config.perm & permission) for name, config in topics.items()}
            return RegisterBrokerBody(topic_config_table=dict(topics), data_version=version).encode()
        if len(topics) == 1:
            return RegisterBrokerBody(topic_config_table=dict(topics), data_version=version).encode()
        # Most topics are as they were at the last registration, and encoding one costs about 10 us.
        table = RegisterBrokerBody(data_version=version).to_json()
        table["topicConfigSerializeWrapper"]["topicConfigTable"] = self._encoded.joined(topics)
        return fastjson.dumps(table)


class _Wait:
    """A callback that is called once: after `count` events, or after REGISTER_WAIT_MS."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._left = count
        self._done: Callable[[], None] | None = done
        self._timer = asyncio.get_running_loop().call_later(REGISTER_WAIT_MS / 1000, self._finish)

    def one_less(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._timer.cancel()
            done()


class NameServerSession:
    """The registration at one name server.

    Requests are numbered. `_registered` is the number of the last one that the name server has answered.
    """

    def __init__(self, owner: Registration, address: str) -> None:
        self.tried = asyncio.Event()  # the first registration has succeeded or failed
        self._owner = owner
        self._address = address
        self._channel: Channel | None = None
        self._changes: list[Change] = []
        self._all_wanted = True
        self._requested = self._registered = 0
        self._waiters: deque[tuple[int, Callable[[], None]]] = deque()  # in the order of their numbers
        self._wake_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    @property
    def is_waiting(self) -> bool:
        """True while the name server is connected and has not answered everything."""
        return self._registered < self._requested and self._channel is not None and not self._channel.closed

    def notify_registered(self, done: Callable[[], None]) -> None:
        """Call `done` when the name server has answered everything requested so far, or is lost."""
        self._waiters.append((self._requested, done))

    def request_all(self) -> None:
        self._requested += 1
        self._all_wanted = True
        self._wake_up.set()

    def request_topic(self, version: DataVersion, config: TopicConfig) -> None:
        self._requested += 1
        self._changes.append((self._requested, version, config))
        if len(self._changes) > MANY_CHANGES:
            self._all_wanted = True
            self._changes.clear()
        self._wake_up.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        channel = self._channel
        if channel is None or channel.closed:
            return
        identity = self._owner.identity
        header = UnRegisterBrokerRequestHeader(
            broker_name=identity.name, broker_addr=identity.address, cluster_name=identity.cluster, broker_id=identity.broker_id
        )
        try:
            await channel.call(header, timeout_ms=STOP_WAIT_MS)
        except OSError as error:
            log.info("could not unregister at name server %s: %s", self._address, error)
        await channel.close()

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._channel is not None:
            self._channel.abandon("abandoned")

    async def _run(self) -> None:
        retry_ms = FIRST_RETRY_MS
        while True:
            try:
                await self._register_pending()
                retry_ms = FIRST_RETRY_MS
                wait_ms = self._owner.period_ms
            except (OSError, ProtocolError) as error:
                self._failed(error)
                wait_ms, retry_ms = retry_ms, min(retry_ms * 2, LAST_RETRY_MS)
            self.tried.set()
            await self._wait(wait_ms)

    async def _wait(self, wait_ms: int) -> None:
        """Wait for a change, or until all topics are due again. While the server is lost, changes do not shorten the wait."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                if self._channel is None:
                    await asyncio.Event().wait()
                await self._wake_up.wait()
        except TimeoutError:
            self._all_wanted = True

    async def _register_pending(self) -> None:
        channel = await self._connected()
        self._wake_up.clear()
        while self._all_wanted or self._changes:
            if self._all_wanted:
                self._all_wanted = False
                self._changes.clear()
                number = self._requested
                version, topics = self._owner.topics()
                await self._register(channel, version, topics)
            else:
                number, version, config = self._changes.pop(0)
                await self._register(channel, version, {config.topic_name: config})
            self._registered = number
            self._release_waiters(number)

    async def _connected(self) -> Channel:
        if self._channel is None or self._channel.closed:
            self._all_wanted = True  # the server may have lost its state
            self._channel = await Channel.connect(
                self._address, on_close=self._lost, tls=self._owner.tls(), signer=self._owner.signer
            )
        return self._channel

    async def _register(self, channel: Channel, version: DataVersion, topics: Mapping[str, TopicConfig]) -> None:
        owner, identity = self._owner, self._owner.identity
        body = owner.body(version, topics)
        header = RegisterBrokerRequestHeader(
            broker_name=identity.name,
            broker_addr=identity.address,
            cluster_name=identity.cluster,
            ha_server_addr=identity.ha_address,
            broker_id=identity.broker_id,
            enable_acting_master=False,
            compressed=False,
            body_crc32=zlib.crc32(body) & _CRC_MASK,
        )
        answer = await channel.call(header, body, timeout_ms=owner.timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise OSError(f"it rejected the registration with code {answer.code}: {answer.remark}")
        if self._failing or not self.tried.is_set():
            log.info("registered at name server %s", self._address)
            self._failing = False
        if answer.body:
            owner.on_order_config(KVTable.from_json(fastjson.loads(answer.body)).table)
        if identity.broker_id:
            response = RegisterBrokerResponseHeader.decode(answer.ext)
            owner.on_master(response.ha_server_addr, response.master_addr)

    def _release_waiters(self, number: int) -> None:
        while self._waiters and self._waiters[0][0] <= number:
            self._waiters.popleft()[1]()

    def _failed(self, error: Exception) -> None:
        """Log the loss of a name server once, until it is back."""
        level = logging.DEBUG if self._failing else logging.WARNING
        log.log(level, "not registered at name server %s: %s; trying again", self._address, error)
        self._failing = True
        self._all_wanted = True
        channel, self._channel = self._channel, None
        self._release_waiters(self._requested)
        if channel is not None and not channel.closed:
            channel.abandon("registration failed")

    def _lost(self, channel: Channel) -> None:
        if channel is self._channel:
            self._channel = None
            self._release_waiters(self._requested)
            self.request_all()
