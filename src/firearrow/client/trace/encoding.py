"""Encoding of message traces, identical to Apache's.

The body of a trace message is text: contexts, each with fields separated by U+0001 and terminated by U+0002.

    Pub              time, region, group, topic, message id, tags, keys, broker address, body length, cost in ms, message type,
                     offset message id, success
    SubBefore        time, region, group, request id, message id, times it was consumed before, keys
    SubAfter         request id, message id, cost in ms, success, keys, outcome, time, group
    EndTransaction   time, region, group, topic, message id, tags, keys, broker address, message type, transaction id, state,
                     caused by a check of the broker
    Recall           time, region, group, topic, message id, success

The first field is the name of the context. Absent values are `null`, booleans `true` and `false`. The keys of the trace message
are the message ids and keys of its contexts, so that a query for these finds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from firearrow.client.hooks import MessageKind

FIELD: Final = "\x01"
CONTEXT: Final = "\x02"
DEFAULT_REGION: Final = "DefaultRegion"


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


def pub(
    *,
    time_ms: int,
    region: str | None,
    group: str,
    topic: str,
    msg_id: str,
    tags: str | None,
    keys: str | None,
    address: str | None,
    body_length: int,
    cost_ms: int,
    kind: MessageKind,
    offset_msg_id: str | None,
    success: bool,
) -> Context:
    """Encode the send of a message."""
    fields = ("Pub", time_ms, region, group, topic, msg_id, tags, keys, address)
    return _context((*fields, body_length, cost_ms, int(kind), offset_msg_id, success), msg_id, keys)


def sub_before(
    *, time_ms: int, region: str | None, group: str, request_id: str, msg_id: str, retries: int, keys: str | None
) -> Context:
    """Encode the start of a consumption; `sub_after` with the same request id has the outcome."""
    return _context(("SubBefore", time_ms, region, group, request_id, msg_id, retries, keys), msg_id, keys)


def sub_after(
    *, time_ms: int, group: str, request_id: str, msg_id: str, cost_ms: int, success: bool, keys: str | None, outcome: Outcome
) -> Context:
    fields = ("SubAfter", request_id, msg_id, cost_ms, success, keys, int(outcome), time_ms, group)
    return _context(fields, msg_id, keys)


def end_transaction(
    *,
    time_ms: int,
    region: str | None,
    group: str,
    topic: str,
    msg_id: str,
    tags: str | None,
    keys: str | None,
    address: str | None,
    transaction_id: str | None,
    state: str,
    from_check: bool,
) -> Context:
    """Encode the outcome of a transaction; `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
    fields = ("EndTransaction", time_ms, region or DEFAULT_REGION, group, topic, msg_id, tags, keys, address)
    kind = int(MessageKind.TRANSACTION_COMMIT)
    return _context((*fields, kind, transaction_id, state, from_check), msg_id, keys)


def recall(*, time_ms: int, region: str | None, group: str, topic: str, msg_id: str, success: bool) -> Context:
    return _context(("Recall", time_ms, region, group, topic, msg_id, success), msg_id, None)


def contexts(body: bytes) -> list[list[str]]:
    """Decode a trace message into the fields of its contexts."""
    return [context.split(FIELD) for context in body.decode(errors="replace").split(CONTEXT) if context]


def _context(fields: Iterable[object], msg_id: str, keys: str | None) -> Context:
    text = FIELD.join("null" if one is None else _text(one) for one in fields) + CONTEXT
    return Context(text, (msg_id, *(keys or "").split()))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if FIELD in text or CONTEXT in text:
        text = text.replace(FIELD, " ").replace(CONTEXT, " ")
    return text
