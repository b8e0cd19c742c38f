"""What the broker is made of, as its request handlers see it.

Every module of handlers has a function `handlers(broker) -> {request code: handler}`. A handler is called with the connection,
the request and the time, and returns the encoded response, or None when it will be answered later or not at all. It raises
`Refused` for a peer's fault; the dispatcher makes the response. Responses to one-way requests are dropped by the dispatcher.

The callbacks are the broker's way out. They are set by whoever puts it together (broker/server.py); tests put in lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from firearrow.broker.tables.topics import StoredTopic
from firearrow.wire.frame import Command

if TYPE_CHECKING:  # these modules import this one for their handlers
    from firearrow.broker.deferred.delay_levels import DelayService
    from firearrow.broker.deferred.router import DeferralRouter
    from firearrow.broker.observability.stats import BrokerStats
    from firearrow.broker.send.internal import InternalWriter
    from firearrow.broker.settings import BrokerSettings
    from firearrow.broker.tables.clients import ClientTable
    from firearrow.broker.tables.consumer_offsets import OffsetTable
    from firearrow.broker.tables.groups import GroupTable
    from firearrow.broker.tables.queue_locks import QueueLocks
    from firearrow.broker.tables.request_modes import RequestModes
    from firearrow.broker.tables.topics import TopicTable
    from firearrow.broker.timer.service import TimerService
    from firearrow.net.server import Connection
    from firearrow.store.message_store import MessageStore
    from firearrow.store.settings import StoreSettings

Handler = Callable[["Connection", Command, int], bytes | None]

# (connection, request code, ext fields, body): one-way, to a client.
Notify = Callable[["Connection", int, Mapping[str, Any], bytes], None]
# (connection, request code, ext fields, body, timeout_ms, done): asks a client; done gets its answer, or None and why.
CallClient = Callable[["Connection", int, Mapping[str, Any], bytes, int, Callable[[Command | None, str], None]], None]

# (connection, request, response): answers when everything appended so far is as durable as the settings ask for.
AnswerWhenStored = Callable[["Connection", Command, bytes], None]


def _answer_at_once(conn: Connection, request: Command, response: bytes) -> None:
    if not request.is_oneway:
        conn.write(response)


def _no_notify(conn: Connection, code: int, ext: Mapping[str, Any], body: bytes) -> None: ...


def _no_call(
    conn: Connection, code: int, ext: Mapping[str, Any], body: bytes, timeout_ms: int, done: Callable[[Command | None, str], None]
) -> None:
    done(None, "this broker cannot ask clients")


@dataclass(slots=True)
class BrokerContext:
    settings: BrokerSettings
    store_settings: StoreSettings
    store: MessageStore
    topics: TopicTable  # topics.listeners: who wants to hear of changes (registration, the send path)
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    locks: QueueLocks
    stats: BrokerStats
    request_modes: RequestModes
    deferral: DeferralRouter
    inner: InternalWriter  # what the broker itself stores
    delay: DelayService
    timers: TimerService
    address: str  # the advertised ip:port
    boot_ms: int = 0
    open_transactions: Callable[[], int] = field(default=lambda: 0)  # how many half messages wait for a decision
    notify: Notify = _no_notify
    call_client: CallClient = _no_call
    answer_when_stored: AnswerWhenStored = _answer_at_once
    register_all: Callable[[], None] = field(default=lambda: None)  # the whole topic table, to every name server, soon
    wake_queue: Callable[[str, int], None] = field(default=lambda topic, queue_id: None)  # its held pulls look again

    def __post_init__(self) -> None:
        self.topics.group_exists = lambda group: self.groups.find_or_create(group) is not None
        self.topics.stored = lambda: stored_topics(self.store)
        self.topics.file.submit = self.groups.file.submit = self.store.submit

    @property
    def name(self) -> str:
        return self.settings.broker_name

    @property
    def cluster(self) -> str:
        return self.settings.broker_cluster_name


def stored_topics(store: MessageStore) -> list[StoredTopic]:
    """The topics that have messages, with their highest queue and the time of their newest message."""
    found: dict[str, StoredTopic] = {}
    for queue in store.queues():
        if queue.max_offset > queue.min_offset:
            known = found.get(queue.topic) or StoredTopic(queue.topic, 0, 0)
            last = store.store_time(queue, queue.max_offset - 1) or 0
            found[queue.topic] = StoredTopic(queue.topic, max(known.queues, queue.queue_id + 1), max(known.last_store_ms, last))
    return list(found.values())
