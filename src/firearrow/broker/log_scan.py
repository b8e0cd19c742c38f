"""Searches in the newest part of the log, by which services find out after a crash or an election what was done before.

All of them read only confirmed records.
"""

from __future__ import annotations

from collections.abc import Iterator

from firearrow.store.message_store import MessageStore
from firearrow.wire import record

_CHUNK = 1 << 20
MAX_BYTES = 256 * 1024 * 1024  # searched for deliveries, at 0.6 us per record: 0.15 s with records of 1 KB
_NEWEST_MS = (3_000, 1_000, 300)


def records_since(store: MessageStore, start: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield (data, position, size) of every record from log offset `start`, a record boundary, on. The CRC is not checked."""
    segment_size = store.settings.mapped_file_size_commit_log
    offset = start
    while offset < store.confirm_offset:
        segment_end = offset - offset % segment_size + segment_size
        data = store.read(offset, min(_CHUNK, segment_end - offset))
        passed = 0
        for at, size in record.iter_records(data):
            passed = at + size
            yield data, at, size
        if not passed:
            size, magic = record.SIZE_AND_MAGIC.unpack_from(data) if len(data) >= record.BLANK_BYTES else (0, 0)
            if magic in record.RECORD_MAGICS and len(data) < size <= segment_end - offset:
                data = store.read(offset, size)  # a record larger than the chunk
                for at, size in record.iter_records(data):
                    passed = at + size
                    yield data, at, size
        # Without a record the rest of this segment is empty or unreadable.
        offset = offset + passed if passed else segment_end


def first_stored_since(store: MessageStore, since_ms: int) -> int | None:
    """Return the physical offset of the first message stored at `since_ms` or later; None without such a message."""
    found: int | None = None
    for queue in store.queues():
        last = store.reader.store_time(queue, queue.max_offset - 1)
        if last is None or last < since_ms:
            continue
        entry = queue.entry(store.reader.offset_by_time(queue, since_ms))
        if entry is not None and (found is None or entry[0] < found):
            found = entry[0]
    return found


def delivered_since(store: MessageStore, since_ms: int) -> set[int]:
    """Return the physical offsets of the deferred messages that were delivered at `since_ms` or later.

    A delivered message names the record it was copied from in PREPAREDTRANSACTIONOFFSET, a field that otherwise only committed
    transactions use. So the log itself says what was delivered, however old the saved progress is. The search is limited: of
    more than MAX_BYTES only the newest seconds are read. What is missed is delivered again.

    Offset 0 means that the field is not set, so the delivery of the first record of a store cannot be found.
    """
    if since_ms > store.confirmed_ms:
        return set()
    for start_ms in (since_ms, *(store.confirmed_ms - newest_ms for newest_ms in _NEWEST_MS)):
        start = first_stored_since(store, start_ms)
        if start is None:
            return set()
        if store.confirm_offset - start <= MAX_BYTES:
            origin_of = record.prepared_transaction_offset_at
            origins = {origin_of(data, at) for data, at, _ in records_since(store, start)}
            origins.discard(0)
            return origins
    return set()
