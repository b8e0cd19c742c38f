"""Administration of topics: creation, changes, deletion, statistics, consumers, cleanup."""

from __future__ import annotations

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.requests.responses import Refused, check_list, done, json_answer, read_body
from firearrow.broker.tables.topics import check_new_name, parse_attribute_changes
from firearrow.net.server import Connection
from firearrow.wire.bodies.admin import GroupList, QuerySubscriptionResponseBody, TopicOffset, TopicStatsTable
from firearrow.wire.bodies.client import QueueBody
from firearrow.wire.bodies.route import TopicList
from firearrow.wire.bodies.topic import CreateTopicListRequestBody, DataVersion, TopicConfig, TopicConfigSerializeWrapper
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.headers import admin as headers
from firearrow.wire.names import LMQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS, is_system_topic

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    return _change_handlers(broker) | _query_handlers(broker)


def _change_handlers(broker: BrokerContext) -> dict[int, Handler]:
    """Handlers that create, change, delete and clean up topics."""
    topics = broker.topics

    def update_and_create_topic(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.CreateTopicRequestHeader.decode(request.ext)
        if header.topic_filter_type not in FILTER_TYPES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"topicFilterType is {header.topic_filter_type[:64]!r}, not in {FILTER_TYPES}"
            )
        wanted = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        with broker.stats.topics_created.timed(system=is_system_topic(header.topic)):
            topics.update(wanted, now_ms, alter=parse_attribute_changes(header.attributes))
        return done(request)

    def update_and_create_topic_list(conn: Connection, request: Command, now_ms: int) -> bytes:
        wanted = read_body(request, CreateTopicListRequestBody.from_json).topic_config_list
        check_list(wanted, "topics")
        with broker.stats.topics_created.timed(system=any(is_system_topic(one.topic_name) for one in wanted)):
            topics.update_all(wanted, now_ms)
        return done(request)

    def delete_topic(conn: Connection, request: Command, now_ms: int) -> bytes:
        topic = headers.DeleteTopicRequestHeader.decode(request.ext).topic
        if not topic.strip():
            raise Refused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if topic in topics.system_topics() or is_system_topic(topic):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic, and stays.")
        check_new_name(topic)  # a name that no topic can have must not get near the files
        # POP consumers retry through a topic of their own for each topic; both spellings of its name.
        retries = {f"{RETRY_PREFIX}{group}{joint}{topic}" for group in broker.offsets.groups_of(topic) for joint in "_+"}
        for name in (topic, *(retry for retry in retries if topics.find(retry) is not None)):
            forget_topic(broker, name, now_ms)
        return done(request)

    def clean_unused_topic(conn: Connection, request: Command, now_ms: int) -> bytes:
        stored = {queue.topic for queue in broker.store.queues()}
        for topic in stored - topics.all().keys():
            if not is_system_topic(topic) and not topic.startswith(LMQ_PREFIX):
                forget_topic(broker, topic, now_ms)
        return done(request)

    def nothing_to_clean(conn: Connection, request: Command, now_ms: int) -> bytes:
        """Respond with success: queue files always follow the log, so 306 has nothing to do."""
        return done(request)

    def delete_expired_commitlog(conn: Connection, request: Command, now_ms: int) -> bytes:
        broker.store.delete_expired(now_ms)
        return done(request)

    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: update_and_create_topic,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: update_and_create_topic_list,
        RequestCode.DELETE_TOPIC_IN_BROKER: delete_topic,
        RequestCode.CLEAN_UNUSED_TOPIC: clean_unused_topic,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: nothing_to_clean,
        RequestCode.DELETE_EXPIRED_COMMITLOG: delete_expired_commitlog,
    }


def _query_handlers(broker: BrokerContext) -> dict[int, Handler]:
    """Handlers that describe topics and their consumers."""
    topics = broker.topics

    def get_all_topic_config(conn: Connection, request: Command, now_ms: int) -> bytes:
        headers.GetAllTopicConfigRequestHeader.decode(request.ext)
        mapping = DataVersion(timestamp=broker.boot_ms)
        wrapper = TopicConfigSerializeWrapper(data_version=topics.data_version, mapping_data_version=mapping)
        return json_answer(request, wrapper.to_json() | {"topicConfigTable": topics.encoded()})

    def get_topic_config(conn: Connection, request: Command, now_ms: int) -> bytes:
        return json_answer(request, topics.must_find(headers.GetTopicConfigRequestHeader.decode(request.ext).topic))

    def get_topic_stats_info(conn: Connection, request: Command, now_ms: int) -> bytes:
        config = topics.must_find(headers.GetTopicStatsInfoRequestHeader.decode(request.ext).topic)
        topic = config.topic_name
        table = {}
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            queue = broker.store.find_queue(topic, queue_id)
            low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
            last = broker.store.reader.store_time(queue, high - 1) if queue is not None and high > low else None
            table[QueueBody(topic, broker.name, queue_id)] = TopicOffset(low, high, last or 0)
        return json_answer(request, TopicStatsTable(table, broker.stats.tps("TOPIC_PUT_NUMS", topic)))

    def get_system_topic_list(conn: Connection, request: Command, now_ms: int) -> bytes:
        return json_answer(request, TopicList(sorted(topics.system_topics() | SYSTEM_TOPICS)))

    def query_topic_consume_by_who(conn: Connection, request: Command, now_ms: int) -> bytes:
        topic = headers.QueryTopicConsumeByWhoRequestHeader.decode(request.ext).topic
        groups = dict.fromkeys((*broker.clients.groups_subscribed_to(topic), *broker.offsets.groups_of(topic)))
        return json_answer(request, GroupList(list(groups)))

    def query_topics_by_consumer(conn: Connection, request: Command, now_ms: int) -> bytes:
        group = headers.QueryTopicsByConsumerRequestHeader.decode(request.ext).group
        return json_answer(request, TopicList(broker.offsets.topics_of(group), broker.address))

    def query_subscription_by_consumer(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.QuerySubscriptionByConsumerRequestHeader.decode(request.ext)
        known = broker.clients.subscription(header.group, header.topic)
        return json_answer(request, QuerySubscriptionResponseBody(header.group, header.topic, known))

    return {
        RequestCode.GET_ALL_TOPIC_CONFIG: get_all_topic_config,
        RequestCode.GET_TOPIC_CONFIG: get_topic_config,
        RequestCode.GET_TOPIC_STATS_INFO: get_topic_stats_info,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: get_system_topic_list,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: query_topic_consume_by_who,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: query_topics_by_consumer,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: query_subscription_by_consumer,
    }


def forget_topic(broker: BrokerContext, topic: str, now_ms: int) -> None:
    """Remove a topic from every table and its queues from the store. A new topic of the same name starts at offset 0."""
    broker.topics.delete(topic, now_ms)
    for queue in [queue for queue in broker.store.queues() if queue.topic == topic]:
        broker.wake_queue(topic, queue.queue_id)  # parked pulls are resumed and learn that the topic is gone
    broker.offsets.remove_topic(topic)
    broker.request_modes.remove_topic(topic)
    broker.stats.topic_deleted(topic)
    broker.store.drop_topic(topic)
