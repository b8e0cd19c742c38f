"""Headers of what brokers, clients and operators ask a name server, and of what it tells brokers.

Requests without fields have no class here: 106, 206, 304, 311, 312, 313, 318, 319.
"""

from __future__ import annotations

from firearrow.wire.header_schema import Header, Long, field

# ---- brokers: 103, 104, 322, 901, 904, 905


class RegisterBrokerRequestHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str = ""
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None  # None: a broker too old to know of it
    compressed: bool = False
    body_crc32: int = 0  # 0: not checked
    zone_name: str | None = field(key="__ZONE_NAME", default=None)


class RegisterBrokerResponseHeader(Header):
    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionRequestHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(Header):
    changed: bool


class GetBrokerMemberGroupRequestHeader(Header):
    cluster_name: str
    broker_name: str


class BrokerHeartbeatRequestHeader(Header):
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: int | None = None


class NotifyMinBrokerIdChangeRequestHeader(Header):
    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


# ---- routes and topics: 105, 216, 217, 224


class GetRouteInfoRequestHeader(Header):
    topic: str
    accept_standard_json_only: bool = False


class DeleteTopicFromNamesrvRequestHeader(Header):
    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(Header):
    topic: str


class GetTopicsByClusterRequestHeader(Header):
    cluster: str


# ---- write permission: 205, 327


class WipeWritePermOfBrokerRequestHeader(Header):
    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header):
    wipe_topic_count: int


class AddWritePermOfBrokerRequestHeader(Header):
    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header):
    add_topic_count: int


# ---- key-value configuration: 100, 101, 102, 219


class PutKVConfigRequestHeader(Header):
    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header):
    namespace: str
    key: str


class GetKVConfigResponseHeader(Header):
    value: str | None = None


class DeleteKVConfigRequestHeader(Header):
    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header):
    namespace: str
