"""Administration of groups: configuration, deletion, forbidden topics, connected clients."""

from __future__ import annotations

from collections.abc import Iterable

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.requests.responses import Refused, check_list, done, json_answer, read_body
from firearrow.broker.tables.clients import Client
from firearrow.net.server import Connection
from firearrow.wire.bodies.admin import ClientConnection, ConsumerConnection, ProducerConnection, ProducerInfo, ProducerTableInfo
from firearrow.wire.bodies.topic import GroupForbidden, SubscriptionGroupConfig, SubscriptionGroupList
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.headers import admin as headers
from firearrow.wire.names import is_system_group


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    groups, clients = broker.groups, broker.clients

    def update(request: Command, wanted: list[SubscriptionGroupConfig], now_ms: int) -> bytes:
        check_list(wanted, "groups")
        with broker.stats.groups_created.timed(system=any(is_system_group(one.group_name) for one in wanted)):
            groups.update_all(wanted, now_ms)
        return done(request)

    def update_and_create_group(conn: Connection, request: Command, now_ms: int) -> bytes:
        return update(request, [read_body(request, SubscriptionGroupConfig.from_json)], now_ms)

    def update_and_create_group_list(conn: Connection, request: Command, now_ms: int) -> bytes:
        return update(request, read_body(request, SubscriptionGroupList.from_json).group_config_list, now_ms)

    def get_all_groups(conn: Connection, request: Command, now_ms: int) -> bytes:
        headers.GetAllSubscriptionGroupRequestHeader.decode(request.ext)
        return json_answer(request, groups.to_json())

    def get_group_config(conn: Connection, request: Command, now_ms: int) -> bytes:
        group = headers.GetSubscriptionGroupConfigRequestHeader.decode(request.ext).group
        return json_answer(request, groups.must_find(group, now_ms))

    def delete_group(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.DeleteSubscriptionGroupRequestHeader.decode(request.ext)
        groups.delete(header.group_name, now_ms)
        if header.clean_offset:
            broker.offsets.remove_group(header.group_name)
        broker.stats.group_deleted(header.group_name)
        return done(request)

    def update_and_get_group_forbidden(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.UpdateGroupForbiddenRequestHeader.decode(request.ext)
        if header.readable is not None:
            groups.must_find(header.group, now_ms)
            if broker.topics.find(header.topic) is None:
                raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic[{header.topic}] not exist, so it cannot be forbidden")
            groups.set_readable(header.group, header.topic, header.readable, now_ms)
        readable = not groups.forbidden(header.group, header.topic)
        return json_answer(request, GroupForbidden(header.group, header.topic, readable))

    def get_consumer_connection_list(conn: Connection, request: Command, now_ms: int) -> bytes:
        group = headers.GetConsumerConnectionListRequestHeader.decode(request.ext).consumer_group
        consumers = clients.consumer_group(group)
        if consumers is None:
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        body = ConsumerConnection(
            connection_set=_connections(consumers.members.values()),
            subscription_table=consumers.subscriptions,
            consume_type=consumers.consume_type,
            message_model=consumers.message_model,
            consume_from_where=consumers.consume_from_where,
        )
        return json_answer(request, body)

    def get_producer_connection_list(conn: Connection, request: Command, now_ms: int) -> bytes:
        group = headers.GetProducerConnectionListRequestHeader.decode(request.ext).producer_group
        members = clients.producer_group(group)
        if not members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return json_answer(request, ProducerConnection(_connections(members)))

    def get_all_producer_info(conn: Connection, request: Command, now_ms: int) -> bytes:
        table = {group: [_producer_info(member) for member in members] for group, members in clients.producers().items()}
        return json_answer(request, ProducerTableInfo(table))

    return {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: update_and_create_group,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: update_and_create_group_list,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: get_all_groups,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: get_group_config,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: delete_group,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: update_and_get_group_forbidden,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: get_consumer_connection_list,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: get_producer_connection_list,
        RequestCode.GET_ALL_PRODUCER_INFO: get_all_producer_info,
    }


def _connections(members: Iterable[Client]) -> list[ClientConnection]:
    return [ClientConnection(member.client_id, member.conn.peer, member.language, member.version) for member in members]


def _producer_info(member: Client) -> ProducerInfo:
    return ProducerInfo(member.client_id, member.conn.peer_ip, member.language, member.version, member.last_update_ms)
