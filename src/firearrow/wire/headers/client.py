"""Headers of what producers and consumers ask a broker, and of what a broker asks them.

Names are Apache's. Where the comment says so, a field is declared optional although Apache calls it required, because a client
in use leaves it out.
"""

from __future__ import annotations

from firearrow.wire.header_schema import Header, Long, field

# ---- sending: 10, 310, 320, 324, 325


class SendMessageRequestHeader(Header):
    """10 with long keys; 310 and 320 with one-letter keys. Which ones a request uses is seen from the keys, not the code."""

    producer_group: str = field(short="a")
    topic: str = field(short="b")
    default_topic: str = field(short="c", default="")
    default_topic_queue_nums: int = field(short="d", default=0)
    queue_id: int = field(short="e")
    sys_flag: int = field(short="f")
    born_timestamp: Long = field(short="g")
    flag: int = field(short="h")
    properties: str = field(short="i", default="")
    reconsume_times: int = field(short="j", default=0)
    unit_mode: bool = field(short="k", default=False)
    max_reconsume_times: int | None = field(short="l", default=None)
    batch: bool = field(short="m", default=False)
    bname: str | None = field(short="n", default=None)


class SendMessageResponseHeader(Header):
    msg_id: str
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = field(key="MSG_REGION", default=None)
    trace_on: str | None = field(key="TRACE_ON", default=None)


class ReplyMessageRequestHeader(Header):
    """326, broker to requester: a reply to hand to whoever waits for it."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str = ""
    reconsume_times: int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long


# ---- pulling: 11, 361


class PullMessageRequestHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str = ""
    sub_version: Long = 0
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_froward_client_id: str | None = None
    bulk: bool = False  # ours: more messages in one answer than Apache's brokers give, which do not know it


class PullMessageResponseHeader(Header):
    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None


# ---- looking messages up: 12, 33


class QueryMessageRequestHeader(Header):
    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None
    unique_key_query: bool = field(key="_UNIQUE_KEY_QUERY", default=False)


class QueryMessageResponseHeader(Header):
    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageRequestHeader(Header):
    offset: Long
    topic: str | None = None


# ---- consumer offsets: 14, 15


class QueryConsumerOffsetRequestHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(Header):
    offset: Long | None = None


class UpdateConsumerOffsetRequestHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: Long


class UpdateConsumerOffsetResponseHeader(Header):
    pass


# ---- queue offsets: 29, 30, 31, 32


class SearchOffsetRequestHeader(Header):
    topic: str
    queue_id: int
    timestamp: Long
    boundary_type: str | None = None


class SearchOffsetResponseHeader(Header):
    offset: Long


class GetMaxOffsetRequestHeader(Header):
    topic: str
    queue_id: int
    committed: bool = True


class GetMaxOffsetResponseHeader(Header):
    offset: Long


class GetMinOffsetRequestHeader(Header):
    topic: str
    queue_id: int


class GetMinOffsetResponseHeader(Header):
    offset: Long


class GetEarliestMsgStoretimeRequestHeader(Header):
    topic: str
    queue_id: int


class GetEarliestMsgStoretimeResponseHeader(Header):
    timestamp: Long


# ---- clients and groups: 34, 35, 38, 40


class HeartbeatRequestHeader(Header):
    pass


class HeartbeatResponseHeader(Header):
    """Both fields may be left out: the client then keeps sending whole heartbeats."""

    is_support_heart_beat_v2: bool | None = field(key="IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_sub_change: bool | None = field(key="IS_SUB_CHANGE", default=None)


class UnregisterClientRequestHeader(Header):
    client_id: str = field(key="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class UnregisterClientResponseHeader(Header):
    pass


class GetConsumerListByGroupRequestHeader(Header):
    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(Header):
    consumer_group: str


# ---- retry: 36


class ConsumerSendMsgBackRequestHeader(Header):
    offset: Long
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None


# ---- transactions: 37, 39


class EndTransactionRequestHeader(Header):
    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str | None = None  # the C++ client leaves it out
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(Header):
    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None


# ---- queue locks 41 and 42, filters 46, assignment 400: nothing in the header, see the bodies


class LockBatchMqRequestHeader(Header):
    pass


class UnlockBatchMqRequestHeader(Header):
    pass


# ---- recall: 370


class RecallMessageRequestHeader(Header):
    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(Header):
    msg_id: str


# ---- POP: 200050 .. 200056, 200151


class PopMessageRequestHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    invisible_time: Long
    poll_time: Long
    born_time: Long = 0
    init_mode: int
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(Header):
    pop_time: Long
    invisible_time: Long
    revive_qid: int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long


class ChangeInvisibleTimeRequestHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long
    invisible_time: Long
    suspend: bool = False


class ChangeInvisibleTimeResponseHeader(Header):
    pop_time: Long
    invisible_time: Long
    revive_qid: int


class PeekMessageRequestHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int


class NotificationRequestHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int
    poll_time: Long
    born_time: Long = 0
    order: bool = False
    attempt_id: str | None = None


class NotificationResponseHeader(Header):
    has_msg: bool
    polling_full: bool = False


class PollingInfoRequestHeader(Header):
    consumer_group: str
    topic: str
    queue_id: int


class PollingInfoResponseHeader(Header):
    polling_num: int
