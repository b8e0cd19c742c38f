"""The path of a message: sent, delivered and consumed according to the trace topic, stored according to its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from firearrow.admin.errors import NotFoundError
from firearrow.admin.messages import messages_by_key
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.trace.encoding import Outcome, contexts
from firearrow.wire.names import TRACE_TOPIC

MAX_TRACES: Final = 64
_ORDER: Final = ("Pub", "Stored", "EndTransaction", "Recall", "SubBefore", "SubAfter")  # of events with the same time


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An event. `kind` is Pub, Stored, SubBefore, SubAfter, EndTransaction or Recall; fields a kind does not have are None."""

    kind: str
    time_ms: int
    group: str
    msg_id: str
    client: str
    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    address: str | None = None
    cost_ms: int | None = None
    success: bool | None = None
    retries: int | None = None
    outcome: str | None = None


async def message_trace(
    client: ClientInstance, msg_id: str, *, trace_topic: str = TRACE_TOPIC, max_messages: int = MAX_TRACES
) -> list[TraceEvent]:
    """Return the events of a message, given by the producer's id or a key, in the order of time; empty without traces."""
    found: list[TraceEvent] = []
    for message in await messages_by_key(client, trace_topic, msg_id, max_messages=max_messages):
        rows = contexts(message.body)
        begun = {row[4]: row for row in rows if row[0] == "SubBefore" and len(row) > 4}
        for row in rows:
            event = _event(row, message.born_host, begun)
            if event is not None and msg_id in (event.msg_id, *(event.keys or "").split()):
                found.append(event)
    sent = {(event.topic, event.msg_id) for event in found if event.kind == "Pub" and event.topic is not None}
    for topic, unique_key in sorted(sent):
        found += await _stored(client, topic, unique_key)
    return sorted(found, key=lambda event: (event.time_ms, _ORDER.index(event.kind)))


async def _stored(client: ClientInstance, topic: str, msg_id: str) -> list[TraceEvent]:
    """Return when and where brokers stored a message; nothing if it or its topic is deleted."""
    try:
        messages = await messages_by_key(client, topic, msg_id, unique=True)
    except NotFoundError:
        return []
    return [
        TraceEvent(
            "Stored", one.store_ms, "", msg_id, one.born_host, topic, one.tags, " ".join(one.keys) or None, one.store_host
        )
        for one in messages
    ]  # fmt: skip


def _event(row: Sequence[str], client: str, begun: Mapping[str, Sequence[str]]) -> TraceEvent | None:
    """Parse an event; None if it is malformed, because other clients write traces too."""
    try:
        match row[0]:
            case "Pub":
                return TraceEvent(
                    "Pub", int(row[1]), row[3], row[5], client, row[4], _known(row[6]), _known(row[7]), _known(row[8]),
                    int(row[10]), row[13 if len(row) > 13 else 12] == "true",
                )  # fmt: skip
            case "SubBefore":
                return TraceEvent("SubBefore", int(row[1]), row[3], row[5], client, keys=_known(row[7]), retries=int(row[6]))
            case "SubAfter":
                first = begun.get(row[1])
                group = row[8] if len(row) > 8 else first[3] if first is not None else ""
                time_ms = int(row[7]) if len(row) > 7 else int(first[1]) + int(row[3]) if first is not None else 0
                return TraceEvent(
                    "SubAfter", time_ms, group, row[2], client, keys=_known(row[5]), cost_ms=int(row[3]),
                    success=row[4] == "true", outcome=_outcome(row[6]) if len(row) > 6 else None,
                )  # fmt: skip
            case "EndTransaction":
                return TraceEvent(
                    "EndTransaction", int(row[1]), row[3], row[5], client, row[4], _known(row[6]), _known(row[7]), _known(row[8]),
                    outcome=row[11],
                )  # fmt: skip
            case "Recall":
                return TraceEvent("Recall", int(row[1]), row[3], row[5], client, row[4], success=row[6] == "true")
    except (IndexError, ValueError):
        pass
    return None


def _known(text: str) -> str | None:
    return None if text in ("null", "") else text


def _outcome(code: str) -> str:
    try:
        return Outcome(int(code)).name
    except ValueError:
        return code
