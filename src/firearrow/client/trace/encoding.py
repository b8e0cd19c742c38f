"""What is said in the trace topic about a message's life, in Apache's encoding.

A trace message has text as body: contexts one after the other, each of fields separated by U+0001 and ended by U+0002.

    Pub              time, region, group, topic, message id, tags, keys, broker address, body length, cost in ms, message type,
                     offset message id, success
    SubBefore        time, region, group, request id, message id, times it was consumed before, keys
    SubAfter         request id, message id, cost in ms, success, keys, outcome, time, group
    EndTransaction   time, region, group, topic, message id, tags, keys, broker address, message type, transaction id, state,
                     whether the broker had asked
    Recall           time, region, group, topic, message id, success

The name of the context is its first field. What is not there is written `null`, truth as `true` and `false`. The trace message
has the message ids and keys of its contexts as its keys, so that a query for those finds it.
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
    """What a listener made of a message."""

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
    """A message was sent."""
    fields = ("Pub", time_ms, region, group, topic, msg_id, tags, keys, address)
    return _context((*fields, body_length, cost_ms, int(kind), offset_msg_id, success), msg_id, keys)


def sub_before(
    *, time_ms: int, region: str | None, group: str, request_id: str, msg_id: str, retries: int, keys: str | None
) -> Context:
    """A message is about to be consumed. What becomes of it says `sub_after` with the same request id."""
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
    """A transaction was decided; `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
    fields = ("EndTransaction", time_ms, region or DEFAULT_REGION, group, topic, msg_id, tags, keys, address)
    kind = int(MessageKind.TRANSACTION_COMMIT)
    return _context((*fields, kind, transaction_id, state, from_check), msg_id, keys)


def recall(*, time_ms: int, region: str | None, group: str, topic: str, msg_id: str, success: bool) -> Context:
    return _context(("Recall", time_ms, region, group, topic, msg_id, success), msg_id, None)


def contexts(body: bytes) -> list[list[str]]:
    """The fields of each context of a trace message."""
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
