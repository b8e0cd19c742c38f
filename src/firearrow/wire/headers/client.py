"""Headers of the requests between brokers and their producers and consumers.

Names are Apache's. Some fields that Apache declares required are optional here because a client in use leaves them out; a comment
says which client.
"""

from __future__ import annotations

from firearrow.wire.codes import RequestCode
from firearrow.wire.header_schema import Header, Long, field

# ---- sending


class SendMessageRequestHeader(Header, code=RequestCode.SEND_MESSAGE):
    """Header of every send request. `decode` recognises long and one-letter keys, whatever the code is."""

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


class SendMessageRequestHeaderV2(SendMessageRequestHeader, code=RequestCode.SEND_MESSAGE_V2, short_keys=True):
    pass


class SendBatchMessageRequestHeader(SendMessageRequestHeader, code=RequestCode.SEND_BATCH_MESSAGE, short_keys=True):
    pass


class ReplyMessageRequestHeader(Header, code=RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT):
    """Sent by a broker to the client whose request is being answered."""

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


# ---- pulling


class PullMessageRequestHeader(Header, code=RequestCode.PULL_MESSAGE):
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long = 0
    subscription: str = field(default="", omit_default=True)
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_froward_client_id: str | None = None
    # An extension of Firearrow: more messages in one response. Apache's brokers ignore it.
    bulk: bool = field(default=False, omit_default=True)


class LitePullMessageRequestHeader(PullMessageRequestHeader, code=RequestCode.LITE_PULL_MESSAGE):
    pass


class PullMessageResponseHeader(Header):
    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None


# ---- queries


class QueryMessageRequestHeader(Header, code=RequestCode.QUERY_MESSAGE):
    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool = field(key="_UNIQUE_KEY_QUERY", default=False, omit_default=True)
    index_type: str | None = None
    last_key: str | None = None


class ViewMessageRequestHeader(Header, code=RequestCode.VIEW_MESSAGE_BY_ID):
    offset: Long
    topic: str | None = None


# ---- consumer offsets


class QueryConsumerOffsetRequestHeader(Header, code=RequestCode.QUERY_CONSUMER_OFFSET):
    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(Header):
    offset: Long | None = None


class UpdateConsumerOffsetRequestHeader(Header, code=RequestCode.UPDATE_CONSUMER_OFFSET):
    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: Long


# ---- queue offsets


class SearchOffsetRequestHeader(Header, code=RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
    topic: str
    queue_id: int
    timestamp: Long
    boundary_type: str | None = None


class SearchOffsetResponseHeader(Header):
    offset: Long


class GetMaxOffsetRequestHeader(Header, code=RequestCode.GET_MAX_OFFSET):
    topic: str
    queue_id: int
    committed: bool = field(default=True, omit_default=True)


class GetMaxOffsetResponseHeader(Header):
    offset: Long


class GetMinOffsetRequestHeader(Header, code=RequestCode.GET_MIN_OFFSET):
    topic: str
    queue_id: int


class GetMinOffsetResponseHeader(Header):
    offset: Long


class GetEarliestMsgStoretimeRequestHeader(Header, code=RequestCode.GET_EARLIEST_MSG_STORETIME):
    topic: str
    queue_id: int


# ---- clients and groups


class UnregisterClientRequestHeader(Header, code=RequestCode.UNREGISTER_CLIENT):
    client_id: str = field(key="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(Header, code=RequestCode.GET_CONSUMER_LIST_BY_GROUP):
    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(Header, code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED):
    consumer_group: str


# ---- retry


class ConsumerSendMsgBackRequestHeader(Header, code=RequestCode.CONSUMER_SEND_MSG_BACK):
    offset: Long
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None


# ---- transactions


class EndTransactionRequestHeader(Header, code=RequestCode.END_TRANSACTION):
    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str | None = None  # the C++ client leaves it out
    transaction_id: str | None = None
    bname: str | None = None


class CheckTransactionStateRequestHeader(Header, code=RequestCode.CHECK_TRANSACTION_STATE):
    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None


# ---- recall


class RecallMessageRequestHeader(Header, code=RequestCode.RECALL_MESSAGE):
    producer_group: str | None = None
    topic: str
    recall_handle: str
    bname: str | None = None
