"""Headers of requests to a name server, and of those it sends to brokers."""

from __future__ import annotations

from firearrow.wire.codes import RequestCode
from firearrow.wire.header_schema import Header, Long, field

# ---- brokers


class RegisterBrokerRequestHeader(Header, code=RequestCode.REGISTER_BROKER):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str = ""
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None  # None from a broker that is too old to know it
    compressed: bool = False
    body_crc32: int = 0  # 0: not checked
    zone_name: str | None = field(key="__ZONE_NAME", default=None)


class RegisterBrokerResponseHeader(Header):
    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header, code=RequestCode.UNREGISTER_BROKER):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionRequestHeader(Header, code=RequestCode.QUERY_DATA_VERSION):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(Header):
    changed: bool


class GetBrokerMemberGroupRequestHeader(Header, code=RequestCode.GET_BROKER_MEMBER_GROUP):
    cluster_name: str
    broker_name: str


class BrokerHeartbeatRequestHeader(Header, code=RequestCode.BROKER_HEARTBEAT):
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: int | None = None


class NotifyMinBrokerIdChangeRequestHeader(Header, code=RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE):
    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


# ---- routes and topics


class GetRouteInfoRequestHeader(Header, code=RequestCode.GET_ROUTEINFO_BY_TOPIC):
    topic: str
    accept_standard_json_only: bool = field(default=False, omit_default=True)


class DeleteTopicFromNamesrvRequestHeader(Header, code=RequestCode.DELETE_TOPIC_IN_NAMESRV):
    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(Header, code=RequestCode.REGISTER_TOPIC_IN_NAMESRV):
    topic: str


class GetTopicsByClusterRequestHeader(Header, code=RequestCode.GET_TOPICS_BY_CLUSTER):
    cluster: str


# ---- write permission


class WipeWritePermOfBrokerRequestHeader(Header, code=RequestCode.WIPE_WRITE_PERM_OF_BROKER):
    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header):
    wipe_topic_count: int


class AddWritePermOfBrokerRequestHeader(Header, code=RequestCode.ADD_WRITE_PERM_OF_BROKER):
    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header):
    add_topic_count: int


# ---- key-value configuration


class PutKVConfigRequestHeader(Header, code=RequestCode.PUT_KV_CONFIG):
    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, code=RequestCode.GET_KV_CONFIG):
    namespace: str
    key: str


class GetKVConfigResponseHeader(Header):
    value: str | None = None


class DeleteKVConfigRequestHeader(Header, code=RequestCode.DELETE_KV_CONFIG):
    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, code=RequestCode.GET_KVLIST_BY_NAMESPACE):
    namespace: str
