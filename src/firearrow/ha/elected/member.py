"""A broker as a member of an elected group: the driver of the Raft node, and the effect of its role on the broker.

    group commit has written      -> the leader sends the bytes to the followers while its flusher makes them durable
    the flusher has flushed       -> the leader counts itself; a follower acknowledges to its leader
    messages from other members   -> appended, truncated, voted
    the committed offset advances -> a leader answers its producers; messages become readable on every member

    elected, and everything in its log is committed -> master with broker id 0, registered with every name server at once
    deposed                                         -> slave; pending sends are answered with SERVICE_NOT_AVAILABLE (14)

Raft uses the monotonic clock: a jump of the wall clock does not cause an election.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random

from firearrow.auth.bootstrap import inner_signer
from firearrow.broker.roles.peer_security import elected_host
from firearrow.broker.roles.replication import Forward, ReplicationHost
from firearrow.broker.send.ack_policy import DISK_STALL, Stall
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.clock import monotonic_ms
from firearrow.ha.elected.forwarding import LeaderForwarder
from firearrow.ha.elected.links import PURPOSE, InboundPeer, OutboundPeer
from firearrow.ha.elected.store_log import StoreLog
from firearrow.ha.metadata_sync import FollowerMetadataSync
from firearrow.ha.peers.links import LinkEndpoint, PeerLinks
from firearrow.ha.peers.security import link_security
from firearrow.ha.raft.messages import Hello, Message
from firearrow.ha.raft.node import RaftNode
from firearrow.ha.raft.raft import Options, Role
from firearrow.net.address import parse_address
from firearrow.net.stream import StreamListener
from firearrow.net.tls import outgoing_context
from firearrow.store.errors import StoreError
from firearrow.wire.bodies.admin import HAConnectionRuntimeInfo, HARuntimeInfo

TICK_S = 0.05
# Followers acknowledge bytes before the records in them are indexed. Indexing follows shortly, for many records at once.
INDEX_DELAY_S = 0.005
BACKLOG_PAUSE_S = 0.001  # between two slices for a lagging follower, for the benefit of other work
TRANSFER_TIMEOUT_S = 3.0
PROXIES = 2  # one may be elected and fail while clients still use the route that contains it
ROUTE_AGE_MS = 40_000  # clients refresh their routes every 30 s
DISK_FULL_TRANSFER_MS = 10_000  # between two attempts of a leader with a full disk to transfer its leadership

log = logging.getLogger("firearrow.ha.group")


class Quorum:
    """The acknowledgement policy of an elected group: Raft's committed offset releases messages."""

    defers = replicates = True

    def __init__(self, replica: QuorumReplica) -> None:
        self._replica = replica

    def written(self) -> None:
        self._replica.written()

    def flushed(self, commit: GroupCommit, offset: int) -> None:
        self._replica.durable(offset)

    def stall(self, *, flushed: bool) -> Stall | None:
        return self._replica.replica_stall() if flushed else DISK_STALL


