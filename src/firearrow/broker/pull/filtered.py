"""Pulls through an SQL92 filter.

Tag filters need only the queue entries, and the store applies them. An SQL92 filter needs the properties of the messages: records
are read in portions and filtered here. One pull inspects no more entries than a tag filter would. A filter that selects nothing
therefore costs a bounded amount, and the consumer continues behind the inspected entries.
"""

from __future__ import annotations

from collections.abc import Callable

from firearrow.store.commitlog.reader import GetResult, GetStatus
from firearrow.store.consume_queue import UNIT, ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire.record import iter_records, properties_span, queue_offset_at

_PORTION = 32


def get_filtered(
    store: MessageStore, queue: ConsumeQueue, offset: int, max_count: int, matches: Callable[[bytes], bool]
) -> GetResult:
    """Read like `store.get_messages` the messages whose properties match."""
    inspected, limit = 0, max(store.settings.max_filter_message_size // UNIT, max_count)
    bytes_left = store.settings.max_transfer_bytes_on_message_in_memory
    kept: list[bytes] = []
    result = store.get_messages(queue, offset, _PORTION)
    first_status = result.status
    while result.status is GetStatus.FOUND:
        at, body = offset, result.body
        for pos, size in iter_records(body):
            start, end = properties_span(body, pos)
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
        return GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.max_offset)
    return result


def _found(kept: list[bytes], next_offset: int, queue: ConsumeQueue) -> GetResult:
    return GetResult(GetStatus.FOUND, next_offset, queue.min_offset, queue.max_offset, b"".join(kept), len(kept))
