"""The permissions that each request to a broker needs.

`broker_rules` has a line for every code that the broker serves; codes without a line are open to Super users only. Names are
read with the same functions as in the handlers, so that a request cannot mean one thing here and another there. A retry topic
counts as its group.

Requests that name a record by its position (33, 36, 37, 309, 323) need permissions for the topics of that record, whatever
topic they name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeVar

from firearrow.auth.gate import AccessDeniedError, Rule
from firearrow.auth.policies import CLUSTER, CREATE, DELETE, GET, GROUP, PUB, SUB, TOPIC, UPDATE, Need
from firearrow.auth.principal import Needs
from firearrow.broker.auth.records import RecordTopics
from firearrow.broker.context import BrokerContext
from firearrow.wire import fastjson
from firearrow.wire.bodies import client as bodies
from firearrow.wire.bodies.topic import CreateTopicListRequestBody, SubscriptionGroupConfig, SubscriptionGroupList
from firearrow.wire.body_schema import Body
from firearrow.wire.codes import RequestCode as Code
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Header
from firearrow.wire.headers import admin, client
from firearrow.wire.names import RETRY_PREFIX, TRANS_HALF_TOPIC

REPLY_TOPIC_SUFFIX: Final = "REPLY_TOPIC"
_CACHED: Final = 4_096

B = TypeVar("B", bound=Body)

# Headers of requests that read what they name.
_NAME_TOPIC: Final[tuple[type[Header], ...]] = (
    client.SearchOffsetRequestHeader,
    client.GetMaxOffsetRequestHeader,
    client.GetMinOffsetRequestHeader,
    client.GetEarliestMsgStoretimeRequestHeader,
    admin.GetTopicStatsInfoRequestHeader,
    admin.QueryTopicConsumeByWhoRequestHeader,
    admin.GetTopicConfigRequestHeader,
)
_NAME_GROUP: Final[tuple[tuple[type[Header], str], ...]] = (
    (admin.GetConsumerConnectionListRequestHeader, "consumer_group"),
    (admin.GetConsumerRunningInfoRequestHeader, "consumer_group"),
    (admin.GetSubscriptionGroupConfigRequestHeader, "group"),
    (admin.QueryTopicsByConsumerRequestHeader, "group"),
)
_NAME_BOTH: Final[tuple[type[Header], ...]] = (
    admin.GetConsumerStatusRequestHeader,
    admin.QueryConsumeTimeSpanRequestHeader,
    admin.QuerySubscriptionByConsumerRequestHeader,
)

_CLUSTER_GET: Final = (
    Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.GET_TIMER_CHECK_POINT,
    Code.GET_TIMER_METRICS, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.GET_BROKER_HA_STATUS,
    Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.VIEW_BROKER_STATS_DATA,
    Code.GET_PRODUCER_CONNECTION_LIST, Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_PRODUCER_INFO,
    Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL,
)  # fmt: skip
_CLUSTER_UPDATE: Final = (
    Code.UPDATE_BROKER_CONFIG, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLEAN_UNUSED_TOPIC, Code.DELETE_EXPIRED_COMMITLOG,
    Code.SET_MESSAGE_REQUEST_MODE,
    Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER,
    Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL,
)  # fmt: skip


def broker_rules(context: BrokerContext) -> dict[int, Rule]:
    cluster = context.settings.broker_cluster_name
    reading, changing = (Need(CLUSTER, cluster, GET),), (Need(CLUSTER, cluster, UPDATE),)
    table: dict[int, Rule] = {int(code): lambda request: reading for code in _CLUSTER_GET}
    table |= {int(code): lambda request: changing for code in _CLUSTER_UPDATE}
    return table | _message_rules(context) | _consumer_rules() | _query_rules() | _topic_and_group_rules(context)


# ---- sending


def _message_rules(context: BrokerContext) -> dict[int, Rule]:
    records = RecordTopics(context.store)
    reply_topic = f"{context.settings.broker_cluster_name}_{REPLY_TOPIC_SUFFIX}"

    def send(request: Command) -> Needs:
        header = request.header or client.SendMessageRequestHeader.decode(request.ext)
        return _publish_needs(header.topic)

    def reply(request: Command) -> Needs:
        topic = client.SendMessageRequestHeader.decode(request.ext).topic
        return () if topic == reply_topic else _publish_needs(topic)

    def recall(request: Command) -> Needs:
        return _publish_needs(client.RecallMessageRequestHeader.decode(request.ext).topic)

    def end_transaction(request: Command) -> Needs:
        header = request.header or client.EndTransactionRequestHeader.decode(request.ext)
        # Java clients of 5.x answer a check with the topic of the check, that of half messages. The record decides.
        named = header.topic if header.topic != TRANS_HALF_TOPIC else None
        return _needs(
            [_topic(named, PUB)] if named else [],
            (_topic(topic, PUB) for topic in records.at(header.commit_log_offset)),
        )

    def send_back(request: Command) -> Needs:
        header = client.ConsumerSendMsgBackRequestHeader.decode(request.ext)
        return _needs([_group(header.group, SUB)], (_topic(topic, SUB) for topic in records.at(header.offset)))

    def view_message(request: Command) -> Needs:
        header = client.ViewMessageRequestHeader.decode(request.ext)
        return _needs(
            [_topic(header.topic, GET)] if header.topic else [], (_topic(topic, GET) for topic in records.at(header.offset))
        )

    def consume_directly(request: Command) -> Needs:
        header = admin.ConsumeMessageDirectlyResultRequestHeader.decode(request.ext)
        return _needs(
            [_group(header.consumer_group, SUB)],
            [_topic(header.topic, SUB)] if header.topic else [],
            (_topic(topic, SUB) for topic in records.named(header.msg_id or "")),
        )

    def resume_check(request: Command) -> Needs:
        header = admin.ResumeCheckHalfMessageRequestHeader.decode(request.ext)
        return _needs(
            [_topic(header.topic, UPDATE)] if header.topic else [],
            (_topic(topic, UPDATE) for topic in records.named(header.msg_id or "")),
        )

    return {
        Code.SEND_MESSAGE: send,
        Code.SEND_MESSAGE_V2: send,
        Code.SEND_BATCH_MESSAGE: send,
        Code.SEND_REPLY_MESSAGE: reply,
        Code.SEND_REPLY_MESSAGE_V2: reply,
        Code.RECALL_MESSAGE: recall,
        Code.END_TRANSACTION: end_transaction,
        Code.CONSUMER_SEND_MSG_BACK: send_back,
        Code.VIEW_MESSAGE_BY_ID: view_message,
        Code.CONSUME_MESSAGE_DIRECTLY: consume_directly,
        Code.RESUME_CHECK_HALF_MESSAGE: resume_check,
    }


# ---- consuming


def _consumer_rules() -> dict[int, Rule]:
    def pull(request: Command) -> Needs:
        header = request.header or client.PullMessageRequestHeader.decode(request.ext)
        return _consume_needs(header.topic, header.consumer_group, SUB)

    def heartbeat(request: Command) -> Needs:
        consumers = _body(request, bodies.HeartbeatData).consumer_data_set
        groups = (_group(consumer.group_name, SUB) for consumer in consumers)
        subscribed = (_topic(data.topic, SUB) for consumer in consumers for data in consumer.subscription_data_set)
        return _needs(groups, subscribed)

    def unregister(request: Command) -> Needs:
        group = client.UnregisterClientRequestHeader.decode(request.ext).consumer_group
        return _needs([_group(group, SUB)] if group else [])

    def list_consumers(request: Command) -> Needs:
        return _needs([_group(client.GetConsumerListByGroupRequestHeader.decode(request.ext).consumer_group, SUB | GET)])

    def query_offset(request: Command) -> Needs:
        header = client.QueryConsumerOffsetRequestHeader.decode(request.ext)
        return _consume_needs(header.topic, header.consumer_group, SUB | GET)

    def update_offset(request: Command) -> Needs:
        header = client.UpdateConsumerOffsetRequestHeader.decode(request.ext)
        return _consume_needs(header.topic, header.consumer_group, SUB | UPDATE)

    def lock(request: Command) -> Needs:
        body = _body(request, bodies.LockBatchRequestBody)
        return _needs([_group(body.consumer_group, SUB)], (_topic(queue.topic, SUB) for queue in body.mq_set))

    def check_subscription(request: Command) -> Needs:
        body = _body(request, bodies.CheckClientRequestBody)
        return _consume_needs(body.subscription_data.topic, body.group, SUB)

    def query_assignment(request: Command) -> Needs:
        body = _body(request, bodies.QueryAssignmentRequestBody)
        return _consume_needs(body.topic, body.consumer_group, SUB)

    return {
        Code.PULL_MESSAGE: pull,
        Code.LITE_PULL_MESSAGE: pull,
        Code.HEART_BEAT: heartbeat,
        Code.UNREGISTER_CLIENT: unregister,
        Code.GET_CONSUMER_LIST_BY_GROUP: list_consumers,
        Code.QUERY_CONSUMER_OFFSET: query_offset,
        Code.UPDATE_CONSUMER_OFFSET: update_offset,
        Code.LOCK_BATCH_MQ: lock,
        Code.UNLOCK_BATCH_MQ: lock,
        Code.CHECK_CLIENT_CONFIG: check_subscription,
        Code.QUERY_ASSIGNMENT: query_assignment,
    }


# ---- queries of messages, offsets and progress


def _query_rules() -> dict[int, Rule]:
    def query_message(request: Command) -> Needs:
        return _needs([_topic(client.QueryMessageRequestHeader.decode(request.ext).topic, SUB | GET)])

    def correction(request: Command) -> Needs:
        header = admin.QueryCorrectionOffsetHeader.decode(request.ext)
        groups = [header.compare_group, *filter(None, (header.filter_groups or "").split(","))]
        return _needs([_topic(header.topic, GET)], (_group(group, GET) for group in groups))

    def consume_stats(request: Command) -> Needs:
        header = admin.GetConsumeStatsRequestHeader.decode(request.ext)
        topics = [*filter(None, (header.topic_list or "").split(";")), *([header.topic] if header.topic else [])]
        return _needs([_group(header.consumer_group, GET)], (_topic(topic, GET) for topic in topics))

    def consume_queue(request: Command) -> Needs:
        header = admin.QueryConsumeQueueRequestHeader.decode(request.ext)
        group = header.consumer_group
        return _needs([_topic(header.topic, GET)], [_group(group, GET)] if group else [])

    table: dict[int, Rule] = {
        Code.QUERY_MESSAGE: query_message,
        Code.QUERY_CORRECTION_OFFSET: correction,
        Code.GET_CONSUME_STATS: consume_stats,
        Code.QUERY_CONSUME_QUEUE: consume_queue,
    }
    for kind in _NAME_TOPIC:
        table |= _named(kind, topic="topic", actions=GET)
    for kind, group in _NAME_GROUP:
        table |= _named(kind, group=group, actions=GET)
    for kind in _NAME_BOTH:
        table |= _named(kind, topic="topic", group="group", actions=GET)
    return table


# ---- changes of topics and groups


def _topic_and_group_rules(context: BrokerContext) -> dict[int, Rule]:
    """Creating needs Create, changing needs Update; Apache's policies have Create only, so that is enough for a change."""

    def change_of_topic(name: str) -> Need:
        return _topic(name, CREATE if context.topics.find(name) is None else CREATE | UPDATE)

    def change_of_group(name: str) -> Need:
        return _group(name, CREATE if context.groups.find(name) is None else CREATE | UPDATE)

    def update_topic(request: Command) -> Needs:
        return _needs([change_of_topic(admin.CreateTopicRequestHeader.decode(request.ext).topic)])

    def update_topics(request: Command) -> Needs:
        wanted = _body(request, CreateTopicListRequestBody).topic_config_list
        return _needs(change_of_topic(config.topic_name) for config in wanted)

    def update_group(request: Command) -> Needs:
        return _needs([change_of_group(_body(request, SubscriptionGroupConfig).group_name)])

    def update_groups(request: Command) -> Needs:
        wanted = _body(request, SubscriptionGroupList).group_config_list
        return _needs(change_of_group(config.group_name) for config in wanted)

    def clone_offsets(request: Command) -> Needs:
        header = admin.CloneGroupOffsetRequestHeader.decode(request.ext)
        groups = [_group(header.dest_group, UPDATE), _group(header.src_group, GET)]
        return _needs(groups, [_topic(header.topic, UPDATE)] if header.topic else [])

    return {
        Code.UPDATE_AND_CREATE_TOPIC: update_topic,
        Code.UPDATE_AND_CREATE_TOPIC_LIST: update_topics,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: update_group,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: update_groups,
        Code.CLONE_GROUP_OFFSET: clone_offsets,
        **_named(admin.DeleteTopicRequestHeader, topic="topic", actions=DELETE),
        **_named(admin.DeleteSubscriptionGroupRequestHeader, group="group_name", actions=DELETE),
        **_named(admin.ResetOffsetRequestHeader, topic="topic", group="group", actions=UPDATE),
        **_named(admin.UpdateGroupForbiddenRequestHeader, topic="topic", group="group", actions=UPDATE),
    }


