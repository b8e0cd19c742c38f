"""The broker: assembly and lifecycle.

    start   lock and recover the store -> read config/*.json -> open both ports -> register at the name servers
    tick    every 100 ms: expired pulls, flushes that take too long, deliveries, the store's housekeeping, tables to save,
            silent clients
    stop    unregister -> close the ports -> write, flush and acknowledge everything appended -> save the tables, close the store

One event loop does all of it. The listening port and the fast port (two below it) serve the same requests.

A broker can also run inside another process (firearrow.testing): without sockets (`bind`), on another disk, with a clock that is
moved by hand, and without threads or settings of the process (`own_process`). The owner of the clock uses `work`, `busy`,
`next_due_ms` and `expire_pulls`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from firearrow.auth.acl_v1 import read_accounts
from firearrow.auth.bootstrap import inner_signer, open_table
from firearrow.auth.guarded_service import guarded
from firearrow.auth.table import AuthTable
from firearrow.broker import admin, query, request_reply
from firearrow.broker.auth import handlers as auth_handlers
from firearrow.broker.auth.rules import broker_rules
from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.deferred import retry
from firearrow.broker.deferred.delay_levels import DelayService
from firearrow.broker.deferred.router import DeferralRouter
from firearrow.broker.observability.stats import BrokerStats
from firearrow.broker.pull.handler import PullHandler
from firearrow.broker.pull.long_polling import LongPolling
from firearrow.broker.registration import Identity, Registration
from firearrow.broker.requests import client_calls
from firearrow.broker.requests.dispatcher import RequestDispatcher
from firearrow.broker.requests.flow_control import FlowControl
from firearrow.broker.requests.registered_replies import answering_when_registered
from firearrow.broker.roles.master_services import TICK_S, MasterServices
from firearrow.broker.roles.replication import MakeReplication, Replication
from firearrow.broker.roles.role import RoleController, RoleServices, RoleState
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
from firearrow.broker.tables.queue_assignment import RequestModes
from firearrow.broker.tables.queue_locks import QueueLocks
from firearrow.broker.tables.topics import TopicTable, stored_topics
from firearrow.broker.timer import recall
from firearrow.broker.timer.service import TimerService
from firearrow.broker.transaction.service import Transactions
from firearrow.clock import wall_ms
from firearrow.config.delay_levels import parse_delay_levels
from firearrow.net.address import advertised_ip
from firearrow.net.connection import Service
from firearrow.net.limits import limits_of
from firearrow.net.server import Ports, SocketPair
from firearrow.net.tls import outgoing_context, server_tls
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
_CONNECTION_SHARE = 0.5  # of the file descriptors; the other half is for the store, replication and a name server

log = logging.getLogger("firearrow.broker")


class Broker:
    """A broker. With `settings.listen_port` 0 it picks free ports; `start` sets `listen_port` and `advertised`."""

    ports: Ports
    listen_port: int
    advertised: str  # ip:port, for clients

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
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self._now_ms = now_ms
        self.store_settings = store_settings
        self.namesrv_addrs = namesrv_addrs
        self._bind = bind
        self._disk = disk
        self._own_process = own_process
        self._rng = rng or random.Random()
        if (settings.broker_role != "ASYNC_MASTER" or settings.enable_d_leger_commit_log) and replication is None:
            raise ValueError(f"brokerRole {settings.broker_role} needs replication, and this broker was created without it")
        self._make_replication = replication
        self.replication: Replication | None = None
        self._roles: RoleController | None = None
        self.metrics: MetricsEndpoint | None = None  # while it runs, if metricsExporterType says so
        self._event_log: EventLog | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_stats_ms = self._next_offsets_ms = self._next_scan_ms = 0

    async def start(self) -> None:
        settings = self.settings
        self.ports = ports = self._bind(settings.bind_address, settings.listen_port)
        try:
            self.listen_port = ports.port
            ip = settings.broker_ip1 or advertised_ip(settings.bind_address)
            self.advertised = f"{ip}:{self.listen_port}"
            host = host_bytes(ip, self.listen_port)
            store = MessageStore(
                self.store_settings,
                disk=self._disk,
                store_host=host,
                now_ms=self._now_ms,
                elected=settings.enable_d_leger_commit_log,
                on_min_moved=self._log_lost_messages,
            )
            report = store.open()
            _log_recovery(self.store_settings.store_path_root_dir, report)
            try:
                self._assemble(store, clean=report.clean)
                limits = limits_of(settings, _CONNECTION_SHARE)
                await ports.serve(self._service, idle_timeout_ms=self._idle_timeout_ms, tls=server_tls(settings), limits=limits)
                if self.replication is not None:
                    await self.replication.start()
                await self._start_metrics()
            except BaseException:
                if self.replication is not None:
                    await self.replication.stop(abruptly=True)
                store.close()
                raise
        except BaseException:
            await ports.close()
            raise
        await self._registration.start()
        self._tick()
        self._start_event_log()
        if self._own_process:
            # The objects that exist now live as long as the broker: exclude them from garbage collection.
            gc.collect()
            gc.freeze()
            # An iteration makes thousands of short-lived objects and no cycles: a collection every 700 objects finds nothing.
            gc.set_threshold(50_000, 20, 50)

    async def _start_metrics(self) -> None:
        if self.settings.metrics_exporter_type == "PROM":
            from firearrow.broker.observability.endpoint import MetricsEndpoint  # imported only if used

            self.metrics = MetricsEndpoint(self.context, lambda: self.transactions.open_count, self.ports, self._now_ms)
            await self.metrics.start()

    def _start_event_log(self) -> None:
        settings = self.settings
        if settings.log_file:
            from firearrow.broker.observability.event_log import EventLog, log_event, subscribe_events

            self._event_log = EventLog(settings, self.store_settings.store_path_root_dir)
            self._event_log.start()
            subscribe_events(self.context)
            text = f"broker {settings.broker_name} started at {self.advertised}"
            log_event("broker_started", text, broker=settings.broker_name, address=self.advertised, role=self.role.role)

    def _stop_event_log(self) -> None:
        if self._event_log is not None:
            from firearrow.broker.observability.event_log import log_event

            log_event("broker_stopped", f"broker {self.settings.broker_name} stopped", broker=self.settings.broker_name)
            self._event_log.stop()
            self._event_log = None

    async def stop(self) -> None:
        if self.replication is not None:
            await self.replication.hand_over()
        self._cancel_timers()
        if self.metrics is not None:
            await self.metrics.stop()
        self._services.stop()
        if self._roles is not None:
            await self._roles.stop()
        await self._registration.stop()
        await self._finish_pending()
        if self.replication is not None:
            await self.replication.stop()
        await self.ports.close()
        with contextlib.suppress(StoreError):  # the services check what is durable
            self.context.store.flush()
        self._services.close(self._now_ms())
        self._save_offsets()
        self.context.store.close()
        self._stop_event_log()

    async def abandon(self) -> None:
        """End as if the process were killed: no peer is notified, nothing is saved. Not for a broker with threads."""
        assert not self._own_process, "its threads would keep running"
        self._cancel_timers()
        if self.metrics is not None:
            await self.metrics.stop()
        if self._roles is not None:
            self._roles.abandon()
        self._registration.abandon()
        if self.replication is not None:
            await self.replication.stop(abruptly=True)
        await self.ports.close(abruptly=True)

    # For the owner of the clock.

    def work(self) -> None:
        """Do what is due now. The broker calls this every 100 ms."""
        now = self._now_ms()
        context = self.context
        self.long_polling.expire(now)
        self.commit.expire(now)
        if self.replication is not None:
            self.replication.tick(now)
        if not self.role.is_slave:
            self._services.work()
        context.store.tick(now)
        while context.store.problems:
            log.error("store: %s", context.store.problems.pop(0))
        if now >= self._next_stats_ms:
            self._next_stats_ms = now + STATS_MS
            context.stats.tick(now)
        if now >= self._next_offsets_ms:
            self._next_offsets_ms = now + self.settings.flush_consumer_offset_interval
            self._save_offsets()
        self._services.save(now)
        if now >= self._next_scan_ms:
            self._next_scan_ms = now + CLIENT_SCAN_MS
            clients.expire(context, now)
            context.locks.tick(now)

    @property
    def busy(self) -> bool:
        """True while messages are being stored, or are due for delivery."""
        store, now = self.context.store, self._now_ms()
        due_ms = self.next_due_ms(now)
        return store.appended_offset > store.confirm_offset or (due_ms is not None and due_ms <= now)

    def next_due_ms(self, until_ms: int) -> int | None:
        """Return when the next message is delivered or the next transaction checked; None if not by `until_ms`, or on a slave."""
        if self.role.is_slave:
            return None
        due_ms = self._services.next_due_ms(until_ms)
        return due_ms if due_ms is not None and due_ms <= until_ms else None

    def expire_pulls(self) -> None:
        """Answer all parked pulls as if their time were up: the clients' clock runs even if the broker's stands still."""
        self.long_polling.expire_all()

    @property
    def _idle_timeout_ms(self) -> int:
        return self.settings.server_channel_max_idle_time_seconds * 1000

    # Assembly.

    def _assemble(self, store: MessageStore, *, clean: bool) -> None:
        settings, now, loop = self.settings, self._now_ms(), asyncio.get_running_loop()
        self.role = RoleState(settings)
        self._config = config = ConfigFiles(store.disk, os.path.join(self.store_settings.store_path_root_dir, "config"))
        groups = GroupTable(settings, config.saver("subscriptionGroup.json"), submit=store.submit)
        topics = TopicTable(
            settings,
            config.saver("topics.json"),
            group_exists=lambda group: groups.find_or_create(group) is not None,
            stored=lambda: stored_topics(store),
            submit=store.submit,
        )
        make_registration = self._registration_factory()
        self._registration = make_registration(
            self._identity(),
            lambda: (topics.data_version, topics.all()),
            permission=lambda: settings.broker_permission,
            on_order_config=self._mark_ordered,
            on_master=self._registered,
        )
        stats, replies = BrokerStats(settings.broker_cluster_name, now), PendingReplies()
        self.flow, self.commit = self._make_commit(store, replies, stats)
        writer = InternalWriter(store, stats, self.commit.schedule_commit)
        delay = DelayService(parse_delay_levels(settings.message_delay_level), store, writer)
        delay.load(config.load("delayOffset.json"))
        timers = TimerService(settings, store, writer, clean=clean, now_ms=now, active=not self.role.is_slave)
        self.context = context = BrokerContext(
            settings=settings,
            store_settings=self.store_settings,
            role=self.role,
            store=store,
            topics=topics,
            groups=groups,
            offsets=OffsetTable(version_step=settings.consumer_offset_update_version_step),
            clients=ClientTable(expiry_ms=settings.channel_expired_timeout),
            locks=QueueLocks(max_locks=lambda: settings.max_queue_locks),
            stats=stats,
            request_modes=RequestModes(config.saver("messageRequestMode.json")),
            deferral=DeferralRouter(writer, delay, timers),
            writer=writer,
            delay=delay,
            timers=timers,
            address=self.advertised,
            boot_ms=now,
            rng=self._rng,
            notify=client_calls.notify,
            call_client=client_calls.call_client,
            answer_when_stored=self.commit.answer_when_stored,
            register_all=self._registration.register_all,
            when_registered=self._registration.when_registered,
            wake_queue=self._wake_queue,
            auth=self._open_auth_table(store.disk),
        )
        self._load_tables(now)
        self.transactions = Transactions(context, now)
        sends, pulls = SendHandler(context, self.transactions, replies), PullHandler(context, self.long_polling)
        self._services = MasterServices(context, self.transactions, sends, config, self._now_ms)
        handlers = _all_handlers(context) | self.transactions.handlers()
        handlers |= answering_when_registered(context, handlers)
        self._dispatcher = RequestDispatcher(context, handlers, sends, pulls, self.commit, self.flow, self._now_ms)
        self._service = self._guarded(self._dispatcher)
        self._add_roles(handlers, pulls, sends, make_registration)
        topics.subscribe(self._registration.topic_changed)
        topics.subscribe(sends.topic_changed)
        self._start_store(store, loop)

    def _start_store(self, store: MessageStore, loop: asyncio.AbstractEventLoop) -> None:
        store.start(
            lambda offset: _from_thread(loop, self.commit.flushed, offset),
            lambda error: _from_thread(loop, self.commit.flush_failed, str(error)),
            threads=self._own_process,
        )

    def _make_commit(self, store: MessageStore, replies: PendingReplies, stats: BrokerStats) -> tuple[FlowControl, GroupCommit]:
        settings, call_soon = self.settings, asyncio.get_running_loop().call_soon
        self.long_polling = LongPolling(call_soon)
        busy_poller = None
        if self._own_process and settings.stay_awake_micros and (os.cpu_count() or 1) > 1:
            busy_poller = BusyPoller(call_soon, settings.stay_awake_micros)
        flow, policy = FlowControl(settings), LocalFlush(sync_flush=store.settings.sync_flush)
        return flow, GroupCommit(store, policy, replies, self.long_polling, stats, flow, self._now_ms, call_soon, busy_poller)

    def _add_roles(
        self,
        handlers: dict[int, Handler],
        pulls: PullHandler,
        sends: SendHandler,
        make_registration: Callable[..., Registration],
    ) -> None:
        """Add replication, and with it the change of roles."""
        if self._make_replication is not None:
            services = RoleServices(
                self.context,
                handlers,
                self._dispatcher,
                pulls,
                sends,
                self.commit,
                self._services,
                self._registration,
                self._service,
            )
            self._roles = RoleController(services, self._config, self._now_ms, self._make_replication, make_registration)
            self.replication = self._roles.replication

    def _registration_factory(self) -> Callable[..., Registration]:
        settings = self.settings
        return partial(
            Registration,
            self.namesrv_addrs,
            period_ms=settings.register_name_server_period,
            timeout_ms=settings.register_broker_timeout_mills,
            tls=partial(outgoing_context, settings),
            signer=inner_signer(settings),
        )

    def _open_auth_table(self, disk: Disk) -> AuthTable | None:
        settings = self.settings
        directory = settings.auth_config_path or os.path.join(self.store_settings.store_path_root_dir, "config")
        return open_table(settings, disk, directory, self._now_ms, lambda: read_accounts(settings))

    def _guarded(self, dispatcher: RequestDispatcher) -> Service:
        """Return the dispatcher behind access control, or the dispatcher itself if access control is off."""
        context = self.context
        if context.auth is None:
            return dispatcher
        rules = broker_rules(context)
        return guarded(
            dispatcher,
            self.settings,
            context.auth,
            rules,
            self._now_ms,
            forwarded=lambda: dispatcher.forwarded_codes,
            on_refused=lambda code, response_code: context.stats.served(code if code in rules else -1, response_code, 0),
        )

    def _identity(self) -> Identity:
        settings = self.settings
        ip, _, _ = self.advertised.rpartition(":")
        ha_address = f"{settings.broker_ip2 or ip}:{settings.ha_listen_port or self.listen_port + 1}"
        return Identity(settings.broker_cluster_name, settings.broker_name, self.role.broker_id, self.advertised, ha_address)

    def _load_tables(self, now: int) -> None:
        context, config = self.context, self._config
        context.topics.load(config.load("topics.json"))
        context.topics.add_system_topics(now)
        context.groups.load(config.load("subscriptionGroup.json"))
        context.groups.add_built_in_groups(now)
        context.offsets.load(config.load("consumerOffset.json"))
        context.request_modes.load(config.load("messageRequestMode.json"))

    # Events.

    def _mark_ordered(self, table: dict[str, str]) -> None:
        if not self.role.is_slave:  # a slave copies it from its master
            self.context.topics.mark_ordered(table, self._now_ms())

    def _registered(self, ha_address: str | None, master_address: str | None) -> None:
        if self.replication is not None:
            self.replication.registered(ha_address, master_address)

    def _wake_queue(self, topic: str, queue_id: int) -> None:
        queue = self.context.store.find_queue(topic, queue_id)
        if queue is not None:
            self.long_polling.release_queue(queue)

    def _log_lost_messages(self, moved: list[MovedMin]) -> None:
        """Log the groups that had not consumed messages which retention deleted."""
        for topic, queue_id, old_min, new_min in moved:
            for group in self.context.offsets.groups_of(topic):
                offset = self.context.offsets.query(group, topic, queue_id)
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

    def _save_offsets(self) -> None:
        """Encode the consumer offsets and let the housekeeper write them: the loop does not wait for a disk."""
        changed = self.context.offsets.take_changes()
        if changed is not None:
            text = fastjson.dumps_pretty(changed)
            self.context.store.submit(lambda: self._config.save_text("consumerOffset.json", text))

    async def _finish_pending(self) -> None:
        """Reject new sends, and write, flush and acknowledge those accepted so far, unless the disk hangs."""
        if not self.role.is_slave:
            self._dispatcher.reject_sends("the broker is stopping; send to another one", None)
        for _ in range(100):
            if not self.commit.pending:
                return
            await asyncio.sleep(0.01)


def _log_recovery(directory: str, report: RecoveryReport) -> None:
    """Log one line about a normal start, and one for each anomaly."""
    how = (
        "after a clean stop"
        if report.clean
        else f"after a crash, {report.scanned_bytes} bytes with {report.records} records checked"
    )
    log.info("store %s opened %s: the log ends at %d", directory, how, report.log_end)
    if report.cut_bytes:
        log.warning(
            "removed %d bytes after the last complete record of the log; they are saved in %s", report.cut_bytes, report.cut_path
        )
    for start, end in report.damaged:
        log.warning("log offsets %d to %d are damaged and cannot be read", start, end)
    for problem in report.problems:
        log.warning("store: %s", problem)


def _all_handlers(context: BrokerContext) -> dict[int, Handler]:
    table: dict[int, Handler] = {}
    others = (auth_handlers, queue_assignment, clients, queue_locks, consumer_offsets, query, recall, request_reply, retry)
    for module in (*admin.MODULES, *others):
        for code, handler in module.handlers(context).items():
            assert code not in table, f"two handlers for request code {code}"
            table[code] = handler
    return table


def _from_thread(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    """Call a function in the event loop's thread, unless the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)
