"""Configuration of topics and groups, in the tables of a broker, their files and on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from firearrow.wire.body_schema import Body


@dataclass(slots=True, frozen=True)
class DataVersion(Body):
    """Version of a table. Two versions are the same exactly when all three numbers are equal."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


@dataclass(slots=True)
class TopicConfig(Body):
    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class CreateTopicListRequestBody(Body):
    """18."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


@dataclass(slots=True)
class TopicConfigSerializeWrapper(Body):
    """21, and the inner part of a registration. The two mapping tables belong to static topics and are passed through."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, Any] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SubscriptionGroupConfig(Body):
    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[Any] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SubscriptionGroupList(Body):
    """225."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


@dataclass(slots=True)
class SubscriptionGroupWrapper(Body):
    """201."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclass(slots=True)
class GroupForbidden(Body):
    """353."""

    group: str = ""
    topic: str = ""
    readable: bool | None = None
