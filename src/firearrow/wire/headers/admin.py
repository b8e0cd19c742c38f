"""Headers of administrative requests to a broker (mqadmin, the dashboard, a slave) and of those it forwards to a consumer."""

from __future__ import annotations

from firearrow.wire.codes import RequestCode
from firearrow.wire.header_schema import Header, Long, field

# ---- topics


class CreateTopicRequestHeader(Header, code=RequestCode.UPDATE_AND_CREATE_TOPIC):
    topic: str
    default_topic: str = ""
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = field(default=False, omit_default=True)


class DeleteTopicRequestHeader(Header, code=RequestCode.DELETE_TOPIC_IN_BROKER):
    topic: str


class GetAllTopicConfigRequestHeader(Header, code=RequestCode.GET_ALL_TOPIC_CONFIG):
    """Paging, used by slaves; the dashboard sends no fields."""

    topic_seq: int | None = None
    max_topic_num: int | None = None
    data_version: str | None = None


class GetTopicConfigRequestHeader(Header, code=RequestCode.GET_TOPIC_CONFIG):
    topic: str
    lo: bool = field(default=False, omit_default=True)


class GetTopicStatsInfoRequestHeader(Header, code=RequestCode.GET_TOPIC_STATS_INFO):
    topic: str


class QueryTopicConsumeByWhoRequestHeader(Header, code=RequestCode.QUERY_TOPIC_CONSUME_BY_WHO):
    topic: str


class QueryTopicsByConsumerRequestHeader(Header, code=RequestCode.QUERY_TOPICS_BY_CONSUMER):
    group: str


class QuerySubscriptionByConsumerRequestHeader(Header, code=RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER):
    group: str
    topic: str


# ---- groups


class GetAllSubscriptionGroupRequestHeader(Header, code=RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
    group_seq: int | None = None
    max_group_num: int | None = None
    data_version: str | None = None


class GetSubscriptionGroupConfigRequestHeader(Header, code=RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG):
    group: str


class DeleteSubscriptionGroupRequestHeader(Header, code=RequestCode.DELETE_SUBSCRIPTIONGROUP):
    group_name: str
    clean_offset: bool = field(other="removeOffset", default=False)  # 4.9.8 uses the second key


class UpdateGroupForbiddenRequestHeader(Header, code=RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN):
    """Without `readable` the request only reads the current value."""

    group: str
    topic: str
    readable: bool | None = None


# ---- consumption


class GetConsumerConnectionListRequestHeader(Header, code=RequestCode.GET_CONSUMER_CONNECTION_LIST):
    consumer_group: str


class GetProducerConnectionListRequestHeader(Header, code=RequestCode.GET_PRODUCER_CONNECTION_LIST):
    producer_group: str


class GetConsumeStatsRequestHeader(Header, code=RequestCode.GET_CONSUME_STATS):
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # joined by `;`


class GetConsumeStatsInBrokerHeader(Header, code=RequestCode.GET_BROKER_CONSUME_STATS):
    is_order: bool = False


class QueryConsumeTimeSpanRequestHeader(Header, code=RequestCode.QUERY_CONSUME_TIME_SPAN):
    topic: str
    group: str


class QueryCorrectionOffsetHeader(Header, code=RequestCode.QUERY_CORRECTION_OFFSET):
    topic: str
    compare_group: str
    filter_groups: str | None = None  # joined by `,`


class CloneGroupOffsetRequestHeader(Header, code=RequestCode.CLONE_GROUP_OFFSET):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryConsumeQueueRequestHeader(Header, code=RequestCode.QUERY_CONSUME_QUEUE):
    topic: str
    queue_id: int
    index: Long
    count: int
    consumer_group: str | None = None


class GetConsumerRunningInfoRequestHeader(Header, code=RequestCode.GET_CONSUMER_RUNNING_INFO):
    """Forwarded by the broker to the consumer."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(Header, code=RequestCode.CONSUME_MESSAGE_DIRECTLY):
    """Forwarded by the broker to the consumer with the record as the body."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


# ---- resetting offsets


class ResetOffsetRequestHeader(Header, code=RequestCode.INVOKE_BROKER_TO_RESET_OFFSET):
    """Sent by an operator. A `queue_id` of -1 means all queues."""

    topic: str
    group: str
    queue_id: int = field(default=-1, omit_default=True)
    offset: Long | None = None
    timestamp: Long
    is_force: bool = field(default=False, omit_default=True)


class ResetConsumerClientOffsetRequestHeader(ResetOffsetRequestHeader, code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET):
    """Sent by the broker to consumers."""


class GetConsumerStatusRequestHeader(Header, code=RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS):
    """Sent by an operator."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerStatusFromClientRequestHeader(GetConsumerStatusRequestHeader, code=RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT):
    """Sent by the broker to consumers."""


# ---- the broker itself


class ViewBrokerStatsDataRequestHeader(Header, code=RequestCode.VIEW_BROKER_STATS_DATA):
    stats_name: str
    stats_key: str


class ResumeCheckHalfMessageRequestHeader(Header, code=RequestCode.RESUME_CHECK_HALF_MESSAGE):
    topic: str | None = None
    msg_id: str | None = None
