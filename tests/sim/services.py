"""The broker services (sends, delay levels, timers, transactions) over a simulated store, activated and deactivated by role."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

from firearrow.broker.context import BrokerContext
from firearrow.broker.deferred.delay_levels import DelayService
from firearrow.broker.deferred.router import DeferralRouter
from firearrow.broker.observability.stats import BrokerStats
from firearrow.broker.requests.dispatcher import ConnectionState
from firearrow.broker.requests.responses import Refused
from firearrow.broker.roles.role import RoleState
from firearrow.broker.send.handler import SendHandler
from firearrow.broker.send.internal import InternalWriter
from firearrow.broker.send.replies import PendingReplies
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.consumer_offsets import OffsetTable
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.broker.tables.queue_assignment import RequestModes
from firearrow.broker.tables.queue_locks import QueueLocks
from firearrow.broker.tables.topics import TopicTable, stored_topics
from firearrow.broker.timer.service import TimerService
from firearrow.broker.transaction.service import Transactions
from firearrow.config.delay_levels import parse_delay_levels
from firearrow.net.connection import Connection
from firearrow.store.message_store import MessageStore
from firearrow.store.timer.checkpoint import TimerCheckpoint
from firearrow.wire import fastjson, properties
from firearrow.wire.bodies.admin import ConsumerOffsetSerializeWrapper
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, FrameDecoder
from tests.broker.fake_peer import FakeConnection
from tests.sim.ledger import LEVELS, Kind, Message

TOPIC, QUEUE = "T", 0
GROUP = "P"
SAVE_MS = 1_000
DELAY_SNAPSHOT_MS = 500
COMMIT, ROLLBACK = 8, 12


class Services:
    def __init__(self, store: MessageStore, directory: str, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        now = now_ms()
        self._settings = settings = BrokerSettings(
            broker_name="broker-a",
            broker_role="SLAVE",
            message_delay_level=LEVELS,
            timer_precision_ms=100,
            timer_roll_window_slot=20,
            mapped_file_size_timer_log=4096,
            timer_flush_interval_ms=300,
            transaction_time_out=1500,
            transaction_check_interval=1000,
            transaction_check_max=3,
            transaction_op_batch_interval=500,
        )
        self._config = config = ConfigFiles(store.disk, f"{directory}/config")
        stats = BrokerStats("DefaultCluster", now)
        writer = InternalWriter(store, stats, lambda: None)
        self._delay = DelayService(parse_delay_levels(settings.message_delay_level), store, writer)
        self._delay.load(config.load("delayOffset.json"))
        self._delay.confirm(self._delay.offsets())
        self._timers = TimerService(settings, store, writer, clean=False, now_ms=now, active=False)
        groups = GroupTable(settings, lambda table: None, submit=store.submit)
        self._context = parts = BrokerContext(
            settings=settings,
            store_settings=store.settings,
            store=store,
            role=RoleState(settings),
            topics=TopicTable(
                settings,
                lambda table: None,
                group_exists=lambda group: groups.find_or_create(group) is not None,
                stored=lambda: stored_topics(store),
                submit=store.submit,
            ),
            groups=groups,
            offsets=OffsetTable(),
            clients=ClientTable(),
            locks=QueueLocks(),
            stats=stats,
            request_modes=RequestModes(lambda table: None),
            deferral=DeferralRouter(writer, self._delay, self._timers),
            writer=writer,
            delay=self._delay,
            timers=self._timers,
            address="127.0.0.1:10911",
            boot_ms=now,
            rng=random.Random(1),
            notify=lambda conn, header, body: None,
            call_client=lambda conn, header, body, timeout_ms, done: None,
            answer_when_stored=lambda conn, request, response: conn.write(response),
            register_all=lambda: None,
            when_registered=lambda done: done(),
            wake_queue=lambda topic, queue_id: None,
        )
        parts.topics.add_system_topics(now)
        parts.groups.add_built_in_groups(now)
        parts.topics.ensure(TOPIC, 1, 6, now)
        parts.offsets.load(config.load("consumerOffset.json"))
        self._transactions = Transactions(parts, now)
        self._replies = PendingReplies()
        self._sends = SendHandler(parts, self._transactions, self._replies)
        self._delay_note: tuple[int, bytes, list[int]] | None = None
        self._next_delay_ms = self._next_save_ms = 0

    # Roles

    def lead(self) -> None:
        now = self._now_ms()
        self._sends.invalidate_targets()
        self._delay.resume()
        self._timers.activate(now)
        self._transactions.activate(now)
        self._context.role.change("SYNC_MASTER", 0)

    def follow(self) -> None:
        self._context.role.change("SLAVE", 1)
        self._delay_note = None
        self._delay.revert_to_confirmed()
        self._replies.take()

    # Clients

    def send(self, message: Message) -> bool:
        """Append a message and record the position of a half. Return False if it is rejected."""
        names = {"UNIQ_KEY": f"U{message.number}"}
        if message.kind is Kind.HALF:
            names |= {"TRAN_MSG": "true", "PGROUP": GROUP}
        elif message.kind is Kind.DELAYED:
            names["DELAY"] = str(message.level)
        elif message.kind is Kind.TIMED:
            names["TIMER_DELAY_MS"] = str(message.delay_ms)
        raw = properties.encode(names).decode()
        now = self._now_ms()
        ext = {
            "a": GROUP, "b": TOPIC, "c": "TBW102", "d": "1", "e": str(QUEUE), "f": "4" if message.kind is Kind.HALF else "0",
            "g": str(now), "h": "0", "i": raw, "j": "0", "k": "false",
        }  # fmt: skip
        request = Command(RequestCode.SEND_MESSAGE_V2, opaque=7, ext=ext, body=message.body)
        try:
            self._sends.send(_connection(), request, now)
        except Refused:
            return False
        on_ack, on_write = self._replies.take()
        replies = on_ack + on_write
        (answer,) = FrameDecoder().feed(replies[0].data)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        if message.kind is Kind.HALF:
            message.place = int(answer.ext["queueOffset"]), int(answer.ext["msgId"][16:], 16)
        return True

    def decide(self, message: Message) -> bool:
        """Apply a producer's decision. Return False if it is rejected and may be retried."""
        assert message.place is not None
        ext = {
            "producerGroup": GROUP, "tranStateTableOffset": str(message.place[0]), "commitLogOffset": str(message.place[1]),
            "commitOrRollback": str(COMMIT if message.decision else ROLLBACK), "fromTransactionCheck": "false",
            "msgId": f"U{message.number}", "transactionId": f"U{message.number}",
        }  # fmt: skip
        request = Command(RequestCode.END_TRANSACTION, opaque=8, ext=ext)
        try:
            self._transactions.handlers()[RequestCode.END_TRANSACTION](_connection(), request, self._now_ms())
        except Refused:
            return False
        return True

    # Time

    def work(self) -> None:
        """Append what is due. Leader only."""
        now = self._now_ms()
        while self._delay.tick(now) | self._timers.tick(now):
            pass
        self._transactions.tick(now)
        if now >= self._next_delay_ms and self._delay_note is None and self._delay.has_changed():
            self._next_delay_ms = now + DELAY_SNAPSHOT_MS
            offsets, text = self._delay.offsets(), fastjson.dumps_pretty(self._delay.to_json(now))
            self._delay_note = (self._store.appended_offset, text, offsets)

    def save(self) -> None:
        """Save the tables; those of deliveries only once the deliveries are committed."""
        now = self._now_ms()
        if self._delay_note is not None and self._store.flushed_offset >= self._delay_note[0]:
            (_, text, offsets), self._delay_note = self._delay_note, None
            self._delay.confirm(offsets)
            self._store.submit(lambda: self._config.save_text("delayOffset.json", text))
        if now >= self._next_save_ms and self._context.offsets.dirty:
            self._next_save_ms = now + SAVE_MS
            self._context.offsets.dirty = False
            whole = fastjson.dumps_pretty(self._context.offsets.to_json())
            self._store.submit(lambda: self._config.save_text("consumerOffset.json", whole))

    # Tables for followers

    def tables(self) -> dict[str, Any]:
        return {
            "offsets": fastjson.dumps_pretty(self._context.offsets.to_json()),
            "delay": fastjson.dumps_pretty(self._delay.table().to_json()),
            "timer": self._timers.checkpoint(),
        }

    def take_over(self, tables: dict[str, Any]) -> None:
        self._context.offsets.take_over(ConsumerOffsetSerializeWrapper.from_json(fastjson.loads(tables["offsets"])))
        self._delay.load(fastjson.loads(tables["delay"]))
        text = fastjson.dumps_pretty(self._delay.to_json(self._now_ms()))
        self._store.submit(lambda: self._config.save_text("delayOffset.json", text))
        self._timers.follow(TimerCheckpoint.decode_fields(tables["timer"]))


def _connection() -> Connection:
    conn = FakeConnection(4567)
    conn.state = ConnectionState()
    return cast(Connection, conn)
