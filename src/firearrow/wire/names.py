"""Names of topics and groups: validation, system names, and the topics that belong to a group.

A name becomes a directory of the store, so the check also keeps `../../x` out. Legal characters are letters, digits, `_`, `-`,
`%` and `|`. A topic has at most 127 characters; groups and their retry and dead letter topics have at most 255.
"""

from __future__ import annotations

import re
from typing import Final

TOPIC_MAX_CHARS: Final = 127
GROUP_MAX_CHARS: Final = 255
GROUP_TOPIC_MAX_CHARS: Final = 255

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

PROXY_BROKER_INFIX: Final = "-standin-"
"""A follower of an elected group is also registered as `<brokerName>-standin-<memberId>` and forwards sends to the leader."""

AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"

SYSTEM_TOPICS: Final = frozenset((
    AUTO_CREATE_TOPIC_KEY_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, TRANS_HALF_TOPIC, TRACE_TOPIC, TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_EVENT, CHECKPOINT_TOPIC,
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
))  # fmt: skip
"""Beside these every topic that begins with `rmq_sys_`, and the broker's cluster and broker names, are system topics."""

NOT_SENDABLE_TOPICS: Final = frozenset((
    SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_EVENT,
    TIMER_TOPIC,
))  # fmt: skip
"""Clients may not send to these: only the broker writes them."""

TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
BUILT_IN_GROUPS: Final = (
    TOOLS_CONSUMER_GROUP, "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
)  # fmt: skip

_legal = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
_LEGAL_CHARS: Final = "letters, digits, _ - % |"


def check_topic(name: str) -> None:
    """Raise ValueError unless `name` is a legal topic name. The message is suitable as a response to a client."""
    _check(name, "topic", GROUP_TOPIC_MAX_CHARS if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_MAX_CHARS)


def check_group(name: str) -> None:
    """Raise ValueError unless `name` is a legal group name. The message is suitable as a response to a client."""
    _check(name, "group", GROUP_MAX_CHARS)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def is_system_topic(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(name: str) -> bool:
    return name in BUILT_IN_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


def proxied_broker(name: str) -> str | None:
    """Return the broker that the follower registered as `name` forwards to; None if `name` is not such a proxy."""
    broker, infix, _ = name.rpartition(PROXY_BROKER_INFIX)
    return broker if infix and broker else None


def _check(name: str, what: str, longest: int) -> None:
    if not name.strip():
        raise ValueError(f"the specified {what} is blank")
    if len(name) > longest:
        raise ValueError(f"the specified {what} {name[:64]!r}... has {len(name)} characters, longer than the maximum {longest}")
    if _legal(name) is None:
        raise ValueError(f"the specified {what} {name!r} contains illegal characters, allowed are {_LEGAL_CHARS}")
