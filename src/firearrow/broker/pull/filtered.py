"""Pulls through an SQL92 filter.

Tag filters need only the queue entries, and the store applies them. An SQL92 filter needs the properties of the messages: records
are read in portions and filtered here. One pull inspects no more entries than a tag filter would. A filter that selects nothing
therefore costs a bounded amount, and the consumer continues behind the inspected entries.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from firearrow.store.commitlog.reader import GetResult, GetStatus
from firearrow.store.consume_queue import UNIT, ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire.record import AT_BODY_LENGTH_V4, AT_SYS_FLAG, BORN_HOST_V6, MAGIC_V1, STORE_HOST_V6

_PORTION = 32
_size_and_magic = struct.Struct(">ii").unpack_from
_i32 = struct.Struct(">i").unpack_from
_u16 = struct.Struct(">H").unpack_from


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
        at = offset
        for record in split_records(result.body):
            if matches(properties_of(record)):
                if len(kept) == max_count or (kept and len(record) > bytes_left):
                    return _found(kept, at, queue)
                kept.append(record)
                bytes_left -= len(record)
            at = queue_offset_of(record) + 1
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


def split_records(body: bytes) -> list[bytes]:
    records, pos = [], 0
    while pos < len(body):
        size: int = _size_and_magic(body, pos)[0]
        records.append(body[pos : pos + size])
        pos += size
    return records


def properties_of(record: bytes) -> bytes:
    """Return the properties block of a stored record."""
    sys_flag = _i32(record, AT_SYS_FLAG)[0]
    at = AT_BODY_LENGTH_V4 + (12 if sys_flag & BORN_HOST_V6 else 0) + (12 if sys_flag & STORE_HOST_V6 else 0)
    at += 4 + _i32(record, at)[0]
    if _size_and_magic(record)[1] == MAGIC_V1:
        at += 1 + record[at]
    else:
        at += 2 + _u16(record, at)[0]
    return record[at + 2 :]


def queue_offset_of(record: bytes) -> int:
    return int.from_bytes(record[20:28], "big")


def _found(kept: list[bytes], next_offset: int, queue: ConsumeQueue) -> GetResult:
    return GetResult(GetStatus.FOUND, next_offset, queue.min_offset, queue.max_offset, b"".join(kept), len(kept))
