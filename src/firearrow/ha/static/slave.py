"""Slave of static replication: dials its master, requests the log from its own end and stores what arrives.

    find the master    haMasterAddress, or the answer of a name server to the slave's registration
    verify it          compare the newest message with the master's, if the master's ordinary address is known
    follow             write the bytes at the same offsets; acknowledge them when flushDiskType considers them durable
    lose it            reconnect after a while; topics that only the log contains are created

A log that cannot be followed (of another master, damaged, other segment sizes) ends the replication: the slave logs the reason
and the remedy, and continues to serve what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import cast

from firearrow.auth.bootstrap import inner_signer
from firearrow.broker.roles.replication import Forward, ReplicationHost
from firearrow.broker.send.ack_policy import DISK_STALL, Stall
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.ha.metadata_sync import CALL_TIMEOUT_MS, MetadataCopy
from firearrow.ha.peers.links import LinkEndpoint, PeerLinks
from firearrow.ha.peers.security import link_security
from firearrow.ha.static.protocol import MASTER_NAME, PURPOSE, HaError, ReplicationFrameDecoder, encode_report
from firearrow.net.channel import Channel
from firearrow.net.tls import outgoing_context
from firearrow.store.commitlog.replica import FollowError
from firearrow.store.errors import StoreError
from firearrow.wire.bodies.admin import HARuntimeInfo
from firearrow.wire.codes import ResponseCode
from firearrow.wire.headers.client import ViewMessageRequestHeader

CONNECT_TIMEOUT_S = 3.0
FIRST_RETRY_S = 0.5
LAST_RETRY_S = 5.0
REGISTER_AGAIN_S = 1.0
COPY_DELAY_S = 0.1
_MAX_MISMATCHES = 5  # lookups of our newest message that may fail before the master counts as another one
_FLUSH_WAIT_S = 0.01
# Bytes are acknowledged before the records in them are indexed. Indexing follows shortly, for many records at once.
INDEX_DELAY_S = 0.02
INDEX_BYTES = 512 * 1024

log = logging.getLogger("firearrow.ha.slave")


class MasterLog:
    """The acknowledgement policy of a slave: report the durable offset to the master."""

    defers = replicates = True

    def __init__(self, slave: HaSlave) -> None:
        self._slave = slave

    def written(self) -> None:
        pass

    def flushed(self, commit: GroupCommit, offset: int) -> None:
        self._slave.durable(offset)

    def stall(self, *, flushed: bool) -> Stall | None:
        return DISK_STALL


class HaSlave:
    """The replication of a slave."""

    ha_address: str | None = None
    forward: Forward | None = None

    def __init__(self, broker: ReplicationHost) -> None:
        self._broker = broker
        self.settings = broker.context.settings
        self._store = broker.context.store
        self._commit = broker.commit
        self.now_ms = broker.now_ms
        self.broken: str | None = None  # why replication has ended
        self._ha_master = self.settings.ha_master_address
        self._master: str | None = None  # its ordinary address
        self._master_changed = asyncio.Event()
        self._link: MasterLink | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._copy = MetadataCopy(broker)
        name = str(self.settings.broker_id)
        endpoint = LinkEndpoint(PURPOSE, self.settings.broker_cluster_name, self.settings.broker_name, name, lambda _: False)
        self._peers = PeerLinks(endpoint, link_security(self.settings), log)
        self._signer = inner_signer(broker.context.settings)
        self._warnings_logged: set[str] = set()
        self._mismatches = 0
        self._durable_offset = 0
        self._index_timer: asyncio.TimerHandle | None = None
        self.copied = asyncio.Event()  # tables have been copied since the start
        self._known_queues = 0  # in the store at the last search for new topics
        self._commit.set_policy(MasterLog(self))
        self._copy_wanted = asyncio.Event()  # ahead of time: the log contains unknown topics

    @property
    def master_alive(self) -> bool:
        return self._link is not None

    async def start(self) -> None:
        self._tasks = [asyncio.ensure_future(self._follow_master()), asyncio.ensure_future(self._copy_periodically())]

    async def hand_over(self) -> None:
        pass

    async def stop(self, *, abruptly: bool = False) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._index_timer is not None:
            self._index_timer.cancel()
        if self._link is not None:
            self._link.end("the slave is stopping")

    def registered(self, ha_address: str | None, master_address: str | None) -> None:
        if ha_address and not self.settings.ha_master_address and ha_address != self._ha_master:
            self._ha_master = ha_address
            self._master_changed.set()
        if master_address and master_address != self._master:
            self._master = master_address
            self._master_changed.set()

    def durable(self, offset: int) -> None:
        self._durable_offset = offset
        if self._link is not None:
            self._link.report(offset)
        self._commit.advance_readable(offset)

    def tick(self, now_ms: int) -> None:
        if self._link is not None:
            self._link.tick(now_ms)

    def clock_moved(self, now_ms: int) -> None:
        """Treat the master as heard from, after a test has moved the clock."""
        if self._link is not None:
            self._link.heard_ms = self._link.sent_ms = now_ms

    def status(self) -> HARuntimeInfo:
        link = self._link
        return HARuntimeInfo(
            master=False,
            master_commit_log_max_offset=0,
            ha_client_runtime_info={
                "activated": link is not None,
                "lastReadTimestamp": link.heard_ms if link is not None else 0,
                "lastWriteTimestamp": link.sent_ms if link is not None else 0,
                "masterAddr": self._ha_master or "",
                "masterFlushOffset": 0,
                "maxOffset": self._store.max_offset,
                "transferredByteInSecond": 0,
            },
        )

    # Following

    async def _follow_master(self) -> None:
        retry_s = FIRST_RETRY_S
        while self.broken is None:
            address = self._ha_master
            self._master_changed.clear()
            try:
                if address is None:
                    await self._register_again()
                    continue
                if await self._verify_master():
                    link = await self._connect(address)
                    retry_s = FIRST_RETRY_S
                    await link.ended.wait()
            except HaError as error:
                self._end_replication(str(error))
                return
            except OSError as error:
                self._warn_once(f"the master at {address} is unreachable: {error}; trying again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_s):
                    await self._master_changed.wait()
            retry_s = min(retry_s * 2, LAST_RETRY_S)

    async def _register_again(self) -> None:
        """Register again to learn the master's address, in case the slave started before the master."""
        try:
            async with asyncio.timeout(REGISTER_AGAIN_S):
                await self._master_changed.wait()
        except TimeoutError:
            self._broker.context.register_all()

    async def _connect(self, address: str) -> MasterLink:
        store = self._store
        while store.settings.sync_flush and store.flushed_offset < store.max_offset and store.writable:  # noqa: ASYNC110 (set by the flusher thread)
            await asyncio.sleep(_FLUSH_WAIT_S)  # the first report counts as an acknowledgement
        _, link = await self._peers.dial(lambda: MasterLink(self), address, CONNECT_TIMEOUT_S, MASTER_NAME)
        if link.ended.is_set():
            raise ConnectionError("it closed the connection at once")
        end = store.max_offset if store.max_offset > store.min_offset else 0
        log.info("following the master at %s from log offset %d", address, end)
        self._warnings_logged.clear()
        self._link = link
        link.report(end)
        return link

    async def _verify_master(self) -> bool:
        """Return whether the master has our newest message. If its ordinary address is unknown, the data will tell."""
        newest = self._newest()
        if self._master is None or newest is None:
            return True
        offset, record = newest
        channel = await Channel.connect(self._master, tls=outgoing_context(self.settings), signer=self._signer)
        try:
            answer = await channel.call(ViewMessageRequestHeader(offset=offset), timeout_ms=CALL_TIMEOUT_MS)
        finally:
            channel.abandon("the lookup is complete")
        directory = self._store.settings.store_path_root_dir
        remedy = f"move {directory} away and restart this slave, which then copies everything"
        if answer.code == ResponseCode.SUCCESS:
            if answer.body != record:
                raise HaError(
                    f"the master at {self._master} has another message at log offset {offset}: this is not a copy of its log; "
                    f"{remedy}"
                )
            self._mismatches = 0
            return True
        self._mismatches += 1
        if self._mismatches >= _MAX_MISMATCHES:
            raise HaError(
                f"the master at {self._master} does not have the newest message here, at log offset {offset} ({answer.remark}): "
                f"it lost the end of its log, or deleted what this slave had not copied; {remedy}"
            )
        return False

    def _newest(self) -> tuple[int, bytes] | None:
        entries = (queue.entry(queue.max_offset - 1) for queue in self._store.queues() if queue.max_offset > queue.min_offset)
        offset = max((entry[0] for entry in entries if entry is not None), default=None)
        record = self._store.read_record(offset) if offset is not None else None
        return (offset, record) if offset is not None and record is not None else None

    def received(self, link: MasterLink, frames: list[tuple[int, bytes]]) -> None:
        """Write received bytes, which must begin at the end of the log."""
        store = self._store
        for offset, data in frames:
            if not data:
                continue
            if offset != store.max_offset and store.max_offset > store.min_offset:
                self._warn_once(f"the master sends log offset {offset}, but the log ends at {store.max_offset}; reconnecting")
                link.end("unexpected log offset")
                return
            try:
                unindexed = store.replica.write_raw(data, offset)
                if not store.settings.sync_flush:
                    self.durable(store.max_offset)
            except (FollowError, StoreError) as error:
                self._end_replication(str(error))
                link.end("rejected")
                return
            if unindexed >= INDEX_BYTES:
                self._index_new_records()
            elif self._index_timer is None:
                self._index_timer = asyncio.get_running_loop().call_later(INDEX_DELAY_S, self._index_new_records)

    def _index_new_records(self) -> None:
        """Index the received records and make them readable up to the durable offset."""
        if self._index_timer is not None:
            self._index_timer.cancel()
            self._index_timer = None
        try:
            self._store.replica.index_new_records()
        except (FollowError, StoreError) as error:
            self._end_replication(str(error))
            if self._link is not None:
                self._link.end("rejected")
        self._commit.advance_readable(self._durable_offset)
        self._find_new_topics()

    def _find_new_topics(self) -> None:
        """Copy the tables early when the log contains a new topic: the master may fail before the next regular copy."""
        if self._store.queue_count == self._known_queues:
            return
        self._known_queues = self._store.queue_count
        if any(self._broker.context.topics.find(topic) is None for topic in self._store.topics()):
            self._copy_wanted.set()
            if self._link is None:
                self._broker.context.topics.add_stored(self.now_ms())

    def rejected(self, link: MasterLink, error: HaError) -> None:
        self._end_replication(str(error))

    def lost(self, link: MasterLink, reason: str) -> None:
        if link is self._link:
            self._link = None
            log.warning("lost the master at %s: %s", self._ha_master, reason)
            self._index_new_records()
            self._broker.context.topics.add_stored(self.now_ms())

    def _end_replication(self, reason: str) -> None:
        if self.broken is None:
            self.broken = reason
            log.error("this slave no longer follows its master: %s", reason)

    def _warn_once(self, text: str) -> None:
        """Log each problem once until the master is reached again."""
        if text not in self._warnings_logged:
            self._warnings_logged.add(text)
            log.warning("%s", text)

    # Tables

    async def copy_tables(self) -> None:
        """Copy every table now. Raises OSError if the master cannot be reached."""
        if self._master is None:
            raise OSError("the address of the master is unknown")
        channel = await Channel.connect(self._master, tls=outgoing_context(self.settings), signer=self._signer)
        try:
            await self._copy.copy(channel)
            self.copied.set()
        finally:
            channel.abandon("the copy is complete")

    async def _copy_periodically(self) -> None:
        while True:
            interval_ms = self.settings.slave_sync_interval
            if self._master is None:
                interval_ms = min(interval_ms, 100)
            else:
                try:
                    await self.copy_tables()
                except OSError as error:
                    self._warn_once(f"cannot copy topics, groups and offsets from {self._master}: {error}; trying again")
            self._copy_wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_ms / 1000):
                    await self._copy_wanted.wait()
                await asyncio.sleep(COPY_DELAY_S)  # wait for further new topics, which the same copy covers


