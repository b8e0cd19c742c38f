"""Making the broker known: it registers at every name server, and says goodbye.

Each name server has its own task, so that one which is down or slow holds up none of the others. The task keeps one connection
and says, in this order:

- everything (all topics) on a new connection, every `period_ms`, and when asked to (`register_all`);
- one topic at a time as topics change, each with the data version of that very change: name servers ignore what carries a
  version that they have seen. Each is answered before the next is sent, for servers that work on several requests at once. When
  many topics changed meanwhile, everything once takes the place of all of them.

A deleted topic is not said: what a registration leaves out, name servers keep; operators delete there too.

When a name server is lost, the task tries again after a second, then less and less often, at least every five: a network that was
cut may be whole again, and clients ask for routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from firearrow.net.channel import Channel
from firearrow.net.tls import client_context
from firearrow.wire import fastjson
from firearrow.wire.bodies.registration import RegisterBrokerBody
from firearrow.wire.bodies.route import KVTable
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import Command
from firearrow.wire.headers.namesrv import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

MIN_PERIOD_MS = 10_000
MAX_PERIOD_MS = 60_000
START_WAIT_MS = 1_000  # how long the start of the broker waits for name servers that do not answer
STOP_WAIT_MS = 500
FIRST_RETRY_MS = 1_000
LAST_RETRY_MS = 5_000
MANY_CHANGES = 32
PERM_READ_WRITE = 6
_CRC_MASK = 0x7FFFFFFF

log = logging.getLogger("firearrow.broker.registration")

Topics = Callable[[], tuple[DataVersion, Mapping[str, TopicConfig]]]
Change = tuple[DataVersion, TopicConfig]


@dataclass(slots=True, frozen=True)
class Identity:
    """Who registers."""

    cluster: str
    name: str
    broker_id: int
    address: str  # as clients are to dial it
    ha_address: str


class Registration:
    """`topics` gives the data version and all topics as they are now. `permission` is ANDed into the topics' own when it lacks
    read or write. `on_order_config` gets the order configuration (topic -> `broker:queues;...`) that name servers answer with;
    `on_master`, of a slave, where its master is: replication address and address, None as long as nobody knows."""

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
        use_tls: bool = False,
    ) -> None:
        self.identity = identity
        self.tls = client_context(use_tls)
        self.topics = topics
        self.period_ms = min(max(period_ms, MIN_PERIOD_MS), MAX_PERIOD_MS)
        self.timeout_ms = timeout_ms
        self.permission = permission
        self.on_order_config = on_order_config
        self.on_master = on_master
        self._seats = [NameServerSession(self, address) for address in namesrv_addrs]

    async def start(self) -> None:
        """Registers everywhere. Returns when all have answered or failed, or after START_WAIT_MS; the rest goes on by itself."""
        for seat in self._seats:
            seat.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_WAIT_MS / 1000):
                for seat in self._seats:
                    await seat.tried.wait()

    async def stop(self) -> None:
        """Unregisters where the broker is known; a name server that does not answer is left to notice by itself."""
        await asyncio.gather(*(seat.stop() for seat in self._seats))

    def abandon(self) -> None:
        """Goes without a word: the name servers see connections that end."""
        for seat in self._seats:
            seat.abandon()

    def become(self, broker_id: int) -> None:
        """This broker is found under another id from now on."""
        self.identity = replace(self.identity, broker_id=broker_id)
        self.register_all()

    def advertise_ha(self, address: str) -> None:
        """Tell slaves to connect to this replication address."""
        self.identity = replace(self.identity, ha_address=address)

    def register_all(self) -> None:
        """Says everything again, soon."""
        for seat in self._seats:
            seat.say_all()

    def topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        """Called while the data version is still that of this change."""
        if config is not None:
            version, _ = self.topics()
            for seat in self._seats:
                seat.say((version, config))

    def body(self, version: DataVersion, topics: Mapping[str, TopicConfig]) -> bytes:
        permission = self.permission()
        if permission & PERM_READ_WRITE != PERM_READ_WRITE:
            topics = {name: replace(config, perm=config.perm & permission) for name, config in topics.items()}
        return RegisterBrokerBody(topic_config_table=dict(topics), data_version=version).encode()


class NameServerSession:
    """The broker's place at one name server."""

    def __init__(self, owner: Registration, address: str) -> None:
        self.tried = asyncio.Event()  # the first registration has succeeded or failed
        self._owner = owner
        self._address = address
        self._channel: Channel | None = None
        self._changes: list[Change] = []
        self._all = True
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._complained = False

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    def say_all(self) -> None:
        self._all = True
        self._news.set()

    def say(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > MANY_CHANGES:
            self._all = True
            self._changes.clear()
        self._news.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        channel = self._channel
        if channel is None or channel.closed:
            return
        who = self._owner.identity
        header = UnRegisterBrokerRequestHeader(
            broker_name=who.name, broker_addr=who.address, cluster_name=who.cluster, broker_id=who.broker_id
        )
        try:
            await channel.call(header, timeout_ms=STOP_WAIT_MS)
        except OSError as error:
            log.info("name server %s was not told goodbye: %s", self._address, error)
        await channel.close()

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._channel is not None:
            self._channel.abandon("its owner is gone")

    async def _run(self) -> None:
        retry_ms = FIRST_RETRY_MS
        while True:
            try:
                await self._say_what_is_to_say()
                retry_ms = FIRST_RETRY_MS
                wait_ms = self._owner.period_ms
            except (OSError, ProtocolError) as error:
                self._failed(error)
                wait_ms, retry_ms = retry_ms, min(retry_ms * 2, LAST_RETRY_MS)
            self.tried.set()
            await self._wait(wait_ms)

    async def _wait(self, wait_ms: int) -> None:
        """Until there is news, or until it is time to say everything again. While the server is lost, news does not hurry us."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                if self._channel is None:
                    await asyncio.Event().wait()
                await self._news.wait()
        except TimeoutError:
            self._all = True

    async def _say_what_is_to_say(self) -> None:
        channel = await self._connected()
        self._news.clear()
        while self._all or self._changes:
            if self._all:
                self._all = False
                self._changes.clear()
                version, topics = self._owner.topics()
                await self._register(channel, version, topics)
            else:
                version, config = self._changes.pop(0)
                await self._register(channel, version, {config.topic_name: config})

    async def _connected(self) -> Channel:
        if self._channel is None or self._channel.closed:
            self._all = True  # whoever is there now knows nothing of us
            self._channel = await Channel.connect(self._address, on_close=self._lost, tls=self._owner.tls)
        return self._channel

    async def _register(self, channel: Channel, version: DataVersion, topics: Mapping[str, TopicConfig]) -> None:
        owner, who = self._owner, self._owner.identity
        body = owner.body(version, topics)
        header = RegisterBrokerRequestHeader(
            broker_name=who.name,
            broker_addr=who.address,
            cluster_name=who.cluster,
            ha_server_addr=who.ha_address,
            broker_id=who.broker_id,
            enable_acting_master=False,
            compressed=False,
            body_crc32=zlib.crc32(body) & _CRC_MASK,
        )
        answer = await channel.call(header, body, timeout_ms=owner.timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise _RefusedError(f"it refused the registration with code {answer.code}: {answer.remark}")
        if self._complained or not self.tried.is_set():
            log.info("registered at name server %s", self._address)
            self._complained = False
        self._take_order_config(answer)
        if who.broker_id:
            said = RegisterBrokerResponseHeader.decode(answer.ext)
            owner.on_master(said.ha_server_addr, said.master_addr)

    def _take_order_config(self, answer: Command) -> None:
        if answer.body:
            self._owner.on_order_config(KVTable.from_json(fastjson.loads(answer.body)).table)

    def _failed(self, error: Exception) -> None:
        """One line when a name server is lost, one when it is found again, nothing in between."""
        level = logging.DEBUG if self._complained else logging.WARNING
        log.log(level, "not registered at name server %s: %s; trying again", self._address, error)
        self._complained = True
        self._all = True
        channel, self._channel = self._channel, None
        if channel is not None and not channel.closed:
            channel.abandon("registration failed")

    def _lost(self, channel: Channel) -> None:
        if channel is self._channel:
            self._channel = None
            self.say_all()


class _RefusedError(OSError):
    """The name server answered, with an error."""
