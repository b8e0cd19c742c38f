"""The broker's commit log as a `RaftLog`.

Positions are physical offsets. The blank at the end of a segment, with the bytes behind it, is replicated as one record. The
newest bytes are sent unchecked, because this process has just written them. Older bytes are checked as in a recovery, so that a
damaged record is not replicated.
"""

from __future__ import annotations

from collections.abc import Callable

from firearrow.ha.raft.interfaces import LogDamagedError
from firearrow.store.commitlog.scan import Stop, valid_end
from firearrow.store.message_store import MessageStore
from firearrow.wire.record import SIZE_AND_MAGIC


class StoreLog:
    """The store as a Raft log. It calls `drop_pending` before changing the log below messages that are not written yet."""

    def __init__(self, store: MessageStore, drop_pending: Callable[[], None]) -> None:
        self._store = store
        self._drop_pending = drop_pending
        self._newest = (0, b"")  # the last bytes read, which the other followers need too
        self._opened_end = store.max_offset  # end of the log when it was opened

    @property
    def min_offset(self) -> int:
        return self._store.min_offset

    @property
    def end_offset(self) -> int:
        return self._store.max_offset

    @property
    def lost(self) -> bool:
        return self._store.lost

    def read(self, offset: int, limit: int) -> bytes:
        start, data = self._newest
        if start == offset and len(data) == limit:
            return data
        data = self._store.read_log(offset, limit)
        if offset < self._opened_end or offset + limit < self._store.max_offset:
            data = self._whole_records(offset, data)
        elif not data:
            raise self._damaged(offset, "the file is missing")
        self._newest = (offset, data)
        return data

    def _whole_records(self, offset: int, data: bytes) -> bytes:
        """Return the valid records at the start of the data; read more if the first one is longer."""
        end, stop, needed = valid_end(data, offset)
        if end:
            return data[:end]
        if stop is Stop.BLANK:
            size = SIZE_AND_MAGIC.unpack_from(data)[0]
            blank = self._store.read_log(offset, size)
            if size > 0 and len(blank) == size:
                return blank
        elif stop is Stop.END and needed > len(data):
            data = self._store.read_log(offset, needed)
            end, stop, _ = valid_end(data, offset)
            if end:
                return data[:end]
        raise self._damaged(offset, stop.value)

    def _damaged(self, offset: int, what: str) -> LogDamagedError:
        self._store.replica.mark_damaged()
        return LogDamagedError(f"no record at {offset} ({what})")

    def append(self, offset: int, data: bytes) -> None:
        self._before_change()
        self._store.replica.write_raw(data, offset)

    def truncate(self, offset: int) -> None:
        self._before_change()
        self._store.replica.truncate(offset)

    def reset(self, offset: int) -> None:
        self._before_change()
        self._store.replica.reset_to(offset)

    def sync(self) -> int:
        return self._store.flush()

    def _before_change(self) -> None:
        self._newest = (0, b"")
        if self._store.appended_offset > self._store.max_offset:
            self._drop_pending()
