"""Bodies of administrative responses of a broker: statistics, offsets, connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from firearrow.wire.bodies.client import CONSUME_FROM_WHERES, CONSUME_TYPES, MESSAGE_MODELS, QueueBody, SubscriptionData
from firearrow.wire.bodies.topic import DataVersion
from firearrow.wire.body_schema import Body, member

# ---- statistics: 202, 208, 317, 315


@dataclass(slots=True)
class TopicOffset(Body):
    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@dataclass(slots=True)
class TopicStatsTable(Body):
    """202."""

    offset_table: dict[QueueBody, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


@dataclass(slots=True)
class OffsetWrapper(Body):
    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


@dataclass(slots=True)
class ConsumeStats(Body):
    """208."""

    offset_table: dict[QueueBody, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(slots=True)
class ConsumeStatsList(Body):
    """317: one map per group, with that group as its only key."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


@dataclass(slots=True)
class BrokerStatsItem(Body):
    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(slots=True)
class BrokerStatsData(Body):
    """315."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)


# ---- connections: 203, 204, 328, 300


@dataclass(slots=True)
class ClientConnection(Body):
    client_id: str = ""
    client_addr: str = ""
    language: str | None = "OTHER"
    version: int = 0


@dataclass(slots=True)
class ConsumerConnection(Body):
    """203."""

    connection_set: list[ClientConnection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: Annotated[str | None, CONSUME_TYPES] = None
    message_model: Annotated[str | None, MESSAGE_MODELS] = None
    consume_from_where: Annotated[str | None, CONSUME_FROM_WHERES] = None


@dataclass(slots=True)
class ProducerConnection(Body):
    """204."""

    connection_set: list[ClientConnection] = field(default_factory=list)


@dataclass(slots=True)
class ProducerInfo(Body):
    client_id: str = ""
    remote_ip: str = member(key="remoteIP", default="")
    language: str | None = "OTHER"
    version: int = 0
    last_update_timestamp: int = 0


@dataclass(slots=True)
class ProducerTableInfo(Body):
    """328."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@dataclass(slots=True)
class GroupList(Body):
    """300."""

    group_list: list[str] = field(default_factory=list)


@dataclass(slots=True)
class QuerySubscriptionResponseBody(Body):
    """345."""

    group: str = ""
    topic: str = ""
    subscription_data: SubscriptionData | None = None


# ---- offsets: 220, 221, 222, 223, 303, 308, 43, 45


@dataclass(slots=True)
class ResetOffsetBody(Body):
    """222, and 220 to every client but C++."""

    offset_table: dict[QueueBody, int] = field(default_factory=dict)


@dataclass(slots=True)
class MessageQueueForC(Body):
    topic: str
    broker_name: str
    queue_id: int
    offset: int = 0


@dataclass(slots=True)
class ResetOffsetBodyForC(Body):
    """220 to C++ clients, which cannot read object keys."""

    offset_table: list[MessageQueueForC] = field(default_factory=list)


@dataclass(slots=True)
class GetConsumerStatusBody(Body):
    """221 fills the first table, 223 the second: client id -> queue -> offset."""

    message_queue_table: dict[QueueBody, int] = field(default_factory=dict)
    consumer_table: dict[str, dict[QueueBody, int]] = field(default_factory=dict)


@dataclass(slots=True)
class QueueTimeSpan(Body):
    message_queue: QueueBody
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


@dataclass(slots=True)
class QueryConsumeTimeSpanBody(Body):
    """303."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


@dataclass(slots=True)
class QueryCorrectionOffsetBody(Body):
    """308."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class ConsumerOffsetSerializeWrapper(Body):
    """43: `topic@group` -> queue -> offset."""

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    group_topic_map: dict[str, list[str]] | None = None
    pull_offset_table: dict[str, dict[int, int]] | None = None


@dataclass(slots=True)
class DelayOffsetSerializeWrapper(Body):
    """45: delay level -> offset."""

    offset_table: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


# ---- one queue's entries: 321


@dataclass(slots=True)
class ConsumeQueueData(Body):
    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@dataclass(slots=True)
class QueryConsumeQueueResponseBody(Body):
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    min_queue_index: int = 0
    max_queue_index: int = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


# ---- replication: 907


@dataclass(slots=True)
class HAConnectionRuntimeInfo(Body):
    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


@dataclass(slots=True)
class HARuntimeInfo(Body):
    master: bool = True
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: dict[str, Any] = field(default_factory=dict)