class MasterLink(asyncio.Protocol):
    """The connection to the master."""

    def __init__(self, slave: HaSlave) -> None:
        self.ended = asyncio.Event()
        self.heard_ms = self.sent_ms = slave.now_ms()
        self._slave = slave
        self._decoder = ReplicationFrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._reported = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard_ms = self._slave.now_ms()
        try:
            frames = self._decoder.feed(data)
        except HaError as error:
            self._slave.rejected(self, error)
            self.end("invalid frame")
            return
        self._slave.received(self, frames)

    def report(self, offset: int) -> None:
        """Report the end of the durable log."""
        if offset > self._reported and self._transport is not None:
            self._reported = offset
            self.sent_ms = self._slave.now_ms()
            self._transport.write(encode_report(offset))

    def tick(self, now_ms: int) -> None:
        settings = self._slave.settings
        if now_ms - self.heard_ms > settings.ha_housekeeping_interval:
            self.end(f"no data for {now_ms - self.heard_ms} ms")
        elif now_ms - self.sent_ms >= settings.ha_send_heartbeat_interval and self._transport is not None:
            self.sent_ms = now_ms
            self._transport.write(encode_report(max(self._reported, 0)))

    def end(self, reason: str) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
            self._slave.lost(self, reason)
            self.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._slave.lost(self, str(exc) if exc else "it closed the connection")
            self.ended.set()
