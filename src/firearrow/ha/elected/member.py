"""A broker as a member of an elected group: the raft node with its sockets, its clock and its disk, and what its role means here.

    a round is written            -> raft sends it to the others, while the flusher makes it durable here
    the flusher has flushed       -> raft counts this member, or, a follower, tells its leader
    messages of the others        -> appended, cut, voted
    raft's commit moves           -> a leader answers its sends; messages become readable, here as there

    elected, and everything it began with is confirmed -> master, broker id 0, at every name server at once
    no longer                                          -> slave; sends that still wait are answered with 14

Raft's clock is the machine's monotonic one: a wall clock that jumps elects nobody.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random

from firearrow.broker.roles.replication import PassOn, ReplicationHost
from firearrow.broker.send.ack_policy import DISK_STALL, Stall
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.clock import monotonic_ms
from firearrow.ha.elected.forwarding import LeaderForwarder
from firearrow.ha.elected.links import InboundPeer, OutboundPeer
from firearrow.ha.elected.store_log import StoreLog
from firearrow.ha.metadata_sync import FollowerMetadataSync
from firearrow.ha.raft.messages import Hello, Message
from firearrow.ha.raft.node import RaftNode
from firearrow.ha.raft.raft import Options, Role
from firearrow.net.address import WILDCARDS, parse_address
from firearrow.net.stream import StreamListener
from firearrow.net.tls import client_context
from firearrow.store.errors import StoreError
from firearrow.wire.bodies.admin import HAConnectionRuntimeInfo, HARuntimeInfo

TICK_S = 0.05
# Followers acknowledge bytes, not a look at the records in them: those become readable a moment later, many at once.
LOOK_AFTER_S = 0.005
PAUSE_S = 0.001  # between two slices for one that lags: others come first
HAND_OVER_S = 3.0
STAND_INS = 2  # one may be elected and die while clients have the route that names it
ROUTE_AGE_MS = 40_000  # clients ask for routes every 30 s
FULL_MS = 10_000  # between two attempts of a leader with a full disk to be rid of its office
_TOLD = 20

log = logging.getLogger("firearrow.ha.group")


class Quorum:
    """The acknowledgement policy of a member of an elected group: raft's commit offset releases messages."""

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
    """Listens from the start, at its own address in `dLegerPeers`."""

    def __init__(self, broker: ReplicationHost) -> None:
        settings = broker.parts.settings
        self.peers = settings.peers()
        self._broker = broker
        self._commit_group = broker.commit
        self._store = broker.parts.store
        self._serving = 0  # the term in which this broker is master; 0: it is not
        self._commit = self._store.confirm_offset
        self._addresses: dict[str, str] = {}  # of the others' brokers
        self._told: set[str] = set()
        self._accepted: set[InboundPeer] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._pump_timer: asyncio.TimerHandle | None = None
        self._leader: str | None = None
        self._next_transfer_ms = 0
        self._changed = asyncio.Event()  # the role, or who leads
        members = list(self.peers.addresses)
        if len(members) % 2 == 0:
            log.warning(
                "a group of %d members survives as many failures as one of %d: use an odd number", len(members), len(members) - 1
            )
        host, port = parse_address(self.peers.addresses[self.peers.me])
        host = settings.bind_address if settings.bind_address in WILDCARDS else host
        self._stopped = False
        self._listener = StreamListener(host, port)
        self.ha_address: str | None = self.peers.addresses[self.peers.me]
        self.node = RaftNode(
            self.peers.group,
            members,
            self.peers.me,
            disk=self._store.disk,
            directory=broker.parts.store_settings.store_path_root_dir,
            log=StoreLog(self._store, self._drop_pending),
            options=Options(preferred_leader=settings.preferred_leader_id or None),
            rng=random.Random(os.urandom(8)),
            now_ms=monotonic_ms(),
            commit=self._store.confirm_offset,
        )
        self.raft = self.node.raft
        self._links = {other: OutboundPeer(other, self.peers.addresses[other], self._connected) for other in self.peers.others}
        self._tables = FollowerMetadataSync(broker, self.leader_address)
        self._passing = LeaderForwarder(
            self.leader_address,
            lambda: self._serving > 0 and self.raft.accepts_appends,
            broker.serve,
            client_context(settings.use_tls),
        )
        self.pass_on: PassOn | None = self._passing.pass_on
        self._paused = False
        self._stood_in_ms: int | None = None  # when it last was to
        broker.commit.set_policy(Quorum(self))

    @property
    def master_alive(self) -> bool:
        return self.raft.leader is not None

    def leader_address(self) -> str | None:
        """Where the leader's broker is, if this one follows it."""
        return None if self.raft.role is Role.LEADER else self._addresses.get(self.raft.leader or "")

    # Life

    async def start(self) -> None:
        await self._listener.serve(lambda: InboundPeer(self.node.codec, self))
        for link in self._links.values():
            link.start()
        self._tables.start()
        self._tick()

    async def hand_over(self) -> None:
        """A leader that stops asks the member that has most to take over, and waits for it."""
        progress, now = self.raft.progress, monotonic_ms()
        alive = [peer for peer in progress if self._links[peer].connected]
        if self.raft.role is not Role.LEADER or not alive:
            return
        self.node.transfer_leadership(max(alive, key=lambda peer: progress[peer].match), now)
        self._after()
        try:
            async with asyncio.timeout(HAND_OVER_S):
                while self.raft.role is Role.LEADER or self.raft.leader is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            log.warning("nobody took over from %s; the others elect a leader by themselves", self.peers.me)

    async def stop(self, *, abruptly: bool = False) -> None:
        for timer in (self._timer, self._look_timer, self._pump_timer):
            if timer is not None:
                timer.cancel()
        await self._passing.stop()
        await self._tables.stop()
        self._stopped = True
        self._listener.close()
        for link in self._links.values():
            await link.stop(abruptly=abruptly)
        for accepted in list(self._accepted):
            accepted.end()

    def registered(self, ha_address: str | None, master_address: str | None) -> None:
        pass

    def tick(self, now_ms: int) -> None:
        """It has a clock of its own."""

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        now = monotonic_ms()
        self._look_at_disk(now)
        self.node.tick(now)
        self._after()
        if self.raft.leader is not None or self.raft.role is Role.HALTED:  # while nobody leads, stand-ins are needed most
            self._broker.stand_in(self._is_stand_in(now))

    def _look_at_disk(self, now: int) -> None:
        """A member whose disk failed goes out; a leader that can store nothing, for want of space, lets another one try."""
        store, raft = self._store, self.raft
        if store.broken and raft.role is not Role.HALTED:
            self.node.failed(StoreError(store.refusal or "the disk failed"))
        elif self._serving and not store.writable and now >= self._next_transfer_ms:
            self._next_transfer_ms = now + FULL_MS
            alive = [peer for peer in raft.progress if self._links[peer].connected]
            if alive and raft.accepts_appends:
                log.warning("%s cannot store messages (%s) and hands over", self.peers.me, store.refusal)
                self.node.transfer_leadership(max(alive, key=lambda peer: raft.progress[peer].match), now)

    def _is_stand_in(self, now_ms: int) -> bool:
        """The first followers that can be reached, as each of them sees it; and afterwards for as long as a client may have its
        route from then. So whatever route a client has, it names a member beside the one that fails."""
        if self.raft.role is Role.HALTED:
            return False
        if self.raft.role is Role.FOLLOWER:
            before = [other for other in self.peers.others if other < self.peers.me and other != self.raft.leader]
            if sum(self._links[other].connected for other in before) < STAND_INS:
                self._stood_in_ms = now_ms
        return self._stood_in_ms is not None and now_ms - self._stood_in_ms < ROUTE_AGE_MS

    # What happens

    def written(self) -> None:
        """Send a leader's new log to the others."""
        if self.raft.role is Role.LEADER:
            self.node.appended(monotonic_ms())
            self._after()

    def durable(self, offset: int) -> None:
        """Says the flusher. The log may have been cut since: what counts is what the flusher holds to be flushed now."""
        if self._store.settings.sync_flush:
            offset = min(offset, self._store.synced_offset)
        self.node.synced(offset, self.raft.truncations, monotonic_ms())
        self._after()

    def _connected(self, link: OutboundPeer) -> None:
        link.send(self.node.codec.encode(link.member, Hello(self._broker.parts.address)))
        self.node.connected(link.member, monotonic_ms())
        self._after()

    def received(self, sender: str, message: Message | Hello) -> None:
        if isinstance(message, Hello):
            self._addresses[sender] = message.address
        else:
            self.node.step(sender, message, monotonic_ms())

    def read(self) -> None:
        self._after()

    def accepted(self, link: InboundPeer) -> None:
        self._accepted.add(link)

    def refused(self, peer: str, reason: str) -> None:
        host = peer.rpartition(":")[0]
        if f"{host} {reason}" not in self._told and len(self._told) < _TOLD:
            self._told.add(f"{host} {reason}")
            log.error("a connection from %s is refused: %s", peer, reason)

    def closed(self, link: InboundPeer, member: str | None) -> None:
        self._accepted.discard(link)
        if member is not None and not self._stopped:
            self.node.disconnected(member, monotonic_ms())
            self._after()

    # What comes of it

    def _after(self) -> None:
        node, raft = self.node, self.raft
        if node.sync_wanted:
            self._sync()
        if self._serving and (raft.role is not Role.LEADER or raft.term != self._serving):
            self._step_down()
        for to, data in node.outbox:
            self._links[to].send(data)
        node.outbox.clear()
        for line in node.log_lines:
            log.warning("%s", line)
        node.log_lines.clear()
        if raft.leader != self._leader:
            self._leader = raft.leader
            self._changed.set()
        if self._serving and self._paused == raft.accepts_appends:
            self._paused = not raft.accepts_appends
            self._broker.pause(self._paused)
        if raft.role is Role.LEADER:
            if not self._serving and raft.is_ready_to_serve:
                self._take_office()
            if self._serving and raft.commit > self._commit:
                self._commit = raft.commit
                self._commit_group.release(raft.commit)
            if self._pump_timer is None and raft.has_backlog:
                self._pump_timer = asyncio.get_running_loop().call_later(PAUSE_S, self._pump)
        elif raft.commit > self._commit and self._look_timer is None:
            self._look_timer = asyncio.get_running_loop().call_later(LOOK_AFTER_S, self._look)

    def _pump(self) -> None:
        self._pump_timer = None
        self.node.send_backlog(monotonic_ms())
        self._after()

    def _sync(self) -> None:
        """Under SYNC_FLUSH the flusher was asked when the bytes were written, and reports to `durable`."""
        self.node.sync_wanted = False
        if not self._store.settings.sync_flush:
            self.node.synced(self._store.max_offset, self.raft.truncations, monotonic_ms())

    def _look(self) -> None:
        """A follower's records become readable, as far as the group has confirmed them."""
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        try:
            self._store.look_at_raw()
        except StoreError as error:
            self._store.found_damaged()
            self.node.failed(error)
            self._after()
            return
        self._commit = max(self._commit, self.raft.commit)
        self._commit_group.advance_readable(self._commit)

    def _take_office(self) -> None:
        self._look()
        if self.raft.role is Role.LEADER:
            self._serving = self.raft.term
            self._paused = False
            self._store.follow_no_more()
            self._broker.lead(self.raft.term)
            log.warning("%s is the master of %s (term %d)", self.peers.me, self.peers.group, self.raft.term)

    def _step_down(self) -> None:
        self._serving = 0
        self._broker.follow(f"{self.peers.me} is no longer the leader of {self.peers.group}; send to the new one")

    def replica_stall(self) -> Stall:
        """Name the members that a leader waits for."""
        behind = [peer for peer, progress in self.raft.progress.items() if progress.match < self._store.max_offset]
        return Stall("messages have waited for a majority of the group", f"check {', '.join(behind) or 'its members'}")

    def _drop_pending(self) -> None:
        """The log is about to change, and messages wait to be written to it that this broker may not store any more."""
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
