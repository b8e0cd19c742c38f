"""The broker: store, tables, duties and sockets, put together, started, kept going and stopped.

    start   lock and recover the store -> read config/*.json -> open both ports -> register at the name servers
    tick    every 100 ms: held pulls whose time is up, flushes that take too long, the store's housekeeping, tables to save,
            clients that fell silent
    stop    unregister -> no more connections -> everything appended is written, flushed and answered -> tables, store closed

One event loop does all of it. The ordinary port and the fast port (two below it) serve the same requests.

Somebody else's process (firearrow.testing) can have a broker, too: without sockets (`bind`), on another disk, with a clock that
is moved by hand, and without threads or settings of the process (`own_process`). `work`, `busy` and `next_due_ms` are for whoever
moves the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from firearrow.broker import admin, assignment, client_calls, clients, locks, offsets, query, recall, reply, retry, slave_requests
from firearrow.broker.answers import json_answer
from firearrow.broker.clients import ClientTable
from firearrow.broker.config_files import ConfigFiles
from firearrow.broker.dedup_file import DedupFile
from firearrow.broker.delay import DelayService, parse_levels
from firearrow.broker.dispatch import Dispatch
from firearrow.broker.flow import Flow
from firearrow.broker.groups import GroupTable
from firearrow.broker.held_pulls import HeldPulls
from firearrow.broker.inner import InnerMessages
from firearrow.broker.locks import QueueLocks
from firearrow.broker.offsets import OffsetTable
from firearrow.broker.parts import BrokerParts, Handler
from firearrow.broker.placing import Placing
from firearrow.broker.pull import Pulls
from firearrow.broker.registration import Identity, Registration, Topics
from firearrow.broker.replication import MakeReplication, Replicated, Replication
from firearrow.broker.request_modes import RequestModes
from firearrow.broker.rounds import Rounds
from firearrow.broker.rounds_in_one_thread import RoundsInOneThread
from firearrow.broker.send import Sends
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.stand_in import StandIn
from firearrow.broker.stats import BrokerStats
from firearrow.broker.table_log import TableLog
from firearrow.broker.timer import TimerService
from firearrow.broker.topics import TopicTable
from firearrow.broker.transaction import Transactions
from firearrow.broker.wakefulness import Wakefulness
from firearrow.net.address import advertised_ip
from firearrow.net.server import Connection, Ports, SocketPair
from firearrow.net.tls import server_tls
from firearrow.store.consumequeue import ConsumeQueue
from firearrow.store.disk import Disk
from firearrow.store.errors import StoreError
from firearrow.store.settings import StoreSettings
from firearrow.store.store import MessageStore, MovedMin, RecoveryReport
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command
from firearrow.wire.ids import host_bytes

if TYPE_CHECKING:
    from firearrow.broker.event_log import EventLog
    from firearrow.broker.metrics_endpoint import MetricsEndpoint

TICK_S = 0.1
CLIENT_SCAN_MS = 10_000
STATS_MS = 1_000
DELAY_SAVE_MS = 10_000
SENT_AGAIN_MS = 10_000  # after an election
DELAY_NOTE_MS = 500  # of an elected master, whose place another may take at any time
STILL_MS = 10
_NEVER_MS = 1 << 62

log = logging.getLogger("firearrow.broker")


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Broker:
    """`settings.listen_port` 0 picks a free pair of ports. After `start`: `listen_port`, `advertised`."""

    ports: Ports
    listen_port: int
    advertised: str  # ip:port, what clients are told

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        *,
        namesrv_addrs: list[str],
        now_ms: Callable[[], int] = wall_clock_ms,
        bind: Callable[[str, int], Ports] = SocketPair,
        disk: Disk | None = None,
        own_process: bool = True,
        replication: MakeReplication | None = None,
    ) -> None:
        self.settings = settings
        self._now_ms = now_ms
        self.store_settings = store_settings
        self.namesrv_addrs = namesrv_addrs
        self._bind = bind
        self._disk = disk
        self._own_process = own_process
        if (settings.broker_role != "ASYNC_MASTER" or settings.enable_d_leger_commit_log) and replication is None:
            raise ValueError(f"brokerRole {settings.broker_role} needs replication, and this broker was made without")
        self._make_replication = replication
        self._replication: Replication | None = None
        self._stand_in: StandIn | None = None
        self._table_log: TableLog | None = None  # of a member of an elected group
        self.metrics: MetricsEndpoint | None = None  # while it runs, if metricsExporterType says so
        self._event_log: EventLog | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0  # when it was set
        self._transaction_timer: asyncio.TimerHandle | None = None
        # Log offset that must be durable first, text of delayOffset.json, the offsets in it
        self._delay_note: tuple[int, bytes, list[int]] | None = None
        self._watched_until_ms = 0
        self._next_stats_ms = self._next_offsets_ms = self._next_delay_ms = self._next_scan_ms = 0

    async def start(self) -> None:
        settings = self.settings
        self.ports = ports = self._bind(settings.bind_address, settings.listen_port)
        try:
            self.listen_port = settings.listen_port = ports.port
            ip = settings.broker_ip1 or advertised_ip(settings.bind_address)
            self.advertised = f"{ip}:{self.listen_port}"
            host = host_bytes(ip, self.listen_port)
            elected = settings.enable_d_leger_commit_log
            store = MessageStore(self.store_settings, disk=self._disk, store_host=host, now_ms=self._now_ms, elected=elected)
            if elected:
                settings.broker_role, settings.broker_id = "SLAVE", settings.peers().own_broker_id
            report = store.open()
            _log_recovery(self.store_settings.store_path_root_dir, report)
            try:
                self._assemble(store, clean=report.clean)
                await ports.serve(self._dispatch, idle_timeout_ms=self._idle_timeout_ms, tls=server_tls(settings))
                if self._replication is not None:
                    await self._replication.start()
                await self._start_metrics()
            except BaseException:
                if self._replication is not None:
                    await self._replication.stop(abruptly=True)
                store.close()
                raise
        except BaseException:
            await ports.close()
            raise
        await self._registration.start()
        self._tick()
        self._start_event_log()
        if self._own_process:
            # What exists now lives as long as the broker: the collector need not look at it again and again.
            gc.collect()
            gc.freeze()
            # A round makes thousands of short-lived objects and no cycles: looking for cycles every 700 of them is for nothing.
            gc.set_threshold(50_000, 20, 50)

    async def _start_metrics(self) -> None:
        if self.settings.metrics_exporter_type == "PROM":
            from firearrow.broker.metrics_endpoint import MetricsEndpoint  # who does not want it, does not pay for it

            self.metrics = MetricsEndpoint(self.parts, self.ports, self._now_ms)
            await self.metrics.start()

    def _start_event_log(self) -> None:
        settings = self.settings
        if settings.log_file:
            from firearrow.broker.event_log import EventLog, happened, watch

            self._event_log = EventLog(settings, self.store_settings.store_path_root_dir)
            self._event_log.start()
            watch(self.parts)
            text = f"broker {settings.broker_name} started at {self.advertised}"
            happened("broker_started", text, broker=settings.broker_name, address=self.advertised, role=settings.broker_role)

    def _stop_event_log(self) -> None:
        if self._event_log is not None:
            from firearrow.broker.event_log import happened

            happened("broker_stopped", f"broker {self.settings.broker_name} stopped", broker=self.settings.broker_name)
            self._event_log.stop()
            self._event_log = None

    async def stop(self) -> None:
        if self._replication is not None:
            await self._replication.hand_over()
        self._cancel_timers()
        if self.metrics is not None:
            await self.metrics.stop()
        if not self.settings.is_slave:
            self._transactions.stop(self._now_ms())
        if self._stand_in is not None:
            await self._stand_in.stop()
        await self._registration.stop()
        await self._answer_what_waits()
        if self._replication is not None:
            await self._replication.stop()
        await self.ports.close()
        with contextlib.suppress(StoreError):  # then what follows knows that the log is not durable
            self.parts.store.flush()
        if self.settings.is_slave:
            self._dedup_file.follow()
        else:
            self._transactions.close(self._now_ms())
            self._note_delay_offsets(self._now_ms())
        self._save_offsets_later()
        self._save_delay_offsets()
        self._dedup_file.note()
        self._dedup_file.save()
        if not self.settings.is_slave:
            self._timers.close(self._now_ms())
        self.parts.store.close()
        self._stop_event_log()

    async def abandon(self) -> None:
        """Ends as if the process were killed: nobody is told, nothing is saved. Not for one with threads."""
        assert not self._own_process, "its threads would go on"
        self._cancel_timers()
        if self.metrics is not None:
            await self.metrics.stop()
        if self._stand_in is not None:
            self._stand_in.abandon()
        self._registration.abandon()
        if self._replication is not None:
            await self._replication.stop(abruptly=True)
        await self.ports.close(abruptly=True)

    # For whoever moves the clock.

    def work(self) -> None:
        """Does what is due now; by itself the broker calls it every 100 ms."""
        now = self._now_ms()
        parts = self.parts
        for held in self._held.expired(now):
            self._pulls.again(held)
        self._rounds.expire(now)
        if self._replication is not None:
            self._replication.tick(now)
        if not self.settings.is_slave:
            self._deliver_due()
            self._work_on_transactions()
        parts.store.tick(now)
        while parts.store.problems:
            log.error("store: %s", parts.store.problems.pop(0))
        if now >= self._next_stats_ms:
            self._next_stats_ms = now + STATS_MS
            parts.stats.tick(now)
        if now >= self._next_offsets_ms:
            self._next_offsets_ms = now + self.settings.flush_consumer_offset_interval
            self._save_offsets_later()
        if now >= self._next_delay_ms and not self.settings.is_slave:
            self._next_delay_ms = now + (DELAY_NOTE_MS if self.settings.enable_d_leger_commit_log else DELAY_SAVE_MS)
            self._note_delay_offsets(now)
        self._save_delay_offsets()
        if self.settings.is_slave:
            self._dedup_file.follow()
        else:
            self._dedup_file.tick(now)
            if self._watched_until_ms and now >= self._watched_until_ms:
                self._watched_until_ms = 0
                self._sends.watch_keys_no_more()
        if now >= self._next_scan_ms:
            self._next_scan_ms = now + CLIENT_SCAN_MS
            clients.expire(parts, now)
            parts.locks.tick(now)

    @property
    def busy(self) -> bool:
        """Something is being stored, or is due already."""
        store, now = self.parts.store, self._now_ms()
        due_ms = self.next_due_ms(now)
        return store.appended_offset > store.confirm_offset or (due_ms is not None and due_ms <= now)

    def next_due_ms(self, until_ms: int) -> int | None:
        """When a message will be delivered, or a transaction asked about, until then; None: not before, or not by this broker."""
        if self.settings.is_slave:
            return None
        due = (self._delay.next_due_ms(), self._timers.first_due_ms(until_ms), self._transactions.next_due_ms())
        due_ms = min((moment for moment in due if moment is not None), default=None)
        return due_ms if due_ms is not None and due_ms <= until_ms else None

    def answer_held_pulls(self) -> None:
        """All pulls that are held are answered as if their time were up: their clients' clock goes on when ours stands."""
        for held in self._held.expired(_NEVER_MS):
            self._pulls.again(held)

    @property
    def _idle_timeout_ms(self) -> int:
        return self.settings.server_channel_max_idle_time_seconds * 1000

    @property
    def _ha_address(self) -> str:
        if self._replication is not None and self._replication.ha_address is not None:
            return self._replication.ha_address
        ip, _, _ = self.advertised.rpartition(":")
        return f"{self.settings.broker_ip2 or ip}:{self.settings.ha_listen_port or self.listen_port + 1}"

    # Putting together.

    def _assemble(self, store: MessageStore, *, clean: bool) -> None:
        settings, now, loop = self.settings, self._now_ms(), asyncio.get_running_loop()
        stats, placing = BrokerStats(settings.broker_cluster_name, now), Placing()
        inner = InnerMessages(store, stats, placing, lambda: self._dispatch.open_round())
        config = ConfigFiles(store.disk, os.path.join(self.store_settings.store_path_root_dir, "config"))
        self.parts = parts = BrokerParts(
            settings=settings,
            store_settings=self.store_settings,
            store=store,
            topics=TopicTable(settings, config.saver("topics.json")),
            groups=GroupTable(settings, config.saver("subscriptionGroup.json")),
            offsets=OffsetTable(version_step=settings.consumer_offset_update_version_step),
            clients=ClientTable(expiry_ms=settings.channel_expired_timeout),
            locks=QueueLocks(),
            stats=stats,
            request_modes=RequestModes(config.saver("messageRequestMode.json")),
            placing=placing,
            inner=inner,
            address=self.advertised,
            boot_ms=now,
            notify=client_calls.notify,
            call_client=client_calls.call_client,
            wake_queue=self._wake_queue,
        )
        self._config = config
        parts.topics.load(config.load("topics.json"))
        parts.topics.add_system_topics(now)
        parts.groups.load(config.load("subscriptionGroup.json"))
        parts.groups.add_built_in_groups(now)
        parts.offsets.load(config.load("consumerOffset.json"))
        parts.request_modes.load(config.load("messageRequestMode.json"))
        self._delay = DelayService(parse_levels(settings.message_delay_level), store, inner)
        self._delay.load(config.load("delayOffset.json"))
        if settings.enable_d_leger_commit_log:
            self._delay.confirmed(self._delay.offsets())
        placing.places.append(self._delay.place)
        self._timers = TimerService(settings, store, inner, clean=clean, now_ms=now)
        placing.places.append(self._timers.place)
        placing.checks += [self._delay.check, self._timers.check]
        parts.delay, parts.timers = self._delay, self._timers
        self._transactions = transactions = Transactions(parts, now)
        parts.open_transactions = lambda: transactions.open_count
        placing.places.insert(0, self._transactions.place)  # what is half of a transaction is delayed when it is committed
        self._held = HeldPulls()
        self._pulls = Pulls(parts, self._held)
        self._sends = sends = Sends(parts)
        self._dedup_file = DedupFile(sends.dedup, store, config)
        self._dedup_file.load(now)
        rounds = Rounds if self._own_process else RoundsInOneThread
        self._rounds = rounds(
            store,
            sends,
            self._arrived,
            parts.stats,
            self._now_ms,
            sync_flush=self.store_settings.sync_flush,
            flush_timeout_ms=self.store_settings.sync_flush_timeout,
        )
        if self._own_process and settings.stay_awake_micros and (os.cpu_count() or 1) > 1:
            self._rounds.answered_one = Wakefulness(loop, settings.stay_awake_micros).stay
        self.handlers = _all_handlers(parts) | self._transactions.handlers()
        self._dispatch = Dispatch(parts, self.handlers, sends, self._pulls, self._rounds, Flow(settings), self._now_ms)
        parts.answer_when_stored = self._dispatch.answer_when_stored
        self._set_up_replication()
        self._registration = Registration(
            self.namesrv_addrs,
            Identity(settings.broker_cluster_name, settings.broker_name, settings.broker_id, self.advertised, self._ha_address),
            lambda: (parts.topics.data_version, parts.topics.all()),
            period_ms=settings.register_name_server_period,
            timeout_ms=settings.register_broker_timeout_mills,
            permission=lambda: settings.broker_permission,
            on_order_config=self._mark_ordered,
            on_master=self._registered,
            use_tls=settings.use_tls,
        )
        if settings.enable_d_leger_commit_log and settings.stand_in_enable:
            self._stand_in = StandIn(
                self._registration.identity, settings.peers().me, self._registration.topics, self._register_stand_in
            )
            parts.topics.listeners.append(self._stand_in.topic_changed)
        parts.register_all = self._registration.register_all
        parts.topics.listeners.append(self._registration.topic_changed)
        parts.topics.listeners.append(lambda topic, changed: sends.forget(topic, deleted=changed is None))
        store.on_min_moved = self._min_moved
        if self._own_process:
            flushed = self._rounds.flushed
            if settings.is_slave and self._replication is not None:
                flushed = self._replication.durable
            store.start(
                lambda offset: _from_thread(loop, flushed, offset),
                lambda error: _from_thread(loop, self._rounds.flush_failed, str(error)),
            )

    def _set_up_replication(self) -> None:
        make, parts = self._make_replication, self.parts
        if make is None:
            return
        replication = make(
            Replicated(
                parts,
                self._rounds,
                self._config,
                self._now_ms,
                self._own_process,
                lead=self._lead,
                follow=self._follow,
                serve=lambda conn, request: self._dispatch.received(conn, [request]),
                pause=self._pause,
                stand_in=lambda wanted: self._stand_in.set(wanted) if self._stand_in is not None else None,
            )
        )
        self._replication = replication

        def status(conn: Connection, request: Command, now_ms: int) -> bytes:
            return json_answer(request, replication.status())

        self.handlers[RequestCode.GET_BROKER_HA_STATUS] = status
        self._master_alive = lambda: replication.master_alive
        if self.settings.enable_d_leger_commit_log:
            self._table_log = TableLog(parts, lambda: not self.settings.is_slave, self._now_ms)
            self.handlers.update(self._table_log.answering_when_stored(self.handlers))
        self._master_handlers = dict(self.handlers)
        if self.settings.is_slave:
            self._be_slave(slave_requests.NO_SENDS)

    def _be_slave(self, why_no_sends: str) -> None:
        pass_on = self._replication.pass_on if self._replication is not None else None
        self.handlers.update(slave_requests.handlers() if pass_on is None else slave_requests.passed_on(pass_on))
        self._dispatch.stop_sends(why_no_sends, pass_on)
        self._pulls.master_alive = self._master_alive

    # Of a member of an elected group.

    def _register_stand_in(self, identity: Identity, topics: Topics) -> Registration:
        settings = self.settings
        return Registration(
            self.namesrv_addrs,
            identity,
            topics,
            period_ms=settings.register_name_server_period,
            timeout_ms=settings.register_broker_timeout_mills,
            use_tls=settings.use_tls,
        )

    def _lead(self, term: int) -> None:
        """This broker is the master of its group from now on."""
        settings = self.settings
        self.handlers.update(self._master_handlers)
        self._pulls.master_alive = None
        self._sends.forget_all()
        assert self._table_log is not None
        self._table_log.apply()
        self._take_up_services(self._now_ms())
        self.parts.topics.begin_term(term, self._now_ms())
        self.parts.groups.begin_term(term, self._now_ms())
        settings.broker_role, settings.broker_id = "SYNC_MASTER", 0
        self._dispatch.take_sends()
        self._registration.become(0)

    def _pause(self, paused: bool) -> None:
        """Another member is about to take over, or did not in the end."""
        if paused and self._replication is not None:
            self._dispatch.stop_sends("another member of the group takes over", self._replication.pass_on)
        else:
            self._dispatch.take_sends()

    def _follow(self, why: str) -> None:
        """It is no longer."""
        settings = self.settings
        settings.broker_role, settings.broker_id = "SLAVE", settings.peers().own_broker_id
        self._rounds.give_up(why)
        self._be_slave(why)
        self._registration.become(settings.broker_id)
        self._lay_down_services()

    def _take_up_services(self, now: int) -> None:
        """What waits is delivered by this broker from now on: it begins where the master before it was, as after a restart."""
        self._dedup_file.follow()
        # Who had no answer from the master before sends again, and what it sends may have been stored.
        if self._sends.watch_keys(SENT_AGAIN_MS):
            self._dedup_file.learn_newest()
        self._watched_until_ms = now + SENT_AGAIN_MS
        self._timers.take_up(now)
        before, places = self._transactions, self.parts.placing.places
        self._transactions = transactions = Transactions(self.parts, now)
        places[places.index(before.place)] = transactions.place
        self.parts.open_transactions = lambda: transactions.open_count
        self._master_handlers |= transactions.handlers()
        self.handlers.update(transactions.handlers())

    def _lay_down_services(self) -> None:
        for timer in (self._due_timer, self._transaction_timer):
            if timer is not None:
                timer.cancel()
        self._due_timer = self._transaction_timer = self._delay_note = None
        self._delay.take_back()
        self._sends.watch_keys_no_more()
        self._watched_until_ms = 0
        self._sends.remember_anew()
        self._dedup_file = DedupFile(self._sends.dedup, self.parts.store, self._config)
        self._dedup_file.load(self._now_ms())

    # Events.

    def _mark_ordered(self, table: dict[str, str]) -> None:
        if not self.settings.is_slave:  # which has it from its master
            self.parts.topics.mark_ordered(table, self._now_ms())

    def _registered(self, ha_address: str | None, master_address: str | None) -> None:
        if self._replication is not None:
            self._replication.registered(ha_address, master_address)

    def _arrived(self, queue: ConsumeQueue, first: int, end: int) -> None:
        for held in self._held.arrived(queue, first, end):
            self._pulls.again(held)

    def _wake_queue(self, topic: str, queue_id: int) -> None:
        queue = self.parts.store.find_queue(topic, queue_id)
        if queue is not None:
            for held in self._held.release_queue(queue):
                self._pulls.again(held)

    def _min_moved(self, moved: list[MovedMin]) -> None:
        """Retention took messages away. Whoever had not consumed them is named: it is no exception, but no secret either."""
        for topic, queue_id, old_min, new_min in moved:
            for group in self.parts.offsets.groups_of(topic):
                offset = self.parts.offsets.query(group, topic, queue_id)
                if offset is not None and offset < new_min:
                    lost = new_min - max(offset, old_min)
                    log.warning("group %s loses %d messages of %s queue %d, not consumed yet", group, lost, topic, queue_id)

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self.work()

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._due_timer, self._transaction_timer):
            if timer is not None:
                timer.cancel()

    def _deliver_due(self, *, timed: bool = False) -> None:
        """Delayed and timer messages go out. What is due before the next tick gets a timer (`timed`: that went off)."""
        loop, now = asyncio.get_running_loop(), self._now_ms()
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None
        if self._delay.tick(now) | self._timers.tick(now):
            self._due_timer = loop.call_later(0, self._deliver_due)
            return
        waiting = [due_ms for due_ms in (self._delay.next_due_ms(), self._timers.next_due_ms()) if due_ms is not None]
        due_ms = min(waiting, default=None)
        if due_ms is not None and due_ms - now < TICK_S * 1000:
            # The same moment as before, although time has passed: the clock stands still, and nobody is in a hurry.
            least_ms = STILL_MS if timed and now == self._armed_ms else 1
            self._armed_ms = now
            self._due_timer = loop.call_later(max(due_ms - now, least_ms) / 1000, lambda: self._deliver_due(timed=True))

    def _work_on_transactions(self) -> None:
        if self._transactions.tick(self._now_ms()) and self._transaction_timer is None:
            self._transaction_timer = asyncio.get_running_loop().call_later(0, self._more_transactions)

    def _more_transactions(self) -> None:
        self._transaction_timer = None
        self._work_on_transactions()

    def _note_delay_offsets(self, now: int) -> None:
        if self._delay.changed() and (self._delay_note is None or not self.settings.enable_d_leger_commit_log):
            offsets, text = self._delay.offsets(), fastjson.dumps_pretty(self._delay.to_json(now))
            self._delay_note = (self.parts.store.appended_offset, text, offsets)

    def _save_delay_offsets(self) -> None:
        """The file may only say what is durable: otherwise a power cut could lose what it calls delivered."""
        if self._delay_note is not None and self.parts.store.flushed_offset >= self._delay_note[0]:
            (_, text, offsets), self._delay_note = self._delay_note, None
            if self.settings.enable_d_leger_commit_log:
                self._delay.confirmed(offsets)
            self.parts.store.submit(lambda: self._config.save_text("delayOffset.json", text))

    def _save_offsets_later(self) -> None:
        """The table is copied here and written by the housekeeper: the loop does not wait for a disk."""
        offsets = self.parts.offsets
        if offsets.dirty:
            offsets.dirty = False
            text = fastjson.dumps_pretty(offsets.to_json())
            self.parts.store.submit(lambda: self._config.save_text("consumerOffset.json", text))

    async def _answer_what_waits(self) -> None:
        """Nothing new is taken; what was appended is written, flushed and answered, unless the disk hangs."""
        if not self.settings.is_slave:
            self._dispatch.stop_sends()
        for _ in range(100):
            if not self._rounds.waiting:
                return
            await asyncio.sleep(0.01)


def _log_recovery(directory: str, report: RecoveryReport) -> None:
    """One line when all is well; what is odd gets lines of its own."""
    how = (
        "after a clean stop"
        if report.clean
        else f"after a crash, {report.records} messages of {report.scanned_bytes} bytes looked at"
    )
    log.info("store %s opened %s: the log ends at %d", directory, how, report.log_end)
    if report.cut_bytes:
        log.warning("%d bytes behind the end of the log were no messages; they are kept in %s", report.cut_bytes, report.cut_path)
    for start, end in report.damaged:
        log.warning("messages at log offsets %d to %d are damaged and cannot be read", start, end)
    for problem in report.problems:
        log.warning("store: %s", problem)


def _all_handlers(parts: BrokerParts) -> dict[int, Handler]:
    table: dict[int, Handler] = {}
    for module in (admin, assignment, clients, locks, offsets, query, recall, reply, retry):
        for code, handler in module.handlers(parts).items():
            assert code not in table, f"two handlers for request code {code}"
            table[code] = handler
    return table


def _from_thread(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    """Calls a function in the event loop's thread. When the loop is gone already, nobody is left to be told."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)
