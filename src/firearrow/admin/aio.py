"""The admin functions as methods of one object that has its own client.

async with Admin("127.0.0.1:9876") as admin:
    await admin.create_topic("Orders", queues=4)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from firearrow.admin import (
    brokers,
    clients,
    cluster,
    dead_letters,
    doctor,
    groups,
    messages,
    name_servers,
    offsets,
    topics,
    trace,
    transactions,
)
from firearrow.client.connection.instance import ClientInstance, acquire
from firearrow.client.connection.pool import closed_error
from firearrow.client.options import ClientKeywords, NameServers, client_options

P = ParamSpec("P")
R = TypeVar("R")

REQUEST_TIMEOUT_MS: Final = 5_000  # as Apache's tools


class Asks(Generic[P, R]):
    """A method from a function whose first parameter is the client instance."""

    def __init__(self, function: Callable[Concatenate[ClientInstance, P], R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        self.__wrapped__ = function  # for inspect.signature

    @overload
    def __get__(self, admin: None, owner: type[Admin]) -> Self: ...

    @overload
    def __get__(self, admin: Admin, owner: type[Admin]) -> Callable[P, R]: ...

    def __get__(self, admin: Admin | None, owner: type[Admin]) -> Self | Callable[P, R]:
        if admin is None:
            return self
        return functools.partial(self._function, admin.client)


class Admin:
    """`name_server`: `host:port;host:port`, or what NAMESRV_ADDR says. Keywords as those of every client."""

    def __init__(self, name_server: NameServers = None, **client: Unpack[ClientKeywords]) -> None:
        keywords: dict[str, Any] = {"request_timeout_ms": REQUEST_TIMEOUT_MS, **client}
        self.options = client_options(name_server, **keywords)
        self._instance: ClientInstance | None = None

    async def start(self) -> None:
        if self._instance is None:
            self._instance = await acquire(self.options)

    async def close(self) -> None:
        instance, self._instance = self._instance, None
        if instance is not None:
            await instance.release()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client(self) -> ClientInstance:
        """What the functions of the admin modules take first."""
        if self._instance is None:
            raise closed_error("admin client")
        return self._instance

    list_brokers = Asks(cluster.list_brokers)

    topic_names = Asks(topics.topic_names)
    list_topics = Asks(topics.list_topics)
    topic_configs = Asks(topics.topic_configs)
    create_topic = Asks(topics.create_topic)
    alter_topic = Asks(topics.alter_topic)
    delete_topic = Asks(topics.delete_topic)
    topic_status = Asks(topics.topic_status)
    topic_route = Asks(topics.topic_route)
    topic_groups = Asks(topics.topic_groups)

    group_names = Asks(groups.group_names)
    list_groups = Asks(groups.list_groups)
    group_configs = Asks(groups.group_configs)
    create_group = Asks(groups.create_group)
    alter_group = Asks(groups.alter_group)
    delete_group = Asks(groups.delete_group)
    group_progress = Asks(groups.group_progress)
    group_rate = Asks(groups.group_rate)

    consumer_connection = Asks(clients.consumer_connection)
    producer_connection = Asks(clients.producer_connection)
    list_producers = Asks(clients.list_producers)
    running_info = Asks(clients.running_info)

    plan_reset = Asks(offsets.plan_reset)
    reset_offset = Asks(offsets.reset_offset)
    clone_offsets = Asks(offsets.clone_offsets)
    committed_offset = Asks(offsets.committed_offset)

    find_message = Asks(messages.find_message)
    message_by_offset_id = Asks(messages.message_by_offset_id)
    message_at = Asks(messages.message_at)
    messages_by_key = Asks(messages.messages_by_key)
    messages_between = Asks(messages.messages_between)
    peek = Asks(messages.peek)
    track = Asks(messages.track)
    consume_directly = Asks(messages.consume_directly)
    resend = Asks(messages.resend)

    dead_letter_counts = Asks(dead_letters.dead_letter_counts)
    dead_letters_of = Asks(dead_letters.dead_letters_of)
    find_dead_letter = Asks(dead_letters.find_dead_letter)
    resend_dead_letters = Asks(dead_letters.resend_dead_letters)

    broker_status = Asks(brokers.broker_status)
    broker_config = Asks(brokers.broker_config)
    set_broker_config = Asks(brokers.set_broker_config)
    broker_statistics = Asks(brokers.broker_statistics)
    clean_expired_queues = Asks(brokers.clean_expired_queues)
    clean_unused_topics = Asks(brokers.clean_unused_topics)
    delete_expired_log = Asks(brokers.delete_expired_log)
    replication_status = Asks(brokers.replication_status)

    name_server_config = Asks(name_servers.name_server_config)
    set_name_server_config = Asks(name_servers.set_name_server_config)
    kv_list = Asks(name_servers.kv_list)
    kv_get = Asks(name_servers.kv_get)
    kv_put = Asks(name_servers.kv_put)
    kv_delete = Asks(name_servers.kv_delete)
    order_config = Asks(name_servers.order_config)
    set_order_config = Asks(name_servers.set_order_config)
    delete_order_config = Asks(name_servers.delete_order_config)
    wipe_write_permission = Asks(name_servers.wipe_write_permission)
    add_write_permission = Asks(name_servers.add_write_permission)

    given_up_transactions = Asks(transactions.given_up_transactions)
    resume_check = Asks(transactions.resume_check)

    message_trace = Asks(trace.message_trace)

    examine = Asks(doctor.examine)
