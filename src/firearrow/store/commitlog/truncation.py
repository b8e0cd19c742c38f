"""Taking back what was written and never confirmed: the log of a member of an elected group is cut where its leader's differs.

Only confirmed messages are visible, in queue files or in the index, and what is confirmed is never cut off. So there is nothing
to take back but the log's own bytes and the newest entries that queues have in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from firearrow.store.commitlog.append_group import AppendGroup
from firearrow.store.commitlog.log import CommitLog
from firearrow.store.consume_queue import UNIT, ConsumeQueue

_PIECE = 4 * 1024 * 1024


def forget_groups(unconfirmed: deque[AppendGroup], offset: int) -> None:
    """Drops the groups that end above `offset`; their queues go on where the groups before left them."""
    dropped: set[ConsumeQueue] = set()
    while unconfirmed and unconfirmed[-1].end_offset > offset:
        dropped.update(unconfirmed.pop().touched)
    take_back(dropped, unconfirmed)


def take_back(queues: Iterable[ConsumeQueue], unconfirmed: deque[AppendGroup]) -> None:
    """Queues lose the entries that belong to no group."""
    for queue in queues:
        end = queue.max_offset
        for group in reversed(unconfirmed):
            if queue in group.touched:
                end = group.touched[queue]
                break
        del queue.tail[(end - queue.tail_start) * UNIT :]
        queue.next_offset = end


def pieces(log: CommitLog, start: int, end: int) -> Iterable[bytes]:
    """The log's bytes, some at a time."""
    while start < end:
        data = log.read(start, min(_PIECE, end - start))
        assert data, f"the log has no bytes at {start}"
        yield data
        start += len(data)
