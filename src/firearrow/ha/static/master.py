"""Master of static replication: streams the log to its slaves and counts their acknowledgements.

Slaves that keep up receive new bytes when they have become durable here, many messages in one piece. A lagging slave receives
portions that do not block the event loop, as fast as its connection accepts them, and none while clients wait too long: no send
waits for a lagging slave.

A SYNC_MASTER releases messages when enough slaves have acknowledged them. It does not wait for slaves that are not connected
(SLAVE_NOT_AVAILABLE at once) nor indefinitely (FLUSH_SLAVE_TIMEOUT after `slaveTimeout`). In both cases the messages are stored
and become readable.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import cast

from firearrow.broker.roles.peer_security import REMEDY, master_host
from firearrow.broker.roles.replication import Forward, ReplicationHost
from firearrow.broker.send.ack_policy import DISK_STALL, LocalFlush, Stall
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.ha.peers.links import LinkEndpoint, PeerLinks
from firearrow.ha.peers.security import link_security
from firearrow.ha.static.feed import Feed
from firearrow.ha.static.protocol import MASTER_NAME, PURPOSE, HaError
from firearrow.net.address import format_address
from firearrow.net.stream import StreamListener
from firearrow.store.message_store import MessageStore
from firearrow.wire.bodies.admin import HAConnectionRuntimeInfo, HARuntimeInfo
from firearrow.wire.codes import ResponseCode

PORTION_BYTES = 256 * 1024  # per event-loop iteration
PAUSE_S = 0.001  # between two portions for a lagging slave: clients have priority
LATE_S = 0.02  # a pause that overran by this much means that clients are waiting
LONG_PAUSE_S = 0.02
_BUFFER_BYTES = 1024 * 1024  # unsent bytes per slave
_RATE_MS = 5_000

log = logging.getLogger("firearrow.ha.master")


class DurableLog:
    """The part of the log that may be sent: what is durable here."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.end = store.flushed_offset if store.settings.sync_flush else store.max_offset
        self.read = store.read_log

    @property
    def begin(self) -> int:
        return self._store.min_offset

    def advance(self, offset: int) -> None:
        """Allow the log to be sent up to `offset`."""
        self.end = max(self.end, offset)


class StreamToSlaves(LocalFlush):
    """The acknowledgement policy of an ASYNC_MASTER with slaves: a local flush, which also sends the log to them."""

    replicates = True

    def __init__(self, master: HaMaster, *, sync_flush: bool) -> None:
        super().__init__(sync_flush=sync_flush)
        self._master = master

    def flushed(self, commit: GroupCommit, offset: int) -> None:
        commit.release(offset)
        self._master.flushed(offset)


class InSyncReplicas:
    """The acknowledgement policy of a SYNC_MASTER: `HaMaster.release_acknowledged` releases what enough slaves have."""

    defers = replicates = True

    def __init__(self, master: HaMaster) -> None:
        self._master = master

    def written(self) -> None:
        pass

    def flushed(self, commit: GroupCommit, offset: int) -> None:
        self._master.flushed(offset)

    def stall(self, *, flushed: bool) -> Stall | None:
        return None if flushed else DISK_STALL  # `slaveTimeout` limits the wait for slaves


