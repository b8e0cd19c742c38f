"""The slave's side of static replication: it dials its master, asks for the log from where its own ends, and takes what comes.

    where is the master?    haMasterAddress, or what a name server answers to the slave's registration
    is it ours?             the newest message here is compared with the master's, if its ordinary address is known
    follow                  bytes in, written at the same offsets, confirmed when they are as durable as flushDiskType says
    lost                    again after a moment; nothing is forgotten, and topics that only the log tells of are made here

What cannot be followed (another log, a damaged one, other segment sizes) ends it: the slave says why and what to do, follows no
more and goes on serving what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import cast

from firearrow.broker.roles.replication import PassOn, ReplicationHost
from firearrow.broker.send.ack_policy import DISK_STALL, Stall
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.ha.metadata_sync import CALL_TIMEOUT_MS, MetadataCopy
from firearrow.ha.static.protocol import FrameDecoder, HaError, encode_report
from firearrow.net.channel import Channel
from firearrow.net.stream import dial
from firearrow.net.tls import client_context
from firearrow.store.commitlog.replica import FollowError
from firearrow.store.errors import StoreError
from firearrow.wire.bodies.admin import HARuntimeInfo
from firearrow.wire.codes import ResponseCode
from firearrow.wire.headers.client import ViewMessageRequestHeader

CONNECT_TIMEOUT_S = 3.0
FIRST_RETRY_S = 0.5
LAST_RETRY_S = 5.0
ASK_AGAIN_S = 1.0
AT_ONCE_S = 0.1
_DOUBTS = 5  # times that the master may not know our newest message before we believe it
_FLUSH_WAIT_S = 0.01
# Confirming needs bytes in the log, not a look at the records in them: those become readable a moment later, many at once.
LOOK_AFTER_S = 0.02
LOOK_BYTES = 512 * 1024

log = logging.getLogger("firearrow.ha.slave")


class MasterLog:
    """The acknowledgement policy of a slave: it stores its master's log and reports how far it is durable here."""

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
    ha_address: str | None = None
    pass_on: PassOn | None = None

    def __init__(self, broker: ReplicationHost) -> None:
        self._broker = broker
        self.settings = broker.parts.settings
        self._store = broker.parts.store
        self._commit = broker.commit
        self.now_ms = broker.now_ms
        self.broken: str | None = None  # why nothing is followed any more
        self._ha_master = self.settings.ha_master_address
        self._master: str | None = None  # its ordinary address
        self._news = asyncio.Event()
        self._link: MasterLink | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._copy = MetadataCopy(broker)
        self._complained: set[str] = set()
        self._doubts = 0
        self._durable_offset = 0
        self._look_timer: asyncio.TimerHandle | None = None
        self.copied = asyncio.Event()  # tables have been copied since the start
        self._known = 0  # queues in the store when it was last looked for new topics
        self._commit.set_policy(MasterLog(self))
        self._copy_wanted = asyncio.Event()  # before its time: there are topics in the log that nobody has told of

    @property
    def master_alive(self) -> bool:
        return self._link is not None

    async def start(self) -> None:
        self._tasks = [asyncio.ensure_future(self._follow_always()), asyncio.ensure_future(self._copy_always())]

    async def hand_over(self) -> None:
        pass

    async def stop(self, *, abruptly: bool = False) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._look_timer is not None:
            self._look_timer.cancel()
        if self._link is not None:
            self._link.end("the slave stops")

    def registered(self, ha_address: str | None, master_address: str | None) -> None:
        if ha_address and not self.settings.ha_master_address and ha_address != self._ha_master:
            self._ha_master = ha_address
            self._news.set()
        if master_address and master_address != self._master:
            self._master = master_address
            self._news.set()

    def durable(self, offset: int) -> None:
        self._durable_offset = offset
        if self._link is not None:
            self._link.report(offset)
        self._commit.advance_readable(offset)

    def tick(self, now_ms: int) -> None:
        if self._link is not None:
            self._link.tick(now_ms)

    def clock_moved(self, now_ms: int) -> None:
        """For whoever moves the clock by hand: the master has been heard of meanwhile."""
        if self._link is not None:
            self._link.heard_ms = self._link.spoke_ms = now_ms

    def status(self) -> HARuntimeInfo:
        link = self._link
        return HARuntimeInfo(
            master=False,
            master_commit_log_max_offset=0,
            ha_client_runtime_info={
                "activated": link is not None,
                "lastReadTimestamp": link.heard_ms if link is not None else 0,
                "lastWriteTimestamp": link.spoke_ms if link is not None else 0,
                "masterAddr": self._ha_master or "",
                "masterFlushOffset": 0,
                "maxOffset": self._store.max_offset,
                "transferredByteInSecond": 0,
            },
        )

    # Following.

    async def _follow_always(self) -> None:
        retry_s = FIRST_RETRY_S
        while self.broken is None:
            address = self._ha_master
            self._news.clear()
            try:
                if address is None:
                    await self._ask_again()
                    continue
                if await self._is_ours():
                    link = await self._connect(address)
                    retry_s = FIRST_RETRY_S
                    await link.ended.wait()
            except HaError as error:
                self._refuse(str(error))
                return
            except OSError as error:
                self._complain(f"the master at {address} cannot be reached: {error}; trying again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_s):
                    await self._news.wait()
            retry_s = min(retry_s * 2, LAST_RETRY_S)

    async def _ask_again(self) -> None:
        """A slave that was there before its master: name servers answer a registration with what they know by then."""
        try:
            async with asyncio.timeout(ASK_AGAIN_S):
                await self._news.wait()
        except TimeoutError:
            self._broker.parts.register_all()

    async def _connect(self, address: str) -> MasterLink:
        store = self._store
        while store.settings.sync_flush and store.flushed_offset < store.max_offset and store.writable:
            await asyncio.sleep(_FLUSH_WAIT_S)  # what we say first counts as confirmed
        _, link = await dial(lambda: MasterLink(self), address, CONNECT_TIMEOUT_S)
        end = store.max_offset if store.max_offset > store.min_offset else 0
        log.info("following the master at %s from log offset %d on", address, end)
        self._complained.clear()
        self._link = link
        link.report(end)
        return link

    async def _is_ours(self) -> bool:
        """Whether the master has our newest message. Not knowing whom to ask, we find out by what comes."""
        newest = self._newest()
        if self._master is None or newest is None:
            return True
        offset, record = newest
        channel = await Channel.connect(self._master, tls=client_context(self.settings.use_tls))
        try:
            answer = await channel.call(ViewMessageRequestHeader(offset=offset), timeout_ms=CALL_TIMEOUT_MS)
        finally:
            channel.abandon("asked")
        directory = self._store.settings.store_path_root_dir
        cure = f"move {directory} away and start this slave again, all is then copied anew"
        if answer.code == ResponseCode.SUCCESS:
            if answer.body != record:
                raise HaError(f"the master at {self._master} has another message at log offset {offset}: not its log; {cure}")
            self._doubts = 0
            return True
        self._doubts += 1
        if self._doubts >= _DOUBTS:
            raise HaError(
                f"the master at {self._master} does not have the newest message here, at log offset {offset} ({answer.remark}): "
                f"it lost the end of its log, or deleted what this slave has not copied in time; {cure}"
            )
        return False

    def _newest(self) -> tuple[int, bytes] | None:
        entries = (queue.entry(queue.max_offset - 1) for queue in self._store.queues() if queue.max_offset > queue.min_offset)
        offset = max((entry[0] for entry in entries if entry is not None), default=None)
        record = self._store.read_record(offset) if offset is not None else None
        return (offset, record) if offset is not None and record is not None else None

    def taken(self, link: MasterLink, frames: list[tuple[int, bytes]]) -> None:
        """Bytes have come. The log may be at most where they begin."""
        store = self._store
        for offset, data in frames:
            if not data:
                continue
            if offset != store.max_offset and store.max_offset > store.min_offset:
                self._complain(f"the master sends log offset {offset}, and the log here ends at {store.max_offset}; asking again")
                link.end("out of step")
                return
            try:
                unseen = store.write_raw(data, offset)
                if not store.settings.sync_flush:
                    self.durable(store.max_offset)
            except (FollowError, StoreError) as error:
                self._refuse(str(error))
                link.end("refused")
                return
            if unseen >= LOOK_BYTES:
                self._look()
            elif self._look_timer is None:
                self._look_timer = asyncio.get_running_loop().call_later(LOOK_AFTER_S, self._look)

    def _look(self) -> None:
        """The records that have come become readable, as far as they are durable."""
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        try:
            self._store.look_at_raw()
        except (FollowError, StoreError) as error:
            self._refuse(str(error))
            if self._link is not None:
                self._link.end("refused")
        self._commit.advance_readable(self._durable_offset)
        self._look_for_topics()

    def _look_for_topics(self) -> None:
        """The log tells of a new topic at once, the tables a while later; the master may die in between."""
        if self._store.queue_count == self._known:
            return
        self._known = self._store.queue_count
        if any(self._broker.parts.topics.find(topic) is None for topic in self._store.topics()):
            self._copy_wanted.set()
            if self._link is None:
                self._broker.parts.topics.add_stored(self.now_ms())

    def refused(self, link: MasterLink, error: HaError) -> None:
        self._refuse(str(error))

    def lost(self, link: MasterLink, reason: str) -> None:
        if link is self._link:
            self._link = None
            log.warning("the master at %s is gone: %s", self._ha_master, reason)
            self._look()
            self._broker.parts.topics.add_stored(self.now_ms())

    def _refuse(self, reason: str) -> None:
        if self.broken is None:
            self.broken = reason
            log.error("this slave follows no more: %s", reason)

    def _complain(self, text: str) -> None:
        """One line for each trouble, until it is over."""
        if text not in self._complained:
            self._complained.add(text)
            log.warning("%s", text)

    # Tables.

    async def copy_tables(self) -> None:
        """Copies everything once, now. OSError when the master cannot be asked."""
        if self._master is None:
            raise OSError("no name server knows the master")
        channel = await Channel.connect(self._master, tls=client_context(self.settings.use_tls))
        try:
            await self._copy.copy(channel)
            self.copied.set()
        finally:
            channel.abandon("copied")

    async def _copy_always(self) -> None:
        while True:
            interval_ms = self.settings.slave_sync_interval
            if self._master is None:
                interval_ms = min(interval_ms, 100)
            else:
                try:
                    await self.copy_tables()
                except OSError as error:
                    self._complain(f"topics, groups and offsets cannot be copied from {self._master}: {error}; trying again")
            self._copy_wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_ms / 1000):
                    await self._copy_wanted.wait()
                await asyncio.sleep(AT_ONCE_S)  # others may follow: one copy is for all of them


class MasterLink(asyncio.Protocol):
    """The connection to the master."""

    def __init__(self, slave: HaSlave) -> None:
        self.ended = asyncio.Event()
        self.heard_ms = self.spoke_ms = slave.now_ms()
        self._slave = slave
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._reported = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard_ms = self._slave.now_ms()
        try:
            frames = self._decoder.feed(data)
        except HaError as error:
            self._slave.refused(self, error)
            self.end("what it sends is no log")
            return
        self._slave.taken(self, frames)

    def report(self, offset: int) -> None:
        """Says how far the log here goes."""
        if offset > self._reported and self._transport is not None:
            self._reported = offset
            self.spoke_ms = self._slave.now_ms()
            self._transport.write(encode_report(offset))

    def tick(self, now_ms: int) -> None:
        settings = self._slave.settings
        if now_ms - self.heard_ms > settings.ha_housekeeping_interval:
            self.end(f"nothing heard for {now_ms - self.heard_ms} ms")
        elif now_ms - self.spoke_ms >= settings.ha_send_heartbeat_interval and self._transport is not None:
            self.spoke_ms = now_ms
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
