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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from firearrow.broker import admin, query, request_reply
from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.deferred import retry
from firearrow.broker.deferred.delay_levels import DelayService
from firearrow.broker.deferred.router import DeferralRouter
from firearrow.broker.observability.stats import BrokerStats
from firearrow.broker.pull.handler import PullHandler
from firearrow.broker.pull.long_polling import LongPolling
from firearrow.broker.registration import Identity, Registration, Topics
from firearrow.broker.requests import client_calls
from firearrow.broker.requests.dispatcher import RequestDispatcher
from firearrow.broker.requests.flow_control import FlowControl
from firearrow.broker.roles.master_services import TICK_S, MasterServices
from firearrow.broker.roles.replication import MakeReplication, Replication
from firearrow.broker.roles.role import RoleController, RoleServices
from firearrow.broker.send.ack_policy import LocalFlush
from firearrow.broker.send.busy_poll import BusyPoller
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.broker.send.handler import SendHandler
from firearrow.broker.send.internal import InternalWriter
from firearrow.broker.send.replies import PendingReplies
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables import clients, consumer_offsets, queue_assignment, queue_locks
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.consumer_offsets import OffsetTable
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.broker.tables.queue_locks import QueueLocks
from firearrow.broker.tables.request_modes import RequestModes
from firearrow.broker.tables.topics import TopicTable
from firearrow.broker.timer import recall
from firearrow.broker.timer.service import TimerService
from firearrow.clock import wall_ms
from firearrow.config.delay_levels import parse_delay_levels
from firearrow.net.address import advertised_ip
from firearrow.net.server import Ports, SocketPair
from firearrow.net.tls import server_tls
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk
from firearrow.store.message_store import MessageStore, MovedMin, RecoveryReport
from firearrow.store.settings import StoreSettings
from firearrow.wire import fastjson
from firearrow.wire.message_ids import host_bytes

if TYPE_CHECKING:
    from firearrow.broker.observability.endpoint import MetricsEndpoint
    from firearrow.broker.observability.event_log import EventLog

CLIENT_SCAN_MS = 10_000
STATS_MS = 1_000

