"""Recovery of the transaction state from the half topic, the op topic and the tail of the log.

    1  Read the op messages from the first that is still needed: the half messages they name are decided.
    2  Search the log after the newest op message for commits that no op message names. Their half messages are decided as well
       and go into the next op message. Without this step, after a crash between a commit and its op message, the producer would
       be checked again and the message delivered twice.
    3  Read every half message that is still open, newest first, to find copies of the same message. Both may be open if the
       broker stopped before it saved that the older one is decided. This is done in batches. Apache's copies do not name their
       origin; there, equal unique key, born time and born host identify the message.

Step 2 reads only what was written since the newest op message and the first open half message. Apache's broker may write a commit
and its op message in either order, so the search begins `OVERLAP_MS` earlier.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from firearrow.broker.log_scan import records_since
from firearrow.broker.tables.consumer_offsets import OffsetTable
from firearrow.broker.transaction.half_message import SYSTEM_GROUP, Half, half_at, read_half
from firearrow.broker.transaction.op_queue import OpMessages, parse_offsets
from firearrow.broker.transaction.state import ENDED, MOVED, OPEN, HalfStates
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire import record
from firearrow.wire.errors import ProtocolError

log = logging.getLogger("firearrow.broker")

OVERLAP_MS = 10_000


def saved_offset(offsets: OffsetTable, queue: ConsumeQueue) -> int:
    """Return the saved progress of a queue, limited to its current range."""
    saved = offsets.query(SYSTEM_GROUP, queue.topic, queue.queue_id)
    return min(max(queue.min_offset if saved is None else saved, queue.min_offset), queue.max_offset)


class Recovery:
    """Fills `halves` and `ops`. `done` once every half message that was open at the start has been read."""

    def __init__(
        self, store: MessageStore, half_queue: ConsumeQueue, op_queue: ConsumeQueue, halves: HalfStates, ops: OpMessages
    ) -> None:
        self.end = half_queue.max_offset  # half messages from here on arrived after the start
        self._store = store
        self._half_queue = half_queue
        self._op_queue = op_queue
        self._halves = halves
        self._ops = ops
        self._ended: set[int] = set()  # decided origins below the first open half message
        self._copied: set[int] = set()  # identity hashes of messages with copies
        self._at = self.end  # half messages from here on were read

    @property
    def done(self) -> bool:
        return self._at <= self._halves.first_open

    def begin(self, now_ms: int) -> None:
        """Run steps 1 and 2."""
        for op_offset in range(self._ops.first_needed, self._op_queue.max_offset):
            named = self._read_op(op_offset)
            self._ops.add_stored(op_offset, max(named, default=-1))
            for offset in named:
                self._mark_ended(offset)
        start = self._search_from()
        self._ops.written_at = self._store.max_offset if start is None else start
        for prepared_offset, committed in committed_since(self._store, self._ops.written_at):
            half = half_at(self._store, prepared_offset)
            # Offset 0 is the first record of the log, or not set: retries of committed messages have 0 as well.
            if half is None or (prepared_offset == 0 and half.unique_key.encode() not in committed):
                continue
            for offset in {half.offset, half.origin}:
                if self._mark_ended(offset):
                    self._ops.add(offset, now_ms)

    def step(self, limit: int) -> None:
        """Run step 3 for at most `limit` open half messages."""
        halves = self._halves
        for _ in range(limit):
            offset = halves.last_open(self._at)
            if offset is None:
                self._at = halves.first_open
                return
            half = read_half(self._store, self._half_queue, offset)
            if half is not None:
                self._match_copies(half)
            self._at = offset

    def _match_copies(self, half: Half) -> None:
        halves, offset, origin = self._halves, half.offset, half.origin
        identity = hash((half.unique_key, half.record.born_timestamp, half.record.born_host))
        if identity in self._copied or halves.is_moved(origin):
            halves.settle(offset, MOVED)
        elif origin in self._ended or (origin != offset and halves.state(origin) == ENDED):
            halves.settle(offset, ENDED)
        elif origin != offset:
            halves.moved(origin, origin, offset)
        if half.check_times:
            self._copied.add(identity)

    def _mark_ended(self, offset: int) -> bool:
        """Mark a half message as decided. Return True if that was not known."""
        if offset >= self.end:
            return False
        if offset < self._halves.first_open:
            known = offset in self._ended
            self._ended.add(offset)
            return not known
        known = self._halves.state(offset) != OPEN
        self._halves.settle(offset, ENDED)
        return not known

    def _read_op(self, op_offset: int) -> list[int]:
        entry = self._op_queue.entry(op_offset)
        if entry is None:
            return []
        try:
            return parse_offsets(record.decode(self._store.read(entry[0], entry[1])).body)
        except ProtocolError as error:
            log.warning("transaction op message %d cannot be read: %s", op_offset, error)
            return []

    def _search_from(self) -> int | None:
        """Return the log offset from which to search for commits; None if no half message is open."""
        first = self._halves.next_open(0, self.end)
        entry = self._half_queue.entry(first) if first < self.end else None
        if entry is None:
            return None
        return max(entry[0], self._newest_ops(), self._store.min_offset)

    def _newest_ops(self) -> int:
        """Return the log offset of the first op message stored within `OVERLAP_MS` before the newest one."""
        queue = self._op_queue
        newest_ms = self._store.reader.store_time(queue, queue.max_offset - 1)
        if newest_ms is None:
            return 0
        at = queue.max_offset - 1
        while at > queue.min_offset and (self._store.reader.store_time(queue, at - 1) or 0) >= newest_ms - OVERLAP_MS:
            at -= 1
        entry = queue.entry(at)
        return 0 if entry is None else entry[0]


def committed_since(store: MessageStore, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield (PREPAREDTRANSACTIONOFFSET, record) of every committed message from `start`, a record boundary, on."""
    for data, at, size in records_since(store, start):
        if record.sys_flag_at(data, at) & record.TRANSACTION_TYPE == record.TRANSACTION_COMMIT:
            yield record.prepared_transaction_offset_at(data, at), data[at : at + size]
