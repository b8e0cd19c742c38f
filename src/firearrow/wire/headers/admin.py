"""Headers of what operators ask a broker (mqadmin, the dashboard, a slave), and of what a broker passes on to a consumer.

Requests that carry everything in the body, or nothing at all, have no class here: 18, 25, 28, 43, 45, 200, 225, 305, 306, 316,
328, 329, 402, 907.
"""

from __future__ import annotations

from firearrow.wire.header_schema import Header, Long, field

# ---- topics: 17, 21, 202, 215, 300, 343, 345, 351


class CreateTopicRequestHeader(Header):
    """17 and 513."""

    topic: str
    default_topic: str = ""
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class DeleteTopicRequestHeader(Header):
    """215, and 216 at the name server's side is `DeleteTopicFromNamesrvRequestHeader`."""

    topic: str


class GetAllTopicConfigRequestHeader(Header):
    """Paging, which a slave asks for; the dashboard sends no header at all."""

    topic_seq: int | None = None
    data_version: str | None = None
    max_topic_num: int | None = None


class GetAllTopicConfigResponseHeader(Header):
    """A client that gets no number takes the body as complete."""

    total_topic_num: int | None = None


class GetTopicConfigRequestHeader(Header):
    topic: str
    lo: bool = False


class GetTopicStatsInfoRequestHeader(Header):
    topic: str


class QueryTopicConsumeByWhoRequestHeader(Header):
    topic: str


class QueryTopicsByConsumerRequestHeader(Header):
    group: str


class QuerySubscriptionByConsumerRequestHeader(Header):
    group: str
    topic: str


# ---- groups: 201, 207, 352, 353


class GetAllSubscriptionGroupRequestHeader(Header):
    group_seq: int | None = None
    data_version: str | None = None
    max_group_num: int | None = None


class GetAllSubscriptionGroupResponseHeader(Header):
    total_group_num: int | None = None


class GetSubscriptionGroupConfigRequestHeader(Header):
    group: str


class DeleteSubscriptionGroupRequestHeader(Header):
    group_name: str
    clean_offset: bool = field(other="removeOffset", default=False)  # 4.9.8 has the second name


class UpdateGroupForbiddenRequestHeader(Header):
    """353; without `readable` it only reads the present value."""

    group: str
    topic: str
    readable: bool | None = None


# ---- consumption: 203, 204, 208, 303, 307, 308, 309, 314, 317, 321


class GetConsumerConnectionListRequestHeader(Header):
    consumer_group: str


class GetProducerConnectionListRequestHeader(Header):
    producer_group: str


class GetConsumeStatsRequestHeader(Header):
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # joined by `;`


class GetConsumeStatsInBrokerHeader(Header):
    """317; the name has no `Request` in it at Apache's either."""

    is_order: bool = False


class QueryConsumeTimeSpanRequestHeader(Header):
    topic: str
    group: str


class QueryCorrectionOffsetHeader(Header):
    """308."""

    topic: str
    compare_group: str
    filter_groups: str | None = None  # joined by `,`


class CloneGroupOffsetRequestHeader(Header):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryConsumeQueueRequestHeader(Header):
    topic: str
    queue_id: int
    index: Long
    count: int
    consumer_group: str | None = None


class GetConsumerRunningInfoRequestHeader(Header):
    """307, which the broker passes on to the consumer as it came."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(Header):
    """309, passed on to the consumer with the record as the body."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


# ---- moving offsets: 220, 221, 222, 223


class ResetOffsetRequestHeader(Header):
    """222 from an operator; 220 from the broker to consumers. `offset` and `queue_id` of -1 mean: none given, all queues."""

    topic: str
    group: str
    queue_id: int = -1
    offset: Long | None = None
    timestamp: Long
    is_force: bool = False


class GetConsumerStatusRequestHeader(Header):
    """221 and 223."""

    topic: str
    group: str
    client_addr: str | None = None


# ---- the broker itself: 26, 315, 323


class GetBrokerConfigResponseHeader(Header):
    version: str


class ViewBrokerStatsDataRequestHeader(Header):
    stats_name: str
    stats_key: str


class ResumeCheckHalfMessageRequestHeader(Header):
    topic: str | None = None
    msg_id: str | None = None
