"""The broker's commit log as raft sees it (raft_log.py).

Records are what they are in any store; raft's positions are their physical offsets. The blank at the end of a segment, with what
lies behind it, goes as one record. What a leader sends of its newest bytes is not looked at: this process wrote them a moment
ago. Older bytes are checked as in a recovery, since a damaged record must not travel.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from firearrow.ha.raft.interfaces import LogDamagedError
from firearrow.store.commitlog.scan import Stop, good_end
from firearrow.store.message_store import MessageStore

_I32 = Struct(">i")


class StoreLog:
    """`drop_pending` is called before the log changes under messages that are appended and not written."""

    def __init__(self, store: MessageStore, drop_pending: Callable[[], None]) -> None:
        self._store = store
        self._drop_pending = drop_pending
        self._newest = (0, b"")  # what was read last: the other followers want the same
        self._found = store.max_offset  # where the log ended when it was opened

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
        if offset < self._found or offset + limit < self._store.max_offset:
            data = self._whole_records(offset, data)
        elif not data:
            raise self._damaged(offset, "the file is gone")
        self._newest = (offset, data)
        return data

    def _whole_records(self, offset: int, data: bytes) -> bytes:
        """Whole, good records at the beginning of the data, or more data if one is longer."""
        end, stop, needed = good_end(data, offset)
        if end:
            return data[:end]
        if stop is Stop.BLANK:
            size = _I32.unpack_from(data)[0]
            blank = self._store.read_log(offset, size)
            if size > 0 and len(blank) == size:
                return blank
        elif stop is Stop.END and needed > len(data):
            data = self._store.read_log(offset, needed)
            end, stop, _ = good_end(data, offset)
            if end:
                return data[:end]
        raise self._damaged(offset, stop.value)

    def _damaged(self, offset: int, what: str) -> LogDamagedError:
        self._store.found_damaged()
        return LogDamagedError(f"no record at {offset} ({what})")

    def append(self, offset: int, data: bytes) -> None:
        self._before_change()
        self._store.write_raw(data, offset)

    def truncate(self, offset: int) -> None:
        self._before_change()
        self._store.cut(offset)

    def reset(self, offset: int) -> None:
        self._before_change()
        self._store.begin_anew(offset)

    def sync(self) -> int:
        return self._store.flush()

    def _before_change(self) -> None:
        self._newest = (0, b"")
        if self._store.appended_offset > self._store.max_offset:
            self._drop_pending()
