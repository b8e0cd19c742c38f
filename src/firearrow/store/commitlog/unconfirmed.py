"""Groups of messages that are written and not confirmed yet.

A group becomes visible when it is confirmed: durable enough on this broker, or replicated. Until then its messages are in no
queue file and not in the index, and truncation can remove it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from firearrow.store.commitlog.log import AppendGroup
from firearrow.store.commitlog.reader import StoreReader
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.store.dispatcher import Dispatcher


class UnconfirmedGroups:
    """`on_dispatch_error`: called when derived files cannot be written."""

    def __init__(self, reader: StoreReader, dispatcher: Dispatcher, on_dispatch_error: Callable[[OSError], None]) -> None:
        self.confirmed_ms = 0  # store time of the newest confirmed message
        self._reader = reader
        self._dispatcher = dispatcher
        self._on_dispatch_error = on_dispatch_error
        self._groups: deque[AppendGroup] = deque()
        self.add = self._groups.append
        self.clear = self._groups.clear

    @property
    def confirm_offset(self) -> int:
        return self._reader.confirm_offset

    @property
    def end_offset(self) -> int:
        """End of the last group, confirmed or not."""
        return self._groups[-1].end_offset if self._groups else self._reader.confirm_offset

    def begin(self, confirm_offset: int, confirmed_ms: int) -> None:
        """Start with a log that is confirmed up to `confirm_offset`."""
        self._reader.confirm_offset = confirm_offset
        self.confirmed_ms = confirmed_ms

    def confirm(self, offset: int) -> list[tuple[ConsumeQueue, int, int]]:
        """Make the groups up to `offset` visible. Return (queue, start, end) of each run of new visible messages."""
        visible: list[tuple[ConsumeQueue, int, int]] = []
        groups = self._groups
        while groups and groups[0].end_offset <= offset:
            group = groups.popleft()
            for queue, end in group.touched.items():
                start = queue.publish(end)
                if end > start:
                    visible.append((queue, start, end))
            self._reader.confirm_offset = group.end_offset
            self.confirmed_ms = group.store_ms
            try:
                self._dispatcher.confirmed(group)
            except OSError as error:
                self._on_dispatch_error(error)
        return visible

    def drop_above(self, offset: int) -> None:
        """Drop the groups that end above `offset`. Their queues continue behind the groups before."""
        dropped: set[ConsumeQueue] = set()
        while self._groups and self._groups[-1].end_offset > offset:
            dropped.update(self._groups.pop().touched)
        self.discard_entries(dropped)

    def discard_entries(self, queues: Iterable[ConsumeQueue]) -> None:
        """Remove the entries of queues that belong to no group."""
        for queue in queues:
            end = queue.max_offset
            for group in reversed(self._groups):
                if queue in group.touched:
                    end = group.touched[queue]
                    break
            queue.discard_from(end)
