"""Encoding of message traces, identical to Apache's.

The body of a trace message is text: contexts, each with fields separated by U+0001 and terminated by U+0002. The first field
is the name of the context, and FIELDS lists the others. Absent values are `null`, booleans `true` and `false`. The keys of the
trace message are the message ids and keys of its contexts, so that a query for these finds it.

Java clients also write `Recall` contexts: time, region, group, topic, message id, success.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

FIELD: Final = "\x01"
CONTEXT: Final = "\x02"
DEFAULT_REGION: Final = "DefaultRegion"

FIELDS: Final = {
    "Pub": (
        "time_ms", "region", "group", "topic", "msg_id", "tags", "keys", "address", "body_length", "cost_ms", "kind",
        "offset_msg_id", "success",
    ),
    "SubBefore": ("time_ms", "region", "group", "request_id", "msg_id", "retries", "keys"),
    "SubAfter": ("request_id", "msg_id", "cost_ms", "success", "keys", "outcome", "time_ms", "group"),
    "EndTransaction": (
        "time_ms", "region", "group", "topic", "msg_id", "tags", "keys", "address", "kind", "transaction_id", "state",
        "from_check",
    ),
}  # fmt: skip


class Outcome(IntEnum):
    """The outcome of a consumption."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NOTHING = 3
    FAILED = 4


class Context(NamedTuple):
    text: str
    keys: tuple[str, ...]


def encode(name: str, **values: object) -> Context:
    """Encode a context; `values` are all of its fields."""
    fields = (name, *(values[field] for field in FIELDS[name]))
    keys = values["keys"]
    return Context(FIELD.join(map(_text, fields)) + CONTEXT, (str(values["msg_id"]), *str(keys or "").split()))


def contexts(body: bytes) -> list[list[str]]:
    """Decode a trace message into the fields of its contexts."""
    return [context.split(FIELD) for context in body.decode(errors="replace").split(CONTEXT) if context]


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if FIELD in text or CONTEXT in text:
        text = text.replace(FIELD, " ").replace(CONTEXT, " ")
    return text