class QuorumReplica:
    """The replication of a broker in an elected group. It listens from construction, at its own address in `dLegerPeers`."""

    def __init__(self, broker: ReplicationHost) -> None:
        settings = broker.context.settings
        self.peers = settings.peers()
        self._broker = broker
        self._commit_group = broker.commit
        self._store = broker.context.store
        self._serving = 0  # the term in which this broker is master; 0 if it is not
        self._commit = self._store.confirm_offset
        self._addresses: dict[str, str] = {}  # of the other members' brokers
        self._accepted: set[InboundPeer] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._index_timer: asyncio.TimerHandle | None = None
        self._backlog_timer: asyncio.TimerHandle | None = None
        self._leader: str | None = None
        self._next_transfer_ms = 0
        self._next_tick_ms = 0
        self._leader_changed = asyncio.Event()
        members = list(self.peers.addresses)
        if len(members) % 2 == 0:
            log.warning(
                "a group of %d members tolerates as many failures as one of %d: use an odd number", len(members), len(members) - 1
            )
        endpoint = LinkEndpoint(
            PURPOSE, settings.broker_cluster_name, self.peers.group, self.peers.me, self.peers.others.__contains__
        )
        self._peer_links = PeerLinks(endpoint, link_security(settings), log)
        self._stopped = False
        self._listener = StreamListener(elected_host(settings), parse_address(self.peers.addresses[self.peers.me])[1])
        self.ha_address: str | None = self.peers.addresses[self.peers.me]
        self.node = RaftNode(
            self.peers.group,
            members,
            self.peers.me,
            disk=self._store.disk,
            directory=broker.context.store_settings.store_path_root_dir,
            log=StoreLog(self._store, self._drop_pending),
            options=Options(preferred_leader=settings.preferred_leader_id or None),
            rng=random.Random(os.urandom(8)),
            now_ms=monotonic_ms(),
            commit=self._store.confirm_offset,
        )
        self.raft = self.node.raft
        self._links = {
            other: OutboundPeer(other, self.peers.addresses[other], self._peer_links, self._connected)
            for other in self.peers.others
        }
        self._tables = FollowerMetadataSync(broker, self.leader_address)
        self._forwarder = LeaderForwarder(
            self.leader_address,
            lambda: self._serving > 0 and self.raft.accepts_appends,
            broker.serve,
            outgoing_context(settings),
            inner_signer(settings),
        )
        self.forward: Forward | None = self._forwarder.forward
        self._paused = False
        self._proxy_ms: int | None = None  # when this follower last was to register as a proxy
        broker.commit.set_policy(Quorum(self))

    @property
    def master_alive(self) -> bool:
        return self.raft.leader is not None

    def leader_address(self) -> str | None:
        """Return the address of the leader's broker if this member follows it."""
        return None if self.raft.role is Role.LEADER else self._addresses.get(self.raft.leader or "")

    # Lifecycle

    async def start(self) -> None:
        await self._peer_links.serve(self._listener, lambda member: InboundPeer(self.node.codec, self, member))
        for link in self._links.values():
            link.start()
        self._tables.start()
        self._next_tick_ms = monotonic_ms()
        self._tick()

    async def hand_over(self) -> None:
        """Transfer leadership to the most complete follower before a stop, and wait for it."""
        progress, now = self.raft.progress, monotonic_ms()
        alive = [peer for peer in progress if self._links[peer].connected]
        if self.raft.role is not Role.LEADER or not alive:
            return
        self.node.transfer_leadership(max(alive, key=lambda peer: progress[peer].match), now)
        self._apply_ready()
        try:
            async with asyncio.timeout(TRANSFER_TIMEOUT_S):
                while self.raft.role is Role.LEADER or self.raft.leader is None:
                    self._leader_changed.clear()
                    await self._leader_changed.wait()
        except TimeoutError:
            log.warning("no member took over from %s in time; the others will elect a leader", self.peers.me)

    async def stop(self, *, abruptly: bool = False) -> None:
        for timer in (self._timer, self._index_timer, self._backlog_timer):
            if timer is not None:
                timer.cancel()
        await self._forwarder.stop()
        await self._tables.stop()
        self._stopped = True
        self._listener.close()
        self._peer_links.close()
        for link in self._links.values():
            await link.stop(abruptly=abruptly)
        for accepted in list(self._accepted):
            accepted.end()

    def registered(self, ha_address: str | None, master_address: str | None) -> None:
        pass

    def tick(self, now_ms: int) -> None:
        """Do nothing: this replication has a timer of its own."""

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        now = monotonic_ms()
        late_ms = max(now - self._next_tick_ms, 0)
        self._next_tick_ms = now + round(TICK_S * 1000)
        self._check_disk(now)
        self.node.tick(now, late_ms)
        self._apply_ready()
        if self.raft.leader is not None or self.raft.role is Role.HALTED:  # without a leader, proxies are needed most
            self._broker.set_proxy(self._is_proxy(now))

    def _check_disk(self, now: int) -> None:
        """Halt if the disk failed. A leader whose disk is full transfers its leadership."""
        store, raft = self._store, self.raft
        if store.broken and raft.role is not Role.HALTED:
            self.node.failed(StoreError(store.refusal or "the disk failed"))
        elif self._serving and not store.writable and now >= self._next_transfer_ms:
            self._next_transfer_ms = now + DISK_FULL_TRANSFER_MS
            alive = [peer for peer in raft.progress if self._links[peer].connected]
            if alive and raft.accepts_appends:
                log.warning("%s cannot store messages (%s) and transfers its leadership", self.peers.me, store.refusal)
                self.node.transfer_leadership(max(alive, key=lambda peer: raft.progress[peer].match), now)

    def _is_proxy(self, now_ms: int) -> bool:
        """Return whether this member registers as a proxy for the leader.

        The first reachable followers do, in each follower's own view, and continue for as long as a client may use a route from
        that time. So every route that a client can have contains a member besides the one that fails.
        """
        if self.raft.role is Role.HALTED:
            return False
        if self.raft.role is Role.FOLLOWER:
            before = [other for other in self.peers.others if other < self.peers.me and other != self.raft.leader]
            if sum(self._links[other].connected for other in before) < PROXIES:
                self._proxy_ms = now_ms
        return self._proxy_ms is not None and now_ms - self._proxy_ms < ROUTE_AGE_MS

    # Events

    def written(self) -> None:
        """Send the newly written bytes of a leader to its followers."""
        if self.raft.role is Role.LEADER:
            self.node.appended(monotonic_ms())
            self._apply_ready()

    def durable(self, offset: int) -> None:
        """Handle a completed flush. The log may have been truncated since, so the flusher's current offset is the limit."""
        if self._store.settings.sync_flush:
            offset = min(offset, self._store.synced_offset)
        self.node.synced(offset, self.raft.truncations, monotonic_ms())
        self._apply_ready()

    def _connected(self, link: OutboundPeer) -> None:
        hello = Hello(self._broker.context.address)
        link.send(self.node.codec.encode(link.member, hello, self.raft.identity.group_id))
        self.node.connected(link.member, monotonic_ms())
        self._apply_ready()

    def received(self, sender: str, message: Message | Hello) -> None:
        if isinstance(message, Hello):
            self._addresses[sender] = message.address
            self.node.greeted(sender, message.group_id)
        else:
            self.node.step(sender, message, monotonic_ms())

    def read(self) -> None:
        self._apply_ready()

    def accepted(self, link: InboundPeer) -> None:
        self._accepted.add(link)

    def refused(self, peer: str, reason: str) -> None:
        self._peer_links.refusals.add(peer, reason)

    def closed(self, link: InboundPeer, member: str | None) -> None:
        self._accepted.discard(link)
        if member is not None and not self._stopped:
            self.node.disconnected(member, monotonic_ms())
            self._apply_ready()

    # Effects

    def _apply_ready(self) -> None:
        node, raft = self.node, self.raft
        if node.take_sync_request():
            self._sync()
        if self._serving and (raft.role is not Role.LEADER or raft.term != self._serving):
            self._on_deposed()
        for to, data in node.outbox:
            self._links[to].send(data)
        node.outbox.clear()
        for line in node.log_lines:
            log.warning("%s", line)
        node.log_lines.clear()
        if raft.leader != self._leader:
            self._leader = raft.leader
            self._leader_changed.set()
            self._forwarder.leader_changed()
        if self._serving and self._paused == raft.accepts_appends:
            self._paused = not raft.accepts_appends
            self._broker.pause(self._paused)
        if raft.role is Role.LEADER:
            if not self._serving and raft.is_ready_to_serve:
                self._on_elected()
            if self._serving and raft.commit > self._commit:
                self._commit = raft.commit
                self._commit_group.release(raft.commit)
            if self._backlog_timer is None and raft.has_backlog:
                self._backlog_timer = asyncio.get_running_loop().call_later(BACKLOG_PAUSE_S, self._send_backlog)
        elif raft.commit > self._commit and self._index_timer is None:
            self._index_timer = asyncio.get_running_loop().call_later(INDEX_DELAY_S, self._index_new_records)

    def _send_backlog(self) -> None:
        self._backlog_timer = None
        self.node.send_backlog(monotonic_ms())
        self._apply_ready()

    def _sync(self) -> None:
        """Report appended bytes as durable under ASYNC_FLUSH. Under SYNC_FLUSH the flusher reports to `durable`."""
        if not self._store.settings.sync_flush:
            self.node.synced(self._store.max_offset, self.raft.truncations, monotonic_ms())

    def _index_new_records(self) -> None:
        """Index the received records and make them readable up to the committed offset."""
        if self._index_timer is not None:
            self._index_timer.cancel()
            self._index_timer = None
        try:
            self._store.replica.index_new_records()
        except StoreError as error:
            self._store.replica.mark_damaged()
            self.node.failed(error)
            self._apply_ready()
            return
        self._commit = max(self._commit, self.raft.commit)
        self._commit_group.advance_readable(self._commit)

    def _on_elected(self) -> None:
        self._index_new_records()
        if self.raft.role is Role.LEADER:
            self._serving = self.raft.term
            self._paused = False
            self._store.replica.stop_copying()
            self._broker.lead(self.raft.term)
            log.warning("%s is the master of %s (term %d)", self.peers.me, self.peers.group, self.raft.term)

    def _on_deposed(self) -> None:
        self._serving = 0
        self._broker.follow(f"{self.peers.me} is no longer the leader of {self.peers.group}; send to the new one")

    def replica_stall(self) -> Stall:
        """Return the description of a stall, with the members that the leader waits for."""
        behind = [peer for peer, progress in self.raft.progress.items() if progress.match < self._store.max_offset]
        return Stall("messages have waited for a majority of the group", f"check {', '.join(behind) or 'its members'}")

    def _drop_pending(self) -> None:
        """Reject pending messages before the log changes: this broker may no longer store them."""
        self._commit_group.fail_pending(f"{self.peers.me} is no longer the leader of {self.peers.group}; send to the new one")

    def status(self) -> HARuntimeInfo:
        raft, end = self.raft, self._store.max_offset
        leads = raft.role is Role.LEADER
        return HARuntimeInfo(
            master=leads,
            master_commit_log_max_offset=end if leads else 0,
            in_sync_slave_nums=sum(one.match >= raft.commit for one in raft.progress.values()),
            ha_connection_info=[
                HAConnectionRuntimeInfo(
                    addr=self.peers.addresses[peer],
                    slave_ack_offset=max(one.match, 0),
                    diff=end - max(one.match, 0),
                    in_sync=one.match >= raft.commit,
                    transferred_byte_in_second=0,
                    transfer_from_where=0,
                )
                for peer, one in raft.progress.items()
            ],
        )
