"""Bodies of name server responses: routes, clusters, topic lists, key-value tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from firearrow.wire.body_schema import Body, member


@dataclass(slots=True)
class QueueData(Body):
    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 6
    topic_sys_flag: int = member(other="topicSynFlag", default=0)  # spelling of older name servers


@dataclass(slots=True)
class BrokerData(Body):
    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)  # broker id -> ip:port; 0 is the master
    enable_acting_master: bool = False
    zone_name: str | None = None


@dataclass(slots=True)
class TopicRouteData(Body):
    """105. Some clients parse this text by hand: it has no spaces, and bare broker ids for old clients."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    queue_datas: list[QueueData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, Any] | None = None


@dataclass(slots=True)
class ClusterInfo(Body):
    """106."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class BrokerMemberGroup(Body):
    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class GetBrokerMemberGroupResponseBody(Body):
    """901."""

    broker_member_group: BrokerMemberGroup = field(default_factory=BrokerMemberGroup)


@dataclass(slots=True)
class TopicList(Body):
    """206, 224, 304, 305, 311, 312, 313, 343."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


@dataclass(slots=True)
class KVTable(Body):
    """219, 28, and the response to a registration."""

    table: dict[str, str] = field(default_factory=dict)
