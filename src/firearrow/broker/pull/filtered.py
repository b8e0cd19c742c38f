"""Pulls through an SQL92 filter.

Tag filters need only the queue entries, and the store applies them. An SQL92 filter needs the properties of the messages: records
are read in portions and filtered here. One pull inspects no more entries than a tag filter would, and fewer if the filter or the
messages are large. A filter that selects nothing therefore costs a bounded amount, and the consumer continues behind the
inspected entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.store.commitlog.reader import GetResult, GetStatus
from firearrow.store.consume_queue import UNIT, ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire.record import iter_records, properties_span, queue_offset_at

if TYPE_CHECKING:
    from firearrow.broker.sql92 import Filter

_PORTION = 32
# Work of one pull in units of about 2 ns: every node of the filter may search and convert all properties of the message.
_MAX_WORK = 4_000_000
_BYTES_OF_A_CALL = 64  # what a node costs beyond the bytes that it searches
_READ_BYTES_PER_UNIT = 8


def get_filtered(store: MessageStore, queue: ConsumeQueue, offset: int, max_count: int, sql: Filter) -> GetResult:
    """Read like `store.get_messages` the messages whose properties match. Inspects at least one message if there is one."""
    matches, work = sql.matches, 0
    inspected, limit = 0, max(store.settings.max_filter_message_size // UNIT, max_count)
    bytes_left = store.settings.max_transfer_bytes_on_message_in_memory
    kept: list[bytes] = []
    result = store.get_messages(queue, offset, _PORTION)
    first_status = result.status
    while result.status is GetStatus.FOUND:
        at, body = offset, result.body
        for pos, size in iter_records(body):
            if work > _MAX_WORK:
                return _found(kept, at, queue) if kept else _none(at, queue)
            start, end = properties_span(body, pos)
            work += sql.size * (end - start + _BYTES_OF_A_CALL) + size // _READ_BYTES_PER_UNIT
            if matches(body[start:end]):
                if len(kept) == max_count or (kept and size > bytes_left):
                    return _found(kept, at, queue)
                kept.append(body[pos:end])
                bytes_left -= size
            at = queue_offset_at(body, pos) + 1
        inspected += result.next_begin_offset - offset
        offset = result.next_begin_offset
        if len(kept) == max_count or inspected >= limit or offset >= queue.max_offset:
            break
        result = store.get_messages(queue, offset, _PORTION)
    if kept:
        return _found(kept, offset, queue)
    if first_status is GetStatus.FOUND:
        return _none(offset, queue)
    return result


def _none(next_offset: int, queue: ConsumeQueue) -> GetResult:
    return GetResult(GetStatus.NO_MATCHED_MESSAGE, next_offset, queue.min_offset, queue.max_offset)


def _found(kept: list[bytes], next_offset: int, queue: ConsumeQueue) -> GetResult:
    return GetResult(GetStatus.FOUND, next_offset, queue.min_offset, queue.max_offset, b"".join(kept), len(kept))
