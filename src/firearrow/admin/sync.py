"""The admin functions for programs without an event loop: as in aio.py, and each method waits.

with Admin("127.0.0.1:9876") as admin:
    admin.create_topic("Orders", queues=4)
"""

from __future__ import annotations

from collections.abc import Callable

from firearrow.admin import (
    aio,
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
from firearrow.client.sync.derive import SyncClient, blocking, same_constructor


class Admin(SyncClient[aio.Admin]):
    """`name_server`: `host:port;host:port`, or what NAMESRV_ADDR says. Keywords as those of every client."""

    @same_constructor(aio.Admin)
    def __init__(self, make: Callable[[], aio.Admin]) -> None:
        super().__init__(make)

    list_brokers = blocking(cluster.list_brokers)

    topic_names = blocking(topics.topic_names)
    list_topics = blocking(topics.list_topics)
    topic_configs = blocking(topics.topic_configs)
    create_topic = blocking(topics.create_topic)
    alter_topic = blocking(topics.alter_topic)
    delete_topic = blocking(topics.delete_topic)
    topic_status = blocking(topics.topic_status)
    topic_route = blocking(topics.topic_route)
    topic_groups = blocking(topics.topic_groups)

    group_names = blocking(groups.group_names)
    list_groups = blocking(groups.list_groups)
    group_configs = blocking(groups.group_configs)
    create_group = blocking(groups.create_group)
    alter_group = blocking(groups.alter_group)
    delete_group = blocking(groups.delete_group)
    group_progress = blocking(groups.group_progress)
    group_rate = blocking(groups.group_rate)

    consumer_connection = blocking(clients.consumer_connection)
    producer_connection = blocking(clients.producer_connection)
    list_producers = blocking(clients.list_producers)
    running_info = blocking(clients.running_info)

    plan_reset = blocking(offsets.plan_reset)
    reset_offset = blocking(offsets.reset_offset)
    clone_offsets = blocking(offsets.clone_offsets)
    committed_offset = blocking(offsets.committed_offset)

    find_message = blocking(messages.find_message)
    message_by_offset_id = blocking(messages.message_by_offset_id)
    message_at = blocking(messages.message_at)
    messages_by_key = blocking(messages.messages_by_key)
    messages_between = blocking(messages.messages_between)
    peek = blocking(messages.peek)
    track = blocking(messages.track)
    consume_directly = blocking(messages.consume_directly)
    resend = blocking(messages.resend)

    dead_letter_counts = blocking(dead_letters.dead_letter_counts)
    dead_letters_of = blocking(dead_letters.dead_letters_of)
    find_dead_letter = blocking(dead_letters.find_dead_letter)
    resend_dead_letters = blocking(dead_letters.resend_dead_letters)

    broker_status = blocking(brokers.broker_status)
    broker_config = blocking(brokers.broker_config)
    set_broker_config = blocking(brokers.set_broker_config)
    broker_statistics = blocking(brokers.broker_statistics)
    clean_expired_queues = blocking(brokers.clean_expired_queues)
    clean_unused_topics = blocking(brokers.clean_unused_topics)
    delete_expired_log = blocking(brokers.delete_expired_log)
    replication_status = blocking(brokers.replication_status)

    name_server_config = blocking(name_servers.name_server_config)
    set_name_server_config = blocking(name_servers.set_name_server_config)
    kv_list = blocking(name_servers.kv_list)
    kv_get = blocking(name_servers.kv_get)
    kv_put = blocking(name_servers.kv_put)
    kv_delete = blocking(name_servers.kv_delete)
    order_config = blocking(name_servers.order_config)
    set_order_config = blocking(name_servers.set_order_config)
    delete_order_config = blocking(name_servers.delete_order_config)
    wipe_write_permission = blocking(name_servers.wipe_write_permission)
    add_write_permission = blocking(name_servers.add_write_permission)

    given_up_transactions = blocking(transactions.given_up_transactions)
    resume_check = blocking(transactions.resume_check)

    message_trace = blocking(trace.message_trace)

    examine = blocking(doctor.examine)
