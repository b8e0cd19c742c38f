"""Batches: several messages of one topic in one request to one queue.

A batch has the maximum size of a message; further messages go into the next batch. Its messages are uncompressed, have an id
each, and get consecutive offsets. Brokers accept neither delayed nor half messages in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from firearrow.client.errors import FirearrowError, InvalidMessageError
from firearrow.client.message import Message, SendResult
from firearrow.client.producer.validation import check_body, properties_text
from firearrow.wire import batch

_FIXED_BYTES = 22  # per message in a batch, in addition to body and properties


class Batch(NamedTuple):
    messages: list[Message]
    msg_ids: list[str]
    body: bytes


class PartialBatchError(FirearrowError):
    """A batch of a `send_batch` failed after others were stored. `results` are those of the stored messages."""

    def __init__(self, results: list[SendResult], total: int, cause: BaseException) -> None:
        self.results = results
        super().__init__(f"{len(results)} of {total} messages were stored before an error: {cause}; send the others again")


def split_into_batches(
    messages: Sequence[Message], max_size: int, next_id: Callable[[], str], extra: Callable[[], dict[str, str]]
) -> Iterator[Batch]:
    """Split messages into batches of at most `max_size` bytes. InvalidMessageError, before the first, for an invalid message."""
    if not messages:
        raise InvalidMessageError("the batch is empty: pass at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise InvalidMessageError(
                f"the batch mixes messages for {first.topic!r} and {message.topic!r}: use one batch per topic"
            )
        if message.wait_store != first.wait_store:
            raise InvalidMessageError("wait_store differs within the batch: use two batches")
    ready: list[tuple[Message, str, bytes]] = []
    for message in messages:
        check_body(message, max_size)
        msg_id = next_id()
        properties = properties_text(message, msg_id, extra()).encode()
        size = _FIXED_BYTES + len(message.body) + len(properties)
        if size > max_size:
            raise InvalidMessageError(
                f"a message to {message.topic!r} takes {size} bytes in a batch, more than max_message_size {max_size}"
            )
        ready.append((message, msg_id, properties))
    return _batches(ready, max_size)


def results_of(batch_messages: int, result: SendResult) -> list[SendResult]:
    """Return the result of each message from that of its batch."""
    offset_ids = result.offset_msg_id.split(",")
    msg_ids = result.msg_id.split(",")
    if len(offset_ids) != batch_messages:  # a broker that stores a batch as one unit returns one id
        offset_ids = [result.offset_msg_id] * batch_messages
    return [
        replace(result, msg_id=msg_ids[n], offset_msg_id=offset_ids[n], queue_offset=result.queue_offset + n)
        for n in range(batch_messages)
    ]


def _batches(ready: list[tuple[Message, str, bytes]], max_size: int) -> Iterator[Batch]:
    part: list[tuple[Message, str, bytes]] = []
    size = 0
    for entry in ready:
        entry_size = _FIXED_BYTES + len(entry[0].body) + len(entry[2])
        if part and size + entry_size > max_size:
            yield _joined(part)
            part, size = [], 0
        part.append(entry)
        size += entry_size
    yield _joined(part)


def _joined(part: list[tuple[Message, str, bytes]]) -> Batch:
    body = batch.join((message.flag, bytes(message.body), properties) for message, _, properties in part)
    return Batch([message for message, _, _ in part], [msg_id for _, msg_id, _ in part], body)
