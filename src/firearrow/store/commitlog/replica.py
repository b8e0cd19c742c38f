"""The log as a copy of another broker's: its bytes are taken as they are, and taken back where a group decides so.

    bytes --write_raw--> the log --look_at_raw--> whole records, that wait to be confirmed --MessageStore.confirm--> readable

Of a member of an elected group the mark says how far the log was durable and confirmed (mark.py).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from firearrow.store.commitlog.ahead import SegmentPreallocator
from firearrow.store.commitlog.append_group import AppendGroup
from firearrow.store.commitlog.follow import FollowError, ReplicaIndexer
from firearrow.store.commitlog.log import CommitLog
from firearrow.store.commitlog.logtail import cut_log
from firearrow.store.commitlog.reader import StoreReader
from firearrow.store.commitlog.truncation import forget_groups, pieces, take_back
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.store.dispatcher import Dispatcher
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk
from firearrow.store.group_mark import Mark, MarkFile
from firearrow.store.key_index.index import KeyIndex
from firearrow.store.life import CheckpointFile
from firearrow.store.queue_table import QueueTable, save_queue_table
from firearrow.store.settings import StoreSettings
from firearrow.store.threads import Flusher, Housekeeper


@dataclass(frozen=True, slots=True)
class StoreParts:
    """What a store is made of, for those who need more than one part."""

    settings: StoreSettings
    disk: Disk
    root: str
    log: CommitLog
    reader: StoreReader
    flusher: Flusher
    housekeeper: Housekeeper
    dispatcher: Dispatcher
    index: KeyIndex | None
    ahead: SegmentPreallocator
    checkpoint: CheckpointFile
    unconfirmed: deque[AppendGroup]
    problems: list[str]
    queue: Callable[[str, int], ConsumeQueue]
    drop_topic: Callable[[str], None]
    topics: Callable[[], set[str]]
    now_ms: Callable[[], int]


class ReplicaLog:
    def __init__(self, parts: StoreParts) -> None:
        self.mark_file: MarkFile | None = None  # of a member
        self.follower: ReplicaIndexer | None = None  # while it is a copy
        self._parts = parts

    # Copying

    def append_raw(self, data: bytes, offset: int) -> AppendGroup | None:
        """Takes bytes of another broker's log, which begin at `offset`, as they are; this store is its replica from then on.

        Returns the group of records that became whole; `confirm` makes it readable. An empty log begins wherever the first
        bytes do. FollowError when the bytes cannot follow what is here.
        """
        self.write_raw(data, offset)
        return self.look_at_raw()

    def write_raw(self, data: bytes, offset: int) -> int:
        """The first half of `append_raw`: nobody has looked at the records yet. Returns how many bytes nobody has looked at."""
        parts = self._parts
        log = parts.log
        if self.follower is None or log.next_offset == log.min_offset != offset:
            self._begin_following(offset)
        assert self.follower is not None
        if offset != log.next_offset:
            raise FollowError(f"bytes of log offset {offset} cannot follow a log that ends at {log.next_offset}")
        log.write_raw(data)
        if parts.settings.sync_flush:
            parts.flusher.request(log.written_offset)
        if log.written_offset >= parts.ahead.due:
            parts.ahead.look()
        self.follower.add(data)
        return self.follower.unseen_bytes

    def look_at_raw(self) -> AppendGroup | None:
        """The second half: for many pieces at once it costs much less."""
        group = self.follower.look() if self.follower is not None else None
        if group is not None:
            self._parts.unconfirmed.append(group)
        return group

    def follow_no_more(self) -> None:
        """What is appended from now on is this broker's own."""
        self.follower = None

    def follow_from(self, offset: int) -> None:
        """Records from `offset` on are in the log already: they wait to be confirmed."""
        log, follower = self._parts.log, self._new_follower(offset)
        for data in pieces(log, offset, log.written_offset):
            group = follower.take(data)
            if group is not None:
                self._parts.unconfirmed.append(group)

    def _begin_following(self, offset: int) -> None:
        parts = self._parts
        log = parts.log
        if log.next_offset == log.min_offset != offset:
            if offset % log.segment_size:
                raise FollowError(
                    f"the master's log begins at {offset}, where no segment of {log.segment_size} bytes does; set "
                    "mappedFileSizeCommitLog as there"
                )
            log.begin_anew(offset)
            parts.flusher.flushed_offset = log.durable_offset = parts.reader.confirm_offset = offset
            parts.checkpoint.now.flushed_offset = offset
            parts.dispatcher.begin(offset, 0, None, clean=True, now_ms=parts.now_ms())
        self._new_follower(log.next_offset)

    def _new_follower(self, offset: int) -> ReplicaIndexer:
        parts = self._parts
        self.follower = ReplicaIndexer(parts.settings, parts.queue, parts.drop_topic, parts.problems.append, offset)
        return self.follower

    # Of a member of an elected group

    def cut(self, offset: int) -> None:
        """Takes back everything behind `offset`, where a record ends, above what is confirmed. Durable on return.

        The bytes that were there are kept in `commitlog_cut`.
        """
        parts = self._parts
        log, confirmed = parts.log, parts.reader.confirm_offset
        if not confirmed <= offset <= log.written_offset:
            raise StoreError(
                f"the log cannot be cut at {offset}: it is confirmed up to {confirmed} and ends at {log.written_offset}"
            )
        self.take_back()
        self._rewind(offset)
        cut_log(parts.disk, log, offset, os.path.join(parts.root, "commitlog_cut"), parts.now_ms())
        log.begin(offset)
        forget_groups(parts.unconfirmed, offset)
        self.follow_from(parts.unconfirmed[-1].end_offset if parts.unconfirmed else parts.reader.confirm_offset)

    def begin_anew(self, offset: int) -> None:
        """Gives up everything that is here: the log begins at `offset`, where the others' logs begin. Durable on return."""
        parts = self._parts
        log, disk = parts.log, parts.disk
        self.take_back()
        parts.unconfirmed.clear()
        for topic in parts.topics():
            parts.drop_topic(topic)
        self._rewind(0)
        if parts.index is not None:
            parts.index.truncate_to(0)
        save_queue_table(disk, os.path.join(parts.root, "queueTable"), QueueTable())
        for number in sorted(log.segments, reverse=True):
            segment = log.segments.pop(number)
            segment.close()
            disk.unlink(segment.path)
        disk.fsync_dir(log.directory)
        log.next_offset = log.written_offset = log.min_offset
        self._begin_following(offset)
        self.set_mark()

    def take_back(self) -> None:
        """The pending group is lost: its queues continue where the last written group left them."""
        take_back(self._parts.log.forget_pending(), self._parts.unconfirmed)

    def found_damaged(self) -> None:
        """A record cannot be read: the next opening looks for the place, and ends the log there."""
        if self.mark_file is not None:
            self.mark_file.damage()

    def set_mark(self) -> None:
        """Nothing is being flushed: the mark says what is so, also when that is less than before. Durable on return."""
        if self.mark_file is not None:
            known = self.mark_file.mark
            self.mark_file.save(Mark(self._parts.flusher.flushed_offset, self._parts.reader.confirm_offset, known.damaged))

    def _rewind(self, offset: int) -> None:
        """Nothing that is written down, or is about to be, may speak of the log behind `offset` any more."""
        parts, checkpoint = self._parts, self._parts.checkpoint
        parts.housekeeper.drain()
        parts.flusher.rewind(offset)
        parts.log.durable_offset = min(parts.log.durable_offset, offset)
        self.set_mark()
        checkpoint.now.flushed_offset = min(checkpoint.now.flushed_offset, offset)
        checkpoint.save()