class HaMaster:
    """The replication of a master.

    It listens from construction: on `haListenPort`, or on the port after the broker's, or on any free port if that is taken.
    """

    forward: Forward | None = None

    def __init__(self, broker: ReplicationHost) -> None:
        settings = broker.context.settings
        self._settings = settings
        self._commit = broker.commit
        self._now_ms = broker.now_ms
        self._store = broker.context.store
        self.source = DurableLog(self._store)
        self._waits = broker.context.role.role == "SYNC_MASTER"
        endpoint = LinkEndpoint(
            PURPOSE, settings.broker_cluster_name, settings.broker_name, MASTER_NAME, lambda slave: slave != MASTER_NAME
        )
        self._peers = PeerLinks(endpoint, link_security(settings), log)
        host = master_host(settings)
        if host != settings.bind_address:
            log.warning("only slaves on this machine can connect, because they are not authenticated. For others, %s", REMEDY)
        self._listener = _listen(host, settings.ha_listen_port, broker.context.listen_port + 1)
        self.port = self._listener.port
        ip = settings.broker_ip2 or broker.context.address.rpartition(":")[0]
        self.ha_address: str | None = f"{ip}:{self.port}"
        self.links: set[SlaveLink] = set()
        self._shortage_logged = False
        self._enough = not self._waits  # slaves are in sync, at the last check
        self._alone = LocalFlush(sync_flush=self._store.settings.sync_flush)
        self._streaming = StreamToSlaves(self, sync_flush=self._store.settings.sync_flush)
        if self._waits:
            self._commit.set_policy(InSyncReplicas(self))

    @property
    def master_alive(self) -> bool:
        return True

    async def start(self) -> None:
        await self._peers.serve(self._listener, lambda _: SlaveLink(self))

    async def hand_over(self) -> None:
        pass

    async def stop(self, *, abruptly: bool = False) -> None:
        self._listener.close()
        self._peers.close()
        for link in list(self.links):
            link.end("the master is stopping" if not abruptly else None)

    def registered(self, ha_address: str | None, master_address: str | None) -> None:
        pass

    def joined(self, link: SlaveLink) -> None:
        """Add a slave. Without slaves, replication costs an ASYNC_MASTER nothing."""
        if not self._waits and not self.links:
            self.source.advance(self._store.confirm_offset)
            self._commit.set_policy(self._streaming)
        self.links.add(link)

    def left(self, link: SlaveLink) -> None:
        self.links.discard(link)
        if not self._waits and not self.links:
            self._commit.set_policy(self._alone)
        self.release_acknowledged()

    def refused(self, peer: str, reason: str) -> None:
        self._peers.refusals.add(peer, reason)

    def flushed(self, offset: int) -> None:
        """Send the newly durable bytes to the slaves."""
        self.source.advance(offset)
        for link in list(self.links):
            link.pump()
        if not self._enough:
            self.release_acknowledged()  # otherwise when they acknowledge

    def release_acknowledged(self) -> None:
        """Release what enough slaves have acknowledged, or everything if too few slaves are in sync."""
        if not self._waits:
            return
        wanted = self._settings.in_sync_replicas - 1
        confirmed = sorted((link.feed.confirmed for link in self._in_sync()), reverse=True)
        self._enough = len(confirmed) >= wanted > 0
        if wanted <= 0:
            self._commit.release(self.source.end)
        elif self._enough:
            self._shortage_logged = False
            self._commit.release(min(self.source.end, confirmed[wanted - 1]))
        else:
            if not self._shortage_logged and self._commit.pending:
                self._shortage_logged = True
                log.warning(
                    "%d of %d slaves are in sync: messages are stored and answered with SLAVE_NOT_AVAILABLE",
                    len(confirmed),
                    wanted,
                )
            self._commit.release(self.source.end, ResponseCode.SLAVE_NOT_AVAILABLE)

    def tick(self, now_ms: int) -> None:
        for link in list(self.links):
            link.tick(now_ms)
        if self._waits:
            self.release_acknowledged()
            late = min(self._commit.pending_end(now_ms - self._settings.slave_timeout), self.source.end)
            if late:
                self._commit.release(late, ResponseCode.FLUSH_SLAVE_TIMEOUT)

    def clock_moved(self, now_ms: int) -> None:
        """Treat connected slaves as heard from, after a test has moved the clock."""
        for link in self.links:
            link.feed.heard(now_ms)

    def status(self) -> HARuntimeInfo:
        links = [link for link in self.links if link.feed.requested is not None]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=self._store.max_offset,
            in_sync_slave_nums=len(self._in_sync()),
            ha_connection_info=[
                HAConnectionRuntimeInfo(
                    addr=link.peer,
                    slave_ack_offset=link.feed.confirmed,
                    diff=self._store.max_offset - link.feed.confirmed,
                    in_sync=link.feed.behind < self._settings.ha_max_gap_not_in_sync,
                    transferred_byte_in_second=link.rate,
                    transfer_from_where=link.feed.requested or 0,
                )
                for link in links
            ],
        )

    def make_feed(self) -> Feed:
        settings = self._settings
        return Feed(
            self.source,
            batch_bytes=settings.ha_transfer_batch_size,
            heartbeat_ms=settings.ha_send_heartbeat_interval,
            silence_ms=settings.ha_housekeeping_interval,
            now_ms=self._now_ms(),
        )

    def now_ms(self) -> int:
        return self._now_ms()

    def can_wait(self, link: SlaveLink) -> bool:
        """Return whether no send waits for this slave."""
        return not self._waits or link.feed.behind >= self._settings.ha_max_gap_not_in_sync

    def _in_sync(self) -> list[SlaveLink]:
        gap = self._settings.ha_max_gap_not_in_sync
        return [link for link in self.links if link.feed.requested is not None and link.feed.behind < gap]