log = logging.getLogger("firearrow.broker")


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
        now_ms: Callable[[], int] = wall_ms,
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
        self._roles: RoleController | None = None
        self.metrics: MetricsEndpoint | None = None  # while it runs, if metricsExporterType says so
        self._event_log: EventLog | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_stats_ms = self._next_offsets_ms = self._next_scan_ms = 0

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
            from firearrow.broker.observability.endpoint import MetricsEndpoint  # who does not want it, does not pay for it

            self.metrics = MetricsEndpoint(self.parts, self.ports, self._now_ms)
            await self.metrics.start()

    def _start_event_log(self) -> None:
        settings = self.settings
        if settings.log_file:
            from firearrow.broker.observability.event_log import EventLog, happened, watch

            self._event_log = EventLog(settings, self.store_settings.store_path_root_dir)
            self._event_log.start()
            watch(self.parts)
            text = f"broker {settings.broker_name} started at {self.advertised}"
            happened("broker_started", text, broker=settings.broker_name, address=self.advertised, role=settings.broker_role)

    def _stop_event_log(self) -> None:
        if self._event_log is not None:
            from firearrow.broker.observability.event_log import happened

            happened("broker_stopped", f"broker {self.settings.broker_name} stopped", broker=self.settings.broker_name)
            self._event_log.stop()
            self._event_log = None

    async def stop(self) -> None:
        if self._replication is not None:
            await self._replication.hand_over()
        self._cancel_timers()
        if self.metrics is not None:
            await self.metrics.stop()
        self._services.stop()
        if self._roles is not None:
            await self._roles.stop()
        await self._registration.stop()
        await self._answer_what_waits()
        if self._replication is not None:
            await self._replication.stop()
        await self.ports.close()
        with contextlib.suppress(StoreError):  # then what follows knows that the log is not durable
            self.parts.store.flush()
        self._services.close(self._now_ms())
        self._save_offsets_later()
        self.parts.store.close()
        self._stop_event_log()

    async def abandon(self) -> None:
        """Ends as if the process were killed: nobody is told, nothing is saved. Not for one with threads."""
        assert not self._own_process, "its threads would go on"
        self._cancel_timers()
        if self.metrics is not None:
            await self.metrics.stop()
        if self._roles is not None:
            self._roles.abandon()
        self._registration.abandon()
        if self._replication is not None:
            await self._replication.stop(abruptly=True)
        await self.ports.close(abruptly=True)

    # For whoever moves the clock.

    def work(self) -> None:
        """Does what is due now; by itself the broker calls it every 100 ms."""
        now = self._now_ms()
        parts = self.parts
        self.long_polling.expire(now)
        self.commit.expire(now)
        if self._replication is not None:
            self._replication.tick(now)
        if not self.settings.is_slave:
            self._services.work()
        parts.store.tick(now)
        while parts.store.problems:
            log.error("store: %s", parts.store.problems.pop(0))
        if now >= self._next_stats_ms:
            self._next_stats_ms = now + STATS_MS
            parts.stats.tick(now)
        if now >= self._next_offsets_ms:
            self._next_offsets_ms = now + self.settings.flush_consumer_offset_interval
            self._save_offsets_later()
        self._services.save(now)
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
        due_ms = self._services.next_due_ms(until_ms)
        return due_ms if due_ms is not None and due_ms <= until_ms else None

    def answer_held_pulls(self) -> None:
        """All pulls that are held are answered as if their time were up: their clients' clock goes on when ours stands."""
        self.long_polling.expire_all()

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
        stats = BrokerStats(settings.broker_cluster_name, now)
        self.flow = flow = FlowControl(settings)
        self.long_polling = LongPolling()
        replies = PendingReplies()
        busy_poller = None
        if self._own_process and settings.stay_awake_micros and (os.cpu_count() or 1) > 1:
            busy_poller = BusyPoller(loop.call_soon, settings.stay_awake_micros)
        self.commit = commit = GroupCommit(
            store,
            LocalFlush(sync_flush=store.settings.sync_flush),
            replies,
            self.long_polling,
            stats,
            flow,
            self._now_ms,
            loop.call_soon,
            busy_poller,
        )
        inner = InternalWriter(store, stats, commit.schedule_commit)
        config = ConfigFiles(store.disk, os.path.join(self.store_settings.store_path_root_dir, "config"))
        delay = DelayService(parse_delay_levels(settings.message_delay_level), store, inner)
        delay.load(config.load("delayOffset.json"))
        timers = TimerService(settings, store, inner, clean=clean, now_ms=now)
        self.parts = parts = BrokerContext(
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
            deferral=DeferralRouter(inner, delay, timers),
            inner=inner,
            delay=delay,
            timers=timers,
            address=self.advertised,
            boot_ms=now,
            notify=client_calls.notify,
            call_client=client_calls.call_client,
            answer_when_stored=commit.answer_when_stored,
            wake_queue=self._wake_queue,
        )
        self._config = config
        parts.topics.load(config.load("topics.json"))
        parts.topics.add_system_topics(now)
        parts.groups.load(config.load("subscriptionGroup.json"))
        parts.groups.add_built_in_groups(now)
        parts.offsets.load(config.load("consumerOffset.json"))
        parts.request_modes.load(config.load("messageRequestMode.json"))
        self._services = services = MasterServices(parts, config, self._now_ms)
        self._pulls = PullHandler(parts, self.long_polling)
        sends = SendHandler(parts, services.transactions, replies)
        services.remember(sends)
        self.handlers = _all_handlers(parts) | services.handlers()
        self._dispatch = RequestDispatcher(parts, self.handlers, sends, self._pulls, commit, flow, self._now_ms)
        if self._make_replication is not None:
            dependent = RoleServices(parts, self.handlers, self._dispatch, self._pulls, sends, commit, services)
            self._roles = RoleController(dependent, config, self._now_ms, self._make_replication)
            self._replication = self._roles.replication
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
        if self._roles is not None:
            self._roles.register_with(self._registration, self._register_stand_in)
        parts.register_all = self._registration.register_all
        parts.topics.listeners.append(self._registration.topic_changed)
        parts.topics.listeners.append(lambda topic, changed: sends.forget(topic, deleted=changed is None))
        store.on_min_moved = self._min_moved
        store.start(
            lambda offset: _from_thread(loop, commit.flushed, offset),
            lambda error: _from_thread(loop, commit.flush_failed, str(error)),
            threads=self._own_process,
        )

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

    # Events.

    def _mark_ordered(self, table: dict[str, str]) -> None:
        if not self.settings.is_slave:  # which has it from its master
            self.parts.topics.mark_ordered(table, self._now_ms())

    def _registered(self, ha_address: str | None, master_address: str | None) -> None:
        if self._replication is not None:
            self._replication.registered(ha_address, master_address)

    def _wake_queue(self, topic: str, queue_id: int) -> None:
        queue = self.parts.store.find_queue(topic, queue_id)
        if queue is not None:
            self.long_polling.release_queue(queue)

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
        if self._timer is not None:
            self._timer.cancel()
        self._services.cancel()

    def _save_offsets_later(self) -> None:
        """The table is copied here and written by the housekeeper: the loop does not wait for a disk."""
        consumer_offsets = self.parts.offsets
        if consumer_offsets.dirty:
            consumer_offsets.dirty = False
            text = fastjson.dumps_pretty(consumer_offsets.to_json())
            self.parts.store.submit(lambda: self._config.save_text("consumerOffset.json", text))

    async def _answer_what_waits(self) -> None:
        """Nothing new is taken; what was appended is written, flushed and answered, unless the disk hangs."""
        if not self.settings.is_slave:
            self._dispatch.stop_sends()
        for _ in range(100):
            if not self.commit.pending:
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


def _all_handlers(parts: BrokerContext) -> dict[int, Handler]:
    table: dict[int, Handler] = {}
    for module in (admin, queue_assignment, clients, queue_locks, consumer_offsets, query, recall, request_reply, retry):
        for code, handler in module.handlers(parts).items():
            assert code not in table, f"two handlers for request code {code}"
            table[code] = handler
    return table


def _from_thread(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    """Calls a function in the event loop's thread. When the loop is gone already, nobody is left to be told."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)
