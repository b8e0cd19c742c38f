"""Columns that a written frame may have.

`body` (binary or string) is required. `topic`, `keys`, `tags`, `properties`, `flag`, `shardingKey`, `queueId` with `brokerName`,
`delayLevel`, `deliverTimeMs` and `idempotencyKey` are optional. Columns of the source that describe where a message was are
ignored, so that a frame can be written as it was read. If one of them is `queueOffset`, then `queueId` and `brokerName` are
ignored too: they are where a row comes from, not its destination. Any other column is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from firearrow.client.producer.validation import check_sendable_topic
from firearrow.spark.errors import SparkOptionError, suggest

INPUT_COLUMNS: Final = {
    "body": ("binary", "string"), "topic": ("string",), "keys": ("string",), "tags": ("string",),
    "properties": ("map<string,string>",), "queueId": ("int",), "brokerName": ("string",), "shardingKey": ("string",),
    "delayLevel": ("int",), "deliverTimeMs": ("bigint",), "idempotencyKey": ("string",),
    "flag": ("int",),
}  # fmt: skip
_SOURCE_COLUMNS: Final = frozenset((
    "queueOffset", "msgId", "offsetMsgId", "sysFlag", "bornTimestamp", "bornHost", "storeTimestamp", "storeHost",
    "reconsumeTimes", "preparedTransactionOffset", "commitLogOffset", "storeSize", "bodyCRC",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class InputColumns:
    """Indexes of the used columns of a frame, and the target topic. Plain data, sent to executors."""

    indexes: dict[str, int]
    topic: str | None

    def column(self, rows: Any, name: str) -> Any:
        """Return a column of an Arrow batch, or None if the frame does not have it."""
        index = self.indexes.get(name)
        return None if index is None else rows.column(index)


def match_columns(fields: Sequence[tuple[str, str]], topic: str | None) -> InputColumns:
    """Find the columns by name. SparkOptionError for an unknown or missing column, or one of the wrong type."""
    known = {name.lower(): name for name in (*INPUT_COLUMNS, *_SOURCE_COLUMNS)}
    indexes: dict[str, int] = {}
    for index, (given, kind) in enumerate(fields):
        name = known.get(given.lower())
        if name is None:
            expected = f"expected some of {', '.join(INPUT_COLUMNS)}"
            raise SparkOptionError(f"unknown column {given!r}; {suggest(given, known.values(), expected)}")
        if name in INPUT_COLUMNS and kind not in INPUT_COLUMNS[name]:
            raise SparkOptionError(f"the column {name} has type {kind}, expected {' or '.join(INPUT_COLUMNS[name])}")
        indexes[name] = index
    if "body" not in indexes:
        raise SparkOptionError("the column body is missing")
    from_source = "queueOffset" in indexes
    for name in _SOURCE_COLUMNS | ({"queueId", "brokerName"} if from_source else set()):
        indexes.pop(name, None)
    if topic is not None:
        check_topic_name(topic)
        indexes.pop("topic", None)
    elif "topic" not in indexes:
        raise SparkOptionError("no target: give the option topic, or a column topic")
    if ("queueId" in indexes) != ("brokerName" in indexes):
        raise SparkOptionError("queueId and brokerName must be given together")
    return InputColumns(indexes, topic)


def check_topic_name(topic: str) -> None:
    try:
        check_sendable_topic(topic)
    except ValueError as error:
        raise SparkOptionError(f"option topic is {topic!r}: {error}") from None
