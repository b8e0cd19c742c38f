"""Which columns of a frame are taken when it is written, and what a frame must have.

`body` (binary or string) is needed; `topic`, `keys`, `tags`, `properties`, `flag`, `shardingKey`, `queueId` with `brokerName`,
`delayLevel`, `deliverTimeMs` and `idempotencyKey` are taken if they are there. Columns of the source that say where a message was
are let pass, so that a topic can be written as it was read; a frame with `queueOffset` is such a one, and its `queueId` and
`brokerName` are where its rows come from, not where they go to. Any other column is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from firearrow.client.producer.validation import check_sendable_topic
from firearrow.spark.errors import SparkOptionError

TAKEN: Final = {
    "body": ("binary", "string"), "topic": ("string",), "keys": ("string",), "tags": ("string",),
    "properties": ("map<string,string>",), "queueId": ("int",), "brokerName": ("string",), "shardingKey": ("string",),
    "delayLevel": ("int",), "deliverTimeMs": ("bigint",), "idempotencyKey": ("string",),
    "flag": ("int",),
}  # fmt: skip
_OF_THE_SOURCE: Final = frozenset((
    "queueOffset", "msgId", "offsetMsgId", "sysFlag", "bornTimestamp", "bornHost", "storeTimestamp", "storeHost",
    "reconsumeTimes", "preparedTransactionOffset", "commitLogOffset", "storeSize", "bodyCRC",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class InputColumns:
    """Which column of the frame is which. Plain data: it travels to executors."""

    places: dict[str, int]
    topic: str | None

    def column(self, rows: Any, name: str) -> Any:
        """The column of an Arrow batch; None if the frame has none of this name."""
        place = self.places.get(name)
        return None if place is None else rows.column(place)


def shape_of(fields: Sequence[tuple[str, str]], topic: str | None) -> InputColumns:
    """SparkOptionError for a column that nobody knows, one of a wrong type, or none that is needed."""
    known = {name.lower(): name for name in (*TAKEN, *_OF_THE_SOURCE)}
    places: dict[str, int] = {}
    for place, (given, kind) in enumerate(fields):
        name = known.get(given.lower())
        if name is None:
            near = get_close_matches(given.lower(), known, 1)
            help_ = f"did you mean {known[near[0]]}?" if near else f"expected some of {', '.join(TAKEN)}"
            raise SparkOptionError(f"unknown column {given!r}; {help_}")
        if name in TAKEN and kind not in TAKEN[name]:
            raise SparkOptionError(f"the column {name} has type {kind}, expected {' or '.join(TAKEN[name])}")
        places[name] = place
    if "body" not in places:
        raise SparkOptionError("there is no column body: what is to be sent?")
    from_source = "queueOffset" in places
    for name in _OF_THE_SOURCE | ({"queueId", "brokerName"} if from_source else set()):
        places.pop(name, None)
    if topic is not None:
        check_topic_name(topic)
        places.pop("topic", None)
    elif "topic" not in places:
        raise SparkOptionError("where to? give the option topic, or a column topic")
    if ("queueId" in places) != ("brokerName" in places):
        raise SparkOptionError("queueId and brokerName name a queue together: one of the columns is missing")
    return InputColumns(places, topic)


def check_topic_name(topic: str) -> None:
    try:
        check_sendable_topic(topic)
    except ValueError as error:
        raise SparkOptionError(f"option topic is {topic!r}: {error}") from None
