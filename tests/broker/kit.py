"""A broker without sockets and without a clock: its tables on a real store, its handlers called directly.

kit.put("T", 0, b"hello", tags="TagA")      stores a message at kit.now
kit.ask(17, topic="T", ...)                 what the broker answers, as the client would decode it
kit.told                                    what clients were told, one-way
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from firearrow.broker import admin, query
from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.deferred.delay_levels import DelayService
from firearrow.broker.deferred.router import DeferralRouter
from firearrow.broker.observability.stats import BrokerStats
from firearrow.broker.requests.responses import Refused
from firearrow.broker.roles.role import RoleState
from firearrow.broker.send.internal import InternalWriter
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables import clients, consumer_offsets, queue_assignment, queue_locks
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.consumer_offsets import OffsetTable
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.queue_assignment import RequestModes
from firearrow.broker.tables.queue_locks import QueueLocks
from firearrow.broker.tables.topics import TopicTable, stored_topics
from firearrow.broker.timer.service import TimerService
from firearrow.config.delay_levels import parse_delay_levels
from firearrow.net.connection import Connection
from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings
from firearrow.wire import fastjson, properties
from firearrow.wire.errors import HeaderError
from firearrow.wire.frame import Command, FrameDecoder, encode_response
from firearrow.wire.header_schema import request_code
from firearrow.wire.java_hash import tags_code
from firearrow.wire.message_ids import host_bytes
from tests.broker.fake_peer import FakeConnection

ADDRESS = "127.0.0.1:10911"
HOST = host_bytes("127.0.0.1", 10911)
T0 = 1_700_000_000_000

Done = Callable[[Command | None, str], None]


class Kit:
    def __init__(self, root: Path, **settings: Any) -> None:
        self.now = T0
        self.saved: dict[str, dict[str, Any]] = {}
        self.told: list[tuple[FakeConnection, int, Mapping[str, Any], bytes]] = []
        self.called: list[tuple[FakeConnection, int, Mapping[str, Any], bytes, Done]] = []
        self.woken: list[tuple[str, int]] = []
        self.registered = 0
        self.settings = BrokerSettings(broker_cluster_name="DefaultCluster", broker_name="broker-a", **settings)
        store_settings = StoreSettings(
            store_path_root_dir=str(root / "store"),
            mapped_file_size_commit_log=1024 * 1024,
            mapped_file_size_consume_queue=20_000,
            max_hash_slot_num=1000,
            max_index_num=4000,
        )
        self.store = MessageStore(store_settings, store_host=HOST, now_ms=lambda: self.now)
        self.store.open()
        stats = BrokerStats("DefaultCluster", T0)
        writer = InternalWriter(self.store, stats, self._count_round)
        self.delay = DelayService(parse_delay_levels(self.settings.message_delay_level), self.store, writer)
        self.timers = TimerService(self.settings, self.store, writer, clean=True, now_ms=T0, active=not self.settings.is_slave)
        self.rounds = 0
        self.held_answers: list[bytes] | None = None  # a list: answers wait here until the test says that they are stored
        groups = GroupTable(self.settings, self._saver("groups"), submit=self.store.submit)
        self.context = BrokerContext(
            settings=self.settings,
            store_settings=store_settings,
            store=self.store,
            role=RoleState(self.settings),
            topics=TopicTable(
                self.settings,
                self._saver("topics"),
                group_exists=lambda group: groups.find_or_create(group) is not None,
                stored=lambda: stored_topics(self.store),
                submit=self.store.submit,
            ),
            groups=groups,
            offsets=OffsetTable(),
            clients=ClientTable(),
            locks=QueueLocks(),
            stats=stats,
            request_modes=RequestModes(self._saver("modes")),
            deferral=DeferralRouter(writer, self.delay, self.timers),
            writer=writer,
            delay=self.delay,
            timers=self.timers,
            address=ADDRESS,
            boot_ms=T0,
            rng=random.Random(1),
            notify=lambda conn, header, body: self.told.append((fake(conn), request_code(header), header.encode(), body)),
            call_client=lambda conn, header, body, timeout_ms, done: self.called.append(
                (fake(conn), request_code(header), header.encode(), body, done)
            ),
            answer_when_stored=self._answer,
            register_all=self._count_registration,
            when_registered=lambda done: done(),
            wake_queue=lambda topic, queue_id: self.woken.append((topic, queue_id)),
        )
        self.context.topics.add_system_topics(T0)
        self.context.groups.add_built_in_groups(T0)
        self.handlers: dict[int, Handler] = {}
        for module in (*admin.MODULES, queue_assignment, clients, queue_locks, consumer_offsets, query):
            self.handlers |= module.handlers(self.context)
        self.operator = FakeConnection(50000)

    def close(self) -> None:
        self.store.close()

    def ask(
        self,
        code: int,
        body: bytes | dict[str, Any] = b"",
        *,
        conn: FakeConnection | None = None,
        version: int = 513,
        language: str = "JAVA",
        flag: int = 0,
        **ext: Any,
    ) -> Command:
        """Return the response; raise AssertionError if it is missing."""
        response = self.start(code, body, conn=conn, version=version, language=language, flag=flag, **ext)
        assert response is not None, f"request {code} was not answered"
        return decode(response)

    def start(
        self,
        code: int,
        body: bytes | dict[str, Any] = b"",
        *,
        conn: FakeConnection | None = None,
        version: int = 513,
        language: str = "JAVA",
        flag: int = 0,
        **ext: Any,
    ) -> bytes | None:
        raw = body if isinstance(body, bytes) else fastjson.dumps(body)
        return self.start_raw(code, ext, raw, conn=conn, version=version, language=language, flag=flag)

    def start_raw(
        self,
        code: int,
        ext: dict[str, Any],
        body: bytes,
        *,
        conn: FakeConnection | None = None,
        version: int = 513,
        language: str = "JAVA",
        flag: int = 0,
    ) -> bytes | None:
        request = Command(code, opaque=77, flag=flag, language=language, version=version, ext=ext, body=body)
        try:
            return self.handlers[code](cast(Connection, conn or self.operator), request, self.now)
        except Refused as refused:
            return encode_response(request, refused.code, refused.remark, refused.ext)
        except HeaderError as error:
            return encode_response(request, 29, str(error))

    def topic(self, name: str = "T", queues: int = 4, perm: int = 6) -> None:
        self.context.topics.ensure(name, queues, perm, self.now)

    def put(self, topic: str, queue_id: int, body: bytes, *, tags: str = "", keys: str = "", uniq: str = "") -> int:
        """Stores a message now; returns its physical offset."""
        named = {"TAGS": tags, "KEYS": keys, "UNIQ_KEY": uniq}
        raw = properties.encode({name: value for name, value in named.items() if value})
        offset: int = self.store.append(
            self.store.queue(topic, queue_id),
            body,
            raw,
            tags_code(tags) if tags else 0,
            flag=0,
            sys_flag=0,
            born_ms=self.now,
            born_host=HOST,
            store_ms=self.now,
        )
        group = self.store.write_out()
        assert group is not None
        self.store.confirm(group.end_offset)
        return offset

    def beat(self, conn: FakeConnection, client_id: str, group: str = "G", *topics: str, **more: Any) -> Command:
        """A consumer's heartbeat, subscribing to everything of the topics."""
        wanted = [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics]
        data = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": wanted,
        }
        return self.ask(34, {"clientID": client_id, "consumerDataSet": [data | more]}, conn=conn)

    def _saver(self, name: str) -> Callable[[dict[str, Any]], None]:
        def save(table: dict[str, Any]) -> None:
            self.saved[name] = fastjson.loads(fastjson.dumps_pretty(table))

        return save

    def _answer(self, conn: Connection, request: Command, response: bytes) -> None:
        if self.held_answers is not None:
            self.held_answers.append(response)
        elif not request.is_oneway:
            conn.write(response)

    def _count_round(self) -> None:
        self.rounds += 1

    def _count_registration(self) -> None:
        self.registered += 1


def decode(frame: bytes) -> Command:
    (command,) = FrameDecoder().feed(frame)
    assert command.is_response
    assert command.opaque == 77
    return command


def body_of(answer: Command) -> Any:
    """The JSON of a successful answer."""
    assert answer.code == 0, f"{answer.code}: {answer.remark}"
    return fastjson.loads(answer.body)


def fake(conn: Connection) -> FakeConnection:
    return cast(FakeConnection, conn)
