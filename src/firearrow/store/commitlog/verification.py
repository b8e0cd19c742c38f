"""Comparison of records that were read from the log with their queue entries and checksums.

A record is intact if

- its size and its position are those of the queue entry,
- its parts add up to its size,
- its topic, queue id and queue offset are those of the queue, and
- BODYCRC is the checksum of its body.

Apache's format has no checksum for the other fields: a changed bit in a property, a time or a host is not detected.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from firearrow.store.accelerated import native
from firearrow.store.consume_queue import ENTRY, ConsumeQueue
from firearrow.wire.record import FIXED_BYTES_V1, HEAD_BYTES, MAGIC_V1, MAGIC_V2, ipv6_extra_bytes

_FRONT = Struct(">iiiiiqqi")
_I32 = Struct(">i")
_U16 = Struct(">H")
_OTHER_TOPICS = "%LMQ%"  # Apache's light message queues have entries for records of other topics


def count_intact(records: bytes, entries: bytes, queue: ConsumeQueue, queue_offset: int) -> int:
    """Return the number of intact records before the first damaged one.

    `records` are those of the consecutive `entries` of a queue from `queue_offset`, one after the other.
    """
    topic = b"" if queue.topic.startswith(_OTHER_TOPICS) else queue.topic_name
    if native is not None:
        return native.count_intact(records, entries, queue.queue_id, queue_offset, topic)
    at = good = 0
    for offset, size, _ in ENTRY.iter_unpack(entries):
        if size < FIXED_BYTES_V1 or size > len(records) - at:
            break
        owner = (queue.queue_id, queue_offset + good, topic)
        if not _is_intact(records[at : at + size], offset, owner if topic else None):
            break
        at += size
        good += 1
    return good


def is_intact(record: bytes, offset: int) -> bool:
    """Return whether a record of any queue is intact and belongs at this log offset."""
    if len(record) < FIXED_BYTES_V1:
        return False
    if native is not None:
        return native.count_intact(record, ENTRY.pack(offset, len(record), 0), 0, 0, b"") == 1
    return _is_intact(record, offset, None)


def _is_intact(record: bytes, offset: int, owner: tuple[int, int, bytes] | None) -> bool:
    size, magic, crc, queue_id, _, queue_offset, physical_offset, sys_flag = _FRONT.unpack_from(record)
    if size != len(record) or magic not in (MAGIC_V1, MAGIC_V2) or physical_offset != offset:
        return False
    at = HEAD_BYTES + ipv6_extra_bytes(sys_flag)
    width = 2 if magic == MAGIC_V2 else 1
    if at + width + 2 > size:
        return False
    (body_length,) = _I32.unpack_from(record, at - 4)
    body_end = at + body_length
    if body_length < 0 or body_end + width + 2 > size:
        return False
    topic_at = body_end + width
    topic_end = topic_at + int.from_bytes(record[body_end:topic_at], "big")
    if topic_end + 2 > size or topic_end + 2 + _U16.unpack_from(record, topic_end)[0] != size:
        return False
    if owner is not None and owner != (queue_id, queue_offset, record[topic_at:topic_end]):
        return False
    return bool(crc32(record[at:body_end]) & 0x7FFFFFFF == crc)