class SlaveLink(asyncio.Protocol):
    """The connection of one slave."""

    def __init__(self, master: HaMaster) -> None:
        self.feed = master.make_feed()
        self.peer = "?"
        self.rate = 0  # bytes per second
        self._master = master
        self._transport: asyncio.Transport | None = None
        self._full = False  # the write buffer is full
        self._scheduled = False
        self._rated = (0, 0)  # (time, bytes sent) of the last rate sample

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        name = transport.get_extra_info("peername") or ("?", 0)
        self.peer = format_address(name[0], name[1])
        self._master.joined(self)

    def data_received(self, data: bytes) -> None:
        begun = self.feed.requested is not None
        try:
            if not self.feed.received(data, self._master.now_ms()):
                return
        except HaError as error:
            self._master.refused(self.peer, str(error))
            self.end(None)
            return
        if not begun:
            log.info("the slave at %s follows from log offset %d", self.peer, self.feed.sent)
        self.pump()  # what accumulated while it was busy
        self._master.release_acknowledged()

    def pump(self) -> None:
        """Send what is pending, as far as the connection accepts it."""
        transport = self._transport
        if transport is None or self._full or self._scheduled:
            return
        try:
            frames = self.feed.next_frames(PORTION_BYTES, self._master.now_ms())
        except (HaError, OSError) as error:
            log.error("disconnecting the slave at %s: %s", self.peer, error)
            self.end(None)
            return
        if frames:
            transport.writelines(frames)
            if self.feed.sent < self._master.source.end and not self._full:
                self.pump_later(PAUSE_S)

    def tick(self, now_ms: int) -> None:
        if self.feed.is_silent(now_ms):
            log.warning("disconnecting the slave at %s, which has been silent for too long", self.peer)
            self.end(None)
            return
        self.pump()
        since, sent = self._rated
        if now_ms - since >= _RATE_MS:
            self.rate = (self.feed.sent_bytes - sent) * 1000 // max(now_ms - since, 1) if since else 0
            self._rated = (now_ms, self.feed.sent_bytes)

    def end(self, reason: str | None) -> None:
        """Close the connection: after sending what was written if there is a reason, otherwise at once."""
        transport, self._transport = self._transport, None
        if transport is not None:
            if reason is None:
                transport.abort()
            else:
                transport.close()
            self._master.left(self)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            log.warning("lost the slave at %s: %s", self.peer, exc or "it closed the connection")
            self._transport = None
            self._master.left(self)

    def pump_later(self, seconds: float) -> None:
        """Continue after a pause, in favour of other work."""
        self._scheduled = True
        asyncio.get_running_loop().call_later(seconds, self._resume, seconds, time.monotonic())

    def _resume(self, pause_s: float, since: float) -> None:
        late = time.monotonic() - since > pause_s + LATE_S
        if late and pause_s < LONG_PAUSE_S and self._master.can_wait(self):
            self.pump_later(LONG_PAUSE_S)  # once, so that the slave progresses however busy the broker is
            return
        self._scheduled = False
        self.pump()


def _listen(host: str, wanted: int, usual: int) -> StreamListener:
    if wanted:
        return StreamListener(host, wanted)
    try:
        return StreamListener(host, usual)
    except OSError as error:
        listener = StreamListener(host, 0)
        log.warning("%s; slaves will use port %d (set haListenPort to choose one)", error, listener.port)
        return listener
