"""Batches: many messages of one topic in one request, for one queue.

A batch is as large as one message may be; what does not fit goes into the next one. Its messages travel uncompressed, each with
its own id, and get consecutive offsets. Brokers take no delayed messages and no halves of transactions in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from firearrow.client.errors import FirearrowError, InvalidMessageError
from firearrow.client.message import Message, SendResult
from firearrow.client.producer.validation import check_body, properties_text
from firearrow.wire import batch

_FIXED_BYTES = 22  # of a message in a batch, beside its body and properties


class Batch(NamedTuple):
    messages: list[Message]
    msg_ids: list[str]
    body: bytes


class PartialBatchError(FirearrowError):
    """Some batches of a `send_batch` were stored before one failed. `results` are those of the messages that were stored."""

    def __init__(self, results: list[SendResult], total: int, cause: BaseException) -> None:
        self.results = results
        super().__init__(f"{len(results)} of {total} messages were stored, then: {cause}; send the others again")


def split_into_batches(
    messages: Sequence[Message], max_size: int, next_id: Callable[[], str], more: Callable[[], dict[str, str]]
) -> Iterator[Batch]:
    """Batches of at most `max_size` bytes, in order. InvalidMessageError, before the first one, if one message cannot be sent."""
    if not messages:
        raise InvalidMessageError("an empty batch: give at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise InvalidMessageError(
                f"a batch for {first.topic!r} with a message for {message.topic!r}: make a batch for each topic"
            )
        if message.wait_store != first.wait_store:
            raise InvalidMessageError("a batch in which some messages wait for the store and some do not: make two of it")
    ready: list[tuple[Message, str, bytes]] = []
    for message in messages:
        check_body(message, max_size)
        msg_id = next_id()
        properties = properties_text(message, msg_id, more()).encode()
        size = _FIXED_BYTES + len(message.body) + len(properties)
        if size > max_size:
            raise InvalidMessageError(
                f"a message to {message.topic!r} takes {size} bytes in a batch, more than max_message_size {max_size}"
            )
        ready.append((message, msg_id, properties))
    return _batches(ready, max_size)


def results_of(batch_messages: int, result: SendResult) -> list[SendResult]:
    """The result of each message, from that of its batch."""
    offset_ids = result.offset_msg_id.split(",")
    msg_ids = result.msg_id.split(",")
    if len(offset_ids) != batch_messages:  # brokers that keep a batch as one unit give one id
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
