"""The admin functions as coroutine methods of one object with its own client.

async with Admin("127.0.0.1:9876") as admin:
    await admin.create_topic("Orders", queues=4)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from firearrow.admin import (
    acls,
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
    users,
)
from firearrow.client.connection.instance import ClientInstance, acquire
from firearrow.client.connection.pool import closed_error
from firearrow.client.lifecycle import AsyncClient
from firearrow.client.options import ClientKeywords, NameServers, client_options
from firearrow.client.sync.derive import SyncClient, blocking

P = ParamSpec("P")
R = TypeVar("R")

REQUEST_TIMEOUT_S: Final = 5.0  # as Apache's tools


class AdminMethod(Generic[P, R]):
    """A method made of a coroutine function whose first parameter is the client instance.

    On the asynchronous Admin it is a coroutine method, on the blocking one it waits for the result.
    """

    def __init__(self, function: Callable[Concatenate[ClientInstance, P], Coroutine[Any, Any, R]]) -> None:
        self._function = function
        self._blocking = blocking(function)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function  # for inspect.signature

    def __set_name__(self, owner: type, name: str) -> None:
        self._blocking.__set_name__(owner, name)

    @overload
    def __get__(self, admin: None, owner: type) -> Self: ...

    @overload
    def __get__(self, admin: Admin, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def __get__(self, admin: SyncClient[Any], owner: type) -> Callable[P, R]: ...

    def __get__(
        self, admin: Admin | SyncClient[Any] | None, owner: type
    ) -> Self | Callable[P, Coroutine[Any, Any, R]] | Callable[P, R]:
        if admin is None:
            return self
        if isinstance(admin, Admin):
            return functools.partial(self._function, admin.client)
        return self._blocking.__get__(admin, owner)


class AdminMethods:
    """The methods of the asynchronous and of the blocking Admin."""

    list_brokers = AdminMethod(cluster.list_brokers)

    topic_names = AdminMethod(topics.topic_names)
    list_topics = AdminMethod(topics.list_topics)
    topic_configs = AdminMethod(topics.topic_configs)
    create_topic = AdminMethod(topics.create_topic)
    alter_topic = AdminMethod(topics.alter_topic)
    delete_topic = AdminMethod(topics.delete_topic)
    topic_status = AdminMethod(topics.topic_status)
    topic_route = AdminMethod(topics.topic_route)
    topic_groups = AdminMethod(topics.topic_groups)

    group_names = AdminMethod(groups.group_names)
    list_groups = AdminMethod(groups.list_groups)
    group_configs = AdminMethod(groups.group_configs)
    create_group = AdminMethod(groups.create_group)
    alter_group = AdminMethod(groups.alter_group)
    delete_group = AdminMethod(groups.delete_group)
    group_progress = AdminMethod(groups.group_progress)
    group_rate = AdminMethod(groups.group_rate)

    consumer_connection = AdminMethod(clients.consumer_connection)
    producer_connection = AdminMethod(clients.producer_connection)
    list_producers = AdminMethod(clients.list_producers)
    running_info = AdminMethod(clients.running_info)

    plan_reset = AdminMethod(offsets.plan_reset)
    reset_offset = AdminMethod(offsets.reset_offset)
    clone_offsets = AdminMethod(offsets.clone_offsets)
    committed_offset = AdminMethod(offsets.committed_offset)

    find_message = AdminMethod(messages.find_message)
    message_by_offset_id = AdminMethod(messages.message_by_offset_id)
    message_at = AdminMethod(messages.message_at)
    messages_by_key = AdminMethod(messages.messages_by_key)
    messages_between = AdminMethod(messages.messages_between)
    peek = AdminMethod(messages.peek)
    track = AdminMethod(messages.track)
    consume_directly = AdminMethod(messages.consume_directly)
    resend = AdminMethod(messages.resend)

    dead_letter_counts = AdminMethod(dead_letters.dead_letter_counts)
    dead_letters_of = AdminMethod(dead_letters.dead_letters_of)
    find_dead_letter = AdminMethod(dead_letters.find_dead_letter)
    resend_dead_letters = AdminMethod(dead_letters.resend_dead_letters)

    broker_status = AdminMethod(brokers.broker_status)
    broker_config = AdminMethod(brokers.broker_config)
    set_broker_config = AdminMethod(brokers.set_broker_config)
    broker_statistics = AdminMethod(brokers.broker_statistics)
    clean_expired_queues = AdminMethod(brokers.clean_expired_queues)
    clean_unused_topics = AdminMethod(brokers.clean_unused_topics)
    delete_expired_log = AdminMethod(brokers.delete_expired_log)
    replication_status = AdminMethod(brokers.replication_status)

    name_server_config = AdminMethod(name_servers.name_server_config)
    set_name_server_config = AdminMethod(name_servers.set_name_server_config)
    kv_list = AdminMethod(name_servers.kv_list)
    kv_get = AdminMethod(name_servers.kv_get)
    kv_put = AdminMethod(name_servers.kv_put)
    kv_delete = AdminMethod(name_servers.kv_delete)
    order_config = AdminMethod(name_servers.order_config)
    set_order_config = AdminMethod(name_servers.set_order_config)
    delete_order_config = AdminMethod(name_servers.delete_order_config)
    wipe_write_permission = AdminMethod(name_servers.wipe_write_permission)
    add_write_permission = AdminMethod(name_servers.add_write_permission)

    create_user = AdminMethod(users.create_user)
    update_user = AdminMethod(users.update_user)
    delete_user = AdminMethod(users.delete_user)
    get_user = AdminMethod(users.get_user)
    list_users = AdminMethod(users.list_users)
    copy_user = AdminMethod(users.copy_user)
    find_user = AdminMethod(users.find_user)
    users_on = AdminMethod(users.users_on)

    create_acl = AdminMethod(acls.create_acl)
    update_acl = AdminMethod(acls.update_acl)
    delete_acl = AdminMethod(acls.delete_acl)
    get_acl = AdminMethod(acls.get_acl)
    list_acls = AdminMethod(acls.list_acls)
    copy_acl = AdminMethod(acls.copy_acl)
    find_acl = AdminMethod(acls.find_acl)
    acls_on = AdminMethod(acls.acls_on)

    given_up_transactions = AdminMethod(transactions.given_up_transactions)
    resume_check = AdminMethod(transactions.resume_check)

    message_trace = AdminMethod(trace.message_trace)

    examine = AdminMethod(doctor.examine)


class Admin(AdminMethods, AsyncClient):
    """Administration client. `name_server` is `host:port;host:port`; the default is NAMESRV_ADDR."""

    def __init__(self, name_server: NameServers = None, **client: Unpack[ClientKeywords]) -> None:
        keywords: dict[str, Any] = {"request_timeout": REQUEST_TIMEOUT_S, **client}
        self.options = client_options(name_server, **keywords)
        self._instance: ClientInstance | None = None

    async def start(self) -> None:
        if self._instance is None:
            self._instance = await acquire(self.options)

    async def close(self) -> None:
        instance, self._instance = self._instance, None
        if instance is not None:
            await instance.release()

    @property
    def client(self) -> ClientInstance:
        """The client instance, the first argument of the functions in the admin modules."""
        if self._instance is None:
            raise closed_error("admin client")
        return self._instance
