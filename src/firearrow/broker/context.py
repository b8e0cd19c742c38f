"""The parts of a broker that its request handlers use.

Every module of handlers has a function `handlers(broker) -> {request code: handler}`. A handler is called with the connection,
the request and the time. It returns the encoded response, or None if the response is sent later or not at all. It raises
`Refused` for an error of the peer, which the dispatcher turns into a response. Responses to one-way requests are dropped.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Header

if TYPE_CHECKING:  # these modules import this one for their handlers
    from firearrow.auth.table import AuthTable
    from firearrow.broker.deferred.delay_levels import DelayService
    from firearrow.broker.deferred.router import DeferralRouter
    from firearrow.broker.observability.stats import BrokerStats
    from firearrow.broker.roles.role import RoleState
    from firearrow.broker.send.internal import InternalWriter
    from firearrow.broker.settings import BrokerSettings
    from firearrow.broker.tables.clients import ClientTable
    from firearrow.broker.tables.consumer_offsets import OffsetTable
    from firearrow.broker.tables.groups import GroupTable
    from firearrow.broker.tables.queue_assignment import RequestModes
    from firearrow.broker.tables.queue_locks import QueueLocks
    from firearrow.broker.tables.topics import TopicTable
    from firearrow.broker.timer.service import TimerService
    from firearrow.net.server import Connection
    from firearrow.store.message_store import MessageStore
    from firearrow.store.settings import StoreSettings

Handler = Callable[["Connection", Command, int], bytes | None]

# (connection, request header, body): sends a one-way request to a client.
Notify = Callable[["Connection", Header, bytes], None]
# (connection, request header, body, timeout_ms, done): sends a request; done gets the response, or None and the reason.
CallClient = Callable[["Connection", Header, bytes, int, Callable[[Command | None, str], None]], None]

# (connection, request, response): sends the response when everything appended so far is acknowledged.
AnswerWhenStored = Callable[["Connection", Command, bytes], None]


@dataclass(frozen=True, slots=True)
class BrokerContext:
    settings: BrokerSettings
    store_settings: StoreSettings
    role: RoleState
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    locks: QueueLocks
    stats: BrokerStats
    request_modes: RequestModes
    deferral: DeferralRouter
    writer: InternalWriter
    delay: DelayService
    timers: TimerService
    address: str  # the advertised ip:port
    boot_ms: int
    rng: random.Random  # chooses queues
    notify: Notify
    call_client: CallClient
    answer_when_stored: AnswerWhenStored
    register_all: Callable[[], None]  # registers all topics at every name server, soon
    when_registered: Callable[[Callable[[], None]], None]  # calls back when the name servers know all changes, or soon after
    wake_queue: Callable[[str, int], None]  # (topic, queue id): resumes the parked pulls of a queue
    auth: AuthTable | None = None  # users and policies; None without authentication

    @property
    def name(self) -> str:
        return self.settings.broker_name

    @property
    def listen_port(self) -> int:
        return int(self.address.rpartition(":")[2])
