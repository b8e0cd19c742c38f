"""Dead letters: messages whose consumption failed too often. They are stored in the topic `%DLQ%group`.

A dead letter is resent to the group's retry topic by default, so that only the group that failed receives it. It can also be sent
to its original topic, for all groups, or to another topic. It remains in the dead letter topic until the log expires and is not
marked as resent.

An export has one JSON object per line: msg_id, topic (the original one), group, tags, keys, properties, flag, stored_ms,
reconsume_times, and the body in base64.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from firearrow.admin.cluster import for_each
from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.messages import Progress, find_message, matches, scan, spans, store_copy
from firearrow.admin.topics import list_topics, topic_status
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.errors import FirearrowError
from firearrow.client.message import ReceivedMessage
from firearrow.escaping import escape_json
from firearrow.wire.names import DLQ_PREFIX, RETRY_PREFIX, dlq_topic, retry_topic
from firearrow.wire.properties import PROPERTY_ORIGIN_MESSAGE_ID, PROPERTY_RETRY_TOPIC, PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX

TO_GROUP: Final = "group"
TO_ORIGIN: Final = "origin"
To = Literal["group", "origin"] | str


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """The number of dead letters of a group."""

    group: str
    messages: int
    last_stored_ms: int | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as it is exported and resent."""

    msg_id: str
    group: str
    topic: str  # the original topic
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    flag: int
    stored_ms: int
    reconsume_times: int


@dataclass(slots=True)
class Resent:
    """The result of resending dead letters."""

    sent: int = 0
    failed: int = 0
    first_failure: str = ""


async def dead_letter_counts(client: ClientInstance) -> list[DeadLetterCount]:
    """Return the groups that have dead letters, with their number."""
    topics = [one.topic for one in await list_topics(client) if one.topic.startswith(DLQ_PREFIX)]

    async def count(topic: str) -> DeadLetterCount:
        try:
            queues = await topic_status(client, topic)
        except NotFoundError:  # its broker has it, but has not registered it yet
            queues = []
        last = max((queue.last_stored_ms or 0 for queue in queues), default=0)
        return DeadLetterCount(topic.removeprefix(DLQ_PREFIX), sum(queue.messages for queue in queues), last or None)

    return [one for one in await for_each(topics, count) if one.messages]


async def dead_letters_of(
    client: ClientInstance,
    group: str,
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    topic: str | None = None,
    tag: str | None = None,
    key: str | None = None,
    contains: bytes | None = None,
    max_messages: int | None = None,
    progress: Progress | None = None,
) -> list[DeadLetter]:
    """Return the dead letters of a group, optionally of a time range, original topic, tag, key or content."""
    try:
        parts = await spans(client, dlq_topic(group), begin=begin, end=end)
    except NotFoundError:
        raise NotFoundError(f"group {group!r} has no dead letters: topic {dlq_topic(group)} does not exist") from None
    found: list[DeadLetter] = []
    async for message in scan(client, parts, progress):
        letter = dead_letter(message, group)
        if (topic is None or letter.topic == topic) and matches(message, tag=tag, key=key, contains=contains):
            found.append(letter)
            if max_messages is not None and len(found) >= max_messages:
                break
    return found


async def find_dead_letter(client: ClientInstance, group: str, msg_id: str) -> DeadLetter:
    """Return a dead letter by either of its ids."""
    return dead_letter(await find_message(client, dlq_topic(group), msg_id), group)


async def resend_dead_letters(
    client: ClientInstance,
    letters: Iterable[DeadLetter],
    *,
    to: To = TO_GROUP,
    rate: float | None = None,
    progress: Progress | None = None,
    on_failure: Callable[[DeadLetter, FirearrowError], None] | None = None,
) -> Resent:
    """Send dead letters again, at most `rate` per second. A failure does not stop the others."""
    wanted, result = list(letters), Resent()
    began = time.monotonic()
    for number, letter in enumerate(wanted):
        if rate is not None:
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        try:
            await _resend(client, letter, to)
            result.sent += 1
        except FirearrowError as error:
            result.failed += 1
            result.first_failure = result.first_failure or f"{letter.msg_id}: {error}"
            if on_failure is not None:
                on_failure(letter, error)
        if progress is not None:
            progress(number + 1, len(wanted))
    return result


def dead_letter(message: ReceivedMessage, group: str) -> DeadLetter:
    """Return the dead letter that a message of the dead letter topic is."""
    known = message.all_properties
    origin = known.get("DLQ_ORIGIN_TOPIC") or known.get(PROPERTY_RETRY_TOPIC) or message.topic
    return DeadLetter(
        message.msg_id, group, origin, message.body, message.tags, message.keys, known, message.flag, message.store_ms,
        message.reconsume_times,
    )  # fmt: skip


def export_line(letter: DeadLetter) -> str:
    """Return a dead letter as a line of an export."""
    text = json.dumps(
        {
            "msg_id": letter.msg_id, "group": letter.group, "topic": letter.topic, "tags": letter.tags, "keys": list(letter.keys),
            "properties": dict(letter.properties), "flag": letter.flag, "stored_ms": letter.stored_ms,
            "reconsume_times": letter.reconsume_times, "body": base64.b64encode(letter.body).decode(),
        },
        ensure_ascii=False,
    )  # fmt: skip
    return escape_json(text)


def import_line(line: str) -> DeadLetter:
    """Parse a line of an export. Raises AdminError if it is malformed."""
    try:
        value: dict[str, Any] = json.loads(line)
        known = value["properties"]
        if not isinstance(known, dict) or not all(isinstance(part, str) for pair in known.items() for part in pair):
            raise TypeError("properties must be strings")
        return DeadLetter(
            str(value["msg_id"]), str(value["group"]), str(value["topic"]), base64.b64decode(value["body"], validate=True),
            value.get("tags"), tuple(value.get("keys") or ()), known, int(value.get("flag") or 0),
            int(value.get("stored_ms") or 0), int(value.get("reconsume_times") or 0),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        what = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise AdminError(f"not a line of a dead letter export: {what}") from None


async def _resend(client: ClientInstance, letter: DeadLetter, to: To) -> None:
    known = dict(letter.properties)
    known.setdefault(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, letter.msg_id)
    if to == TO_GROUP:
        topic = retry_topic(letter.group)
        known[PROPERTY_RETRY_TOPIC] = letter.topic
        known.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, letter.msg_id)
    else:
        topic = letter.topic if to == TO_ORIGIN else to
        if topic.startswith((DLQ_PREFIX, RETRY_PREFIX)):
            raise AdminError(f"a dead letter cannot be sent to {topic!r}; expected a topic of an application")
    await store_copy(client, topic, letter.body, known, letter.flag)
