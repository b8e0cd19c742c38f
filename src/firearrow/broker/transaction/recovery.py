"""After a start: what is known of transactions is made again from the two topics and the end of the log.

    1  op messages, from the first that is still needed: the halves they name are over
    2  commits that no op message names yet: their records are in the log, behind the newest op message. The half messages that
       they come from are over too, and go into the next op message. Without this step a crash between a commit and its op
       message would have the producer asked again, and the message delivered twice
    3  every half that is still open is read once, newest first, to learn which are copies of others: they may be open both, if
       the broker ended before it saved that the older one is over. This is done in portions. Apache's broker does not say in a
       copy whose it is; there, what has the same unique key and was born at the same time and place is the same message

Step 2 reads no more of the log than what was written since the newest op message (and since the first open half). Apache's
broker may write a commit and its op message in either order, a moment apart; so the search begins `_OVERLAP_MS` earlier.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from struct import Struct

from firearrow.broker.tables.consumer_offsets import OffsetTable
from firearrow.broker.transaction.half_message import SYSTEM_GROUP, Half, half_at, read_half
from firearrow.broker.transaction.op_queue import OpMessages, parse_offsets
from firearrow.broker.transaction.state import ENDED, MOVED, OPEN, HalfStates
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire import record
from firearrow.wire.errors import ProtocolError

log = logging.getLogger("firearrow.broker")

_OVERLAP_MS = 10_000
_CHUNK = 1 << 20
_SIZE_AND_MAGIC = Struct(">ii")
_I32 = Struct(">i")
_I64 = Struct(">q")


def saved_offset(offsets: OffsetTable, queue: ConsumeQueue) -> int:
    """How far a queue was worked off, within what there is of it now."""
    saved = offsets.query(SYSTEM_GROUP, queue.topic, queue.queue_id)
    return min(max(queue.min_offset if saved is None else saved, queue.min_offset), queue.max_offset)


class Recovery:
    """Fills `halves` and `ops`. `done` when every half that was open at the start has been looked at."""

    def __init__(
        self, store: MessageStore, half_queue: ConsumeQueue, op_queue: ConsumeQueue, halves: HalfStates, ops: OpMessages
    ) -> None:
        self.end = half_queue.max_offset  # halves from here on came after the start
        self._store = store
        self._half_queue = half_queue
        self._op_queue = op_queue
        self._halves = halves
        self._ops = ops
        self._ended: set[int] = set()  # origins below the first open half that are decided
        self._copied: set[int] = set()  # what tells messages apart, of those that were found copied
        self._at = self.end  # halves from here on were looked at

    @property
    def done(self) -> bool:
        return self._at <= self._halves.first_open

    def begin(self, now_ms: int) -> None:
        """Steps 1 and 2."""
        for op_offset in range(self._ops.first_needed, self._op_queue.max_offset):
            named = self._read_op(op_offset)
            self._ops.remember(op_offset, max(named, default=-1))
            for offset in named:
                self._over(offset)
        start = self._search_from()
        self._ops.written_at = self._store.max_offset if start is None else start
        for prepared_offset, committed in committed_since(self._store, self._ops.written_at):
            half = half_at(self._store, prepared_offset)
            # 0 may be the log's first record, or nothing: a retry of a committed message says 0 too.
            if half is None or (prepared_offset == 0 and half.unique_key.encode() not in committed):
                continue
            for offset in {half.offset, half.origin}:
                if self._over(offset):
                    self._ops.add(offset, now_ms)

    def step(self, limit: int) -> None:
        """Step 3, for at most so many open halves."""
        halves = self._halves
        for _ in range(limit):
            offset = halves.last_open(self._at)
            if offset is None:
                self._at = halves.first_open
                return
            half = read_half(self._store, self._half_queue, offset)
            if half is not None:
                self._look_at(half)
            self._at = offset

    def _look_at(self, half: Half) -> None:
        halves, offset, origin = self._halves, half.offset, half.origin
        same = hash((half.unique_key, half.record.born_timestamp, half.record.born_host))
        if same in self._copied or halves.is_moved(origin):
            halves.settle(offset, MOVED)
        elif origin in self._ended or (origin != offset and halves.fate(origin) == ENDED):
            halves.settle(offset, ENDED)
        elif origin != offset:
            halves.moved(origin, origin, offset)
        if half.check_times:
            self._copied.add(same)

    def _over(self, offset: int) -> bool:
        """A decided half. True if that was not known."""
        if offset >= self.end:
            return False
        if offset < self._halves.first_open:
            known = offset in self._ended
            self._ended.add(offset)
            return not known
        known = self._halves.fate(offset) != OPEN
        self._halves.settle(offset, ENDED)
        return not known

    def _read_op(self, op_offset: int) -> list[int]:
        entry = self._op_queue.entry(op_offset)
        if entry is None:
            return []
        try:
            return parse_offsets(record.decode(self._store.read(entry[0], entry[1])).body)
        except ProtocolError as error:
            log.warning("op message %d of transactions cannot be read: %s", op_offset, error)
            return []

    def _search_from(self) -> int | None:
        """Where in the log a commit may be that no op message names; None: nowhere, no half is open."""
        first = self._halves.next_open(0, self.end)
        entry = self._half_queue.entry(first) if first < self.end else None
        if entry is None:
            return None
        return max(entry[0], self._newest_ops(), self._store.min_offset)

    def _newest_ops(self) -> int:
        """Log offset of the first of the op messages that were stored within a short time before the newest one."""
        queue = self._op_queue
        newest_ms = self._store.reader.store_time(queue, queue.max_offset - 1)
        if newest_ms is None:
            return 0
        at = queue.max_offset - 1
        while at > queue.min_offset and (self._store.reader.store_time(queue, at - 1) or 0) >= newest_ms - _OVERLAP_MS:
            at -= 1
        entry = queue.entry(at)
        return 0 if entry is None else entry[0]


def committed_since(store: MessageStore, start: int) -> Iterator[tuple[int, bytes]]:
    """(PREPAREDTRANSACTIONOFFSET, record) of every committed message in the log from `start` on, where a record begins."""
    segment_size = store.settings.mapped_file_size_commit_log
    position = start
    while position < store.confirm_offset:
        segment_end = position - position % segment_size + segment_size
        data = store.read(position, min(_CHUNK, segment_end - position))
        yielded, passed = _committed_in(data)
        yield from yielded
        if passed:
            position += passed
            continue
        size, magic = _SIZE_AND_MAGIC.unpack_from(data) if len(data) >= _SIZE_AND_MAGIC.size else (0, 0)
        if magic in (record.MAGIC_V1, record.MAGIC_V2) and len(data) < size <= segment_end - position:
            yielded, passed = _committed_in(store.read(position, size))  # a record larger than what was read
            yield from yielded
        # Otherwise the rest of this segment holds nothing, or nothing that can be read.
        position = position + passed if passed else segment_end


def _committed_in(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """What was committed among the whole records at the start of some bytes of the log, and how many bytes those are."""
    found: list[tuple[int, bytes]] = []
    at, length = 0, len(data)
    while at + record.FIXED_BYTES_V1 <= length:
        size, magic = _SIZE_AND_MAGIC.unpack_from(data, at)
        if magic not in (record.MAGIC_V1, record.MAGIC_V2) or size < record.FIXED_BYTES_V1 or at + size > length:
            break
        (sys_flag,) = _I32.unpack_from(data, at + record.AT_SYS_FLAG)
        if sys_flag & record.TRANSACTION_TYPE == record.TRANSACTION_COMMIT:
            hosts = (20 if sys_flag & record.BORN_HOST_V6 else 8) + (20 if sys_flag & record.STORE_HOST_V6 else 8)
            (prepared_offset,) = _I64.unpack_from(data, at + 60 + hosts)
            found.append((prepared_offset, data[at : at + size]))
        at += size
    return found, at
