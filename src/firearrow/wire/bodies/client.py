"""Bodies exchanged between clients and brokers: heartbeats, subscriptions, queue locks, assignments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from firearrow.wire.body_schema import Body, Names, member

CONSUME_TYPES = Names("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = Names("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERES = Names(
    "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP",
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class QueueBody(Body):
    """A queue; hashable, so usable as a key."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(slots=True)
class SubscriptionData(Body):
    topic: str
    sub_string: str = "*"
    tags_set: list[str] = field(default_factory=list)
    code_set: list[int] = field(default_factory=list)
    sub_version: int = 0
    expression_type: str | None = "TAG"
    class_filter_mode: bool = False


@dataclass(slots=True)
class ConsumerData(Body):
    group_name: str
    consume_type: Annotated[str | None, CONSUME_TYPES] = None
    message_model: Annotated[str | None, MESSAGE_MODELS] = None
    consume_from_where: Annotated[str | None, CONSUME_FROM_WHERES] = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@dataclass(slots=True)
class ProducerData(Body):
    group_name: str


@dataclass(slots=True)
class HeartbeatData(Body):
    """34."""

    client_id: str = member(key="clientID")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = member(other="isWithoutSub", default=False)


@dataclass(slots=True)
class LockBatchRequestBody(Body):
    """41."""

    consumer_group: str
    client_id: str
    mq_set: list[QueueBody] = field(default_factory=list)
    only_this_broker: bool = False


@dataclass(slots=True)
class LockBatchResponseBody(Body):
    lock_ok_mq_set: list[QueueBody] = field(default_factory=list, metadata={"key": "lockOKMQSet"})


@dataclass(slots=True)
class UnlockBatchRequestBody(LockBatchRequestBody):
    """42."""


@dataclass(slots=True)
class GetConsumerListByGroupResponseBody(Body):
    """38."""

    consumer_id_list: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CheckClientRequestBody(Body):
    """46."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


@dataclass(slots=True)
class QueryAssignmentRequestBody(Body):
    """400."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: Annotated[str | None, MESSAGE_MODELS] = None


@dataclass(slots=True)
class MessageQueueAssignment(Body):
    message_queue: QueueBody
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


@dataclass(slots=True)
class QueryAssignmentResponseBody(Body):
    message_queue_assignments: list[MessageQueueAssignment] = field(default_factory=list)


@dataclass(slots=True)
class SetMessageRequestModeRequestBody(Body):
    """401, and one entry of 402."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0


@dataclass(slots=True)
class MessageRequestModeSerializeWrapper(Body):
    """402: topic -> group -> mode."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(default_factory=dict)


@dataclass(slots=True)
class ConsumerRunningInfo(Body):
    """307. A broker relays it without decoding."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[QueueBody, dict[str, Any]] = field(default_factory=dict)
    mq_pop_table: dict[QueueBody, dict[str, Any]] = field(default_factory=dict)
    status_table: dict[str, dict[str, Any]] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


@dataclass(slots=True)
class ConsumeMessageDirectlyResult(Body):
    """309. A broker relays it without decoding."""

    order: bool = False
    auto_commit: bool = True
    consume_result: Annotated[
        str | None, Names("CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL")
    ] = None
    remark: str | None = None
    spent_time_mills: int = 0