# ---- parts of rules


def _named(kind: type[Header], *, actions: int, topic: str = "", group: str = "") -> dict[int, Rule]:
    """Return the rule for a header whose fields name a topic, a group or both."""
    assert kind.CODE is not None, "a response header has no rule"

    def rule(request: Command) -> Needs:
        header = kind.decode(request.ext)
        return _needs(
            [_topic(getattr(header, topic), actions)] if topic else [], [_group(getattr(header, group), actions)] if group else []
        )

    return {int(kind.CODE): rule}


def _topic(name: str, actions: int) -> Need:
    if not name.strip():
        raise AccessDeniedError("the request names no topic.")
    if name.startswith(RETRY_PREFIX):
        # Members of a group read and write its retry topic and ask for its offsets.
        return _group(name.removeprefix(RETRY_PREFIX), (actions & ~PUB) | SUB if actions & (PUB | GET) else actions)
    return Need(TOPIC, name, actions)


def _group(name: str, actions: int) -> Need:
    if not name.strip():
        raise AccessDeniedError("the request names no group.")
    return Need(GROUP, name.removeprefix(RETRY_PREFIX), actions)


def _needs(*parts: Iterable[Need]) -> Needs:
    """Return the needs of a request without repetitions."""
    return tuple(dict.fromkeys(need for part in parts for need in part))


@lru_cache(_CACHED)
def _publish_needs(topic: str) -> Needs:
    return (_topic(topic, PUB),)


@lru_cache(_CACHED)
def _consume_needs(topic: str, group: str, actions: int) -> Needs:
    return _needs([_topic(topic, actions), _group(group, actions)])


def _body(request: Command, kind: type[B]) -> B:
    return kind.from_json(fastjson.loads_object(request.body))
